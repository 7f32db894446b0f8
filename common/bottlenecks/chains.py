"""Chains of element-wise operators: what passes between them is written to memory, and read from there again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from common.bottlenecks.executed_nodes import ExecutedGraph
from common.graphs.grouping import grouped
from common.graphs.operators import ACTIVATIONS, ADDITIONS, ARITHMETIC
from common.graphs.sums import total

KINDS = (frozenset({"Add", "Sub"}), frozenset({"Mul", "Div"}))
AFFINE = frozenset.union(*KINDS)
ELEMENT_WISE = ACTIVATIONS | ADDITIONS | ARITHMETIC


@dataclass(frozen=True, slots=True)
class ElementWiseChain:
    """Element-wise nodes that one pass over their operands could compute."""

    nodes: tuple[str, ...]  # in execution order
    between_bytes: int  # of the tensors between them, once
    merged_bytes: int  # of constants that could be joined to another constant of the chain
    all_bytes: int


def element_wise_chains(graph: ExecutedGraph, selected: Set[str]) -> Iterator[ElementWiseChain]:
    """Yield the largest groups of selected element-wise nodes that end in one node.

    Every other node of a group has one reader, which is in the group.

    A chain with a tensor or a node of unknown size is left out. So is one of activations alone: no operator of ONNX
    computes two of them, and their functions take longer than their tensors.
    """
    nodes = [name for name in graph.nodes if name in selected and graph.types[name] in ELEMENT_WISE]
    sizes = {(producer, consumer): size for producer, consumer, size in graph.tensors}
    next_of = {name: reader for name in nodes if (reader := _only_reader(graph, name, {*nodes})) is not None}
    for members in _groups(nodes, next_of):
        if len(members) < 2 or {graph.types[name] for name in members} <= ACTIVATIONS:
            continue
        between = total(sizes[name, next_of[name]] for name in members if name in next_of)
        moved = total(graph.nodes[name].row["bytes"] for name in members)
        merged = _merged_bytes(graph, members)
        if between is not None and merged is not None and moved is not None:
            yield ElementWiseChain(members, between, merged, moved)


def _merged_bytes(graph: ExecutedGraph, members: Sequence[str]) -> int | None:
    """Return the bytes of constants that a chain of sums, or of products, could join into its largest one.

    A chain of both keeps a factor and a summand.
    """
    if not {graph.types[name] for name in members} <= AFFINE:
        return 0
    merged: list[int | None] = []
    for kind in KINDS:
        sizes = [graph.nodes[name].row["weight_bytes"] for name in members if graph.types[name] in kind]
        known = [size for size in sizes if size is not None]
        merged.append(sum(known) - max(known, default=0) if len(known) == len(sizes) else None)
    return total(merged)


def _only_reader(graph: ExecutedGraph, name: str, within: Set[str]) -> str | None:
    readers = {*graph.readers[name]}
    return readers.pop() if len(readers) == 1 and readers <= within and name not in graph.returning else None


def _groups(nodes: list[str], next_of: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield the nodes that lead to the same last node."""
    last_of: dict[str, str] = {}
    for name in reversed(nodes):  # readers come before what they read
        last_of[name] = last_of[next_of[name]] if name in next_of else name
    groups = grouped((last, name) for name, last in last_of.items())
    yield from (tuple(reversed(group)) for group in reversed(groups.values()))
