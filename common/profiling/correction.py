"""Times of executed nodes: raw, and corrected for the cost of profiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from common.graphs.graph import Graph
from common.latency.dependence import Samples
from common.latency.statistics import summary
from common.messages.errors import PipelineError
from common.profiling.overhead import DOMINATED_BELOW, Overhead, OverheadClass, OverheadCost, estimate
from common.profiling.runs.measurement import Measurement
from common.profiling.trace.reader import NodeTrace, Trace


@dataclass(frozen=True, slots=True)
class NodeLatency:
    """A node's statistics, raw and corrected, as the columns of op_latency name them."""

    node: NodeTrace
    input_count: int
    sample_count: int
    events_per_run: int
    # None where the profiler's cost is unknown; the corrected statistics then are the raw ones
    correction: OverheadCost | None
    statistics: Mapping[str, float | None]
    raw_total_us: float
    is_correction_dominated: bool
    wake_up: OverheadCost | None = None  # of the thread pool, a part of the correction


def operand_counts(executed: Graph) -> dict[str, int]:
    """Return the number of operands that each node has; an absent optional one does not count."""
    return {node.name: sum(map(bool, node.inputs)) for node in executed.nodes}


def correct(measurement: Measurement, input_counts: Mapping[str, int], folder: Path) -> list[NodeLatency]:
    """Return statistics of every node, raw and corrected (floored at zero, never rescaled).

    The correction is the cost of profiling inside each event of the node. The own time of a control-flow node also
    contains the cost around the events of its bodies. ``input_counts`` has the operands of each executed node: the
    trace omits prepacked weights. The calibration writes its traces into the folder. PipelineError: the trace has nodes
    that the executed graph lacks.
    """
    if strangers := [name for name in measurement.trace.nodes if name not in input_counts]:
        raise PipelineError("the trace", f"has nodes that the executed graph lacks: {', '.join(strangers[:5])}")
    nodes, counts = list(measurement.trace.nodes.values()), traced_input_counts(measurement.trace, input_counts)
    kinds = {node.name: OverheadClass(node.uses_thread_pool, counts[node.name]) for node in nodes}
    estimated = estimate(kinds.values(), measurement.settings.threads, folder)
    overheads = {name: estimated[kind] for name, kind in kinds.items()}
    costs, warmup, wakes = run_costs(nodes, overheads), measurement.profiled_warmup, waking_node(nodes)
    latencies = [node_latency(node, counts[node.name], warmup, costs[node.name]) for node in nodes]
    return [
        replace(latency, wake_up=overheads[wakes].wake_up) if latency.node.name == wakes else latency
        for latency in latencies
    ]


def waking_node(nodes: Sequence[NodeTrace]) -> str | None:
    """Return the first node of a run that uses the thread pool, and so wakes it; None if no node does."""
    return next((node.name for node in nodes if node.uses_thread_pool), None)


def traced_input_counts(trace: Trace, input_counts: Mapping[str, int]) -> dict[str, int]:
    """Return the operands of each node as the profiler sees them.

    In the executed graph, the owner of a body also reads the body's results; the profiler only sees its own operands.
    """
    owners = {node.owner for node in trace.nodes.values() if node.owner}
    return {**input_counts, **{name: len(trace.nodes[name].input_shapes) for name in owners}}


def run_costs(nodes: Sequence[NodeTrace], overheads: Mapping[str, Overhead]) -> dict[str, Samples]:
    """Return the cost of profiling in each node's own time, in µs: median, low and high (rows) by run (columns).

    The node that wakes the thread pool pays for that once in each run.
    """
    costs = {node.name: np.outer(overheads[node.name].inside, node.run_events) for node in nodes}
    wakes = waking_node(nodes)
    for node in nodes:
        if node.owner:
            costs[node.owner] += np.outer(overheads[node.name].around, node.run_events)
        if node.name == wakes:
            costs[node.name] += np.outer(overheads[node.name].wake_up, np.minimum(node.run_events, 1))
    return costs


def node_latency(node: NodeTrace, input_count: int, warmup: int, costs: Samples | None) -> NodeLatency:
    """Return a node's statistics without the ``warmup`` runs; ``costs`` are its own of :func:`run_costs`, if known."""
    corrected = raw = np.array(node.run_us[warmup:])
    correction, is_dominated = None, False
    if costs is not None:
        corrected = np.clip(raw - costs[0, warmup:], 0, None)
        correction = OverheadCost(*map(float, np.median(costs[:, warmup:], axis=1)))
        is_dominated = float(np.median(raw)) < DOMINATED_BELOW * correction.median_us
    events = max(1, round(float(np.mean(node.run_events[warmup:]))))
    statistics = {**summary(raw, "raw"), **summary(corrected, "corrected")}
    return NodeLatency(node, input_count, len(raw), events, correction, statistics, float(raw.sum()), is_dominated)
