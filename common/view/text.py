"""Numbers and tables as text: base units get their prefixes here alone, and tables fit 80 columns."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, count

import pandas as pd

from common.messages.names import printable, shorten

WIDTH = 80
PREFIXES = (
    *((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")),
    *((1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"), (1e-15, "f"), (1e-18, "a")),
)
MISSING = "–"
ROUNDING_US, ROUNDING_UJ = 1e-6, 1e-6  # a picosecond, a picojoule: less is the rounding of a difference


def quantity(value: float | None, unit: str, digits: int = 3) -> str:
    """Write a quantity with a prefixed unit, as in ``4.10 GFLOP``; an unknown is a dash."""
    if value is None or pd.isna(value):
        return MISSING
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}".rstrip()
    rounded = abs(float(f"{value:.{digits - 1}e}"))  # 999.6 n is 1.00 µ: round first, then take the prefix
    if rounded < PREFIXES[-1][0]:
        return f"{value:.{digits - 1}e} {unit}".rstrip()
    scale, prefix = next((scale, prefix) for scale, prefix in PREFIXES if rounded >= scale)
    return f"{significant(value / scale, digits)} {prefix}{unit}".rstrip()


def significant(value: float | None, digits: int = 3) -> str:
    """Write a number with significant digits, without an exponent; whole digits are never cut. An unknown is a dash."""
    if value is None:
        return MISSING
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of the rounded number: 9.996 is 10.0
    return f"{value:.{max(0, digits - 1 - exponent)}f}"


def duration(value_us: float | None, digits: int = 3) -> str:
    """Write a time given in µs, in the unit that reads best; below a picosecond it is the rounding of a difference."""
    if value_us is None or pd.isna(value_us):
        return quantity(None, "s", digits)
    return quantity(value_us * 1e-6 if abs(value_us) >= ROUNDING_US else 0.0, "s", digits)


def joules(energy_uj: float | None) -> str:
    """Write an energy given in µJ, in the unit that reads best; below a picojoule it is a difference's rounding."""
    if energy_uj is None or pd.isna(energy_uj):
        return MISSING
    return quantity(energy_uj * 1e-6 if abs(energy_uj) >= ROUNDING_UJ else 0.0, "J")


def span(low: float | None, high: float | None, write: Callable[[float], str] = significant) -> str:
    """Write both ends of an interval; a dash where one is unknown."""
    return MISSING if low is None or high is None else f"{write(low)} to {write(high)}"


def percent(share: float | None, decimals: int = 1) -> str:
    return MISSING if share is None or pd.isna(share) else f"{100 * share:.{decimals}f} %"


def text_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[int] = (0,), width: int = WIDTH
) -> str:
    """Write a table, aligned right except the columns in ``left``; if it is too wide, the first is shortened."""
    body = [list(header), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(columns(row[index]) for row in body) for index in range(len(header))]
    room = width - sum(widths[1:]) - 2 * (len(widths) - 1)
    widths[0] = max(min(widths[0], room), min(8, widths[0]))
    firsts = distinct((row[0] for row in body), widths[0])
    lines = []
    for row in body:
        row[0] = firsts[row[0]]
        cells = [_padded(cell, size, index in left) for index, (cell, size) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def distinct(names: Iterable[str], width: int) -> dict[str, str]:
    """Return each name within a width; where two names would look alike, the later ones get a number."""
    shown: dict[str, str] = {}
    for name in dict.fromkeys(names):
        shown[name] = numbered(name, width, shown.values())
    return shown


def numbered(name: str, width: int, taken: Collection[str]) -> str:
    """Return a name within a width, with the first number that makes it distinct from those taken, if it needs one."""
    marks = chain(("",), (f" #{number}" for number in count(2)))
    return next(
        text for mark in marks if (text := shorten(name, max(width - len(mark), 1), columns) + mark) not in taken
    )


def _padded(cell: str, size: int, is_left: bool) -> str:
    room = " " * (size - columns(cell))
    return cell + room if is_left else room + cell


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: East Asian characters take two, accents none."""
    if text.isascii():
        return len(text)
    letters = [letter for letter in text if unicodedata.category(letter) not in ("Mn", "Me")]
    return sum(2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1 for letter in letters)
