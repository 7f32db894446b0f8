"""Sizes of the processor's caches as Linux reports them, and array sizes that stream past them or stay in them."""

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
PRIVATE_PARTS = 5  # each of three arrays takes a fifth of a private cache, so that other data fit in too
SHARED_PARTS = 12  # of the last level: other processes use it as well
FALLBACK_LAST_BYTES = 32 * 2**20
FALLBACK_PRIVATE_BYTES = 512 * 2**10  # processors of the last ten years rarely have less


class Cache(NamedTuple):
    """One cache; ``sharers`` are its processors as the system writes them (``0-3,8``), empty if unknown."""

    level: int
    sharers: str
    size_bytes: int


def last_level_cache_bytes(processors: Iterable[int], threads: int, root: Path = CPUS) -> int | None:
    """Return the size of the last-level caches that so many threads on these processors can fill; None if unknown."""
    caches: dict[str, int] = {}  # by the processors that share a cache; a large host has several caches
    for processor in processors:
        if known := list(_caches(processor, root)):
            last = max(known)
            caches[last.sharers or str(processor)] = last.size_bytes
    return sum(sorted(caches.values(), reverse=True)[:threads]) or None


def private_cache_bytes(processors: Sequence[int], root: Path = CPUS) -> int | None:
    """Return the smallest share of a second-level cache: its size over the processors of ours that share it."""
    sizes = [
        cache.size_bytes // max(1, len(members(cache.sharers) & {*processors}))
        for processor in processors
        for cache in _caches(processor, root)
        if cache.level == PRIVATE_LEVEL
    ]
    return min(sizes, default=None)


def members(sharers: str) -> set[int]:
    """Return the processors of a list such as ``0-3,8``."""
    ends = (part.partition("-") for part in sharers.split(",") if part)
    return {number for first, _, last in ends for number in range(int(first), int(last or first) + 1)}


def _caches(processor: int, root: Path) -> Iterator[Cache]:
    """Yield the data caches of a processor that can be read."""
    for folder in (root / f"cpu{processor}" / "cache").glob("index*"):
        if (cache := _cache(folder)) is not None:
            yield cache


def _cache(folder: Path) -> Cache | None:
    """Read one cache; None for an instruction cache, or if it cannot be read."""
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
    """Return the size of each array of the streaming operator, well beyond the last-level cache."""
    return STREAM_MULTIPLE * (last_bytes or FALLBACK_LAST_BYTES)


def resident_array_bytes(private_bytes: int | None, last_bytes: int | None, threads: int) -> list[int]:
    """Return array sizes such that three arrays stay in each thread's own cache, or in a known last-level cache."""
    private = threads * ((private_bytes or FALLBACK_PRIVATE_BYTES) // PRIVATE_PARTS)
    sizes = [private, last_bytes // SHARED_PARTS] if last_bytes else [private]
    return [size // LINE_BYTES * LINE_BYTES for size in sizes]
