"""Work and traffic of every node in one run of the model: the cost of one execution times the execution count.

A node in the body of a Loop runs once per pass. A figure that depends on data is unknown, with an upper bound where
there is one. Where it is unknown which of two branches runs, the larger branch is the bound, never the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from common.graph import Body, Count, Graph, Node, is_symbolic
from common.onnx_graph.work import Work, measure
from common.sums import total

FIGURES = ("macs", "flops", "weight_bytes", "input_bytes", "output_bytes", "bytes")
BOUNDED = ("macs", "flops", "bytes")
ONCE = Body("", "", 1, 1)


@dataclass(frozen=True, slots=True)
class NodeCount:
    """Work and traffic of a node in one run; None is unknown.

    Attributes:
        node: the node.
        work: the cost of one execution.
        execution_count: executions in one run.
        bounds: upper bounds of the unknown ones among the ``BOUNDED`` figures.
        is_in_bound: whether the bounds enter the bound for the whole model (of two branches, only the larger one does).
    """

    node: Node
    work: Work
    execution_count: Count | None
    bounds: Mapping[str, Count | None]
    is_in_bound: bool

    def figure(self, name: str) -> Count | None:
        """Return one of ``FIGURES`` for one run."""
        return times(getattr(self.work, name), self.execution_count)

    def read_bytes(self, tensor: str) -> Count | None:
        """Return the bytes that the node must read of an operand in one run."""
        return times(self.work.read_bytes[tensor], self.execution_count)

    def written_bytes(self, tensor: str) -> Count | None:
        """Return the bytes that the node writes of a tensor in one run; 0 for a tensor that is not its output."""
        return times(self.work.written_bytes.get(tensor, 0), self.execution_count)


def count_nodes(graph: Graph, bounds: Graph | None) -> list[NodeCount]:
    """Count every node.

    Args:
        graph: the model's graph.
        bounds: the graph with the upper bound of every shape that depends on data; None where no shape does.

    Raises:
        PipelineError: a node breaks its operator's specification.
    """
    works = {node.name: measure(graph, node) for node in graph.nodes}
    upper_bounds = _upper_bounds(graph, bounds, works) if bounds else {}
    smaller = _smaller_branches(graph, upper_bounds)
    counts = []
    for node in graph.nodes:
        count = graph.bodies.get(node.body, ONCE).execution_count
        is_in_bound = not node.body or not enclosing(graph, node.body) & smaller
        counts.append(NodeCount(node, works[node.name], count, upper_bounds.get(node.name, {}), is_in_bound))
    return counts


def times(figure: Count | None, count: Count | None) -> Count | None:
    """Return a figure of one execution for all executions; 0 stays 0 even where the count is unknown."""
    if count == 1:
        return figure
    if figure is None or count is None:
        return 0 if figure == 0 else None
    return figure * count


def enclosing(graph: Graph, body: str) -> set[str]:
    """Return the names of the body and of all bodies around it."""
    bodies = set()
    while body:
        bodies.add(body)
        body = graph.by_name[graph.bodies[body].owner].body
    return bodies


def _upper_bounds(graph: Graph, bounds: Graph, works: Mapping[str, Work]) -> dict[str, dict[str, Count | None]]:
    """Return the upper bounds of the unknown figures, by node."""
    upper_bounds: dict[str, dict[str, Count | None]] = {}
    for node in graph.nodes:
        count = graph.bodies.get(node.body, ONCE).execution_count
        unknown = [name for name in BOUNDED if times(getattr(works[node.name], name), count) is None]
        body = bounds.bodies.get(node.body, ONCE)
        work = measure(bounds, bounds.by_name[node.name]) if unknown and node.name in bounds.by_name else None
        upper_bounds[node.name] = {name: times(getattr(work, name), body.execution_bound) for name in unknown if work}
    return upper_bounds


def bound_on_model(graph: Graph, counts: Iterable[NodeCount], figure: str) -> Count | None:
    """Return the upper bound of a figure for the whole model; None where a node has no bound."""
    figures = {
        count.node.name: count.bounds.get(figure) if count.figure(figure) is None else count.figure(figure)
        for count in counts
    }
    return _by_body(graph, figures)[""]


def _smaller_branches(graph: Graph, upper_bounds: Mapping[str, Mapping[str, Count | None]]) -> set[str]:
    """Return the branch with fewer FLOPs of every If whose condition is unknown."""
    flops = _by_body(graph, {node.name: upper_bounds.get(node.name, {}).get("flops") or 0 for node in graph.nodes})
    branches: dict[str, list[str]] = {}
    for name, body in graph.bodies.items():
        if _is_open(graph, body):
            branches.setdefault(body.owner, []).append(name)
    return {min(names, key=lambda name: _size(flops[name])) for names in branches.values() if len(names) > 1}


def _is_open(graph: Graph, body: Body) -> bool:
    """Return whether the body is a branch of an If whose condition depends on data."""
    return graph.by_name[body.owner].op_type == "If" and body.execution_count is None


def _by_body(graph: Graph, figures: Mapping[str, Count | None]) -> dict[str, Count | None]:
    """Add up a figure over the nodes of each body and of the bodies in it; an empty name is the whole graph.

    Where only one of two branches runs, the larger sum enters. A sum is None where a node's figure is None.
    """
    sums: dict[str, Count | None] = dict.fromkeys(("", *graph.bodies), 0)
    for node in graph.nodes:
        sums[node.body] = total((sums[node.body], figures[node.name]))
    owners = dict.fromkeys(body.owner for body in graph.bodies.values())
    for owner in sorted(owners, key=lambda name: -len(enclosing(graph, graph.by_name[name].body))):  # innermost first
        bodies = [name for name, body in graph.bodies.items() if body.owner == owner]
        parts = [sums[name] for name in bodies]
        if any(_is_open(graph, graph.bodies[name]) for name in bodies) and None not in parts:
            parts = [max(parts, key=_size)]
        outer = graph.by_name[owner].body
        for part in parts:
            sums[outer] = total((sums[outer], part))
    return sums


def _size(count: Count) -> float:
    """Return a number to compare counts by; every symbol stands for the same large dimension."""
    return float(count.subs(dict.fromkeys(count.free_symbols, 1000))) if is_symbolic(count) else float(count)
