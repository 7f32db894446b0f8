"""Bytes of tensors on the card, at the number format of the kernels."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from common import number_formats
from common.fusion.border import BorderRole, BorderTensor
from common.number_formats import FLOAT_FORMATS, PRECISION_BITS


def card_bytes(size_bytes: int | None, dtype: str, precision: str) -> int | None:
    """Return the bytes of a tensor on the card; formats below a byte are packed. None where the size is unknown.

    Floating-point tensors are converted to the format of the kernels, integers keep their width.
    """
    bits = number_formats.element_bits(dtype)
    if size_bytes is None or dtype not in FLOAT_FORMATS or not bits:
        return size_bytes
    return ceil(size_bytes * PRECISION_BITS[precision] / bits)


def element_bits(dtype: str, precision: str) -> int:
    return PRECISION_BITS[precision] if dtype in FLOAT_FORMATS else number_formats.element_bits(dtype) or 8


def bytes_by_role(tensors: Iterable[BorderTensor], precision: str) -> dict[BorderRole, int] | None:
    """Return the bytes that cross a border on the card, by role; None where a size is unknown."""
    role_bytes: dict[BorderRole, int] = {"weight": 0, "read": 0, "write": 0}
    for tensor in tensors:
        size = card_bytes(tensor.size_bytes, tensor.dtype, precision)
        if size is None:
            return None
        role_bytes[tensor.role] += size
    return role_bytes
