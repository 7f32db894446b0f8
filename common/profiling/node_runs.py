"""How long each executed node took in each profiled run that counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.latency.statistics import Samples
from common.profiling.nesting import Bodies
from common.profiling.timeline import RunClock, sound_runs
from common.profiling.trace import keep_runs, read_trace

Row = Mapping[str, Any]


def node_runs(
    trace_file: Path, clocks: Sequence[RunClock], warmup: int, bodies: Bodies, corrections_us: Mapping[str, float]
) -> dict[str, Samples]:
    """Return the times in µs of every node, run by run, without the warm-up and less what profiling adds.

    Args:
        trace_file: the trace of the profiled session.
        clocks: clocks of all profiled runs.
        warmup: how many of them are not counted.
        bodies: see :func:`common.profiling.trace.read_trace`.
        corrections_us: the profiler's own cost in each node.

    Raises:
        PipelineError: the trace cannot be read.
    """
    trace = read_trace(trace_file, bodies, partial=True)
    sound = sound_runs(trace, clocks)
    kept = keep_runs(trace, [is_sound and run >= warmup for run, is_sound in enumerate(sound)])
    return {
        name: np.maximum(np.array(node.run_us) - corrections_us.get(name, 0.0), 0.0)
        for name, node in kept.nodes.items()
    }


def recorded_node_runs(
    trace_file: Path, runs: Sequence[Row], nodes: Sequence[Row], bodies: Bodies
) -> dict[str, Samples]:
    """Return the same of a measurement in tables.

    Args:
        trace_file: its trace.
        runs: rows of run_latency.
        nodes: rows of op_latency.
        bodies: as in :func:`node_runs`.

    Raises:
        PipelineError: the trace cannot be read.
    """
    profiled = [row for row in runs if row["is_profiled"]]
    clocks = [(1e-6 * row["start_us"], row["latency_us"]) for row in profiled]
    corrections = {row["executed_node"]: row["correction_us"] or 0.0 for row in nodes}
    return node_runs(trace_file, clocks, sum(row["is_warmup"] for row in profiled), bodies, corrections)
