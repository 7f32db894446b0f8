"""Work and traffic of every node in one run of the model: what one execution costs, times the executions.

A node in the body of a Loop runs once per pass. What depends on data is unknown, with an upper bound where there is
one; of two branches of which the taken one is not known, the larger one is the bound, never the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from common.graph import Body, Count, Graph, Node, is_symbolic
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


def bound_on_whole(graph: Graph, counts: Iterable[NodeCount], figure: str) -> Count | None:
    """The most that a figure can be of the whole model; None where a node has no bound."""
    each = {
        one.node.name: one.bounds.get(figure) if one.figure(figure) is None else one.figure(figure) for one in counts
    }
    return _by_body(graph, each)[""]


def _smaller_branches(graph: Graph, most: Mapping[str, Mapping[str, Count | None]]) -> set[str]:
    """Of each two branches of which one will run, the one with fewer FLOPs."""
    flops = _by_body(graph, {node.name: most.get(node.name, {}).get("flops") or 0 for node in graph.nodes})
    branches: dict[str, list[str]] = {}
    for name, body in graph.bodies.items():
        if _is_open(graph, body):
            branches.setdefault(body.owner, []).append(name)
    return {min(names, key=lambda name: _size(flops[name])) for names in branches.values() if len(names) > 1}


def _is_open(graph: Graph, body: Body) -> bool:
    """Whether the body is a branch of which only data tell if it is taken."""
    return graph.by_name[body.owner].op_type == "If" and body.execution_count is None


def _by_body(graph: Graph, each: Mapping[str, Count | None]) -> dict[str, Count | None]:
    """Sums over the nodes of each body and of those in it, the whole graph's under an empty name.

    Of two branches of which one will run, the larger sum enters. None where a node has none.
    """
    sums: dict[str, Count | None] = dict.fromkeys(("", *graph.bodies), 0)
    for node in graph.nodes:
        sums[node.body] = _plus(sums[node.body], each[node.name])
    owners = dict.fromkeys(body.owner for body in graph.bodies.values())
    for owner in sorted(owners, key=lambda name: -len(enclosing(graph, graph.by_name[name].body))):  # innermost first
        bodies = [name for name, body in graph.bodies.items() if body.owner == owner]
        parts = [sums[name] for name in bodies]
        if any(_is_open(graph, graph.bodies[name]) for name in bodies) and None not in parts:
            parts = [max(parts, key=_size)]
        outer = graph.by_name[owner].body
        for part in parts:
            sums[outer] = _plus(sums[outer], part)
    return sums


def _plus(one: Count | None, other: Count | None) -> Count | None:
    return None if one is None or other is None else one + other


def _size(count: Count) -> float:
    """A number to compare counts by; symbols stand for large dimensions of one size."""
    return float(count.subs(dict.fromkeys(count.free_symbols, 1000))) if is_symbolic(count) else float(count)
