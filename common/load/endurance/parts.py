"""A load of an hour or more, part by part: what each minute delivered, whether memory grows, and whether it slows down.

Each part is a load of its own, whose record is dropped once its figures are taken. So an hour needs no more memory than
a minute, and its log is in a file: neither can look like a leak. At the end of each part the queue runs
empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from common.latency.dependence import Samples
from common.latency.statistics import percentiles
from common.latency.steady_state import TOLERANCE, SteadyState, steady_state
from common.load.endurance.leak import Slope, memory_slope
from common.load.endurance.whole_load import Spool, WholeLoad
from common.load.generator.harness import Harness
from common.load.results.load_figures import LoadTest
from common.load.results.validity import LoadValidity, undelayed_us, widened_columns
from common.table_rows import EnduranceRow, EnduranceSummaryDocument

PART_S = 60.0
MEMORY, HANDLES, THREADS, CLOCK = "memory_resident_bytes", "handle_count", "thread_count", "cpu_frequency_mhz"
HELD = {MEMORY: "resident_bytes", HANDLES: "handle_count", THREADS: "process_thread_count", CLOCK: "cpu_frequency_mhz"}
THROTTLED = 0.97  # of the clock before: what falls below this is a lower clock


class Sampled(Protocol):
    """A sample of a quantity, on the clock of ``time.perf_counter``."""

    @property
    def time_s(self) -> float: ...
    @property
    def quantity(self) -> str: ...
    @property
    def value(self) -> float: ...


class ProcessWatch(Protocol):
    """The sampler of this process: a context that yields its own notes."""

    @property
    def notes(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class LoadPart:
    start_s: float  # its begin on the clock of ``time.perf_counter``
    duration_s: float
    sent_count: int
    counts: Mapping[str, int]
    validity: LoadValidity
    figures: Mapping[str, float | None]  # percentiles in µs, none where they do not count
    call_ends_s: Samples  # when each second with calls ended, from the begin
    call_us: Samples  # median time of a call in that second
    answered: Samples  # requests that were answered in it
    is_interrupted: bool = False
    error_count: int = 0  # requests without an answer, of the ``known_count`` that no signal cut
    known_count: int = 0


def part_of(test: LoadTest) -> LoadPart:
    record, validity, batches = test.record, test.validity, test.record.batches
    seconds, own_us = batches.ended_ns // 10**9, (batches.ended_ns - batches.started_ns) / 1e3
    served = np.unique(seconds)
    answered = np.bincount(record.batch_indices[record.is_completed], minlength=len(seconds))
    return LoadPart(
        record.start_s,
        record.ended_ns / 1e9,
        len(record),
        {str(name): count for name, count in record.counts.items()},
        validity,
        _percentiles(test) if validity.status == "valid" else {},
        (served + 1).astype(float),
        np.array([np.median(own_us[seconds == second]) for second in served]),
        np.array([answered[seconds == second].sum() for second in served], dtype=float),
        record.is_interrupted,
        int(record.is_error.sum()),
        len(record) - int(record.is_cut.sum()),
    )


def _percentiles(test: LoadTest) -> dict[str, float | None]:
    waited_us, undelayed, factor = test.record.waited_us, undelayed_us(test.record), test.latency_factor
    return widened_columns(percentiles(waited_us, factor), percentiles(undelayed, factor))


def part_count(duration_s: float, part_s: float) -> int:
    return max(1, round(duration_s / part_s))


def endure(run_part: Callable[[int, float], LoadPart], duration_s: float, part_s: float = PART_S) -> list[LoadPart]:
    """Run part after part, by its number and for its time, until a signal comes; return them all with the last one."""
    parts, count = Spool[LoadPart](), part_count(duration_s, part_s)
    for index in range(count):
        try:
            part = run_part(index, duration_s / count)
        except KeyboardInterrupt:  # between two parts
            if not index:
                raise
            break
        parts.append(part)
        if part.is_interrupted:
            break
    return parts.items()


@dataclass(frozen=True, slots=True)
class Endurance:
    last: LoadTest
    rows: list[EnduranceRow]
    summary: EnduranceSummaryDocument
    lacks: list[str]  # why these are incomplete; empty where they are not
    notes: list[str]  # what the samples of the process lack
    error_share: float  # of the requests of all parts


def load_by_parts(
    harness: Harness, part_s: float, watched: Callable[[Spool[Sampled]], AbstractContextManager[ProcessWatch]]
) -> Endurance:
    """Load a service part by part for the time of its demand; ``watched`` samples this process meanwhile."""
    spool, last, whole = Spool[Sampled](), list[LoadTest](), WholeLoad()

    def run_part(index: int, duration_s: float) -> LoadPart:
        last[:] = [harness.part(index, duration_s).load()]
        whole.add(last[0])
        return part_of(last[0])

    duration_s = harness.demand.duration_s
    with watched(spool) as watch:
        parts = endure(run_part, duration_s, part_s)
    samples, count = spool.items(), part_count(duration_s, part_s)
    is_cut = count > len(parts) or parts[-1].is_interrupted
    lacks = [f"a signal ended the load in part {len(parts)} of {count}"] if is_cut else []
    figures = {**summary(course(parts, samples), parts), **whole.figures()}
    rows = minute_rows(parts, samples)
    errors = sum(part.error_count for part in parts) / max(1, sum(part.known_count for part in parts))
    return Endurance(last[0], rows, cast("EnduranceSummaryDocument", figures), lacks, watch.notes, errors)


@dataclass(frozen=True, slots=True)
class Course:
    """How a long load went."""

    leak: Slope | None = None  # growth of memory per inference; None for too few samples
    steadiness: SteadyState | None = None  # levels of the time of a call, second by second; None without an answer
    drift: float | None = None  # the last level over the first one, less 1; None without a level
    # ``throttling`` where the processor's clock fell with the speed, ``drift`` where it did not or where no clock is
    # known, empty where the level held.
    cause: str = ""


def course(parts: Sequence[LoadPart], samples: Iterable[Sampled]) -> Course:
    if not parts:
        return Course()
    series, calls_us = by_quantity(samples), np.concatenate([part.call_us for part in parts])
    leak = _leak(parts, *series[MEMORY]) if MEMORY in series else None
    if not len(calls_us):
        return Course(leak)
    steadiness = steady_state(calls_us)
    drift = steadiness.segments[-1].level_us / steadiness.segments[0].level_us - 1
    has_moved = steadiness.kind not in ("flat", "warm-up") and abs(drift) > TOLERANCE
    return Course(leak, steadiness, drift, _cause(parts, steadiness, series.get(CLOCK)) if has_moved else "")


def _cause(parts: Sequence[LoadPart], steadiness: SteadyState, clock: tuple[Samples, Samples] | None) -> str:
    """Return whether the clock was lower during the slowest level than during the fastest one."""
    if clock is None:
        return "drift"
    ends_s = np.concatenate([part.start_s + part.call_ends_s for part in parts])
    levels = sorted(steadiness.segments, key=lambda segment: segment.level_us)
    times_s, values = clock
    means = []
    for segment in (levels[0], levels[-1]):
        within = (times_s >= ends_s[segment.start] - 1) & (times_s <= ends_s[segment.end - 1])
        means.append(float(values[within].mean()) if within.any() else 0.0)
    return "throttling" if means[1] and means[1] < THROTTLED * means[0] else "drift"


def by_quantity(samples: Iterable[Sampled]) -> dict[str, tuple[Samples, Samples]]:
    """Return times and values of each quantity, in their order."""
    pairs_of: dict[str, list[tuple[float, float]]] = {}
    for sample in samples:
        pairs_of.setdefault(sample.quantity, []).append((sample.time_s, sample.value))
    return {name: (np.array(pairs)[:, 0], np.array(pairs)[:, 1]) for name, pairs in pairs_of.items()}


def _leak(parts: Sequence[LoadPart], times_s: Samples, resident_bytes: Samples) -> Slope | None:
    """Return the growth of memory over the inferences that had ended at each sample."""
    ends_s = np.concatenate([[parts[0].start_s], *(part.start_s + part.call_ends_s for part in parts)])
    done = np.concatenate([[0.0], *(part.answered for part in parts)]).cumsum()
    is_under_load = (times_s >= ends_s[0]) & (times_s <= ends_s[-1])
    inferences = np.interp(times_s[is_under_load], ends_s, done)
    return memory_slope(inferences.astype(np.int64), resident_bytes[is_under_load].astype(np.int64))


def minute_rows(parts: Sequence[LoadPart], samples: Iterable[Sampled]) -> list[EnduranceRow]:
    """Return a row per part: requests, percentiles, and what the process held at its end."""
    series, begin_s = by_quantity(samples), parts[0].start_s if parts else 0.0
    rows = [
        {
            "part_index": index,
            "part_start_us": 1e6 * (part.start_s - begin_s),
            "part_duration_us": 1e6 * part.duration_s,
            "sent_count": part.sent_count,
            **{f"{name}_count": part.counts[name] for name in ("completed", "rejected", "failed", "cancelled")},
            "answered_requests_per_s": part.counts["completed"] / part.duration_s,
            "validity": part.validity.status,
            **{
                f"request_{name}{limit}_us": part.figures.get(f"{name}{limit}_us")
                for name in ("p50", "p99")
                for limit in ("", "_low", "_high")
            },
            "call_us": float(np.median(part.call_us)) if len(part.call_us) else None,
            **{column: _last(series.get(name), part) for name, column in HELD.items()},
        }
        for index, part in enumerate(parts)
    ]
    return cast("list[EnduranceRow]", rows)


def _last(series: tuple[Samples, Samples] | None, part: LoadPart) -> float | None:
    if series is None:
        return None
    times_s, values = series
    within = (times_s >= part.start_s) & (times_s <= part.start_s + part.duration_s)
    return float(values[within][-1]) if within.any() else None


def summary(course: Course, parts: Sequence[LoadPart]) -> dict[str, object]:
    leak, steadiness = course.leak, course.steadiness
    return {
        "leak_bytes_per_inference": leak.value if leak else None,
        "leak_low_bytes_per_inference": leak.low if leak else None,
        "leak_high_bytes_per_inference": leak.high if leak else None,
        "is_leak": bool(leak and leak.is_leak),
        "call_steady_state": steadiness.kind if steadiness else None,
        "call_drift_share": course.drift,
        "slowdown_cause": course.cause or None,
        "call_levels": _levels(steadiness, parts) if steadiness else {},
    }


def _levels(steadiness: SteadyState, parts: Sequence[LoadPart]) -> dict[str, float]:
    """Return each level by the time in s at which it begins."""
    begins_s = np.concatenate([part.start_s + part.call_ends_s - 1 for part in parts]) - parts[0].start_s
    return {f"{max(0.0, begins_s[segment.start]):.0f}": segment.level_us for segment in steadiness.segments}
