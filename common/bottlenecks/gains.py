"""What mending a bottleneck would gain at most: the critical path evaluated again with faster nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.bottlenecks.executed_nodes import ExecutedGraph, interval_us
from common.dag import Dag, build_dag, to_us

LEAST_US = 1e-9  # rounds to nothing in whole picoseconds


@dataclass(frozen=True, slots=True)
class Gain:
    """The most that mending would gain: of the sequential makespan, and of the span; None is unknown."""

    gain_us: float | None = None
    gain_low_us: float | None = None
    gain_high_us: float | None = None
    span_gain_us: float | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """What a node keeps of its time at best: a share of it, and no less than a time that its work takes."""

    share: float = 0.0
    least_us: float = 0.0

    def of(self, time_us: float) -> float:
        """Return what remains of a time, never more than all of it, and more than nothing, by which one can divide."""
        return min(max(self.share * time_us, self.least_us, LEAST_US), time_us)


@dataclass(frozen=True, slots=True)
class WhatIfs:
    """The graph at the low, the likely and the high times of its nodes."""

    low: Dag
    likely: Dag
    high: Dag

    def gain(self, kept: Mapping[str, Kept], freed_gap_us: float = 0.0) -> Gain:
        """Return what is gained if nodes keep some of their time, and some of the time between nodes goes."""
        likely, low, high = (
            to_us(_work_ps(dag) - _work_ps(_mended(dag, kept))) + freed_gap_us
            for dag in (self.likely, self.low, self.high)
        )
        return Gain(likely, low, high, to_us(self.likely.span_ps - _mended(self.likely, kept).span_ps))


def _work_ps(dag: Dag) -> int:
    return sum(dag.latency_ps.values())


def _mended(dag: Dag, kept: Mapping[str, Kept]) -> Dag:
    times = {node: (to_us(dag.latency_ps[node]), part) for node, part in kept.items()}
    return dag.with_faster({node: time_us / part.of(time_us) for node, (time_us, part) in times.items() if time_us})


def what_ifs(graph: ExecutedGraph) -> WhatIfs:
    pairs = [(producer, consumer) for producer, consumer, _ in graph.tensors]
    intervals = {name: interval_us(facts) for name, facts in graph.nodes.items()}
    sources = {"nodes_from": "op_roofline.csv", "edges_from": "executed_edges.csv"}
    low, likely, high = (
        build_dag({name: ends[point] for name, ends in intervals.items()}, pairs, **sources) for point in range(3)
    )
    return WhatIfs(low, likely, high)
