"""Work and traffic of every node in one run of the model: the cost of one execution times the execution count.

A node in the body of a Loop runs once per pass. A figure that depends on data is unknown, with an upper bound where
there is one. Where it is unknown which of two branches runs, the larger branch is the bound, never the sum. If both
cost the same, their If has that cost: one of them runs, whatever the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from common.graphs.expressions import at
from common.graphs.graph import Body, Count, Graph, Node, is_symbolic
from common.graphs.sums import total
from common.onnx_graph.work import Work, measure

FIGURES = ("macs", "flops", "dequantized", "weight_bytes", "input_bytes", "output_bytes", "bytes")
BOUNDED = ("macs", "flops", "bytes")
ONCE = Body("", "", 1, 1)


@dataclass(frozen=True, slots=True)
class NodeCount:
    """Work and traffic of a node in one run; None is unknown."""

    node: Node
    work: Work
    execution_count: Count | None
    bounds: Mapping[str, Count | None]  # upper bounds of the unknown ones among the ``BOUNDED`` figures
    # Whether the bounds enter the bound for the whole model (of two branches, only the larger one does)
    is_in_bound: bool
    # For an If, the figures of whichever branch runs, where both have the same
    either: Mapping[str, Count] = field(default_factory=dict)
    is_of_either: bool = False  # whether the node is in such a branch, so that the figures of an If contain its own

    def figure(self, name: str) -> Count | None:
        """Return one of ``FIGURES`` for one run."""
        return total((times(getattr(self.work, name), self.execution_count), self.either.get(name, 0)))

    def read_bytes(self, tensor: str) -> Count | None:
        """Return the bytes that the node must read of an operand in one run."""
        return times(self.work.read_bytes[tensor], self.execution_count)

    def written_bytes(self, tensor: str) -> Count | None:
        """Return the bytes that the node writes of a tensor in one run; 0 for a tensor that is not its output."""
        return times(self.work.written_bytes.get(tensor, 0), self.execution_count)


def count_nodes(graph: Graph, bounds: Graph | None) -> list[NodeCount]:
    """Count every node; one that breaks its operator's specification is a PipelineError."""
    works = {node.name: measure(graph, node) for node in graph.nodes}
    upper_bounds = _upper_bounds(graph, bounds, works) if bounds else {}
    smaller, either = _smaller_branches(graph, upper_bounds), _equal_branches(graph, works)
    counts = []
    for node in graph.nodes:
        count = graph.bodies.get(node.body, ONCE).execution_count
        around = enclosing(graph, node.body)
        is_of_either = any(graph.bodies[name].owner in either for name in around)
        bound = {} if is_of_either else upper_bounds.get(node.name, {})
        is_in_bound = not is_of_either and not around & smaller
        of_either_branch = either.get(node.name, {})
        counts.append(NodeCount(node, works[node.name], count, bound, is_in_bound, of_either_branch, is_of_either))
    return counts


def times(figure: Count | None, count: Count | None) -> Count | None:
    """Return a figure of one execution for all executions; 0 stays 0 even where the count is unknown."""
    if count == 1:
        return figure
    if figure is None or count is None:
        return 0 if figure == 0 else None
    return figure * count


def enclosing(graph: Graph, body: str) -> set[str]:
    bodies = set()
    while body:
        bodies.add(body)
        body = graph.by_name[graph.bodies[body].owner].body
    return bodies


def _equal_branches(graph: Graph, works: Mapping[str, Work]) -> dict[str, dict[str, Count]]:
    """Return the figures of one run for each If whose condition is unknown and whose branches have the same figures."""
    either: dict[str, dict[str, Count]] = {}
    for owner, bodies in graph.owned.items():
        count = graph.bodies.get(graph.by_name[owner].body, ONCE).execution_count
        if count is not None and any(_is_open(graph, body) for body in bodies):
            cost = _cost_of_bodies(graph, works, owner)
            if cost is not None:
                either[owner] = {name: figure * count for name, figure in cost.items()}
    return either


def _cost_of_bodies(graph: Graph, works: Mapping[str, Work], owner: str) -> dict[str, Count] | None:
    costs: list[dict[str, Count] | None] = []
    for body in graph.owned.get(owner, ()):
        parts: list[dict[str, Count] | None] = []
        for node in graph.members.get(body.name, ()):
            own = {name: getattr(works[node.name], name) for name in FIGURES}
            parts += [own, _cost_of_bodies(graph, works, node.name)]
        cost = {name: total(part and part[name] for part in parts) for name in FIGURES}
        costs.append(None if None in cost.values() else cost)
    if not costs:
        return dict.fromkeys(FIGURES, 0)
    is_branch = graph.by_name[owner].op_type == "If"
    is_known = all(cost == costs[0] for cost in costs) and (is_branch or not any((costs[0] or {}).values()))
    return costs[0] if is_known else None


def _upper_bounds(graph: Graph, bounds: Graph, works: Mapping[str, Work]) -> dict[str, dict[str, Count | None]]:
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
        if not count.is_of_either
    }
    return _by_body(graph, figures)[""]


def _smaller_branches(graph: Graph, upper_bounds: Mapping[str, Mapping[str, Count | None]]) -> set[str]:
    """Return the branch with fewer FLOPs of every If whose condition is unknown."""
    flops = _by_body(graph, {node.name: upper_bounds.get(node.name, {}).get("flops") or 0 for node in graph.nodes})
    branches = ([body.name for body in bodies if _is_open(graph, body)] for bodies in graph.owned.values())
    return {min(names, key=lambda name: _size(flops[name])) for names in branches if len(names) > 1}


def _is_open(graph: Graph, body: Body) -> bool:
    """Return whether the body is a branch of an If whose condition depends on data."""
    return graph.by_name[body.owner].op_type == "If" and body.execution_count is None


def _by_body(graph: Graph, figures: Mapping[str, Count | None]) -> dict[str, Count | None]:
    """Add up a figure over the nodes of each body and of the bodies in it; an empty name is the whole graph.

    Where only one of two branches runs, the larger sum enters. A sum is None where a node's figure is None.
    """
    sums: dict[str, Count | None] = dict.fromkeys(("", *graph.bodies), 0)
    for node in graph.nodes:
        sums[node.body] = total((sums[node.body], figures.get(node.name, 0)))
    for owner in sorted(graph.owned, key=lambda name: -len(enclosing(graph, graph.by_name[name].body))):  # inner first
        parts = [sums[body.name] for body in graph.owned[owner]]
        if any(_is_open(graph, body) for body in graph.owned[owner]) and None not in parts:
            parts = [max(parts, key=_size)]
        outer = graph.by_name[owner].body
        sums[outer] = total((sums[outer], *parts))
    return sums


def _size(count: Count) -> float:
    """Return a number to compare counts by; every dimension has the same large size."""
    return float(at(count, dict.fromkeys(count.names, 1000))) if is_symbolic(count) else float(count)
