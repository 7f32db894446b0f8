"""Sizes of an accelerator to try, from a text: ``buffer_kib=8,16 array=16x16,32x32`` is four designs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from math import isclose, prod

from common.design_space.accelerator.hardware import Hardware
from common.messages.errors import UnusableValueError
from common.messages.names import quoted

ARRAY, KIB_SUFFIX = "array", "_kib"
OUTERMOST = "buffer_kib"  # of the outermost memory on the chip, whatever its name is
RANGES = ("…", "...")
MOST_KIB = 2.0**30  # 1 TiB
MOST_DESIGNS = 100_000
Size = tuple[float, ...]  # rows and columns of an array, or the KiB of a memory
_SIDES = re.compile(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})")


def designs(hardware: Hardware, sweep: str) -> dict[str, Hardware]:
    """Return the accelerator in every combination of the sizes of a sweep, each by its name.

    A sweep has sizes by name, separated by blanks; without any it is the accelerator as it is. ``array`` has rows and
    columns; ``LEVEL_kib`` the KiB of all copies of a level together; ``buffer_kib`` those of the outermost level on the
    chip. ``8,16,…,128`` is a range: each size is the one before times the second over the first. UnusableValueError
    for a text that is no sweep.
    """
    sizes = _sizes(hardware, sweep)
    if (count := prod(map(len, sizes.values()))) > MOST_DESIGNS:
        raise UnusableValueError("sweep", f"it has {count} designs", f"it takes up to {MOST_DESIGNS}")
    found = dict[str, Hardware]()
    for chosen in product(*sizes.values()):
        sized = dict(zip(sizes, chosen, strict=True))
        rows, columns = map(int, sized[ARRAY]) if ARRAY in sized else (None, None)
        kib = {name.removesuffix(KIB_SUFFIX): size[0] for name, size in sized.items() if name != ARRAY}
        name = " ".join((hardware.name, *(f"{name}={_text(size)}" for name, size in sized.items())))
        found[name] = hardware.resized(rows, columns, kib, must_fit=False)
    return found


def _sizes(hardware: Hardware, sweep: str) -> dict[str, tuple[Size, ...]]:
    """Return the sizes of each name; a size that is given twice counts once."""
    memories = [f"{level.name}{KIB_SUFFIX}" for level in hardware.levels if level.capacity_kib is not None]
    known = [ARRAY, *memories]
    sizes_by_name: dict[str, tuple[Size, ...]] = {}
    for word in sweep.split():
        name, equals, values = word.partition("=")
        name = memories[0] if name == OUTERMOST and memories else name
        if not equals or name not in known or name in sizes_by_name:
            problem = f"{quoted(word)} is no size of {hardware.name}, or is there twice"
            raise UnusableValueError("sweep", problem, f"write NAME=SIZE,SIZE…, of {', '.join(known)}")
        sizes_by_name[name] = tuple(dict.fromkeys(_listed(name, values)))
    return sizes_by_name


def _listed(name: str, values: str) -> Iterator[Size]:
    """Yield the sizes of a list; an ellipsis is a range from the second size to the last."""
    words = values.split(",")
    for index, word in enumerate(words):
        if word not in RANGES:
            yield _size(name, word)
        elif 2 <= index < len(words) - 1:
            yield from _between(*(_size(name, words[place]) for place in (index - 2, index - 1, index + 1)))
        else:
            raise UnusableValueError("sweep", f"{quoted(values)} is no range", "write FIRST,SECOND,…,LAST")


def _between(first: Size, second: Size, last: Size) -> Iterator[Size]:
    """Yield the sizes of a range between its second and its last, or raise UnusableValueError if it misses the last."""
    ratio = tuple(after / before for before, after in zip(first, second, strict=True))
    size = second
    for _ in range(MOST_DESIGNS):
        size = tuple(part * factor for part, factor in zip(size, ratio, strict=True))
        if all(isclose(part, end, rel_tol=1e-9) for part, end in zip(size, last, strict=True)):
            return
        if not all((part < end) == (factor > 1) for part, end, factor in zip(size, last, ratio, strict=True)):
            break
        if len(size) > 1:  # an array has whole sides
            if not all(isclose(part, round(part), rel_tol=1e-9) for part in size):
                break
            size = tuple(float(round(part)) for part in size)
        yield size
    problem = f"the range from {_text(first)}, {_text(second)} does not meet {_text(last)}"
    raise UnusableValueError("sweep", problem, "each size is the one before times the second over the first")


def _text(size: Size) -> str:
    return "x".join(f"{part:.12g}" for part in size)


def _size(name: str, text: str) -> Size:
    if name == ARRAY:
        if (match := _SIDES.fullmatch(text)) is None:
            raise UnusableValueError("sweep", f"{quoted(text)} is no array", "write ROWSxCOLUMNS, such as 16x16")
        return float(match[1]), float(match[2])
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size <= MOST_KIB:
        problem = f"{name}: {quoted(text)} is no number of KiB"
        raise UnusableValueError("sweep", problem, f"it takes numbers above 0, up to {MOST_KIB:g}")
    return (size,)
