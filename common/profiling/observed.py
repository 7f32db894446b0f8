"""The runs of a measurement with their times; slow profiled runs also have the times of their nodes."""

from __future__ import annotations

from dataclasses import replace

from common.latency.run import Run
from common.latency.slow_runs import slow_limit_us
from common.profiling.measurement import Measurement, Series


def observed_runs(measurement: Measurement) -> list[Run]:
    """Return every stored run after the warm-up; only slow profiled runs have node spans.

    Node spans are left out of the other runs because reading them parses all events of the run.
    """
    plain = _counted(measurement.plain, is_profiled=False)
    profiled = _counted(measurement.profiled, is_profiled=True)
    limit_us = slow_limit_us([run.latency_us for run in profiled])
    timelines = measurement.timelines({run.run_index for run in profiled if run.latency_us > limit_us})
    spans = {index: timeline.spans for index, timeline in timelines.items()}
    return [*plain, *(replace(run, node_spans=spans.get(run.run_index, ())) for run in profiled)]


def _counted(series: Series, *, is_profiled: bool) -> list[Run]:
    runs = [Run(is_profiled, index, *clock) for index, clock in enumerate(series.clocks)]
    return runs[series.warmup_count :]
