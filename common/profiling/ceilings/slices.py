"""Rates that the host reaches through ONNX Runtime: operators take turns in short slices, and the best slice counts.

ONNX Runtime, which is judged by the roof, also measures it, at the same thread count. So no share of the roof is lost
to the kernels of another library. Other work on the host can only slow a slice down, so the best slice counts
(McCalpin, STREAM). A new session settles the place of its memory, and the processor on which a thread of a pool wakes.
Sessions and arrays are therefore made anew several times. The two halves of the slices share neither, so they can
disagree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

SLICE_S = 0.03
EPOCHS = 4  # each starts with new sessions and arrays; two epochs make a half
WARMUP_RUNS = 3

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Subject:
    """The key of a rate: its roof, the thread count, the operator, and the size of the operator's inputs."""

    roof: str
    threads: int
    op_type: str
    label: str
    operand_bytes: int


@dataclass(frozen=True, slots=True)
class TimedOperator:
    """An operator to measure. ``amount`` is FLOPs, operations or bytes per run; one MAC is two operations."""

    subject: Subject
    amount: float
    run: Callable[[], None]
    operands: tuple[object, ...] = ()  # kept alive here: a binding does not keep the memory of its inputs alive


@dataclass(frozen=True, slots=True)
class Slices:
    """Rates of one operator, slice by slice, in amount per second, for the first and the second half in time."""

    subject: Subject
    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def best(self) -> float:
        return max(*self.first, *self.second)


def measure_slices(
    build: Callable[[], Sequence[TimedOperator]], seconds: float, clock: Clock = time.perf_counter
) -> list[Slices]:
    """Build the operators anew for each epoch and let them take turns, each at least once.

    ``build`` returns the same operators in the same order each time, with new sessions and arrays. The slices of all
    epochs together take ``seconds``; the time to build comes on top.
    """
    rates: dict[Subject, tuple[list[float], list[float]]] = {}
    for epoch in range(EPOCHS):
        # `build` is called in the argument, so that nothing here keeps an epoch's memory while the next is built.
        for subject, slice_rate in _take_turns(build(), seconds / EPOCHS, clock):
            rates.setdefault(subject, ([], []))[2 * epoch // EPOCHS].append(slice_rate)
    return [Slices(subject, tuple(first), tuple(second)) for subject, (first, second) in rates.items()]


def _take_turns(operators: Sequence[TimedOperator], seconds: float, clock: Clock) -> list[tuple[Subject, float]]:
    start = clock()
    repeats = [_repeats(operator, clock) for operator in operators]
    rates: list[tuple[Subject, float]] = []
    while clock() - start < seconds or not rates:
        for operator, count in zip(operators, repeats, strict=True):
            before = clock()
            for _ in range(count):
                operator.run()
            rates.append((operator.subject, count * operator.amount / (clock() - before)))
    return rates


def _repeats(operator: TimedOperator, clock: Clock) -> int:
    """Warm up, and return how many runs fill a slice."""
    elapsed = SLICE_S
    for _ in range(WARMUP_RUNS):
        before = clock()
        operator.run()
        elapsed = clock() - before
    return max(1, round(SLICE_S / elapsed))


def of_roof(slices: Iterable[Slices], roof: str, threads: int) -> list[Slices]:
    """Select the operators of one roof at one thread count."""
    return [rates for rates in slices if (rates.subject.roof, rates.subject.threads) == (roof, threads)]


def best(slices: Iterable[Slices]) -> Slices | None:
    """Return the operator with the fastest slice; None if there is no operator."""
    return max(slices, key=lambda rates: rates.best, default=None)


def rate(slices: Iterable[Slices], op_type: str = "") -> float | None:
    """Return the rate of the fastest slice, of one operator type if it is given; None if there is none."""
    fastest = best(rates for rates in slices if not op_type or rates.subject.op_type == op_type)
    return fastest.best if fastest else None


def halves_difference_share(slices: Sequence[Slices]) -> float | None:
    """Return the difference of the best rates of the two halves in time over the larger one; None without slices."""
    if not slices:
        return None
    first = max(rate for rates in slices for rate in rates.first)
    second = max(rate for rates in slices for rate in rates.second)
    return abs(first - second) / max(first, second)
