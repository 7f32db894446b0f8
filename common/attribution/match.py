"""The rules that match each source node to the executed node that computes it.

ONNX Runtime fuses, renames, inserts and removes nodes, and changes their layout. It keeps the names of tensors and some
names of nodes. The rules apply in this order. The first rule that matches a source node claims it for an executed node:

nchwc_name       A node on the blocked layout is named ``<tensor>[_bn|_mul]_nchwc`` after the tensor that it wrote.
                 The rule comes before output_tensor, because the change of layout after the node writes a tensor of
                 the same name.
nhwc_name        A node with channels last is named ``<source node>_token_<number>``. Also before.
fusion_name      A fused node is named ``<source node>/<name of the fusion>``. Also before.
output_tensor    The executed node writes a tensor that the source node writes. A Transpose or Reshape of the runtime's
                 own, where the source has another operator, comes after the epilogues: it may only give back the layout
                 of a node that computes the tensor.
node_name        The executed node kept the source node's name.
epilogue         Nodes without multiply-accumulates that follow a claimed node, as long as the executed node has their
                 operands at hand and writes no tensor of the source. A convolution with a fused sum keeps its name from
                 before the sum.
fill_upstream    Every reader of what the source node writes belongs to the executed node. A DequantizeLinear, which the
                 runtime copies for each of its readers, goes with the first.
fill_downstream  The executed node owns what the source node reads.
removed          No run changes what the node writes, or nothing that runs reads it: the runtime folded or dropped it.

An executed node without source nodes was inserted: a change of layout or of precision, or a copy of a
DequantizeLinear. The rules do not see the changes of precision (:mod:`common.attribution.precision_casts`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Literal

from common.attribution.precision_casts import model_name, without_casts
from common.graphs.graph import Graph, Node, operands
from common.graphs.operators import DEQUANTIZE
from common.graphs.source_graph import SourceGraph

Rule = Literal[
    "nchwc_name",
    "nhwc_name",
    "fusion_name",
    "output_tensor",
    "node_name",
    "epilogue",
    "fill_upstream",
    "fill_downstream",
    "removed",
]
NCHWC_SUFFIX = "_nchwc"
NCHWC_VARIANTS = ("_bn", "_mul")
LAYOUT_CHANGES = frozenset({"Transpose", "Reshape"})
NHWC_NAME = re.compile(r"(?P<node>.+)_token_\d+")
FUSION_NAME = re.compile(r"(?P<node>.+)/\w+Fusion/?(?:_token_\d+)?")


@dataclass(frozen=True, slots=True)
class Match:
    """A source node, its owner and the rule that matched them; the owner of a removed node is empty."""

    executed_node: str
    source_node: str
    rule: Rule


@dataclass(slots=True)
class _Claims:
    """The matches so far; ``idle`` are the source nodes that no run needs."""

    source: SourceGraph
    idle: Set[str]
    matches: dict[str, Match] = field(default_factory=dict)
    owned: dict[str, list[str]] = field(default_factory=dict)

    def claim(self, executed: str, source: str, rule: Rule) -> None:
        if source in self.source.nodes and source not in self.matches:
            self.matches[source] = Match(executed, source, rule)
            self.owned.setdefault(executed, []).append(source)

    def is_open(self, node: Node) -> bool:
        return node.name not in self.matches and node.name not in self.idle

    def owner(self, source: str) -> str:
        match = self.matches.get(source)
        return match.executed_node if match else ""

    def outputs(self, executed: str) -> list[str]:
        return [out for name in self.owned.get(executed, ()) for out in self.source.nodes[name].outputs]


def match_nodes(source: SourceGraph, executed: Graph, contractions: Set[str]) -> list[Match]:
    """Match every source node to an executed node; an epilogue contains none of the ``contractions``."""
    claims = _Claims(source, _idle(source))
    executed = without_casts(executed, source.nodes, {*source.producer, *source.consumers})
    for rule in (_claim_by_blocked_name, _claim_by_derived_name, _claim_by_tensor):
        for node in executed.nodes:
            rule(claims, node)
    for node in executed.nodes:  # after all rules by tensor: the runtime may give a new node another's name
        claims.claim(node.name, node.name, "node_name")
    for node in executed.nodes:
        _claim_epilogue(claims, executed, node, contractions)
    for node in executed.nodes:
        _claim_outputs(claims, node)
    for node in filter(claims.is_open, reversed(source.nodes.values())):
        _fill_upstream(claims, node)
    for node in filter(claims.is_open, source.nodes.values()):
        _fill_downstream(claims, node)
    return [claims.matches.get(name, Match("", name, "removed")) for name in source.nodes]


def _claim_by_tensor(claims: _Claims, node: Node) -> None:
    may_give_back = node.op_type in LAYOUT_CHANGES and node.name not in claims.source.nodes
    writers = {claims.source.producer.get(tensor, "") for tensor in node.outputs} - {""}
    if not may_give_back or all(claims.source.nodes[name].op_type == node.op_type for name in writers):
        _claim_outputs(claims, node)


def _claim_outputs(claims: _Claims, node: Node) -> None:
    for tensor in node.outputs:
        claims.claim(node.name, claims.source.producer.get(tensor, ""), "output_tensor")


def _claim_by_blocked_name(claims: _Claims, node: Node) -> None:
    """Find the tensor in the node's name: the longest part that is a tensor of the source."""
    if node.name.endswith(NCHWC_SUFFIX):
        tensor = model_name(node.name.removesuffix(NCHWC_SUFFIX), claims.source.producer)
        readings = (tensor, *(tensor.removesuffix(variant) for variant in NCHWC_VARIANTS))
        known = (claims.source.producer[reading] for reading in readings if reading in claims.source.producer)
        claims.claim(node.name, next(known, ""), "nchwc_name")


def _claim_by_derived_name(claims: _Claims, node: Node) -> None:
    if node.name in claims.source.nodes:
        return
    if fused := FUSION_NAME.fullmatch(node.name):
        source = claims.source.nodes.get(fused["node"])
        if source and len(node.outputs) <= len(source.outputs):  # with more it is several, as a Split may
            claims.claim(node.name, source.name, "fusion_name")
    elif channels_last := NHWC_NAME.fullmatch(node.name):
        claims.claim(node.name, channels_last["node"], "nhwc_name")


def _claim_epilogue(claims: _Claims, executed: Graph, node: Node, contractions: Set[str]) -> None:
    """Claim nodes downstream of claimed nodes, as far as the executed node has their operands."""
    if any(tensor in claims.source.producer for tensor in node.outputs):
        return  # its work ends with a tensor of the source
    near = {node.name, *(executed.producer.get(tensor, "") for tensor in operands(node))} - {""}
    frontier = deque(claims.outputs(node.name))
    while frontier:
        tensor = frontier.popleft()
        if tensor in executed.producer:
            continue  # the executed graph has this tensor, so its readers have executed nodes of their own
        for name in claims.source.consumers.get(tensor, ()):
            reader = claims.source.nodes[name]
            # A DequantizeLinear belongs to its reader.
            is_free = claims.is_open(reader) and name not in contractions and reader.op_type != DEQUANTIZE
            if is_free and all(_is_at_hand(claims, tensor, node, near) for tensor in operands(reader)):
                claims.claim(node.name, name, "epilogue")
                frontier.extend(reader.outputs)


def _is_at_hand(claims: _Claims, tensor: str, node: Node, near: Set[str]) -> bool:
    """Return whether the node reads the tensor, or it or a producer of its operands owns the node that writes it."""
    writer = claims.source.producer.get(tensor, "")
    return tensor in claims.source.constants or tensor in node.inputs or claims.owner(writer) in near


def _fill_upstream(claims: _Claims, node: Node) -> None:
    """Give the node to the owner of all its readers; readers are visited first, so a chain fills from its end."""
    readers = [name for tensor in node.outputs for name in claims.source.consumers.get(tensor, ())]
    owners = [owner for owner in dict.fromkeys(map(claims.owner, readers)) if owner]
    if len(owners) == 1 or (owners and node.op_type == DEQUANTIZE):
        claims.claim(owners[0], node.name, "fill_upstream")


def _fill_downstream(claims: _Claims, node: Node) -> None:
    owners = (claims.owner(claims.source.producer.get(tensor, "")) for tensor in operands(node))
    if owner := next(filter(None, owners), ""):
        claims.claim(owner, node.name, "fill_downstream")


def _idle(source: SourceGraph) -> set[str]:
    """Return the nodes that write only constants (such as a shape), and those whose readers are all idle."""
    idle = set[str]()
    for node in reversed(source.nodes.values()):
        is_needed = any(
            name in source.returned or any(reader not in idle for reader in source.consumers.get(name, ()))
            for name in node.outputs
            if name not in source.constants
        )
        if not is_needed:
            idle.add(node.name)
    return idle
