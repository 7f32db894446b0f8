"""Numbers and tables as text: base units get their prefixes here alone, and tables fit 80 columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd

WIDTH = 80
PREFIXES = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
    (1e-12, "p"),
)
MISSING = "–"


def quantity(value: float | None, unit: str, digits: int = 3) -> str:
    """Write a quantity with a prefixed unit, as in ``4.10 GFLOP``; an unknown is a dash."""
    if value is None or pd.isna(value):
        return MISSING
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}".rstrip()
    rounded = abs(float(f"{value:.{digits - 1}e}"))  # 999.6 n is 1.00 µ: round first, then take the prefix
    scale, prefix = next(((scale, prefix) for scale, prefix in PREFIXES if rounded >= scale), PREFIXES[-1])
    return f"{significant(value / scale, digits)} {prefix}{unit}".rstrip()


def significant(value: float, digits: int = 3) -> str:
    """Write a number with significant digits, without an exponent; whole digits are never cut."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of the rounded number: 9.996 is 10.0
    return f"{value:.{max(0, digits - 1 - exponent)}f}"


def duration(value_us: float | None, digits: int = 3) -> str:
    """Write a time given in µs, in the unit that reads best."""
    return quantity(None if value_us is None or pd.isna(value_us) else value_us * 1e-6, "s", digits)


def joules(energy_uj: float | None) -> str:
    """Write an energy given in µJ, in the unit that reads best."""
    return quantity(None if energy_uj is None or pd.isna(energy_uj) else energy_uj * 1e-6, "J")


def percent(share: float | None, decimals: int = 1) -> str:
    """Write a share as a percentage."""
    return MISSING if share is None or pd.isna(share) else f"{100 * share:.{decimals}f} %"


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[int] = (0,), width: int = WIDTH
) -> str:
    """Write a table, aligned right except the columns in ``left``; if it is too wide, the first is shortened."""
    body = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in body) for index in range(len(header))]
    room = width - sum(widths[1:]) - 2 * (len(widths) - 1)
    widths[0] = max(min(widths[0], room), min(8, widths[0]))
    lines = []
    for row in body:
        row[0] = shorten(row[0], widths[0])
        cells = [
            cell.ljust(size) if index in left else cell.rjust(size)
            for index, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def shorten(text: str, width: int) -> str:
    """Shorten a name by cutting its middle, because the ends tell nodes apart."""
    if len(text) <= width:
        return text
    tail = (width - 1) * 2 // 3
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
