"""The table from operator to work formula, and what a formula gets to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from common.graph import Count, Node, Tensor, is_symbolic, packed_bytes


class UnknownShapeError(Exception):
    """A formula needs a dimension that is not known; the result is unknown, never zero."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """The contraction as ``batch`` independent products of (M×K)·(K×N)."""

    batch: Count
    m: Count
    k: Count
    n: Count


@dataclass(frozen=True, slots=True)
class Cost:
    """What a formula answers.

    ``gemm`` is there where all MACs are one contraction, so that batch · M · K · N = MACs. ``reads`` overrides the
    bytes read of an operand, by operand index, and ``writes`` those written of an output.
    """

    macs: Count = 0
    other_flops: Count = 0
    gemm: Gemm | None = None
    moves_nothing: bool = False
    reads: Mapping[int, Count | None] = field(default_factory=dict)
    writes: Mapping[int, Count | None] = field(default_factory=dict)

    def plus(self, flops: Count) -> Cost:
        """The same with FLOPs added to those outside the contraction."""
        return replace(self, other_flops=self.other_flops + flops)


@dataclass(frozen=True, slots=True)
class Operation:
    """A node with its operands at hand; absent optional operands are None."""

    node: Node
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]

    def shape(self, index: int) -> tuple[Count, ...]:
        """Shape of operand ``index``."""
        return _known(self.inputs[index] if index < len(self.inputs) else None)

    def output_shape(self, index: int = 0) -> tuple[Count, ...]:
        """Shape of output ``index``."""
        return _known(self.outputs[index] if index < len(self.outputs) else None)

    def dim(self, index: int, axis: int) -> Count:
        """One dimension of operand ``index``, whose others need not be known."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None or tensor.shape is None or tensor.shape[axis] is None:
            raise UnknownShapeError
        return tensor.shape[axis]

    def elements(self, index: int) -> Count:
        """Number of elements of operand ``index``."""
        return prod(self.shape(index))

    def output_elements(self, index: int = 0) -> Count:
        """Number of elements of output ``index``."""
        return prod(self.output_shape(index))

    def has(self, index: int) -> int:
        """1 where the optional operand ``index`` is there, else 0: symbols cannot be multiplied by truth values."""
        return int(index < len(self.inputs) and self.inputs[index] is not None)

    def flag(self, name: str, default: int = 0) -> int:
        """1 where a numeric attribute is set to anything but 0."""
        return int(bool(self.attribute(name, default)))

    def touched_bytes(self, index: int, elements: Count) -> Count:
        """Bytes of ``elements`` of operand ``index``, or of all of it where it has fewer: what a gather reads."""
        tensor = self.inputs[index]
        if tensor is None or tensor.element_bits == 0:
            raise UnknownShapeError
        return packed_bytes(smaller(self.elements(index), elements), tensor.element_bits)

    def attribute(self, name: str, default: Any) -> Any:
        """Value of an attribute, or ONNX's default for it."""
        return self.node.attributes.get(name, default)

    def text(self, name: str, default: str) -> str:
        """Value of a string attribute."""
        value = self.attribute(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)


def _known(tensor: Tensor | None) -> tuple[Count, ...]:
    if tensor is None or tensor.shape is None or None in tensor.shape:
        raise UnknownShapeError
    return tensor.shape


def smaller(one: Count, other: Count) -> Count:
    """The smaller of two counts, of which each may be symbolic."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    from sympy import Min  # 0.3 s that only a model with unbound dimensions pays

    return Min(one, other)


def contraction(gemm: Gemm, other_flops: Count = 0) -> Cost:
    """The cost of one contraction, of which FLOPs outside it may be known as well."""
    return Cost(macs=gemm.batch * gemm.m * gemm.k * gemm.n, other_flops=other_flops, gemm=gemm)


def broadcast(one: Count, other: Count) -> Count:
    """The extent that two broadcast to: a number other than 1 decides; of two symbols nobody knows which is 1.

    Raises:
        UnknownShapeError: they are two different symbols.
    """
    if one in (1, other):
        return other
    if other == 1 or not is_symbolic(other):
        return one if other == 1 else other
    if is_symbolic(one):
        raise UnknownShapeError
    return one


Formula = Callable[[Operation], Cost]
FORMULAS: dict[tuple[str, str], Formula] = {}

ONNX, MICROSOFT, NCHWC = "", "com.microsoft", "com.microsoft.nchwc"
NHWC, MACHINE_LEARNING = "com.ms.internal.nhwc", "ai.onnx.ml"
PREVIEW, TRAINING = "ai.onnx.preview", "ai.onnx.preview.training"


def formula(*op_types: str, domains: tuple[str, ...] = (ONNX,)) -> Callable[[Formula], Formula]:
    """Register a formula for operators of the given domains; two formulas for one operator are a mistake."""

    def register(function: Formula) -> Formula:
        for domain in domains:
            for op_type in op_types:
                if (domain, op_type) in FORMULAS:
                    raise ValueError(f"two formulas for {domain}:{op_type}")
                FORMULAS[domain, op_type] = function
        return function

    return register
