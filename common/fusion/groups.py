"""Every source node in exactly one group: the candidates for one kernel call.

A tensor inside a group is read by that group alone and is not returned by the graph, so it never has to leave the
chip, and no path leaves a group and comes back. Each step visits a node and its tensors a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from common.fusion.patterns import (
    HEADS,
    READ_AS,
    READ_AS_BY_ATTENTION,
    RESIDUAL,
    GroupKind,
    attention_chain,
    pointwise_region,
)
from common.fusion.source_graph import SourceGraph
from common.graph import Node


@dataclass(frozen=True, slots=True)
class Group:
    """Fused nodes in graph order; ``heads`` are the contractions among them."""

    kind: GroupKind
    nodes: tuple[str, ...]
    heads: tuple[str, ...]
    op_types: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """The operator types in graph order, ``Conv+BatchNormalization+Relu``."""
        return "+".join(self.op_types)


@dataclass(slots=True)
class _Seed:
    """A group that still grows. ``tail`` is the tensor that leaves it, empty where it has several."""

    kind: GroupKind
    heads: list[str]
    nodes: list[str]
    tail: str = ""
    has_residual: bool = False


@dataclass(slots=True)
class _Grower:
    graph: SourceGraph
    owner: dict[str, _Seed] = field(default_factory=dict)

    def plant(self, kind: GroupKind, heads: Iterable[str], nodes: Iterable[str]) -> _Seed:
        seed = _Seed(kind, list(heads), [])
        for name in nodes:
            self.take(seed, self.graph.nodes[name])
        return seed

    def take(self, seed: _Seed, node: Node) -> None:
        """Append a node; what leaves the group now is what this node writes."""
        self.owner[node.name] = seed
        seed.nodes.append(node.name)
        seed.tail = node.outputs[0] if len(node.outputs) == 1 else ""

    def take_epilogue(self, seed: _Seed) -> None:
        """Take the point-wise nodes that follow, as long as they read nothing else."""
        while seed.tail and (region := pointwise_region(self.graph, seed.tail)):
            if any(name in self.owner for name in region):
                return
            for name in region:
                self.take(seed, self.graph.nodes[name])

    def take_transposes(self, seed: _Seed) -> None:
        """Attention writes its heads in whatever order is asked for."""
        while seed.tail and (node := self.graph.sole_reader(seed.tail)) is not None:
            if node.op_type != "Transpose" or node.name in self.owner:
                return
            self.take(seed, node)

    def take_prologue(self, seed: _Seed, allowed: frozenset[str]) -> None:
        """Take the nodes that only change how an operand is read, if nothing else reads their output."""
        pending = list(seed.nodes)
        while pending:
            for tensor in self.graph.nodes[pending.pop()].inputs:
                node = self.graph.nodes.get(self.graph.producer.get(tensor, ""))
                if node is None or node.name in self.owner or not self._is_prologue(seed, node, tensor, allowed):
                    continue
                self.owner[node.name] = seed
                seed.nodes.append(node.name)
                pending.append(node.name)

    def _is_prologue(self, seed: _Seed, node: Node, tensor: str, allowed: frozenset[str]) -> bool:
        readers = self.graph.consumers[tensor]
        return (
            node.op_type in allowed
            and len(node.outputs) == 1
            and len(self.graph.variables(node)) <= 1
            and tensor not in self.graph.returned
            and all(self.owner.get(reader) is seed for reader in readers)
        )


def find_groups(graph: SourceGraph) -> tuple[Group, ...]:
    """Divide the source graph into candidates for a kernel; what fuses with nothing is a group of its own.

    Returns:
        Groups in the order of their last node, which is an order in which they can run.
    """
    grower = _Grower(graph)
    _plant_attention(grower)
    seeds = _plant_heads(grower)
    _join_residuals(grower)
    _chain_gemms(grower, seeds)
    for name in graph.nodes:
        if name not in grower.owner:
            grower.plant("none", (), (name,))
    # A seed that was merged into a chain owns no node any more.
    alive = {id(seed): seed for seed in grower.owner.values()}
    groups = [_finished(graph, seed) for seed in alive.values()]
    return tuple(sorted(groups, key=lambda group: graph.position[group.nodes[-1]]))


def _finished(graph: SourceGraph, seed: _Seed) -> Group:
    nodes = graph.in_order(seed.nodes)
    return Group(seed.kind, nodes, graph.in_order(seed.heads), tuple(graph.nodes[name].op_type for name in nodes))


def _plant_attention(grower: _Grower) -> None:
    for name, node in grower.graph.nodes.items():
        chain = attention_chain(grower.graph, node)
        if not chain or any(member in grower.owner for member in chain):
            continue
        seed = grower.plant("attention", (name, chain[-1]), chain)
        grower.take_prologue(seed, READ_AS_BY_ATTENTION)
        grower.take_transposes(seed)


def _plant_heads(grower: _Grower) -> list[_Seed]:
    seeds = []
    for name, node in grower.graph.nodes.items():
        if node.op_type in HEADS and name not in grower.owner:
            seed = grower.plant(HEADS[node.op_type], (name,), (name,))
            grower.take_prologue(seed, READ_AS)
            grower.take_epilogue(seed)
            seeds.append(seed)
    return seeds


def _join_residuals(grower: _Grower) -> None:
    """Give each residual addition to the last convolution whose result it alone reads (as the runtime does)."""
    graph = grower.graph
    for name, node in graph.nodes.items():
        variables = graph.variables(node)
        if node.op_type not in RESIDUAL or name in grower.owner or len(variables) != 2:
            continue
        tails = [_owner_of_tail(grower, tensor, "conv") for tensor in variables]
        open_to_join = [seed for seed in tails if seed is not None and not seed.has_residual]
        if open_to_join:
            seed = max(open_to_join, key=lambda candidate: graph.position[candidate.heads[0]])
            seed.has_residual = True
            grower.take(seed, node)
            grower.take_epilogue(seed)


def _owner_of_tail(grower: _Grower, tensor: str, kind: GroupKind) -> _Seed | None:
    """The group of that kind that ``tensor`` leaves, if only one node reads it."""
    seed = grower.owner.get(grower.graph.producer.get(tensor, ""))
    if seed is None or seed.kind != kind or seed.tail != tensor:
        return None
    return seed if grower.graph.sole_reader(tensor) is not None else None


def _chain_gemms(grower: _Grower, seeds: list[_Seed]) -> None:
    """Join a GEMM to the one whose result it alone reads: rows of the product between them stay on the chip."""
    for seed in (seed for seed in seeds if seed.kind == "gemm"):
        for tensor in grower.graph.nodes[seed.heads[0]].inputs:
            first = _owner_of_tail(grower, tensor, "gemm")
            if first is not None and first is not seed:
                _merge(grower, first, seed)
                break


def _merge(grower: _Grower, first: _Seed, second: _Seed) -> None:
    first.heads += second.heads
    first.nodes += second.nodes
    first.tail = second.tail
    for name in second.nodes:
        grower.owner[name] = first
