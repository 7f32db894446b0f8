"""Nodes, the tensors between them, the graph that they form, and the bytes that they move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Literal, TypeAlias

from common.graphs import expressions
from common.graphs.sums import total

TensorKind = Literal["input", "weight", "activation", "output"]
Count: TypeAlias = expressions.Count  # an int, or an expression over the dimensions that were left unbound
Dim: TypeAlias = Any  # a count, or None: unknown
GAP = "(gap)"  # the time between nodes where a table names nodes; no node has this name
Shape = tuple[Dim, ...] | None  # None: even the rank is unknown


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value in a graph. ``element_bits`` is 0 where the element type has no fixed width (strings).

    ``value`` is the largest whole number in it, where an operator reads it as lengths; None is unknown.
    """

    name: str
    dtype: str
    element_bits: int
    shape: Shape
    kind: TensorKind
    value: Count | None = None

    @property
    def element_count(self) -> Count | None:
        return None if self.shape is None or None in self.shape else prod(self.shape)

    @property
    def size_bytes(self) -> Count | None:
        """Stored size; sub-byte types are packed, so an int4 tensor of 3 elements takes 2 bytes."""
        count = self.element_count
        if count is None or (self.element_bits == 0 and count != 0):
            return None
        return packed_bytes(count, self.element_bits)


def is_symbolic(count: Count | None) -> bool:
    return isinstance(count, expressions.Expression)


def packed_bytes(count: Count, element_bits: int) -> Count:
    return count * (element_bits // 8) if element_bits % 8 == 0 else (count * element_bits + 7) // 8


@dataclass(frozen=True, slots=True)
class Node:
    """An instance of an operator. Absent optional operands are empty names, as in ONNX.

    ``body`` is the name of the node's body, empty at the top level.
    """

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    body: str = ""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that a node or several fused ones must move in one run; None is unknown."""

    weight_bytes: Count | None
    input_bytes: Count | None
    output_bytes: Count | None

    @property
    def bytes(self) -> Count | None:
        return total((self.weight_bytes, self.input_bytes, self.output_bytes))


@dataclass(frozen=True, slots=True)
class WorkInRun(Traffic):
    """Work and traffic of an executed node in one run; None is unknown."""

    macs: int | None
    flops: int | None


@dataclass(frozen=True, slots=True)
class Body:
    """A subgraph that a control-flow node runs: the body of a Loop or a Scan, a branch of an If.

    ``execution_count`` is how often it runs in one run of the model, repetitions of enclosing bodies included; None is
    unknown.
    ``execution_bound`` is the most that it can run; None where there is no bound.
    """

    name: str
    owner: str
    execution_count: Count | None
    execution_bound: Count | None


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor between two nodes: ``producer`` is empty at a graph input or weight, ``consumer`` at a graph output."""

    tensor: str
    producer: str
    consumer: str


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order with unique names, and all of their tensors by name.

    Bodies of control-flow nodes are laid out flat: their nodes come before their owner, which reads what the body
    returns. ``aliases`` maps the name that a body gives one of its inputs to the operand of the owner behind it.
    """

    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    outputs: tuple[str, ...]
    bodies: Mapping[str, Body] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def producer(self) -> dict[str, str]:
        """Return the name of the node that writes each tensor; weights and graph inputs have none."""
        written = {output: node.name for node in self.nodes for output in node.outputs if output}
        for alias, operand in self.aliases.items():  # the aliases of an outer body come first
            if operand in written:
                written[alias] = written[operand]
        return written

    @cached_property
    def consumers(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the nodes that read each tensor, each once, in graph order."""
        readers: dict[str, dict[str, None]] = {}
        for node in self.nodes:
            for name in operands(node):
                readers.setdefault(name, {})[node.name] = None
        return {tensor: tuple(names) for tensor, names in readers.items()}

    @cached_property
    def members(self) -> dict[str, list[Node]]:
        """Nodes of each body; an empty name is the top level."""
        members: dict[str, list[Node]] = {}
        for node in self.nodes:
            members.setdefault(node.body, []).append(node)
        return members

    @cached_property
    def owned(self) -> dict[str, list[Body]]:
        """Bodies of each control-flow node, by its name."""
        owned: dict[str, list[Body]] = {}
        for body in self.bodies.values():
            owned.setdefault(body.owner, []).append(body)
        return owned

    def readers(self, node: Node) -> list[str]:
        return [name for output in node.outputs for name in self.consumers.get(output, ())]

    def edges(self) -> Iterable[Edge]:
        """Yield every edge, in the order of the consumers, then those to the graph outputs."""
        for node in self.nodes:
            for tensor in operands(node):
                yield Edge(tensor, self.producer.get(tensor, ""), node.name)
        for tensor in dict.fromkeys(self.outputs):  # a graph may return a tensor twice
            yield Edge(tensor, self.producer.get(tensor, ""), "")


def operands(node: Node) -> tuple[str, ...]:
    """Return the distinct tensors that a node reads; a tensor that it names twice is read once."""
    return tuple(dict.fromkeys(name for name in node.inputs if name))
