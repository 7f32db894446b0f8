"""Groups of source nodes, the candidates for one kernel call; every source node is in exactly one group.

Only the group itself reads a tensor inside it, and the model does not return that tensor, so it never has to leave the
chip. No path leaves a group and comes back. Each step visits a node and its tensors a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from common.fusion import patterns
from common.graphs.graph import Node
from common.graphs.operators import ADDITIONS, MOVEMENT, POINTWISE, POOLS
from common.graphs.source_graph import SourceGraph


@dataclass(frozen=True, slots=True)
class Group:
    """Fused nodes in graph order; ``heads`` are the contractions among them."""

    kind: patterns.GroupKind
    nodes: tuple[str, ...]
    heads: tuple[str, ...]
    op_types: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """The operator types in graph order: ``Conv+BatchNormalization+Relu``."""
        return "+".join(self.op_types)


@dataclass(slots=True)
class _Seed:
    """A group that still grows. ``tail`` is the tensor that leaves it; empty if several do."""

    kind: patterns.GroupKind
    heads: list[str]
    nodes: list[str]
    tail: str = ""
    has_residual: bool = False


@dataclass(slots=True)
class _Grower:
    graph: SourceGraph
    owner: dict[str, _Seed] = field(default_factory=dict)

    def plant(self, kind: patterns.GroupKind, heads: Iterable[str], nodes: Iterable[str]) -> _Seed:
        seed = _Seed(kind, list(heads), [])
        for name in nodes:
            self.take(seed, self.graph.nodes[name])
        return seed

    def take(self, seed: _Seed, node: Node) -> None:
        self.owner[node.name] = seed
        seed.nodes.append(node.name)
        seed.tail = node.outputs[0] if len(node.outputs) == 1 else ""

    def plant_kernel(self, kind: patterns.GroupKind, nodes: tuple[str, ...]) -> None:
        """Start a group of a kernel that its first node heads, with what it reads through and its epilogue."""
        self.extend(self.plant(kind, nodes[:1], nodes))

    def extend(self, seed: _Seed) -> None:
        self.take_prologue(seed, patterns.READ_AS)
        self.take_regions(seed, partial(patterns.epilogue, self.graph))

    def take_regions(self, seed: _Seed, region_behind: Callable[[str], tuple[str, ...]]) -> None:
        """Take the nodes that follow, region by region."""
        while seed.tail and (region := region_behind(seed.tail)) and not self.has_any(region):
            for name in region:
                self.take(seed, self.graph.nodes[name])

    def has_any(self, nodes: Iterable[str]) -> bool:
        return any(name in self.owner for name in nodes)

    def take_transposes(self, seed: _Seed) -> None:
        """Take the transposes that follow: attention writes its heads in any order."""
        while seed.tail and (node := self.graph.sole_reader(seed.tail)) is not None:
            if node.op_type != "Transpose" or node.name in self.owner:
                return
            self.take(seed, node)

    def take_prologue(self, seed: _Seed, allowed: frozenset[str]) -> None:
        """Take the nodes that only change how an operand is read and whose output nothing else reads."""
        pending = list(seed.nodes)
        while pending:
            for tensor in self.graph.nodes[pending.pop()].inputs:
                node = self.graph.nodes.get(self.graph.producer.get(tensor, ""))
                if (
                    node is not None
                    and node.name not in self.owner
                    and node.op_type in allowed
                    and len(node.outputs) == 1
                    and len(self.graph.variables(node)) <= 1
                    and tensor not in self.graph.returned
                    and all(self.owner.get(reader) is seed for reader in self.graph.consumers[tensor])
                ):
                    self.owner[node.name] = seed
                    seed.nodes.append(node.name)
                    pending.append(node.name)


def fuse(graph: SourceGraph) -> tuple[Group, ...]:
    """Divide the source graph into the smallest groups that are worth a kernel call.

    Each group has at most one contraction, apart from attention; chains of groups are candidates of their own. Groups
    are in the order of their last node, which is an order in which they can run. Groups of kind ``none`` have no
    kernel: views, indices and shapes, control flow, unknown operators.
    """
    grower = _Grower(graph)
    _plant_attention(grower)
    _plant_heads(grower)
    _join_residuals(grower)
    _plant_rows(grower)
    _plant_pools(grower)
    _plant_pointwise(grower)
    for name in graph.nodes:
        if name not in grower.owner:
            grower.plant("none", (), (name,))
    seeds = {id(seed): seed for seed in grower.owner.values()}
    groups = [_finished(graph, seed) for seed in seeds.values()]
    return tuple(sorted(groups, key=lambda group: graph.position[group.nodes[-1]]))


def _finished(graph: SourceGraph, seed: _Seed) -> Group:
    nodes = graph.in_order(seed.nodes)
    return Group(seed.kind, nodes, graph.in_order(seed.heads), tuple(graph.nodes[name].op_type for name in nodes))


def _plant_attention(grower: _Grower) -> None:
    for name, node in grower.graph.nodes.items():
        chain = patterns.attention_chain(grower.graph, node)
        if chain and not grower.has_any(chain):
            seed = grower.plant("attention", (name, chain[-1]), chain)
            grower.take_prologue(seed, patterns.READ_AS_BY_ATTENTION)
            grower.take_transposes(seed)


def _plant_heads(grower: _Grower) -> None:
    for name, node in grower.graph.nodes.items():
        if node.op_type in patterns.HEADS and name not in grower.owner:
            grower.plant_kernel(patterns.HEADS[node.op_type], (name,))


def _join_residuals(grower: _Grower) -> None:
    """Give each residual addition to the last contraction whose result only it reads, as the runtime does."""
    graph = grower.graph
    for name, node in graph.nodes.items():
        variables = graph.variables(node)
        if node.op_type not in ADDITIONS or name in grower.owner or len(variables) != 2:
            continue
        tails = [_owner_of_tail(grower, tensor) for tensor in variables]
        open_to_join = [seed for seed in tails if seed is not None and not seed.has_residual]
        if open_to_join:
            seed = max(open_to_join, key=lambda candidate: graph.position[candidate.heads[0]])
            seed.has_residual = True
            grower.take(seed, node)
            grower.extend(seed)


def _owner_of_tail(grower: _Grower, tensor: str) -> _Seed | None:
    """Return the group of the contraction that writes ``tensor`` as its result, if only one node reads the tensor."""
    node = grower.graph.nodes.get(grower.graph.producer.get(tensor, ""))
    if node is not None and node.op_type in patterns.READ_AS and node.name not in grower.owner:
        read = grower.graph.variables(node)
        if grower.graph.sole_reader(tensor) is None or not read:
            return None
        tensor = read[0]  # quantized: the result of the group is read through this node
        node = grower.graph.nodes.get(grower.graph.producer.get(tensor, ""))
    seed = grower.owner.get(node.name) if node is not None else None
    if seed is None or seed.kind not in ("conv", "gemm") or seed.tail != tensor:
        return None
    return seed if grower.graph.sole_reader(tensor) is not None else None


def _plant_rows(grower: _Grower) -> None:
    """Start groups of normalizations and softmax, as one or several operators, with the scale and shift after them."""
    graph = grower.graph
    for node in graph.nodes.values():
        if not _is_loose(grower, node):
            continue
        nodes: tuple[str, ...] = (node.name,) if node.op_type in patterns.ROWS else ()
        if node.op_type in patterns.ROW_REDUCTIONS and len(graph.variables(node)) == 1:
            nodes = patterns.row_region(graph, node) or (node.name,)
        if nodes and not grower.has_any(nodes):
            grower.plant_kernel("rowwise", nodes)


def _plant_pools(grower: _Grower) -> None:
    graph = grower.graph
    for name, node in graph.nodes.items():
        if node.op_type in POOLS and name not in grower.owner and not graph.is_free(name):
            grower.plant_kernel("pool", (name,))


def _plant_pointwise(grower: _Grower) -> None:
    """Start groups of point-wise regions without a contraction (a GELU is row-wise), and of moves of elements."""
    graph = grower.graph
    for node in graph.nodes.values():
        if node.op_type in POINTWISE and _is_loose(grower, node):
            seed = grower.plant("pointwise", (node.name,), (node.name,))
            grower.take_prologue(seed, patterns.READ_AS)
            free = graph.variables(node)  # the region may also read the operands of the group
            grower.take_regions(seed, partial(patterns.closed_region, graph, allowed=POINTWISE, free=free))
            if patterns.is_gelu(graph.nodes[member].op_type for member in seed.nodes):
                seed.kind = "rowwise"
    # Nodes that only change how values are read come last: every group that could read through them has taken them.
    for node in graph.nodes.values():
        if node.op_type in MOVEMENT | patterns.READ_AS and _is_loose(grower, node):
            grower.plant("pointwise", (node.name,), (node.name,))


def _is_loose(grower: _Grower, node: Node) -> bool:
    """Return whether a node is in no group yet and computes with values, not only with indices, shapes or masks."""
    graph = grower.graph
    if node.name in grower.owner or graph.is_free(node.name):
        return False
    kinds = [{graph.dtypes.get(name, "") for name in ends} for ends in (graph.variables(node), node.outputs)]
    return bool(kinds[0]) and not kinds[0] & (patterns.INDEX_TYPES - {"bool"}) and not kinds[1] & patterns.INDEX_TYPES
