"""Types of values: element type and shape of a tensor, or ONNX's own description of any other value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeAlias

import onnx
from onnx import TensorProto

from common.graph import Dim, Shape, Tensor, TensorKind
from common.onnx_graph.shapes.dtypes import dtype_name, element_bits

LARGEST_EXTENT = 2**63 - 1  # that ONNX holds


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor's element type (as ONNX numbers it) and shape."""

    element_type: int
    shape: Shape

    @property
    def is_known(self) -> bool:
        """Whether every dimension is a number."""
        return self.shape is not None and None not in self.shape

    @property
    def element_count(self) -> int | None:
        """Number of elements, or None while a dimension is unknown."""
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
    """Return whether type and shape of a value are known completely."""
    return known is not None and (not isinstance(known, TensorType) or known.is_known)


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


def common_shape(one: Shape, other: Shape) -> Shape:
    """Return the shape of a value that may have either shape: extents that differ are unknown."""
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(dim if dim == second else None for dim, second in zip(one, other, strict=True))


def to_tensor(name: str, value: ValueType, kind: TensorKind) -> Tensor:
    """Return the tensor as the shared graph holds it."""
    if isinstance(value, onnx.TypeProto):
        return Tensor(name, str(value.WhichOneof("value")).removesuffix("_type"), 0, None, kind)
    return Tensor(name, dtype_name(value.element_type), element_bits(value.element_type), value.shape, kind)
