"""Sizes of the processor's caches, as Linux tells them: beyond them arrays stream, within them they stay."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

CPUS = Path("/sys/devices/system/cpu")
SIZES = {"K": 2**10, "M": 2**20, "G": 2**30}
PRIVATE_LEVEL = 2
LINE_BYTES = 64
STREAM_MULTIPLE = 4  # of each array over the last-level cache (STREAM's rule)
PRIVATE_PARTS = 5  # each of three arrays is a fifth of a private cache: what else a run touches stays there too
SHARED_PARTS = 12  # and a twelfth of the last level, which others use as well
FALLBACK_LAST_BYTES = 32 * 2**20
FALLBACK_PRIVATE_BYTES = 512 * 2**10  # no less is common among processors of the last ten years


class Cache(NamedTuple):
    """One cache; ``sharers`` as the system writes them, ``0-3,8``, empty where it does not say."""

    level: int
    sharers: str
    size_bytes: int


def last_level_cache_bytes(processors: Iterable[int], threads: int, root: Path = CPUS) -> int | None:
    """Size of the last-level caches that so many threads can fill; None where the system does not tell.

    Args:
        processors: those that the process may use.
        threads: no more caches than these are counted.
        root: folder of ``cpu0``, ``cpu1`` and so on.
    """
    caches: dict[str, int] = {}  # by the processors that share it: a large host has several
    for processor in processors:
        if known := list(_caches(processor, root)):
            last = max(known)
            caches[last.sharers or str(processor)] = last.size_bytes
    return sum(sorted(caches.values(), reverse=True)[:threads]) or None


def private_cache_bytes(processors: Sequence[int], root: Path = CPUS) -> int | None:
    """Least second-level cache that a processor has to itself: its size over those of ours that share it."""
    found = [
        cache.size_bytes // max(1, len(members(cache.sharers) & {*processors}))
        for processor in processors
        for cache in _caches(processor, root)
        if cache.level == PRIVATE_LEVEL
    ]
    return min(found, default=None)


def members(sharers: str) -> set[int]:
    """The processors of a list such as ``0-3,8``."""
    ends = (part.partition("-") for part in sharers.split(",") if part)
    return {number for first, _, last in ends for number in range(int(first), int(last or first) + 1)}


def _caches(processor: int, root: Path) -> Iterator[Cache]:
    """All caches of a processor that hold data and can be read."""
    for folder in (root / f"cpu{processor}" / "cache").glob("index*"):
        if (found := _cache(folder)) is not None:
            yield found


def _cache(folder: Path) -> Cache | None:
    """One cache; None for an instruction cache or what cannot be read."""
    try:
        level, kind, size = ((folder / name).read_text(encoding="ascii").strip() for name in ("level", "type", "size"))
    except OSError:
        return None
    shared = folder / "shared_cpu_list"
    sharers = shared.read_text(encoding="ascii").strip() if shared.is_file() else ""
    matched = re.fullmatch(r"(\d+)([KMG]?)", size)
    if matched is None or kind == "Instruction" or not level.isdigit():
        return None
    return Cache(int(level), sharers, int(matched[1]) * SIZES.get(matched[2], 1))


def stream_array_bytes(last_bytes: int | None) -> int:
    """Size of each array of the operator that streams: well beyond the last-level cache."""
    return STREAM_MULTIPLE * (last_bytes or FALLBACK_LAST_BYTES)


def resident_array_bytes(private_bytes: int | None, last_bytes: int | None, threads: int) -> list[int]:
    """Sizes of arrays of which three stay in caches: in each thread's own, and in the last level where it is known."""
    private = threads * ((private_bytes or FALLBACK_PRIVATE_BYTES) // PRIVATE_PARTS)
    sizes = [private, last_bytes // SHARED_PARTS] if last_bytes else [private]
    return [size // LINE_BYTES * LINE_BYTES for size in sizes]
