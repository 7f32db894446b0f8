"""Runs of two models that took turns, pair by pair: those that count in both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.latency.statistics import Samples
from common.profiling.measurement import Measurement
from common.profiling.trace import keep_runs, read_trace


def paired_runs(first: Measurement, second: Measurement) -> tuple[Samples, Samples]:
    """Return the unprofiled runs of two models that took turns: those that count in both, pair by pair."""
    sides = first.plain, second.plain
    begin, end = max(side.warmup_count for side in sides), min(side.runs.stored_count for side in sides)
    one, other = (side.runs.latencies_us[begin:end] for side in sides)
    return one, other


def paired_node_runs(first: Measurement, second: Measurement) -> tuple[dict[str, Samples], dict[str, Samples]]:
    """Return the times in µs of the nodes of two models that took turns, in the profiled runs that count in both.

    They include what profiling adds, to both alike.

    Raises:
        PipelineError: a trace cannot be read.
    """
    begin = max(first.profiled.warmup_count, second.profiled.warmup_count)
    kept = [
        run >= begin and one and other for run, (one, other) in enumerate(zip(first.kept, second.kept, strict=False))
    ]
    one, other = (_times(measurement, kept) for measurement in (first, second))
    return one, other


def _times(measurement: Measurement, kept: Sequence[bool]) -> dict[str, Samples]:
    trace = read_trace(measurement.trace_file, measurement.bodies, partial=True)
    missing = [False] * (trace.run_count - len(kept))
    return {name: np.array(node.run_us) for name, node in keep_runs(trace, [*kept, *missing]).nodes.items()}
