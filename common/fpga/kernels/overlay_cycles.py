"""Cycles of an overlay engine's two units for one layer, and what it has no unit for.

In one cycle the array multiplies ``pixels`` of a column of the result × ``in_channels`` × ``out_channels`` (PG338,
Architecture of the DPUCZDX8G); what a layer has of each is rounded up to whole steps:

    array cycles  = ceil(H_out / pixels) · W_out · lanes · K_h · ceil(C_out / out_channels)
    lanes         = K_w · ceil(C_in / in_channels), or with few channels ceil(K_w · C_in / in_channels), which is what
                    channel augmentation packs (PG338, Channel Augmentation)
    window cycles = ceil(H_out / window_pixels) · W_out · ceil(C / out_channels) · K_h · K_w

The window unit (PG338, DepthwiseConv (ALU)) does depthwise convolutions, poolings and additions. That the pixels are of
one column, and not any of the map, is an assumption from before the fit: the buffer has as many banks as there are
pixels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from common.operators import COPIES, PIXEL_SHUFFLES, QUANTIZERS, RESAMPLINGS, RESHAPES
from common.workload.layers import Convolution, Layer, Matmul, Pointwise, Pooling, Rowwise

# What the compiler makes part of the step before it, and what is only where a tensor is put (UG1414, Supported
# Operators); what of the first has no step before it is done by the window unit.
FOLDED = QUANTIZERS | {"Relu", "LeakyRelu", "Clip", "BatchNormalization"}
PLACED = RESHAPES | COPIES | {"Concat", "Pad"}
ELEMENTWISE = frozenset({"Add", "Sum", "Mul"})
REARRANGED = RESAMPLINGS | PIXEL_SHUFFLES
MEAN = "ReduceMean"  # over a map: exporters write an average pooling so


@dataclass(frozen=True, slots=True)
class OverlayShape:
    """How much one engine does side by side, and what it cannot do.

    Attributes:
        pixels: of a column of the result, in one cycle of the array.
        in_channels: of the array.
        out_channels: of the array, and of the window unit.
        window_pixels: of the window unit; 0 without one for depthwise convolutions.
        pool_pixels: of the window unit when it pools or adds.
        largest_window: side of the largest window that it pools.
        bank_bytes: on-chip buffer that one feature map must fit to stay on the chip.
    """

    pixels: int
    in_channels: int
    out_channels: int
    window_pixels: int
    pool_pixels: int
    largest_window: int
    bank_bytes: int

    @property
    def macs_per_cycle(self) -> int:
        """Of the array."""
        return self.pixels * self.in_channels * self.out_channels


def unsupported(layer: Layer, shape: OverlayShape) -> str:
    """Why the engine cannot run a layer, or an empty word."""
    if isinstance(layer, Matmul):
        return "" if layer.has_weight else "a product of two tensors that change"
    if isinstance(layer, Convolution):
        return "a depthwise convolution" if layer.is_depthwise and not shape.window_pixels else ""
    if isinstance(layer, Pooling):
        side = max(layer.kernel_height, layer.kernel_width)
        return f"a pooling over {side} pixels" if side > shape.largest_window else ""
    if isinstance(layer, Pointwise) and layer.op_type in FOLDED | PLACED | ELEMENTWISE | REARRANGED:
        return ""
    if isinstance(layer, Rowwise) and layer.op_type == MEAN and layer.width <= shape.largest_window**2:
        return ""
    return f"{layer.op_type}, which has no unit"


def array_cycles(layer: Layer, shape: OverlayShape) -> int:
    """Cycles of the array for one image; 0 for what it does not do. A fully connected layer is one pixel."""
    if isinstance(layer, Matmul):
        rows = ceil(layer.m / shape.pixels) * layer.batch
        return rows * ceil(layer.k / shape.in_channels) * ceil(layer.n / shape.out_channels)
    if not isinstance(layer, Convolution) or layer.is_depthwise:
        return 0
    channels = layer.in_channels // layer.groups
    height, width = layer.out_height, layer.out_width
    if layer.is_transposed:  # each pixel of the input meets the whole window
        height, width = layer.in_height, layer.in_width
    lanes = layer.kernel_width * ceil(channels / shape.in_channels)
    if channels < shape.in_channels:
        lanes = ceil(layer.kernel_width * channels / shape.in_channels)
    outputs = ceil(layer.out_channels // layer.groups / shape.out_channels) * layer.groups
    return ceil(height / shape.pixels) * width * lanes * layer.kernel_height * outputs


def window_cycles(layer: Layer, shape: OverlayShape) -> int:
    """Cycles of the window unit for one image; 0 for what it does not do."""
    if isinstance(layer, Convolution) and layer.is_depthwise:
        columns = ceil(layer.out_height / shape.window_pixels) * layer.out_width
        return columns * ceil(layer.out_channels / shape.out_channels) * layer.kernel_height * layer.kernel_width
    if isinstance(layer, Pooling):
        columns = ceil(layer.out_height / shape.pool_pixels) * layer.out_width
        return columns * ceil(layer.channels / shape.out_channels) * layer.kernel_height * layer.kernel_width
    if isinstance(layer, Rowwise) and layer.op_type == MEAN:
        return ceil(layer.rows / shape.out_channels) * layer.width
    if isinstance(layer, Pointwise) and (
        layer.op_type in REARRANGED or (layer.op_type in ELEMENTWISE and layer.operand_count > 1)
    ):
        return pass_cycles(layer, shape)
    return 0


def pass_cycles(layer: Layer, shape: OverlayShape) -> int:
    """Cycles in which all elements of an element-wise layer go through the window unit."""
    if not isinstance(layer, Pointwise) or layer.op_type in PLACED:
        return 0
    return ceil(layer.elements / (shape.pool_pixels * shape.out_channels))


def weight_elements(layer: Layer) -> int:
    """Weights of a layer, a byte each."""
    if isinstance(layer, Convolution):
        window = layer.kernel_height * layer.kernel_width
        return layer.out_channels * layer.in_channels // layer.groups * window
    return layer.k * layer.n * layer.batch if isinstance(layer, Matmul) and layer.has_weight else 0


def images(layers: Iterable[Layer]) -> int:
    """The batch that the layers were counted with."""
    return max((layer.batch for layer in layers if isinstance(layer, Convolution | Pooling)), default=1)
