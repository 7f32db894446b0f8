"""A list in a temporary file: what is kept of a long measurement takes no memory while it runs."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Spool(Generic[Item]):
    """Items in a file without a name, in the order in which one thread appends them.

    A load test judges whether the memory of its own process grows. A list of what it measured would grow, too, and at
    few requests per second by more bytes for each than a leak that is worth finding.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the spool

    def append(self, item: Item) -> None:
        pickle.dump(item, self._file, pickle.HIGHEST_PROTOCOL)

    def extend(self, items: Iterable[Item], /) -> None:
        for item in items:
            self.append(item)

    def items(self) -> list[Item]:
        """Return all items, once nothing more is added."""
        end = self._file.seek(0, 2)
        self._file.seek(0)
        items = list[Item]()
        while self._file.tell() < end:
            items.append(pickle.load(self._file))
        return items
