"""The registry of work formulas by operator, the node as a formula reads it, and what a formula says of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from common.graphs.expressions import smaller
from common.graphs.graph import Count, Graph, Node, Tensor, Traffic, is_symbolic, packed_bytes
from common.graphs.operators import ONNX
from common.graphs.sums import total
from common.messages.names import quoted
from common.onnx_graph.by_operator import ByOperator
from common.onnx_graph.malformed import MalformedNodeError

# FLOPs per element of the steps that several formulas share.
TANH = 1
SIGMOID = 4
GELU = SILU = 5  # of SiLU: a sigmoid and a product
RMS_NORM = 4
LAYER_NORM = 7
DEQUANTIZE = 2  # difference and product, as DequantizeLinear
QUANTIZE = 3  # division, rounding, saturation, as QuantizeLinear
REQUANTIZE = 2  # a product and a rounding sum per output of an integer contraction
QUANTIZE_DYNAMICALLY = 5  # minimum, maximum, division, rounding, saturation, as DynamicQuantizeLinear


class UnknownShapeError(Exception):
    """A formula needs a dimension that is not known; the node's work is then unknown, never zero."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """The contraction as ``batch`` independent products of (M×K)·(K×N)."""

    batch: Count
    m: Count
    k: Count
    n: Count


@dataclass(frozen=True, slots=True)
class Cost:
    """Work and traffic of one execution, as a formula returns them."""

    macs: Count = 0
    other_flops: Count = 0
    gemm: Gemm | None = None  # the contraction, where all MACs are a single one: batch · M · K · N = MACs
    # Packed weights that are dequantized, of ``DEQUANTIZE`` FLOPs each, which are not in the FLOPs
    dequantized: Count = 0
    moves_nothing: bool = False
    # Bytes read of an operand, by its index, where they differ from its size
    reads: Mapping[int, Count | None] = field(default_factory=dict)
    # Bytes written of an output, by its index, where they differ from its size
    writes: Mapping[int, Count | None] = field(default_factory=dict)

    def plus(self, flops: Count) -> Cost:
        return replace(self, other_flops=self.other_flops + flops)


@dataclass(frozen=True, slots=True)
class Operation:
    """A node with its operands; absent optional operands are None.

    The node comes from a file. Whatever its operator does not allow raises ``MalformedNodeError`` here, so that
    formulas may rely on ranks and on the types of attributes. A shape that is not known raises ``UnknownShapeError``.
    """

    node: Node
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]

    def malformed(self, problem: str) -> MalformedNodeError:
        return MalformedNodeError(self.node, problem)

    def shape(self, index: int, rank: int | None = None, least: int = 0) -> tuple[Count, ...]:
        """Return the shape of operand ``index``, which must have ``rank`` dimensions, or at least ``least``."""
        return self._shape(self.inputs, f"operand {index}", index, rank, least)

    def output_shape(self, index: int = 0, rank: int | None = None, least: int = 0) -> tuple[Count, ...]:
        """Return the shape of output ``index``, which must have ``rank`` dimensions, or at least ``least``."""
        return self._shape(self.outputs, f"output {index}", index, rank, least)

    def _shape(
        self, tensors: tuple[Tensor | None, ...], name: str, index: int, rank: int | None, least: int
    ) -> tuple[Count, ...]:
        tensor = tensors[index] if index < len(tensors) else None
        if tensor is None or tensor.shape is None or None in tensor.shape:
            raise UnknownShapeError
        count = len(tensor.shape)
        if rank is not None and count != rank:
            raise self.malformed(f"{name} has {count} dimensions instead of {rank}")
        if count < least:
            raise self.malformed(f"{name} has {count} dimensions, fewer than {least}")
        return tensor.shape

    def dim(self, index: int, axis: int) -> Count:
        """Return one dimension of operand ``index``; the others may be unknown."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None or tensor.shape is None:
            raise UnknownShapeError
        if not -len(tensor.shape) <= axis < len(tensor.shape):
            raise self.malformed(f"operand {index} has {len(tensor.shape)} dimensions, and no axis {axis}")
        if tensor.shape[axis] is None:
            raise UnknownShapeError
        return tensor.shape[axis]

    def required(self, index: int) -> Tensor | None:
        """Return operand ``index``, which the node must list (an empty name gives None)."""
        if index >= len(self.inputs):
            raise self.malformed(f"operand {index} is missing")
        return self.inputs[index]

    def required_output(self) -> Tensor | None:
        """Return the first output, which the node must list (an empty name gives None)."""
        if not self.outputs:
            raise self.malformed("output 0 is missing")
        return self.outputs[0]

    def elements(self, index: int) -> Count:
        return prod(self.shape(index))

    def output_elements(self, index: int = 0) -> Count:
        return prod(self.output_shape(index))

    def present(self, indices: Iterable[int]) -> int:
        """Count the optional operands that are there."""
        return sum(self.has(index) for index in indices)

    def has(self, index: int) -> int:
        """Return 1 where the optional operand ``index`` is there, else 0: a symbol is not multiplied by a boolean."""
        return int(index < len(self.inputs) and self.inputs[index] is not None)

    def flag(self, name: str, default: int = 0) -> int:
        """Return 1 where a numeric attribute is not 0, else 0."""
        return int(bool(self.attribute(name, default)))

    def touched_bytes(self, index: int, elements: Count) -> Count:
        """Return the bytes that a gather of ``elements`` reads of operand ``index``, at most all of them."""
        tensor = self.required(index)
        if tensor is None or tensor.element_bits == 0:
            raise UnknownShapeError
        return packed_bytes(smaller(self.elements(index), elements), tensor.element_bits)

    def rows_bytes(self, tensor: Tensor | None, axis: int, rows: Count) -> Count:
        """Return the bytes of a part of a tensor: ``rows`` along an axis, and all along the others."""
        if tensor is None or tensor.shape is None or tensor.element_bits == 0:
            raise UnknownShapeError
        others = tensor.shape[:axis] + tensor.shape[axis + 1 :]
        if None in others:
            raise UnknownShapeError
        return packed_bytes(rows * prod(others), tensor.element_bits)

    def value(self, index: int) -> Count:
        """Return the length that operand ``index`` holds, the largest of several."""
        tensor = self.required(index)
        if tensor is None or tensor.value is None:
            raise UnknownShapeError
        return tensor.value

    def attribute(self, name: str, default: object) -> object:
        return self.node.attributes.get(name, default)

    def integer(self, name: str, default: int) -> int:
        value = self.attribute(name, default)
        if not isinstance(value, int):
            raise self.malformed(f"attribute {name} is not an integer")
        return value

    def positive(self, name: str, default: int = 0) -> int:
        """Return an integer attribute that must be at least 1; without a default it is required."""
        value = self.integer(name, default)
        if value < 1:
            raise self.malformed(f"attribute {name} is missing or less than 1")
        return value

    def items(self, name: str) -> Sequence[object]:
        """Return the items of a list attribute; none where the node leaves it out."""
        value = self.attribute(name, ())
        if not isinstance(value, (list, tuple)):
            raise self.malformed(f"attribute {name} is not a list")
        return value

    def integers(self, name: str) -> list[int]:
        items = self.items(name)
        numbers = [item for item in items if isinstance(item, int)]
        if len(numbers) < len(items):
            raise self.malformed(f"attribute {name} is not a list of integers")
        return numbers

    def choice(self, name: str, table: Mapping[str, int], default: str) -> int:
        """Return the entry of ``table`` for the value of a string attribute."""
        word = self.text(name, default)
        if word not in table:
            raise self.malformed(f"attribute {name} is {quoted(word)}")
        return table[word]

    def quotient(self, dividend: Count, divisor: Count) -> Count:
        """Return the whole quotient by a dimension, which must not be 0."""
        if divisor == 0:
            raise self.malformed("a dimension is 0")
        return dividend // divisor

    def text(self, name: str, default: str) -> str:
        value = self.attribute(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def contraction(gemm: Gemm, other_flops: Count = 0, dequantized: Count = 0) -> Cost:
    macs = gemm.batch * gemm.m * gemm.k * gemm.n
    return Cost(macs=macs, other_flops=other_flops, gemm=gemm, dequantized=dequantized)


def broadcast(left: Count, right: Count) -> Count:
    """Return the extent that two extents broadcast to; a number other than 1 decides.

    Two different symbols, of which either may be 1, are an UnknownShapeError.
    """
    if left in (1, right):
        return right
    if right == 1 or not is_symbolic(right):
        return left if right == 1 else right
    if is_symbolic(left):
        raise UnknownShapeError
    return left


Formula = Callable[[Operation], Cost]
FORMULAS = formula = ByOperator[Formula](ONNX)  # the table, and the decorator that enters a function


@dataclass(frozen=True, slots=True)
class Work(Traffic):
    """Counts of one node in one execution; None is unknown. ``read_bytes`` and ``written_bytes`` are per tensor."""

    is_counted: bool
    macs: Count | None
    flops: Count | None
    gemm: Gemm | None
    dequantized: Count | None
    read_bytes: Mapping[str, Count | None]
    written_bytes: Mapping[str, Count | None]


def measure(graph: Graph, node: Node) -> Work:
    """Count one node. An operator without a formula has unknown work, but its operands are still read."""
    formula = FORMULAS.get((node.domain, node.op_type))
    cost = _cost(graph, node, formula) if formula else None
    known = cost or Cost()
    reads, written = _bytes(graph, node.inputs, known, known.reads), _bytes(graph, node.outputs, known, known.writes)
    weights = [size for name, size in reads.items() if graph.tensors[name].kind == "weight"]
    activations = [size for name, size in reads.items() if graph.tensors[name].kind != "weight"]
    return Work(
        is_counted=formula is not None,
        macs=cost.macs if cost else None,
        flops=2 * cost.macs + cost.other_flops if cost else None,
        gemm=cost.gemm if cost else None,
        dequantized=cost.dequantized if cost else None,
        read_bytes=reads,
        written_bytes=written,
        weight_bytes=total(weights),
        input_bytes=total(activations),
        output_bytes=total(written.values()),
    )


def _cost(graph: Graph, node: Node, formula: Formula) -> Cost | None:
    """Return the cost by the formula; None where a shape is unknown."""
    inputs, outputs = (
        tuple(graph.tensors[name] if name else None for name in names) for names in (node.inputs, node.outputs)
    )
    try:
        return formula(Operation(node, inputs, outputs))
    except UnknownShapeError:
        return None


def _bytes(
    graph: Graph, names: Sequence[str], cost: Cost, differing: Mapping[int, Count | None]
) -> dict[str, Count | None]:
    """Return the bytes that each operand or output costs: its size, apart from those that are ``differing``."""
    sizes = {name: 0 if cost.moves_nothing else graph.tensors[name].size_bytes for name in names if name}
    return sizes | {names[index]: size for index, size in differing.items() if names[index]}
