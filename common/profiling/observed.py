"""The runs as an observer outside the runtime may look at them: when each was, and when the nodes of a slow one ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from common.profiling.measurement import Measurement, Series
from common.profiling.timeline import NodeSpan

SlowLimit = Callable[[Sequence[float]], float]


class ObservedRun(NamedTuple):
    """One run that counts, on the clock of ``time.perf_counter``; of a slow profiled one the nodes too."""

    is_profiled: bool
    run_index: int
    start_s: float
    latency_us: float
    node_spans: tuple[NodeSpan, ...] = ()


def observed_runs(measurement: Measurement, slow_limit_us: SlowLimit) -> list[ObservedRun]:
    """Every stored run that counts.

    Args:
        measurement: the runs.
        slow_limit_us: the latency above which a run of a series of latencies is slow.
    """
    plain = (ObservedRun(False, index, *clock) for index, clock in _counted(measurement.plain))
    counted = _counted(measurement.profiled)
    limit_us = slow_limit_us([latency_us for _, (_, latency_us) in counted])
    lines = measurement.timelines({index for index, (_, latency_us) in counted if latency_us > limit_us})
    spans = {index: line.spans for index, line in lines.items()}
    profiled = (ObservedRun(True, index, *clock, spans.get(index, ())) for index, clock in counted)
    return [*chain(plain, profiled)]


def _counted(series: Series) -> list[tuple[int, tuple[float, float]]]:
    return [*enumerate(series.clocks)][series.warmup_count :]
