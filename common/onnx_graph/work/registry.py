"""The table from operator to work formula, and what a formula gets to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from common.graph import Node, Tensor


class UnknownShapeError(Exception):
    """A formula needs a dimension that is not known; the result is unknown, never zero."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """The contraction as ``batch`` independent products of (M×K)·(K×N)."""

    batch: int
    m: int
    k: int
    n: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What a formula answers. ``reads`` overrides the bytes read of an operand, by operand index."""

    macs: int = 0
    other_flops: int = 0
    gemm: Gemm | None = None
    moves_nothing: bool = False
    reads: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """A node with its operands at hand; absent optional operands are None."""

    node: Node
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of operand ``index``."""
        return _known(self.inputs[index] if index < len(self.inputs) else None)

    def output_shape(self, index: int = 0) -> tuple[int, ...]:
        """Shape of output ``index``."""
        return _known(self.outputs[index] if index < len(self.outputs) else None)

    def elements(self, index: int) -> int:
        """Number of elements of operand ``index``."""
        return prod(self.shape(index))

    def output_elements(self, index: int = 0) -> int:
        """Number of elements of output ``index``."""
        return prod(self.output_shape(index))

    def has(self, index: int) -> bool:
        """Whether the optional operand ``index`` is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def attribute(self, name: str, default: Any) -> Any:
        """Value of an attribute, or ONNX's default for it."""
        return self.node.attributes.get(name, default)

    def text(self, name: str, default: str) -> str:
        """Value of a string attribute."""
        value = self.attribute(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)


def _known(tensor: Tensor | None) -> tuple[int, ...]:
    if tensor is None or tensor.shape is None:
        raise UnknownShapeError
    dims = tuple(dim for dim in tensor.shape if isinstance(dim, int))
    if len(dims) != len(tensor.shape):
        raise UnknownShapeError
    return dims


Formula = Callable[[Operation], Cost]
FORMULAS: dict[tuple[str, str], Formula] = {}

ONNX, MICROSOFT, NCHWC = "", "com.microsoft", "com.microsoft.nchwc"


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
