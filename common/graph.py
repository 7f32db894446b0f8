"""The vocabulary every room may use: nodes, the tensors between them, and the graph they form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

TensorKind = Literal["input", "weight", "activation", "output"]
Dim = int | str | None  # a number, a symbol, or unknown
Shape = tuple[Dim, ...] | None  # None: even the rank is unknown


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value in a graph. ``element_bits`` is 0 where the element type has no fixed width (strings)."""

    name: str
    dtype: str
    element_bits: int
    shape: Shape
    kind: TensorKind

    @property
    def element_count(self) -> int | None:
        """Number of elements, or None while a dimension is symbolic or unknown."""
        if self.shape is None:
            return None
        count = 1
        for dim in self.shape:
            if not isinstance(dim, int):
                return None
            count *= dim
        return count

    @property
    def size_bytes(self) -> int | None:
        """Stored size; sub-byte types are packed, so an int4 tensor of 3 elements takes 2 bytes."""
        count = self.element_count
        if count is None or (self.element_bits == 0 and count):
            return None
        return (count * self.element_bits + 7) // 8


@dataclass(frozen=True, slots=True)
class Node:
    """An instance of an operator. Absent optional operands are empty names, as in ONNX."""

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edge:
    """One tensor on its way: ``producer`` is empty at a graph input or weight, ``consumer`` at a graph output."""

    tensor: str
    producer: str
    consumer: str


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order with unique names, and every tensor they touch by name."""

    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    outputs: tuple[str, ...]

    @cached_property
    def by_name(self) -> dict[str, Node]:
        """Every node by its name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def producer(self) -> dict[str, str]:
        """The node that writes each tensor (weights and graph inputs have none)."""
        return {output: node.name for node in self.nodes for output in node.outputs if output}

    @cached_property
    def consumers(self) -> dict[str, tuple[str, ...]]:
        """The nodes that read each tensor, each once, in graph order."""
        readers: dict[str, dict[str, None]] = {}
        for node in self.nodes:
            for name in operands(node):
                readers.setdefault(name, {})[node.name] = None
        return {tensor: tuple(names) for tensor, names in readers.items()}

    def edges(self) -> Iterable[Edge]:
        """Every (tensor, producer, consumer), in the order of the consumers, then the graph outputs."""
        for node in self.nodes:
            for tensor in operands(node):
                yield Edge(tensor, self.producer.get(tensor, ""), node.name)
        for tensor in self.outputs:
            yield Edge(tensor, self.producer.get(tensor, ""), "")


def operands(node: Node) -> tuple[str, ...]:
    """The distinct tensors that a node reads: one that is named twice is read once."""
    return tuple(dict.fromkeys(name for name in node.inputs if name))
