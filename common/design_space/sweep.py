"""Sizes of an accelerator to try, from a text: ``buffer_kib=8,16 array=16x16,32x32`` is four designs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from math import isfinite

from common.design_space.hardware import Hardware
from common.errors import UnusableValueError
from common.names import quoted

ARRAY, KIB_SUFFIX = "array", "_kib"
MOST_KIB = 2.0**30  # 1 TiB
_SIDES = re.compile(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})")


def designs(hardware: Hardware, sweep: str) -> dict[str, Hardware]:
    """Return the accelerator in every combination of the sizes of a sweep, each by its name.

    Args:
        hardware: the accelerator.
        sweep: sizes by name, the names separated by blanks; without any it is the accelerator as it is. ``array`` has
            rows and columns; ``LEVEL_kib`` the KiB of all copies of a level together.

    Raises:
        UnusableValueError: the text is no sweep, or a memory cannot hold one word of each of its operands.
    """
    sizes = _sizes(hardware, sweep)
    combinations = [dict(zip(sizes, chosen, strict=True)) for chosen in product(*sizes.values())]
    return {
        " ".join((hardware.name, *map("=".join, sized.items()))): _resized(hardware, sized) for sized in combinations
    }


def _sizes(hardware: Hardware, sweep: str) -> dict[str, tuple[str, ...]]:
    """Return the sizes of each name, as they are written; a size that is given twice counts once."""
    known = [ARRAY, *(f"{level.name}{KIB_SUFFIX}" for level in hardware.levels if level.capacity_kib is not None)]
    found: dict[str, tuple[str, ...]] = {}
    for word in sweep.split():
        name, equals, values = word.partition("=")
        if not equals or name not in known or name in found:
            problem = f"{quoted(word)} is no size of {hardware.name}, or is there twice"
            raise UnusableValueError("sweep", problem, f"write NAME=SIZE,SIZE…, of {', '.join(known)}")
        found[name] = tuple(dict.fromkeys(values.split(",")))
    return found


def _resized(hardware: Hardware, sized: Mapping[str, str]) -> Hardware:
    """Return the accelerator with the sizes of one combination."""
    rows, columns = _sides(sized[ARRAY]) if ARRAY in sized else (None, None)
    kib = {name.removesuffix(KIB_SUFFIX): _kib(name, size) for name, size in sized.items() if name != ARRAY}
    return hardware.resized(rows, columns, kib)


def _sides(text: str) -> tuple[int, int]:
    if (match := _SIDES.fullmatch(text)) is None:
        raise UnusableValueError("sweep", f"{quoted(text)} is no array", "write ROWSxCOLUMNS, such as 16x16")
    return int(match[1]), int(match[2])


def _kib(name: str, text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not (isfinite(size) and 0 < size <= MOST_KIB):
        problem = f"{name}: {quoted(text)} is no number of KiB"
        raise UnusableValueError("sweep", problem, f"it takes numbers above 0, up to {MOST_KIB:g}")
    return size
