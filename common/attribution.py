"""Which source nodes each executed node computes, and by which rule they were matched.

ONNX Runtime fuses, renames, re-lays out, inserts and removes nodes. What survives are tensor names and, in part, node
names. The rules, in this order (each source node is claimed once):

nchwc_name       a blocked-layout node is called ``<tensor>[_bn|_mul]_nchwc`` after the tensor it stood for (first:
                 the change of layout behind it writes a tensor of that very name);
output_tensor    the executed node writes a tensor that the source node writes;
node_name        the executed node kept the source node's name;
epilogue         light nodes behind a claimed one whose operands the executed node has at hand, while what it writes
                 is no tensor of the source (a convolution with a fused sum keeps its name from before the sum);
fill_upstream    every reader of what the source node writes belongs to the executed node;
fill_downstream  what the source node reads comes from the executed node;
removed          it depends on constants alone, or nothing reads it: the runtime folded or dropped it.

An executed node without source nodes was inserted (a change of layout); it serves its nearest downstream owner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

from common.errors import PipelineError
from common.graph import Graph, Node, operands

Rule = Literal["output_tensor", "nchwc_name", "node_name", "fill_upstream", "epilogue", "fill_downstream", "removed"]
LEAST_COVERAGE = 0.999
EXPECTED_GAP_SHARE = (-0.03, 0.08)
NCHWC_SUFFIX = "_nchwc"
NCHWC_VARIANTS = ("_bn", "_mul")


@dataclass(frozen=True, slots=True)
class Match:
    """One source node and its owner; a removed node's owner is empty."""

    executed_node: str
    source_node: str
    rule: Rule


@dataclass(slots=True)
class _Claims:
    """Who owns what so far."""

    source: Graph
    constants: Set[str]
    matches: dict[str, Match] = field(default_factory=dict)
    owned: dict[str, list[str]] = field(default_factory=dict)

    def claim(self, executed: str, source: str, rule: Rule) -> None:
        if source in self.source.by_name and source not in self.matches:
            self.matches[source] = Match(executed, source, rule)
            self.owned.setdefault(executed, []).append(source)

    def owner(self, source: str) -> str:
        match = self.matches.get(source)
        return match.executed_node if match else ""

    def outputs(self, executed: str) -> set[str]:
        """Tensors that the nodes owned so far write."""
        return {out for name in self.owned.get(executed, ()) for out in self.source.by_name[name].outputs}


def attribute(source: Graph, executed: Graph, heavy: Set[str], constants: Set[str]) -> list[Match]:
    """Match every source node to the executed node that computes it.

    Args:
        source: the model's graph, in topological order.
        executed: the graph that the runtime saved.
        heavy: source nodes with multiply-accumulates: an epilogue never takes one of these.
        constants: source tensors that no run changes.

    Returns:
        One match per source node, in source order.
    """
    claims = _Claims(source, constants)
    for rule in (_claim_by_blocked_name, _claim_by_tensor, _claim_by_node_name):
        for node in executed.nodes:
            rule(claims, node)
    for node in executed.nodes:
        _claim_epilogue(claims, executed, node, heavy)
    for node in reversed(source.nodes):
        _fill_upstream(claims, node)
    for node in source.nodes:
        _fill_downstream(claims, node)
    return [claims.matches.get(node.name, Match("", node.name, "removed")) for node in source.nodes]


def _claim_by_tensor(claims: _Claims, node: Node) -> None:
    for tensor in node.outputs:
        claims.claim(node.name, claims.source.producer.get(tensor, ""), "output_tensor")


def _claim_by_blocked_name(claims: _Claims, node: Node) -> None:
    """The name holds one tensor: the longest reading of it that the source knows."""
    if node.name.endswith(NCHWC_SUFFIX):
        tensor = node.name.removesuffix(NCHWC_SUFFIX)
        readings = (tensor, *(tensor.removesuffix(variant) for variant in NCHWC_VARIANTS))
        known = (claims.source.producer[reading] for reading in readings if reading in claims.source.producer)
        claims.claim(node.name, next(known, ""), "nchwc_name")


def _claim_by_node_name(claims: _Claims, node: Node) -> None:
    """Last, over all nodes: the runtime may give a new node the name of another."""
    claims.claim(node.name, node.name, "node_name")


def _claim_epilogue(claims: _Claims, executed: Graph, node: Node, heavy: Set[str]) -> None:
    """Let the claimed nodes grow downstream, as far as the executed node has the operands."""
    if any(tensor in claims.source.producer for tensor in node.outputs):
        return  # its work ends with a tensor of the source
    available = claims.outputs(node.name)
    for tensor in operands(node):
        available |= {tensor} | claims.outputs(executed.producer.get(tensor, ""))
    frontier = deque(claims.outputs(node.name))
    while frontier:
        for name in claims.source.consumers.get(frontier.popleft(), ()):
            reader = claims.source.by_name[name]
            at_hand = all(tensor in available or tensor in claims.constants for tensor in operands(reader))
            if name not in claims.matches and name not in heavy and at_hand:
                claims.claim(node.name, name, "epilogue")
                available.update(reader.outputs)
                frontier.extend(reader.outputs)


def _fill_upstream(claims: _Claims, node: Node) -> None:
    """Readers are visited before the nodes they read from: a chain fills from its end."""
    if node.name in claims.matches or _is_constant(claims, node):
        return
    readers = [name for tensor in node.outputs for name in claims.source.consumers.get(tensor, ())]
    owners = {claims.owner(name) for name in readers} - {""}
    if len(owners) == 1:
        claims.claim(owners.pop(), node.name, "fill_upstream")


def _fill_downstream(claims: _Claims, node: Node) -> None:
    if node.name in claims.matches or _is_constant(claims, node):
        return
    for tensor in operands(node):
        owner = claims.owner(claims.source.producer.get(tensor, ""))
        if owner:
            claims.claim(owner, node.name, "fill_downstream")
            return


def _is_constant(claims: _Claims, node: Node) -> bool:
    return all(tensor in claims.constants for tensor in operands(node))


def owned_sources(matches: Iterable[Match]) -> dict[str, list[str]]:
    """The source nodes of each executed node that has some, in source order."""
    owned: dict[str, list[str]] = {}
    for match in matches:
        if match.executed_node:
            owned.setdefault(match.executed_node, []).append(match.source_node)
    return owned


def layout_owners(executed: Graph, with_sources: Set[str]) -> dict[str, str]:
    """For each executed node without source nodes: the nearest downstream one with some, else the nearest upstream."""
    downstream = {node.name: _readers(executed, node) for node in executed.nodes}
    upstream = {node.name: _writers(executed, node) for node in executed.nodes}
    inserted = [node.name for node in executed.nodes if node.name not in with_sources]
    return {
        name: _nearest(name, downstream, with_sources) or _nearest(name, upstream, with_sources) for name in inserted
    }


def _readers(graph: Graph, node: Node) -> list[str]:
    return [name for tensor in node.outputs for name in graph.consumers.get(tensor, ())]


def _writers(graph: Graph, node: Node) -> list[str]:
    return [graph.producer[tensor] for tensor in operands(node) if tensor in graph.producer]


def _nearest(start: str, neighbours: Mapping[str, Iterable[str]], wanted: Set[str]) -> str:
    """Breadth-first search; empty where none can be reached."""
    seen, frontier = {start}, deque([start])
    while frontier:
        for name in neighbours[frontier.popleft()]:
            if name in wanted:
                return name
            if name not in seen:
                seen.add(name)
                frontier.append(name)
    return ""


def require_coverage(path: object, owned_us: float, trace_total_us: float) -> float:
    """Share of the traced kernel time in nodes with source nodes, or with an owner of the layout they serve.

    Raises:
        PipelineError: it is below ``LEAST_COVERAGE``: the tables would not account for the time.
    """
    if not trace_total_us:
        raise PipelineError(path, "holds no time at all", "run 01_profile_onnx.py again")
    share = owned_us / trace_total_us
    if share < LEAST_COVERAGE:
        raise PipelineError(path, f"only {share:.2%} of its time has an owner", "attribution fails on this model")
    return share


def gap_notes(gap_share: float) -> list[str]:
    """A gap between nodes that scheduling does not explain says that something was measured wrongly."""
    low, high = EXPECTED_GAP_SHARE
    if low <= gap_share <= high:
        return []
    remedy = "rerun 01_profile_onnx.py with more --runs on an idle host; many tiny nodes have a real gap"
    return [f"the gap between nodes is {gap_share:+.1%} of the latency, expected {low:+.0%} to {high:+.0%}; {remedy}"]
