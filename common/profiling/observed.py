"""The runs of a measurement with their times; slow profiled runs also have the times of their nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from common.latency.run import RunSeries
from common.latency.slow_runs import slow_limit_us
from common.profiling.runs.measurement import Measurement, Series


def observed_runs(measurement: Measurement) -> tuple[RunSeries, RunSeries]:
    """Return every stored run after the warm-up, unprofiled and profiled; only slow profiled runs have node spans.

    Node spans are left out of the other runs because reading them parses all events of the run.
    """
    profiled = _counted(measurement.profiled, is_profiled=True)
    slow = profiled.where(profiled.latencies_us > slow_limit_us(profiled.latencies_us))
    timelines = measurement.timelines({*slow.run_indices.tolist()})
    spans = {index: timeline.spans for index, timeline in timelines.items()}
    return _counted(measurement.plain, is_profiled=False), replace(profiled, node_spans=spans)


def _counted(series: Series, *, is_profiled: bool) -> RunSeries:
    first, runs = series.warmup_count, series.runs
    return RunSeries(is_profiled, np.arange(first, runs.stored_count), runs.starts_s[first:], runs.latencies_us[first:])
