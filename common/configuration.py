"""Numbers with an interval, a source and a trust mark, as the configuration gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import CommandLineError
from common.intervals import ThreePoint

TRUST = ("datasheet", "vendor", "published", "recalled", "derived", "assumed")


@dataclass(frozen=True, slots=True)
class Figure:
    """A configured number: low ≤ likely ≤ high, with where it is from and how far to trust it."""

    low: float
    likely: float
    high: float
    source: str
    trust: str

    def as_rate(self) -> ThreePoint:
        """More is better: the pessimistic case is the low end."""
        return ThreePoint(self.low, self.likely, self.high)

    def as_cost(self) -> ThreePoint:
        """Less is better: the pessimistic case is the high end."""
        return ThreePoint(self.high, self.likely, self.low)


class Section:
    """One mapping of a YAML file, read key by key; :meth:`close` refuses what nobody read."""

    def __init__(self, path: Path, content: Any, name: str = "") -> None:
        self.path = path
        self.name = name
        if not isinstance(content, Mapping):
            raise CommandLineError(path, f"{name or 'the file'} is not a mapping")
        self.content = {str(key): value for key, value in content.items()}
        self.unread = set(self.content)

    def _take(self, key: str) -> Any:
        if key not in self.content:
            raise CommandLineError(self.path, f"{self._label(key)} is missing", "see the files of configs/")
        self.unread.discard(key)
        return self.content[key]

    def _label(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def text(self, key: str) -> str:
        """A string."""
        return str(self._take(key))

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        """One of a few words."""
        if (value := self.text(key)) not in allowed:
            raise CommandLineError(self.path, f"{self._label(key)} is {value!r}", f"it takes {' or '.join(allowed)}")
        return value

    def section(self, key: str) -> Section:
        """A mapping below this one."""
        return Section(self.path, self._take(key), self._label(key))

    def figure(self, key: str, *, positive: bool = True) -> Figure:
        """A number given as ``value`` or as ``low``, ``likely`` and ``high``, with ``source`` and ``trust``."""
        below = self.section(key)
        ends = ("value",) * 3 if "value" in below.content else ("low", "likely", "high")
        low, likely, high = (below.number(end) for end in ends)
        if low > likely or likely > high or (positive and low <= 0):
            raise CommandLineError(self.path, f"{self._label(key)} needs 0 < low <= likely <= high")
        figure = Figure(low, likely, high, below.text("source"), below.choice("trust", TRUST))
        below.close()
        if not figure.source.strip():
            raise CommandLineError(self.path, f"{self._label(key)} has an empty source", "say where the number is from")
        return figure

    def figures(self, key: str) -> dict[str, Figure]:
        """Every figure of a section, by its key."""
        below = self.section(key)
        found = {name: below.figure(name) for name in below.content}
        below.close()
        return found

    def number(self, key: str) -> float:
        """A finite number."""
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            remedy = "write large numbers as 1.0e+9" if isinstance(value, str) else ""
            raise CommandLineError(self.path, f"{self._label(key)}: {value!r} is not a finite number", remedy)
        return float(value)

    def close(self) -> None:
        """Refuse keys that nothing read.

        Raises:
            CommandLineError: naming the first one.
        """
        if self.unread:
            known = ", ".join(sorted(set(self.content) - self.unread))
            raise CommandLineError(self.path, f"unknown key {self._label(min(self.unread))!r}", f"it takes {known}")
