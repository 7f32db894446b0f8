"""What one kernel must be told, by its kind: the flags of ``python -m common.fpga estimate``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from common.number_formats import FLOAT_FORMATS, element_type_name

Takes = Literal["size", "padding", "pair", "clock", "dtype", "text"]
PROGRAM = "python -m common.fpga estimate"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. The first of its names, without dashes, is what its value is kept under."""

    names: tuple[str, ...]
    takes: Takes
    help: str
    default: Any = None
    metavar: str = "N"


@dataclass(frozen=True, slots=True)
class KernelFlags:
    """The flags of one kind of kernel; every size without a default must be given."""

    what: str
    example: str
    flags: tuple[Flag, ...]

    @property
    def doc(self) -> str:
        """Its help."""
        return (
            f"{self.what}\n\nOne JSON object on stdout: cycles and time_us are likely values; low, likely and high\n"
            "are of time_us; bytes are those that cross the card's memory; short_of is what the board lacks.\n\n"
            f"EXAMPLE\n\n    {PROGRAM} {self.example}"
        )


def _size(names: str, what: str, default: int | None = None, takes: Takes = "size") -> Flag:
    return Flag(tuple(names.split()), takes, what, default)


COMMON = (
    Flag(("--board",), "text", "a file of configs/boards, or the path of one", "u280", "NAME"),
    Flag(("--dtype", "--precision"), "dtype", "number format: fp64, fp32, bf16, int16, int8 or int4", "fp32", "NAME"),
    Flag(("--clock-mhz", "--clock"), "clock", "of the kernel (default: the board's)", None, "MHZ"),
    Flag(("--channels",), "size", "memory channels of the operands (default: up to 16)"),
)
ARRAY = (
    Flag(("--array",), "pair", "processing elements (default: the fastest array that fits)", None, "ROWSxCOLS"),
    _size("--simd", "products in one element and cycle (default: with the array)"),
)
BATCH = _size("--batch", "inputs at once", 1)

KERNELS: Mapping[str, KernelFlags] = {
    "gemv": KernelFlags(
        "y = A·x by a streaming kernel: every element of A crosses the memory once.",
        "gemv --board u280 --rows 4096 --cols 4096 --dtype fp64 --channels 16 --clock-mhz 333",
        (
            _size("--rows --m", "rows of A; length of y"),
            _size("--cols --n --k", "columns of A; length of x"),
            _size("--vectors", "vectors that meet A in one call", 1),
        ),
    ),
    "gemm": KernelFlags(
        "C (m, n) = A (m, k) · B (k, n) by a systolic array.",
        "gemm --board u250 --m 1040 --k 1024 --n 1024 --array 13x16 --simd 8 --dtype fp32 --clock-mhz 300",
        (
            _size("--m --rows", "rows of A and C"),
            _size("--k --inner", "columns of A, rows of B"),
            _size("--n --cols", "columns of B and C"),
            BATCH,
            *ARRAY,
        ),
    ),
    "conv": KernelFlags(
        "A convolution over two dimensions as an implicit GEMM on a systolic array.",
        "conv --board u280 --in-channels 64 --height 56 --width 56 --out-channels 64 --kernel 3x3 --dtype int8",
        (
            _size("--in-channels --input-channels", "channels of the input"),
            _size("--height --in-height", "rows of the input"),
            _size("--width --in-width", "columns of the input (default: as many as rows)"),
            _size("--out-channels --output-channels", "channels of the output"),
            Flag(
                ("--kernel", "--kernel-size", "--kernel-shape"), "pair", "extent of the window: 3, 3x3", (3, 3), "HxW"
            ),
            Flag(("--stride", "--strides"), "pair", "1, 2x2", (1, 1), "HxW"),
            Flag(("--dilation", "--dilations"), "pair", "steps between taps of the window", (1, 1), "HxW"),
            _size("--padding --pad --pads", "zeros at every border (default: half the window)", None, "padding"),
            _size("--groups", "groups of channels; as many as channels is depthwise", 1),
            BATCH,
            *ARRAY,
        ),
    ),
    "attention": KernelFlags(
        "softmax(Q·Kᵀ)·V over heads as one kernel; the scores stay on the chip.",
        "attention --board u280 --heads 12 --tokens 1024 --head-dim 64 --dtype int8",
        (
            _size("--heads", "heads of all inputs together", 1),
            _size("--tokens --queries --rows", "rows of Q"),
            _size("--keys", "rows of K and V (default: as many as queries)"),
            _size("--head-dim --k", "columns of Q and K of one head", 64),
            _size("--value-dim", "columns of V of one head (default: as many as of Q)"),
        ),
    ),
    **{
        name: KernelFlags(
            f"{what} over rows by a streaming kernel.",
            f"{name} --board u280 --rows 1024 --width 768",
            (_size("--rows --m", "rows"), _size("--width --cols --n", "elements of a row")),
        )
        for name, what in {"layernorm": "Layer normalization", "softmax": "Softmax", "gelu": "GELU"}.items()
    },
}


def number_format(text: str) -> str:
    """Our name of a number format: ``float32`` is fp32."""
    element_type = element_type_name(text)
    return FLOAT_FORMATS.get(element_type, element_type)
