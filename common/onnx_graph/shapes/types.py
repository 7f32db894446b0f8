"""Types of values: element type and shape of a tensor, or ONNX's own description of any other value.

Element types have names, and widths as they are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy.typing as npt
import onnx
from onnx import TensorProto

from common.graphs import number_formats
from common.graphs.graph import Dim, Shape, Tensor, TensorKind

Array: TypeAlias = npt.NDArray[Any]  # of any element type
Value: TypeAlias = Array | list[object]  # a sequence is a list
LARGEST_EXTENT = 2**63 - 1  # that ONNX holds


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor's element type (as ONNX numbers it) and shape."""

    element_type: int
    shape: Shape

    @property
    def element_count(self) -> int | None:
        return prod(self.shape) if self.shape is not None and None not in self.shape else None


# Sequences, optionals, maps and sparse tensors stay as ONNX describes them: inference needs them, no formula does.
ValueType: TypeAlias = TensorType | onnx.TypeProto
UNKNOWN = TensorType(TensorProto.UNDEFINED, None)
MOST_SHARED = 10_000  # types


def value_type(proto: onnx.TypeProto) -> ValueType:
    """Convert ONNX's description; a dimension that is not a number is unknown."""
    return _shared_type(bytes(proto.SerializeToString()))


@lru_cache(MOST_SHARED)
def _shared_type(content: bytes) -> ValueType:
    """Return one object for all values of a type: a model has many alike."""
    proto: onnx.TypeProto = onnx.TypeProto.FromString(content)
    kind = proto.WhichOneof("value")
    if kind not in (None, "tensor_type"):
        return proto
    declared = proto.tensor_type
    shape = tuple(fixed_dim(dim) for dim in declared.shape.dim) if declared.HasField("shape") else None
    return TensorType(declared.elem_type, shape)


def is_complete(known: ValueType | None) -> bool:
    return known is not None and (not isinstance(known, TensorType) or known.element_count is not None)


def fixed_dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    """Return a dimension's number, or None where it is free; some exporters write -1 for a free dimension."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def stored_type(element_type: int, dims: Iterable[int]) -> TensorType:
    """Return the type of a stored tensor; a negative extent is unknown."""
    return TensorType(element_type, tuple(extent if extent >= 0 else None for extent in dims))


def type_proto(value: ValueType) -> onnx.TypeProto:
    """Convert to ONNX's description, for ONNX's own inference; an extent that ONNX cannot hold stays unknown."""
    if isinstance(value, onnx.TypeProto):
        return value
    proto = onnx.TypeProto()
    proto.tensor_type.elem_type = value.element_type
    if value.shape is not None:
        dims = proto.tensor_type.shape.dim
        for extent in value.shape:
            dim = dims.add()
            if extent is not None and extent <= LARGEST_EXTENT:
                dim.dim_value = extent
        proto.tensor_type.shape.SetInParent()
    return proto


def merge(known: ValueType | None, learned: ValueType) -> ValueType:
    """Combine two descriptions of one value; where both know a dimension, the first one wins."""
    if known is None or isinstance(known, onnx.TypeProto) or isinstance(learned, onnx.TypeProto):
        return learned if known is None or known == UNKNOWN else known
    element_type = known.element_type or learned.element_type
    if known.shape is None or learned.shape is None or len(known.shape) != len(learned.shape):
        return TensorType(element_type, learned.shape if known.shape is None else known.shape)
    dims = (other if dim is None else dim for dim, other in zip(known.shape, learned.shape, strict=True))
    return TensorType(element_type, tuple(dims))


def common_shape(left: Shape, right: Shape) -> Shape:
    """Return the shape of a value that may have either shape: extents that differ are unknown."""
    if left is None or right is None or len(left) != len(right):
        return None
    return tuple(dim if dim == right_dim else None for dim, right_dim in zip(left, right, strict=True))


def to_tensor(name: str, value: ValueType, kind: TensorKind) -> Tensor:
    if isinstance(value, onnx.TypeProto):
        return Tensor(name, str(value.WhichOneof("value")).removesuffix("_type"), 0, None, kind)
    return Tensor(name, dtype_name(value.element_type), element_bits(value.element_type), value.shape, kind)


@cache
def dtype_name(element_type: int) -> str:
    """Return the name of an ONNX element type, with its width: ``float32`` for ``TensorProto.FLOAT``."""
    name = TensorProto.DataType.Name(element_type) if element_type in TensorProto.DataType.values() else "UNDEFINED"
    return number_formats.element_type_name(name)


@cache
def element_bits(element_type: int) -> int:
    """Return the stored bits of one element; 0 where there is no fixed width."""
    return number_formats.element_bits(dtype_name(element_type)) or 0


def element_type(dtype: str) -> int:
    """Return the ONNX element type of a name that ``dtype_name`` returns; UNDEFINED for any other name."""
    return int(_TYPE_BY_NAME.get(dtype, TensorProto.UNDEFINED))


def named_bits(dtype: str) -> int:
    """Return the stored bits of one element by the type's name; 0 where there is no fixed width."""
    return _BITS_BY_NAME.get(dtype, 0)


def stored_bytes(dtype: str, shape: Sequence[int]) -> int | None:
    """Return the stored size of a tensor of a named element type; None where the type has no fixed width."""
    bits = named_bits(dtype)
    return (prod(shape) * bits + 7) // 8 if bits else None


_BITS_BY_NAME = {dtype_name(value): element_bits(value) for value in TensorProto.DataType.values()}
_TYPE_BY_NAME = {dtype_name(value): value for value in TensorProto.DataType.values()}
