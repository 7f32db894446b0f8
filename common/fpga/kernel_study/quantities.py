"""The quantities that describe a kernel: names, meanings, defaults, and which kinds of kernel take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Form = Literal["count", "count or zero", "pair", "positive number", "number format", "text"]
OTHER_FORMAT_NAMES = {"float64": "fp64", "double": "fp64", "float32": "fp32", "float": "fp32", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True)
class Quantity:
    name: str  # such as ``in_channels``
    aliases: tuple[str, ...]  # other names of the same quantity
    form: Form  # the kind of value
    meaning: str  # one line of explanation
    default: Any  # None where the quantity must be given, or where its default follows from the others
    placeholder: str  # form of a value in a help text: ``N``, ``HxW``


@dataclass(frozen=True, slots=True)
class KernelKind:
    """One kind of kernel: what it computes, its own quantities, and values of an example."""

    meaning: str
    quantities: tuple[Quantity, ...]
    example: Mapping[str, Any]


def _named(names: str, meaning: str, default: Any = None, form: Form = "count", placeholder: str = "N") -> Quantity:
    name, *aliases = names.split()
    return Quantity(name, tuple(aliases), form, meaning, default, placeholder)


def _pair(names: str, meaning: str, default: tuple[int, int] | None, placeholder: str = "HxW") -> Quantity:
    return _named(names, meaning, default, "pair", placeholder)


COMMON = (
    _named("board", "a file of configs/boards, or the path of one", "u280", "text", "NAME"),
    _named("dtype precision", "number format: fp64, fp32, bf16, int16, int8 or int4", "fp32", "number format", "NAME"),
    _named("clock_mhz clock", "clock of the kernel (default: the board's)", None, "positive number", "MHZ"),
    _named("channels", "memory channels of the operands (default: up to 16)"),
)
ARRAY = (
    _pair("array", "processing elements (default: the fastest array that fits)", None, "ROWSxCOLS"),
    _named("simd", "products that one element adds per cycle (default: chosen with the array)"),
)
BATCH = _named("batch", "batch size", 1)

KERNELS: Mapping[str, KernelKind] = {
    "gemv": KernelKind(
        "y = A·x by a streaming kernel, which reads every element of A once.",
        (
            _named("rows m", "rows of A; length of y"),
            _named("cols n k", "columns of A; length of x"),
            _named("vectors", "vectors that are multiplied by A in one call", 1),
        ),
        {"board": "u280", "rows": 4096, "cols": 4096, "dtype": "fp64", "channels": 16, "clock_mhz": 333},
    ),
    "gemm": KernelKind(
        "C (m, n) = A (m, k) · B (k, n) by a systolic array.",
        (
            _named("m rows", "rows of A and C"),
            _named("k inner", "columns of A, rows of B"),
            _named("n cols", "columns of B and C"),
            BATCH,
            *ARRAY,
        ),
        {"board": "u250", "m": 1040, "k": 1024, "n": 1024, "array": "13x16", "simd": 8, "dtype": "fp32"}
        | {"clock_mhz": 300},
    ),
    "conv": KernelKind(
        "A two-dimensional convolution as an implicit GEMM on a systolic array.",
        (
            _named("in_channels input_channels", "channels of the input"),
            _named("height in_height", "rows of the input"),
            _named("width in_width", "columns of the input (default: as many as rows)"),
            _named("out_channels output_channels", "channels of the output"),
            _pair("kernel kernel_size kernel_shape", "size of the window: 3 or 3x3", (3, 3)),
            _pair("stride strides", "stride of the window: 1 or 2x2", (1, 1)),
            _pair("dilation dilations", "dilation of the window: 1 or 2x2", (1, 1)),
            _named("padding pad pads", "zeros added at every border (default: half the window)", None, "count or zero"),
            _named("groups", "channel groups; one per channel makes the convolution depthwise", 1),
            BATCH,
            *ARRAY,
        ),
        {"board": "u280", "in_channels": 64, "height": 56, "width": 56, "out_channels": 64, "kernel": "3x3"}
        | {"dtype": "int8"},
    ),
    "attention": KernelKind(
        "softmax(Q·Kᵀ)·V of all heads as one kernel, which keeps the scores on the chip.",
        (
            _named("heads", "heads, summed over the batch", 1),
            _named("tokens queries rows", "rows of Q"),
            _named("keys", "rows of K and V (default: as many as of Q)"),
            _named("head_dim k", "columns of Q and K of one head", 64),
            _named("value_dim", "columns of V of one head (default: as many as of Q)"),
            _named("lanes", "multiply-accumulates per cycle in each product of a head (default: the quickest kernel)"),
            _named("heads_parallel", "heads that are computed at once", 1),
        ),
        {"board": "u280", "heads": 12, "tokens": 1024, "head_dim": 64, "dtype": "int8"},
    ),
    **{
        name: KernelKind(
            f"{operator} of rows by a streaming kernel.",
            (_named("rows m", "rows"), _named("width cols n", "elements of a row")),
            {"board": "u280", "rows": 1024, "width": 768},
        )
        for name, operator in {"layernorm": "Layer normalization", "softmax": "Softmax", "gelu": "GELU"}.items()
    },
}


def number_format(name: str) -> str:
    return OTHER_FORMAT_NAMES.get(name.lower(), name.lower())
