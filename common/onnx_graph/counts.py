"""Work and traffic of every node in one run of the model: what one execution costs, times the executions.

A node in the body of a Loop runs once per pass. What depends on data is unknown, with an upper bound where there is
one; of two branches of which the taken one is not known, the larger one is the bound, never the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.graph import Body, Count, Graph, Node
from common.onnx_graph.work import Work, measure

FIGURES = ("macs", "flops", "weight_bytes", "input_bytes", "output_bytes", "bytes")
BOUNDED = ("macs", "flops", "bytes")
ONCE = Body("", "", 1, 1)


@dataclass(frozen=True, slots=True)
class NodeCount:
    """A node's figures in one run by name; None is unknown.

    Attributes:
        node: the node.
        work: what one execution costs.
        execution_count: executions in one run.
        bounds: of ``BOUNDED`` the most that they can be, where the figure itself is unknown.
        is_in_bound: whether those enter a bound on the whole (of two branches only the larger does).
    """

    node: Node
    work: Work
    execution_count: Count | None
    bounds: Mapping[str, Count | None]
    is_in_bound: bool

    def figure(self, name: str) -> Count | None:
        """One of ``FIGURES`` in one run."""
        return times(getattr(self.work, name), self.execution_count)

    def read_bytes(self, tensor: str) -> Count | None:
        """What the node must read of one of its operands in one run."""
        return times(self.work.read_bytes[tensor], self.execution_count)

    def written_bytes(self, tensor: str) -> Count | None:
        """What it writes of a tensor in one run: nothing of an operand that a body knows by another name."""
        return times(self.work.written_bytes.get(tensor, 0), self.execution_count)


def count_nodes(graph: Graph, bounds: Graph | None) -> list[NodeCount]:
    """Count every node.

    Args:
        graph: the model's graph.
        bounds: the same with the shapes that depend on data as large as they can be, or None where none does.

    Raises:
        PipelineError: a node breaks its operator's specification.
    """
    works = {node.name: measure(graph, node) for node in graph.nodes}
    most = _most(graph, bounds, works) if bounds else {}
    smaller = _smaller_branches(graph, most)
    found = []
    for node in graph.nodes:
        count = graph.bodies.get(node.body, ONCE).execution_count
        is_in_bound = not node.body or not enclosing(graph, node.body) & smaller
        found.append(NodeCount(node, works[node.name], count, most.get(node.name, {}), is_in_bound))
    return found


def times(figure: Count | None, count: Count | None) -> Count | None:
    """A figure of one execution in all executions; what costs nothing costs nothing however often it runs."""
    if count == 1:
        return figure
    if figure is None or count is None:
        return 0 if figure == 0 else None
    return figure * count


def enclosing(graph: Graph, body: str) -> set[str]:
    """The body and those that it stands in."""
    found = set()
    while body:
        found.add(body)
        body = graph.by_name[graph.bodies[body].owner].body
    return found


def _most(graph: Graph, bounds: Graph, works: Mapping[str, Work]) -> dict[str, dict[str, Count | None]]:
    """The upper bounds of each node whose figures are unknown."""
    found: dict[str, dict[str, Count | None]] = {}
    for node in graph.nodes:
        count = graph.bodies.get(node.body, ONCE).execution_count
        unknown = [name for name in BOUNDED if times(getattr(works[node.name], name), count) is None]
        body = bounds.bodies.get(node.body, ONCE)
        work = measure(bounds, bounds.by_name[node.name]) if unknown and node.name in bounds.by_name else None
        found[node.name] = {name: times(getattr(work, name), body.execution_bound) for name in unknown if work}
    return found


def _smaller_branches(graph: Graph, most: Mapping[str, Mapping[str, Count | None]]) -> set[str]:
    """Of each two branches of which one will run, the one with fewer FLOPs."""
    flops: dict[str, Count] = dict.fromkeys(graph.bodies, 0)
    for node in graph.nodes:
        for body in enclosing(graph, node.body):
            flops[body] += most.get(node.name, {}).get("flops") or 0
    branches: dict[str, list[str]] = {}
    for name, one in graph.bodies.items():
        if graph.by_name[one.owner].op_type == "If" and one.execution_count is None:
            branches.setdefault(one.owner, []).append(name)
    return {min(names, key=lambda name: _size(flops[name])) for names in branches.values() if len(names) > 1}


def _size(count: Count) -> float:
    """A number to compare counts by; symbols stand for large dimensions of one size."""
    return float(count) if isinstance(count, int) else float(count.subs(dict.fromkeys(count.free_symbols, 1000)))
