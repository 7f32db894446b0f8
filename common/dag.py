"""The executed graph as a directed acyclic graph: longest path, slack, work and span.

The functions take and return times in µs and compute in whole picoseconds. Sums of whole numbers do not depend on their
order: equal paths are equal, a slack of zero is zero, and no node has a slack of -1e-13 µs.

The earliest and latest times are the forward and the backward pass of the critical-path method (Kelley and Walker,
"Critical-Path Planning and Scheduling", 1959); work and span are T1 and T∞ of Brent's bound (J. ACM 21(2), 1974).
networkx sorts the graph and finds its cycles. The passes are plain loops, because its ``dag_longest_path`` returns one
path and no slack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from common.messages.errors import UnusableValueError, UpstreamError
from common.messages.names import quoted, shown, similar_names

LEAST_FACTOR = 1e-9  # of a what-if; a smaller one makes times that no number holds
PICOSECONDS_PER_US = 1_000_000  # far below the resolution of any clock that times a node
REMEDY = "rerun <op_roofline>"


@dataclass(frozen=True)
class Dag:
    """Nodes with their latency, in execution order, and the dependences between them."""

    latency_ps: Mapping[str, int]  # latency of every node, in execution order
    graph: nx.DiGraph[str]  # the same nodes, an edge from each producer to each of its consumers
    order: tuple[str, ...]  # the nodes, every producer before its consumers

    @cached_property
    def position(self) -> dict[str, int]:
        """Index of each node in the execution order; it decides between equal paths."""
        return {node: index for index, node in enumerate(self.latency_ps)}

    @property
    def work_us(self) -> float:
        """Sum of all latencies: T1, the time on one processor."""
        return to_us(sum(self.latency_ps.values()))

    @cached_property
    def finish_ps(self) -> dict[str, int]:
        """Earliest finish of every node, which starts when its last producer has finished."""
        finish: dict[str, int] = {}
        for node in self.order:
            start = max((finish[producer] for producer in self.graph.predecessors(node)), default=0)
            finish[node] = start + self.latency_ps[node]
        return finish

    @cached_property
    def span_ps(self) -> int:
        """Length of the longest path: T∞, the time on any number of processors."""
        return max(self.finish_ps.values(), default=0)

    @property
    def span_us(self) -> float:
        return to_us(self.span_ps)

    @property
    def parallelism(self) -> float | None:
        """Work over span, the largest speedup by parallel execution; None where all latencies are zero."""
        return self.work_us / self.span_us if self.span_ps else None

    def with_faster(self, faster: Mapping[str, float]) -> Dag:
        changed = {node: round(self.latency_ps[node] / factor) for node, factor in faster.items()}
        return Dag({**self.latency_ps, **changed}, self.graph, self.order)


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """When a node can start and finish, when it must start, and when the sequential executor runs it, in µs."""

    earliest_start_us: float
    earliest_finish_us: float
    latest_start_us: float
    slack_us: float
    sequential_start_us: float
    sequential_finish_us: float


def build_dag(
    latency_us: Mapping[str, float], edges: Iterable[tuple[str, str]], *, nodes_from: object, edges_from: object
) -> Dag:
    """Build the graph.

    Either end of an edge (producer, consumer) is empty at the border of the graph; such an edge orders nothing. Errors
    name ``nodes_from`` and ``edges_from``, what the latencies and the edges were read from.

    Raises:
        UpstreamError: a latency is negative, an edge names no known node, or the edges form a cycle.
    """
    for node, value in latency_us.items():
        if not value >= 0:
            raise UpstreamError(nodes_from, f"corrupt (node {quoted(node)} takes {value} µs)", REMEDY)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(latency_us)
    for producer, consumer in edges:
        for node in (producer, consumer):
            if node and node not in latency_us:
                raise UpstreamError(edges_from, f"corrupt ({quoted(node)} is not in {nodes_from})", REMEDY)
        if producer and consumer:
            graph.add_edge(producer, consumer)
    latency_ps = {node: round(value * PICOSECONDS_PER_US) for node, value in latency_us.items()}
    try:
        return Dag(latency_ps, graph, tuple(nx.topological_sort(graph)))
    except nx.NetworkXUnfeasible:
        cycle = [edge[0] for edge in nx.find_cycle(graph)]
        shown = " -> ".join([*cycle[:4], *(["…"] if len(cycle) > 4 else []), cycle[0]])
        raise UpstreamError(edges_from, f"corrupt (a cycle: {shown})", REMEDY) from None


def longest_path(dag: Dag) -> list[str]:
    """Return the nodes of the longest path, from a node without producers to one without consumers.

    Among equal paths, it is the one whose nodes, seen from the end, were executed first. A node that takes no time is
    on the path if it connects others.
    """
    finish, position = dag.finish_ps, dag.position
    path: list[str] = []
    candidates: Iterable[str] = [node for node, degree in dag.graph.out_degree if not degree]
    # Among the nodes that finish last, take the one that was executed first.
    while (last := min(candidates, key=lambda node: (-finish[node], position[node]), default=None)) is not None:
        path.append(last)
        candidates = dag.graph.predecessors(last)
    return path[::-1]


def schedule(dag: Dag) -> dict[str, NodeTimes]:
    """Return the times of every node, in execution order.

    The latest start keeps the span: a node must have finished when the first of its consumers must start. The slack is
    how late a node may start without delaying the last result.
    """
    latest: dict[str, int] = {}
    for node in reversed(dag.order):
        must_finish = min((latest[consumer] for consumer in dag.graph.successors(node)), default=dag.span_ps)
        latest[node] = must_finish - dag.latency_ps[node]
    times, clock = {}, 0
    for node, latency in dag.latency_ps.items():
        finish = dag.finish_ps[node]
        start = finish - latency
        instants = (start, finish, latest[node], latest[node] - start, clock, clock + latency)
        times[node] = NodeTimes(*map(to_us, instants))
        clock += latency
    return times


def to_us(picoseconds: int) -> float:
    return picoseconds / PICOSECONDS_PER_US


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Span and makespan if some nodes were faster; None for a makespan that the gap would make negative."""

    name: str
    factor: float
    node_count: int
    span_us: float
    sequential_us: float | None


def what_if(dag: Dag, op_types: Mapping[str, str], name: str, factor: float, gap_us: float) -> WhatIf:
    """Return the span and the sequential makespan with a node, or all nodes of a type, made faster.

    ``name`` is a node, or else an operator type. ``gap_us``, the time between nodes, stays; it is negative where the
    correction was overestimated.

    Raises:
        UnusableValueError: there is no such node or type, and the message lists similar names; or the factor is tiny.
    """
    nodes = [name] if name in op_types else [node for node, op_type in op_types.items() if op_type == name]
    if not nodes:
        similar = similar_names(name, [*dict.fromkeys(op_types.values()), *op_types])
        remedy = f"similar names: {', '.join(map(shown, similar))}" if similar else "op_schedule.csv lists all names"
        raise UnusableValueError("what_if", f"no executed node or operator type has the name {quoted(name)}", remedy)
    if factor < LEAST_FACTOR:
        raise UnusableValueError("what_if", f"a factor of {factor:g} is below {LEAST_FACTOR:g}")
    changed = dag.with_faster(dict.fromkeys(nodes, factor))
    sequential_us = changed.work_us + gap_us
    return WhatIf(name, factor, len(nodes), changed.span_us, sequential_us if sequential_us > 0 else None)
