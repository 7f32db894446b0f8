"""A quantized network (QDQ) as layers of integers: what the engine computes, and what is left to the host.

A layer is a convolution with everything up to the next QuantizeLinear: bias, scale per channel, ReLU or Clip, and the
addition of a residual. A product (Gemm) is a convolution of the whole map, an average pool one of ones for each
channel. Rows of channels, such as those of a transformer, are a map of one column: a product of them is a convolution
of 1 x 1. A product of two tensors has a second tensor in the place of weights, and is a layer for each head. Row-wise
work is a layer too. Tensors of uint8 are moved by 128, so that all are int8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from common.fpga.rtl.engine.rows import RowWork

Bytes = NDArray[np.int8]
Layout = Literal["map", "rows", "heads", "turned"]
LEAST, MOST = -128, 127
UNSIGNED_MOVE = 128


@dataclass(frozen=True, slots=True)
class EngineTensor:
    """A quantized map: (value - zero) * scale, of ``channels`` x ``height`` x ``width``."""

    name: str
    channels: int
    height: int
    width: int
    scale: np.float32
    zero: int
    is_unsigned: bool = False
    # How the model's tensor is a map. Rows are (1, height, channels), or lines of them for each head one behind the
    # other; heads are (1, heads, height, channels of a head), and turned (1, heads, channels of a head, height) or (1,
    # channels, height).
    layout: Layout = "map"
    of: EngineTensor | None = None  # the tensor of which this is a part: some lines, or some channels
    first_channel: int = 0  # of the part
    first_line: int = 0

    @property
    def number_format(self) -> tuple[np.float32, int, bool]:
        return self.scale, self.zero, self.is_unsigned

    @property
    def whole(self) -> EngineTensor:
        """The tensor in memory of which this is a part."""
        return self.of or self

    def channels_of(self, first: int, count: int) -> EngineTensor:
        if count == self.channels:
            return self
        return replace(self, of=self.whole, first_channel=self.first_channel + first, channels=count)

    def lines_of(self, first: int, count: int) -> EngineTensor:
        if count == self.height:
            return self
        return replace(self, of=self.whole, first_line=self.first_line + first, height=count)

    def arranged(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values of the model's tensor as (channels, height, width)."""
        shape = (self.channels, self.height, self.width)
        if self.layout in ("map", "turned"):
            return values.reshape(shape)
        if self.layout == "heads":  # (1, heads, lines, channels of a head)
            values = values[0].swapaxes(0, 1)
        return values.reshape(self.height, self.channels).T.reshape(shape)

    def quantized(self, values: NDArray[Any]) -> Bytes:
        """Return a sample of the model's float tensor as the host writes it: QuantizeLinear of ONNX, moved to int8."""
        rounded = np.rint(values.astype(np.float32) / self.scale) + self.zero
        whole: Bytes = self.arranged(np.clip(rounded, LEAST, MOST)).astype(np.int8)
        return whole

    def restored(self, values: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
        """Return (channels, height, width) in the shape of the model's tensor: ``arranged`` the other way round."""
        if self.layout in ("map", "turned"):
            return values.reshape(shape)
        rows: NDArray[Any] = values.reshape(self.channels, self.height).T
        if self.layout == "heads":
            _, heads, lines, channels = shape
            rows = rows.reshape(lines, heads, channels).swapaxes(0, 1)
        return rows.reshape(shape)


@dataclass(frozen=True, slots=True)
class Residual:
    """What is added to a result, or multiplied with it, and how that is quantized."""

    other: EngineTensor  # the tensor; one of a single pixel is a factor of all pixels
    own_scale: np.float32  # of the result before
    own_zero: int  # its zero point
    low: int  # limits behind
    high: int
    is_factor: bool = False  # whether it is multiplied

    @property
    def is_single_pixel(self) -> bool:
        return self.other.height * self.other.width == 1


@dataclass(frozen=True, slots=True)
class Second:
    """Another tensor in the place of weights: of a product of (lines, k) by (k, channels)."""

    tensor: EngineTensor  # k are its lines, or with ``is_turned`` its channels
    is_turned: bool


@dataclass(frozen=True, slots=True)
class EngineLayer:
    """One call of the engine."""

    node: str  # name of the contraction, or of the pool
    x: EngineTensor  # what it reads
    y: EngineTensor  # what it writes
    kernel: tuple[int, int] = (1, 1)  # lines and columns of the window
    strides: tuple[int, int] = (1, 1)  # of the window
    # Lines above and columns to the left that are padded; what is below and to the right follows from y
    pads: tuple[int, int] = (0, 0)
    weights: Bytes | None = None  # (output channels, input channels of a group, lines, columns); None for what has none
    groups: int = 1  # of channels
    dilations: tuple[int, int] = (1, 1)  # lines and columns from one position of the window to the next
    # Of each output channel, at the scale of the sums
    bias: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    # Scale of the sums over that of the result, for each output channel
    factors: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    low: int = LEAST  # limits of the result before a residual is added
    high: int = MOST
    residual: Residual | None = None  # what is added behind
    second: Second | None = None  # the tensor in the place of weights
    rows: RowWork | None = None  # row-wise work

    @property
    def reach(self) -> tuple[int, int]:
        """Lines and columns from the first to the last position of the window, both counted."""
        return (self.kernel[0] - 1) * self.dilations[0] + 1, (self.kernel[1] - 1) * self.dilations[1] + 1

    @property
    def is_product(self) -> bool:
        """Whether the array computes it; else it is a maximum, or row-wise work."""
        return self.weights is not None or self.second is not None

    @property
    def reads(self) -> tuple[EngineTensor, ...]:
        """Tensors in memory that it reads."""
        others = [self.residual.other] if self.residual else []
        return tuple(each.whole for each in (self.x, *others, *([self.second.tensor] if self.second else [])))

    @property
    def own_zero(self) -> int:
        """Zero point of the result before a residual is added."""
        return self.residual.own_zero if self.residual else self.y.zero

    def dense(self, channels: int, outputs: range, first: int = 0) -> Bytes:
        """Return the weights of some output channels for so many input channels: zeros where a group has none.

        The input channels of the layer begin at the ``first`` one.
        """
        assert self.weights is not None
        dense, inside = np.zeros((len(outputs), channels, *self.kernel), np.int8), self.weights.shape[1]
        for row, channel in enumerate(outputs):
            start = first + channel // (len(self.weights) // self.groups) * inside
            dense[row, start : start + inside] = self.weights[channel]
        return dense

    @property
    def macs(self) -> int:
        per_pixel = self.y.channels * self.x.channels if self.second else 0
        return (per_pixel if self.weights is None else self.weights.size) * self.y.height * self.y.width


@dataclass(frozen=True, slots=True)
class EngineNetwork:
    """Layers in their order, the tensors that the host writes and reads, and constant tensors with their content."""

    inputs: tuple[EngineTensor, ...]
    outputs: tuple[EngineTensor, ...]
    layers: tuple[EngineLayer, ...]
    constants: tuple[tuple[EngineTensor, Bytes], ...] = ()
