"""What the host reaches through ONNX Runtime: operators take turns in short slices, and the best slice counts.

The runtime that is judged also measures the roof, at the same threads, so that no share of it is lost to another
library's kernels. Other work on the host can only slow a slice down, so the best of all counts (McCalpin, STREAM).
Where memory lies and which processor a pool's threads wake on is drawn once per session and then stays; therefore
sessions and arrays are made anew several times, and the two halves, which share neither, can disagree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

SLICE_S = 0.03
EPOCHS = 4  # sessions and arrays are made anew at the start of each; two make a half
WARMUP_RUNS = 3

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a rate is of: the roof that it bears on, at so many threads, by which operator with inputs of which size."""

    roof: str
    threads: int
    op_type: str
    label: str
    operand_bytes: int


@dataclass(frozen=True, slots=True)
class Workload:
    """An operator that is measured. ``amount`` is FLOPs, operations or bytes per run; one MAC is two operations."""

    subject: Subject
    amount: float
    run: Callable[[], None]
    operands: tuple[object, ...] = ()  # held here: a binding does not keep the memory of its inputs alive


@dataclass(frozen=True, slots=True)
class Slices:
    """The rates of one workload slice by slice, in amount per second, of the first and the second half in time."""

    subject: Subject
    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def best(self) -> float:
        """The fastest slice."""
        return max(*self.first, *self.second)


def measure_slices(
    build: Callable[[], Sequence[Workload]], seconds: float, clock: Clock = time.perf_counter
) -> list[Slices]:
    """Build the workloads anew for each epoch and let them take turns, each at least once.

    Args:
        build: gives the same workloads in the same order each time, with sessions and arrays of their own.
        seconds: for the slices of all epochs together; what building takes comes on top.
        clock: seconds.
    """
    rates: dict[Subject, tuple[list[float], list[float]]] = {}
    for epoch in range(EPOCHS):
        # Built in the call, so that nothing here keeps their memory when the next are built.
        for subject, found in _take_turns(build(), seconds / EPOCHS, clock):
            rates.setdefault(subject, ([], []))[2 * epoch // EPOCHS].append(found)
    return [Slices(subject, tuple(first), tuple(second)) for subject, (first, second) in rates.items()]


def _take_turns(workloads: Sequence[Workload], seconds: float, clock: Clock) -> list[tuple[Subject, float]]:
    start = clock()
    repeats = [_repeats(workload, clock) for workload in workloads]
    found: list[tuple[Subject, float]] = []
    while clock() - start < seconds or not found:
        for workload, count in zip(workloads, repeats, strict=True):
            before = clock()
            for _ in range(count):
                workload.run()
            found.append((workload.subject, count * workload.amount / (clock() - before)))
    return found


def _repeats(workload: Workload, clock: Clock) -> int:
    """Runs that fill a slice, after a warm-up."""
    elapsed = SLICE_S
    for _ in range(WARMUP_RUNS):
        before = clock()
        workload.run()
        elapsed = clock() - before
    return max(1, round(SLICE_S / elapsed))


def of_roof(slices: Iterable[Slices], roof: str, threads: int) -> list[Slices]:
    """Those that bear on a roof at a thread count."""
    return [found for found in slices if (found.subject.roof, found.subject.threads) == (roof, threads)]


def best(slices: Iterable[Slices]) -> Slices | None:
    """The one with the fastest slice; None of none."""
    return max(slices, key=lambda found: found.best, default=None)


def rate(slices: Iterable[Slices], op_type: str = "") -> float | None:
    """The fastest slice, where named of one operator; None of none."""
    found = best(one for one in slices if not op_type or one.subject.op_type == op_type)
    return found.best if found else None


def halves_difference_share(slices: Sequence[Slices]) -> float | None:
    """Difference of the best rates of the first and the second half in time, over the larger; None of none."""
    if not slices:
        return None
    first = max(rate for found in slices for rate in found.first)
    second = max(rate for found in slices for rate in found.second)
    return abs(first - second) / max(first, second)
