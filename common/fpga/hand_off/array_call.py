"""A call of an array's C++: its sizes as numbers of its program, and where the elements of its tensors lie.

A map has its channels innermost, so that the words of a pixel's channels are read at once. With
``ChannelOrder.CHANNELS_OUTSIDE`` each group lies for itself: a group of a depthwise convolution, or a product of a
batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from common.fpga.kernels.systolic.array import MappedProduct
from common.workload.layers import Convolution, Matmul


class ChannelOrder(Enum):
    """Whether the channels of all groups of a pixel lie side by side, or each group has a matrix of its own."""

    CHANNELS_INSIDE = "inside"
    CHANNELS_OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class LineSource:
    """Where the lines of an operand are: the windows of a map's pixels, or the rows of a matrix."""

    lines: int  # of all images
    channels: int  # elements of a pixel that are read
    pixel_pitch: int  # elements from pixel to pixel
    group_pitch: int  # elements from group to group
    layer: Convolution
    padding: tuple[int, int] = (0, 0)
    is_packed: bool = False  # whether they lie as they are used

    @property
    def is_dense(self) -> bool:
        return self.pixel_pitch == self.channels and self.layer.dilation_width == 1

    @property
    def taps(self) -> int:
        """Pixels of a run: of a row of the window where these lie side by side."""
        return self.layer.kernel_width if self.is_dense else 1

    @property
    def length(self) -> int:
        """Elements of a run."""
        return self.taps * self.channels


@dataclass(frozen=True, slots=True)
class ArrayCall:
    """A convolution or a batch of products on an array."""

    layer: Convolution  # as a convolution; a batch of products has groups
    order: ChannelOrder  # of the maps that it reads and writes
    is_transposed: bool
    columns_outside: bool
    padding: tuple[int, int]  # above and on the left
    is_packed: bool = False  # whether the second operand is weights in the order in which they are used
    zero_point: int = 0  # of the input
    limits: tuple[float, float] = (-128, 127)  # of the results before the steps behind them

    @classmethod
    def of(cls, layer: Matmul | Convolution, product: MappedProduct) -> ArrayCall:
        """Return the call of a layer without dilated pixels; a convolution is padded alike on both sides."""
        if isinstance(layer, Matmul):
            shape = Convolution(
                1, layer.k * layer.batch, 1, layer.m, layer.n * layer.batch, 1, layer.m, groups=layer.batch
            )
        else:
            shape = _flat(layer)
        is_apart = isinstance(layer, Matmul) or layer.is_depthwise
        order = ChannelOrder.CHANNELS_OUTSIDE if is_apart and shape.groups > 1 else ChannelOrder.CHANNELS_INSIDE
        padding = _pad(shape, "height"), _pad(shape, "width")
        is_packed = isinstance(layer, Convolution) or layer.has_weight
        return cls(shape, order, product.is_transposed, product.outer_loop == "columns", padding, is_packed)

    @property
    def channels(self) -> int:
        """Channels of a group of the result."""
        return self.layer.out_channels // self.layer.groups

    @property
    def pixels(self) -> int:
        return self.layer.batch * self.layer.out_height * self.layer.out_width

    @property
    def depth(self) -> int:
        return self.layer.kernel_height * self.layer.kernel_width * self.layer.in_channels // self.layer.groups

    @property
    def of_pixels(self) -> LineSource:
        layer, per_group = self.layer, self.layer.in_channels // self.layer.groups
        if self.order is ChannelOrder.CHANNELS_OUTSIDE:
            group = layer.batch * layer.in_height * layer.in_width * per_group
            return LineSource(self.pixels, per_group, per_group, group, layer, self.padding)
        return LineSource(self.pixels, per_group, layer.in_channels, per_group, layer, self.padding)

    @property
    def of_weights(self) -> LineSource:
        matrix = Convolution(1, self.depth, 1, self.channels, self.channels, 1, self.channels)
        group = self.depth * self.channels
        return LineSource(self.channels, self.depth, self.depth, group, matrix, is_packed=self.is_packed)

    @property
    def result_pitches(self) -> tuple[int, int, int]:
        """Elements from group to group, from pixel to pixel and from channel to channel of the result."""
        if self.order is ChannelOrder.CHANNELS_INSIDE:
            return self.channels, self.layer.out_channels, 1
        if self.channels == 1:
            return self.pixels, 1, self.pixels
        return self.pixels * self.channels, self.channels, 1

    def settings(self, bases: tuple[int, int, int]) -> tuple[float, ...]:
        """Return the settings of the call's program, in the order that the C++ states.

        Args:
            bases: of the input, of the weights and of the constants, in words of a port.
        """
        layer, pixels = self.layer, self.of_pixels
        return (
            *bases,
            *(layer.groups, self.channels, layer.batch, layer.in_height, layer.in_width, pixels.channels),
            *(layer.out_height, layer.out_width, layer.kernel_height, layer.kernel_width),
            *(layer.stride_height, layer.stride_width, layer.dilation_height, layer.dilation_width),
            *(*self.padding, 1, 1, pixels.pixel_pitch, pixels.group_pitch, self.zero_point, *self.limits),
            *(int(self.is_transposed), int(self.columns_outside), int(self.is_packed)),
        )


def _flat(layer: Convolution) -> Convolution:
    """Return a convolution whose pixels all lie side by side as one of a single line."""
    strides = layer.kernel_height, layer.kernel_width, layer.stride_height, layer.stride_width
    is_same = (layer.in_height, layer.in_width) == (layer.out_height, layer.out_width)
    if strides != (1, 1, 1, 1) or not is_same:
        return layer
    pixels = layer.batch * layer.out_height * layer.out_width
    return replace(layer, batch=1, in_height=1, out_height=1, in_width=pixels, out_width=pixels)


def _pad(layer: Convolution, side: str) -> int:
    """Return the padding before a side: half of what the extents imply."""
    out, size, kernel, stride, dilation = (
        getattr(layer, f"{name}_{side}") for name in ("out", "in", "kernel", "stride", "dilation")
    )
    return int(max(0, (out - 1) * stride + (kernel - 1) * dilation + 1 - size)) // 2
