"""Configuration files: YAML mappings that are read key by key, with a source and a trust mark for every constant."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from common.files.yaml_file import load_yaml
from common.intervals import ThreePoint
from common.messages.errors import ConfigurationError, UnusableValueError
from common.messages.names import did_you_mean, quoted

IntervalPoint = Literal["low", "likely", "high"]
TRUST = ("datasheet", "vendor", "published", "recalled", "derived", "assumed")
INTERVAL_POINTS: tuple[IntervalPoint, ...] = ("low", "likely", "high")
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Constant:
    """A configured number with its interval, low ≤ likely ≤ high, its source and how far that source is trusted."""

    low: float
    likely: float
    high: float
    source: str
    trust: str

    def at(self, point: IntervalPoint) -> float:
        """Return the likely value or one end of the interval."""
        return float(getattr(self, point))

    def as_rate(self) -> ThreePoint:
        """Return the estimate of a quantity of which more is better: the pessimistic case is the low end."""
        return ThreePoint(self.low, self.likely, self.high)

    def as_cost(self) -> ThreePoint:
        """Return the estimate of a quantity of which less is better: the pessimistic case is the high end."""
        return ThreePoint(self.high, self.likely, self.low)


class Section:
    """One mapping of a YAML file, read key by key; ConfigurationError if it is none.

    :meth:`close` refuses every key that nobody read, in this section and in the sections below it. The name is the path
    of the mapping in the file, such as ``memory`` or ``boards.u280``; empty for the whole file.
    """

    def __init__(self, path: Path, content: Any, name: str = "") -> None:
        self.path = path
        self.name = name
        if not isinstance(content, Mapping):
            raise self.error("", "is not a mapping")
        self._content = {str(key): value for key, value in content.items()}
        self._unread = set(self._content)
        self._below: dict[str, Section] = {}

    @classmethod
    def of_file(cls, path: Path) -> Section:
        """Load a YAML file. Errors are those of :func:`load_yaml`."""
        return cls(path, load_yaml(path))

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def __iter__(self) -> Iterator[str]:
        """Yield the keys in the order of the file."""
        return iter(self._content)

    def error(self, key: str, problem: str, remedy: str = "") -> ConfigurationError:
        """Return the error that names the file, the key (or this section, if the key is empty) and the problem."""
        return ConfigurationError(self.path, f"{self._label(key) or 'the file'} {problem}", remedy)

    def _label(self, key: str) -> str:
        return ".".join(filter(None, (self.name, key)))

    def value(self, key: str) -> Any:
        if key not in self._content:
            raise self.error(key, "is missing", "see the files of configs/")
        self._unread.discard(key)
        return self._content[key]

    def text(self, key: str) -> str:
        """Return a text without the spaces around it; an empty text is refused."""
        text = self.value(key)
        if not isinstance(text, str) or not text.strip():
            raise self.error(key, "is not a text, or is empty")
        return text.strip()

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        if (word := self.value(key)) not in allowed:
            raise self.error(key, f"is {quoted(word)}", f"it takes {' or '.join(allowed)}")
        return str(word)

    def switch(self, key: str, default: bool) -> bool:
        """Return true or false; ``default`` where the file does not say."""
        if key not in self:
            return default
        if not isinstance(value := self.value(key), bool):
            raise self.error(key, f"is {quoted(value)}", "it takes true or false")
        return value

    def entries(self, key: str) -> list[Any]:
        entries = self.value(key)
        if not isinstance(entries, list) or not entries:
            raise self.error(key, "is not a list of at least one entry")
        return entries

    def number(self, key: str) -> float:
        """Return a finite number without a source of its own."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            remedy = "write large numbers as 1.0e+9" if isinstance(value, str) else ""
            raise self.error(key, f"is {quoted(value)}, which is not a finite number", remedy)
        return float(value)

    def section(self, key: str) -> Section:
        """Return the mapping at a key; every call returns the same object."""
        return self._open(self.value(key), key)

    def sections(self, key: str) -> list[Section]:
        """Return the mappings that a list holds, named ``key[0]``, ``key[1]`` and so on."""
        return [self._open(entry, f"{key}[{index}]") for index, entry in enumerate(self.entries(key))]

    def _open(self, content: Any, key: str) -> Section:
        return self._below.setdefault(key, Section(self.path, content, self._label(key)))

    def origin(self) -> tuple[str, str]:
        """Return the source and the trust mark that this section gives."""
        return self.text("source"), self.choice("trust", TRUST)

    def constant(self, key: str, *, positive: bool = True) -> Constant:
        """Return a number that is given as ``value``, or as ``low``, ``likely`` and ``high``, with its origin."""
        below = self.section(key)
        if "value" in below and any(point in below for point in INTERVAL_POINTS):
            raise self.error(key, "has a value beside an interval", "give low, likely and high, or value alone")
        low, likely, high = (below.number("value" if "value" in below else point) for point in INTERVAL_POINTS)
        if low > likely or likely > high or (positive and low <= 0):
            raise self.error(key, f"needs {'0 < ' if positive else ''}low <= likely <= high")
        return Constant(low, likely, high, *below.origin())

    def constants(self, key: str) -> dict[str, Constant]:
        below = self.section(key)
        return {name: below.constant(name) for name in below}

    def count(self, key: str, *, positive: bool = True) -> int:
        """Return a constant that is a whole number."""
        value = self.constant(key, positive=positive).likely
        if not value.is_integer():
            raise self.error(key, f"is {value:g}", "it takes a whole number")
        return int(value)

    def close(self) -> None:
        """Raise ConfigurationError for the first key that nobody read."""
        if self._unread:
            unknown = self._label(min(self._unread))
            known = ", ".join(sorted(set(self._content) - self._unread))
            raise ConfigurationError(self.path, f"unknown key {quoted(unknown)}", f"known keys: {known}")
        for below in self._below.values():
            below.close()


def find_file(quantity: str, name: str, folder: Path) -> Path:
    """Return the YAML file called ``name`` in ``folder``, or ``name`` itself where it is a path.

    The file describes a quantity, such as the ``board`` ``u280``. UnusableValueError lists the names in the folder.
    """
    path = Path(name) if name.endswith(SUFFIXES) else folder / f"{name}.yaml"
    if not os.path.isfile(path):  # noqa: PTH113 - False also for a name that no file can have
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        problem = f"{quoted(name)} is neither a known {quantity} nor a YAML file"
        raise UnusableValueError(quantity, problem, f"{did_you_mean(name, known)}known: {', '.join(known)}")
    return path
