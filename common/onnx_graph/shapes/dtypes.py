"""Element types of ONNX: their names and their stored widths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

from onnx import TensorProto

from common import number_formats


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
