"""The registry of shape rules by operator, the node as a rule reads it, and the function that applies a rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx

from common.graphs import sums
from common.graphs.graph import Dim, Shape, Tensor
from common.graphs.operators import MICROSOFT
from common.onnx_graph.by_operator import ByOperator
from common.onnx_graph.shapes.types import Array, element_type

Output: TypeAlias = tuple[int, Shape] | None
FindValue: TypeAlias = Callable[[str], Array | None]


class UnfitError(Exception):
    """The node breaks its operator's specification, so nothing is known about its outputs.

    An error in the node is reported where its work is counted.
    """


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """A node with its operands; absent optional ones are None. What its operator forbids is an UnfitError.

    With ``bounded``, extents that depend on data are to be the largest possible ones where there are any.
    """

    node: onnx.NodeProto
    operands: tuple[Tensor | None, ...]
    find_value: FindValue
    bounded: bool = False

    def operand(self, index: int) -> Tensor | None:
        """Return operand ``index``, or None where the node leaves it out."""
        return self.operands[index] if index < len(self.operands) else None

    def has(self, index: int) -> bool:
        return self.operand(index) is not None

    def element_type(self, index: int) -> int:
        """Return the ONNX element type of operand ``index``; UNDEFINED where it is absent or unknown."""
        tensor = self.operand(index)
        return element_type(tensor.dtype) if tensor else onnx.TensorProto.UNDEFINED

    def shape(self, index: int) -> Shape:
        """Return the shape of operand ``index``; a symbolic or unknown dimension is None."""
        tensor = self.operand(index)
        if tensor is None or tensor.shape is None:
            return None
        return tuple(dim if isinstance(dim, int) else None for dim in tensor.shape)

    def dims(self, index: int, rank: int) -> tuple[Dim, ...]:
        """Return the ``rank`` dimensions of operand ``index``, all None where its shape is unknown."""
        shape = self.shape(index)
        if shape is None:
            return (None,) * rank
        if len(shape) != rank:
            raise UnfitError
        return shape

    def value(self, index: int) -> Array | None:
        tensor = self.operand(index)
        return self.find_value(tensor.name) if tensor else None

    def scalar(self, index: int) -> int | None:
        value = self.value(index)
        return whole_numbers(value)[0] if value is not None and value.size == 1 else None

    def attribute(self, name: str, default: object = None) -> object:
        for attribute in self.node.attribute:
            if attribute.name == name:
                return onnx.helper.get_attribute_value(attribute)
        return default

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute, which is required unless it has a default."""
        value = self.attribute(name, default)
        if not isinstance(value, int):
            raise UnfitError
        return value

    def integers(self, name: str) -> list[int]:
        """Return the items of a list of integers; none where the node leaves it out."""
        value = self.attribute(name, ())
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, int) for item in value):
            raise UnfitError
        return [*value]

    def same(self, index: int) -> Output:
        return self.element_type(index), self.shape(index)


Rule = Callable[[OperatorCall], Sequence[Output]]
RULES = rule = ByOperator[Rule](MICROSOFT)  # the table, and the decorator that enters a function


def contrib_outputs(
    node: onnx.NodeProto, operands: Sequence[Tensor | None], find_value: FindValue
) -> list[Output] | None:
    """Return (ONNX element type, shape) of each output; None for one that is unknown, or without a rule at all."""
    infer = RULES.of(node)
    if infer is None:
        return None
    try:
        known = list(infer(OperatorCall(node, tuple(operands), find_value)))
    except UnfitError:
        known = []
    known += [None] * (len(node.output) - len(known))
    named = zip(node.output, known, strict=False)
    return [output if name and output and has_valid_extents(output[1]) else None for name, output in named]


def has_valid_extents(shape: Shape) -> bool:
    """Return whether no known dimension is negative; a malformed node may have a negative one."""
    return all(dim is None or dim >= 0 for dim in shape or ())


# --- arithmetic in which an unknown dimension stays unknown ---------------------------------------------------------


def total(*dims: Dim) -> Dim:
    return sums.total(dims)


def product(*dims: Dim) -> Dim:
    return sums.product(dims)


def smallest(*dims: Dim) -> Dim:
    """Return the smallest of the known dimensions."""
    return min((dim for dim in dims if dim is not None), default=None)


def quotient(dim: Dim, divisor: Dim) -> Dim:
    return dim // divisor if dim is not None and divisor else None


def as_tuple(value: Array | None, rank: int) -> tuple[Dim, ...]:
    """Return the numbers of a known list, or ``rank`` unknown dimensions."""
    return tuple(whole_numbers(value)) if value is not None else (None,) * rank


def whole_numbers(value: Array) -> list[int]:
    """Return the numbers of an operand as integers; text and numbers that are not finite do not fit."""
    if value.dtype.kind not in "biuf" or not np.isfinite(value).all():
        raise UnfitError
    return [int(number) for number in np.ravel(value)]
