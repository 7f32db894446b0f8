"""How long each executed node took in each profiled run that counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from common.latency.dependence import Samples
from common.profiling.trace.nesting import Bodies
from common.profiling.trace.reader import keep_runs, read_trace
from common.profiling.trace.timeline import RunClock, sound_runs
from common.table_rows import OpLatencyRow, RunLatencyRow

Content = TypeVar("Content")


def node_runs(
    trace_file: Path, clocks: Sequence[RunClock], warmup: int, bodies: Bodies, corrections_us: Mapping[str, float]
) -> dict[str, Samples]:
    """Return the times in µs of every node, run by run, without the warm-up and less what profiling adds.

    Args:
        warmup: how many of them are not counted.
        bodies: as in :func:`read_trace`, whose errors are those here.
        corrections_us: the profiler's own cost in each node.
    """
    trace = read_trace(trace_file, bodies, partial=True)
    sound = sound_runs(trace, clocks)
    kept = keep_runs(trace, [is_sound and run >= warmup for run, is_sound in enumerate(sound)])
    return {
        name: np.maximum(np.array(node.run_us) - corrections_us.get(name, 0.0), 0.0)
        for name, node in kept.nodes.items()
    }


class ProfiledFolder(Protocol):
    def has(self, name: str) -> bool: ...

    def rows_by_name(self, name: str) -> list[Any]: ...

    def foreign(self, name: str, read: Callable[[Path], Content]) -> Content: ...


def recorded_node_runs(folder: ProfiledFolder, bodies_of: Callable[[Path], Bodies]) -> dict[str, Samples]:
    """Return the times in µs of every node of a recorded profile; none where it has no trace of ONNX Runtime.

    ``bodies_of`` reads the bodies of an executed graph, as :func:`node_runs` needs them; errors are those there.
    """
    if not all(folder.has(name) for name in ("ort_trace", "executed_graph", "op_latency")):
        return {}
    runs: list[RunLatencyRow] = folder.rows_by_name("run_latency")
    nodes: list[OpLatencyRow] = folder.rows_by_name("op_latency")
    bodies = folder.foreign("executed_graph", bodies_of)
    profiled = [row for row in runs if row["is_profiled"]]
    clocks = [(1e-6 * row["start_us"], row["latency_us"]) for row in profiled]
    warmup = sum(row["is_warmup"] for row in profiled)
    corrections_us = {row["executed_node"]: row["correction_us"] or 0.0 for row in nodes}
    return folder.foreign("ort_trace", lambda trace: node_runs(trace, clocks, warmup, bodies, corrections_us))
