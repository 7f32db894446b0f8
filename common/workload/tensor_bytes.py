"""How many bytes a tensor takes on the card, at the number format of the kernels."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from common.fusion.border import BorderRole, BorderTensor
from common.number_formats import PRECISION_BITS

# The formats that are converted to the kernel's; integers (indices, quantized values) keep their width.
FLOAT_BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}


def card_bytes(size_bytes: int | None, dtype: str, precision: str) -> int | None:
    """A tensor's bytes on the card, packed below a byte; None where its size is unknown."""
    bits = FLOAT_BITS.get(dtype)
    if size_bytes is None or bits is None:
        return size_bytes
    return ceil(size_bytes * PRECISION_BITS[precision] / bits)


def element_bits(dtype: str, precision: str) -> int:
    """Width of a stored element on the card."""
    if dtype in FLOAT_BITS:
        return PRECISION_BITS[precision]
    digits = "".join(filter(str.isdigit, dtype))
    return int(digits) if digits else 8


def bytes_by_role(tensors: Iterable[BorderTensor], precision: str) -> dict[BorderRole, int] | None:
    """What crosses a border on the card, by role; None where a size is unknown."""
    found: dict[BorderRole, int] = {"weight": 0, "read": 0, "write": 0}
    for tensor in tensors:
        size = card_bytes(tensor.size_bytes, tensor.dtype, precision)
        if size is None:
            return None
        found[tensor.role] += size
    return found
