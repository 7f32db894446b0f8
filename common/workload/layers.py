"""Layers: operators as kernel models see them, with the extents that decide cycles and bytes and nothing of ONNX."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Matmul:
    """``batch`` products of (m, k) by (k, n). ``has_weight``: no run changes the second operand."""

    m: int
    k: int
    n: int
    batch: int = 1
    has_weight: bool = True

    @property
    def macs(self) -> int:
        return self.batch * self.m * self.k * self.n


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution over two dimensions; a third, as in video, is folded into the rows."""

    batch: int
    in_channels: int
    in_height: int
    in_width: int
    out_channels: int
    out_height: int
    out_width: int
    kernel_height: int = 1
    kernel_width: int = 1
    stride_height: int = 1
    stride_width: int = 1
    groups: int = 1
    is_transposed: bool = False
    dilation_height: int = 1
    dilation_width: int = 1
    axes: int = 2  # spatial axes before folding

    @property
    def is_depthwise(self) -> bool:
        """One input channel per group."""
        return self.groups > 1 and self.groups == self.in_channels

    @property
    def macs(self) -> int:
        """Taps times input channels per group, per output channel and output pixel (input pixel, if transposed)."""
        pixels, per_group = self.out_height * self.out_width, self.in_channels // self.groups
        if self.is_transposed:
            pixels = self.in_height * self.in_width
        window = self.kernel_height * self.kernel_width
        return self.batch * pixels * self.out_channels * per_group * window

    def as_matmul(self) -> Matmul:
        """Return the equivalent GEMM (im2col): rows are pixels, with one product per group."""
        pixels = self.in_height * self.in_width if self.is_transposed else self.out_height * self.out_width
        window = self.kernel_height * self.kernel_width
        k = self.in_channels // self.groups * window
        return Matmul(self.batch * pixels, k, self.out_channels // self.groups, self.groups)


@dataclass(frozen=True, slots=True)
class Pooling:
    """A window that slides over each channel separately."""

    batch: int
    channels: int
    in_height: int
    in_width: int
    out_height: int
    out_width: int
    kernel_height: int
    kernel_width: int
    stride_height: int = 1
    stride_width: int = 1
    axes: int = 2  # spatial axes before folding
    dilation_height: int = 1
    dilation_width: int = 1
    op_type: str = "MaxPool"


@dataclass(frozen=True, slots=True)
class Rowwise:
    """An operator that needs a whole row before it can write one: softmax, a normalization."""

    op_type: str
    rows: int
    width: int


@dataclass(frozen=True, slots=True)
class Pointwise:
    """An operator that works on each element separately, or only moves elements."""

    op_type: str
    elements: int
    operand_count: int = 1
    width: int = 1  # of the last axis


Layer = Matmul | Convolution | Pooling | Rowwise | Pointwise


def extents_of(layer: Layer) -> tuple[int, ...]:
    return tuple(value for value in astuple(layer) if type(value) is int)
