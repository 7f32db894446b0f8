"""Number formats: their names and widths, and the ONNX element types that are stored in them.

A *format* is what arithmetic is done in and what a kernel stores: ``fp32``, ``bf16``, ``int8``. An *element type* is
ONNX's name for what a tensor holds: ``float32``, ``bfloat16``, ``int8``, ``bool``.
"""

from __future__ import annotations

import re

FP32, INT8 = "fp32", "int8"
# The formats that kernels on a board compute in, with the bits of one element.
PRECISION_BITS = {"fp64": 64, "fp32": 32, "bf16": 16, "int16": 16, "int8": 8, "int4": 4}
HALF_FORMATS = {"float16": "fp16", "bfloat16": "bf16"}
# The format of each floating-point element type. Kernels convert these; integers (indices, quantized values) keep
# their width.
FLOAT_FORMATS = {"float64": "fp64", "float32": "fp32", **HALF_FORMATS}
# The formats that a host's peak is measured in, with the column of host_ceilings that holds it.
MEASURED_PEAKS = {FP32: "peak_flop_per_s", INT8: "int8_op_per_s", "fp16": "fp16_flop_per_s", "bf16": "bf16_flop_per_s"}
_WIDTH = re.compile(r"[^\d]*(\d{1,3})(?!\d)")  # the first number of a name; a table may hold any text
_SHORT_NAMES = {"float": "float32", "double": "float64"}


def element_type_name(name: str) -> str:
    """Return the name of an element type with its width, in lower case: C++ and ONNX say ``float`` for ``float32``."""
    return _SHORT_NAMES.get(name.lower(), name.lower())


def element_bits(element_type: str) -> int | None:
    """Return the stored bits of one element: 4 for ``uint4``, 8 for ``float8e4m3fn``; None without a fixed width."""
    if element_type == "bool":
        return 8
    width = _WIDTH.match(element_type)
    return int(width[1]) if width else None


def stored_elements(size_bytes: int, element_type: str) -> int | None:
    """Return how many elements a stored size holds; None where the element type has no fixed width."""
    bits = element_bits(element_type)
    return size_bytes * 8 // bits if bits else None
