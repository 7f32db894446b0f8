"""Cycles of an overlay engine's array and window unit for one layer, and the layers that neither supports.

In one cycle the array computes ``pixels`` of a result column × ``in_channels`` × ``out_channels`` (PG338, Architecture
of the DPUCZDX8G). The extents of a layer are rounded up to whole steps:

    array cycles  = ceil(H_out / pixels) · W_out · lanes · K_h · ceil(C_out / out_channels)
    lanes         = K_w · ceil(C_in / in_channels), or with fewer channels than that ceil(K_w · C_in / in_channels),
                    because of channel augmentation (PG338, Channel Augmentation)
    window cycles = ceil(H_out / window_pixels) · W_out · ceil(C / out_channels) · K_h · K_w

The window unit (PG338, DepthwiseConv (ALU)) computes depthwise convolutions, poolings and additions. The model
assumes that the pixels are in one column, because the buffer has as many banks as there are pixels.

A feature map that fits a bank of the buffer stays on the chip and is neither written to memory nor read. The inputs of
a Concat are stored in its result's buffer, so a Concat moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from common.fusion.border import border
from common.graphs.number_formats import stored_elements
from common.graphs.operators import COPIES, PIXEL_SHUFFLES, QUANTIZERS, RESAMPLINGS, RESHAPES
from common.graphs.source_graph import SourceGraph
from common.messages.errors import PipelineError
from common.workload.layers import Convolution, Layer, Matmul, Pointwise, Pooling, Rowwise

# FOLDED operators become part of the step before them, or run on the window unit where there is none; PLACED operators
# only decide where a tensor is stored (UG1414, Supported Operators).
FOLDED = QUANTIZERS | {"Relu", "LeakyRelu", "Clip", "BatchNormalization"}
PLACED = RESHAPES | COPIES | {"Concat", "Pad"}
ELEMENTWISE = frozenset({"Add", "Sum", "Mul"})
REARRANGED = RESAMPLINGS | PIXEL_SHUFFLES
MEAN = "ReduceMean"  # over a feature map: some exporters write average pooling this way


@dataclass(frozen=True, slots=True)
class OverlayShape:
    """Parallelism of one engine, and its limits."""

    pixels: int  # result pixels of one column that the array computes per cycle
    in_channels: int  # input channels of the array
    out_channels: int  # output channels of the array and of the window unit
    window_pixels: int  # pixels of the window unit; 0 where it computes no depthwise convolutions
    pool_pixels: int  # pixels of the window unit when it pools or adds
    largest_window: int  # side of the largest pooling window
    bank_bytes: int  # size of the on-chip buffer that a feature map must fit to stay on the chip

    @property
    def macs_per_cycle(self) -> int:
        return self.pixels * self.in_channels * self.out_channels


def unsupported(layer: Layer, shape: OverlayShape) -> str:
    """Return why the engine cannot run a layer, or an empty string."""
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
    """Return the array's cycles for one image; 0 for other layers. A fully connected layer is one pixel."""
    if isinstance(layer, Matmul):
        rows = ceil(layer.m / shape.pixels) * layer.batch
        return rows * ceil(layer.k / shape.in_channels) * ceil(layer.n / shape.out_channels)
    if not isinstance(layer, Convolution) or layer.is_depthwise:
        return 0
    channels = layer.in_channels // layer.groups
    height, width = layer.out_height, layer.out_width
    if layer.is_transposed:  # each input pixel is multiplied by the whole window
        height, width = layer.in_height, layer.in_width
    lanes = layer.kernel_width * ceil(channels / shape.in_channels)
    if channels < shape.in_channels:
        lanes = ceil(layer.kernel_width * channels / shape.in_channels)
    outputs = ceil(layer.out_channels // layer.groups / shape.out_channels) * layer.groups
    return ceil(height / shape.pixels) * width * lanes * layer.kernel_height * outputs


def window_cycles(layer: Layer, shape: OverlayShape) -> int:
    """Return the window unit's cycles for one image; 0 for other layers."""
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
    """Return the cycles in which the window unit processes all elements of an element-wise layer."""
    if not isinstance(layer, Pointwise) or layer.op_type in PLACED:
        return 0
    return ceil(layer.elements / (shape.pool_pixels * shape.out_channels))


def weight_elements(layer: Layer) -> int:
    """Return the number of weights of a layer, which is also their size in bytes at int8."""
    if isinstance(layer, Convolution):
        window = layer.kernel_height * layer.kernel_width
        return layer.out_channels * layer.in_channels // layer.groups * window
    return layer.k * layer.n * layer.batch if isinstance(layer, Matmul) and layer.has_weight else 0


def images(layers: Iterable[Layer]) -> int:
    return max((layer.batch for layer in layers if isinstance(layer, Convolution | Pooling)), default=1)


def buffer_bytes(graph: SourceGraph) -> dict[str, int]:
    """Return the bytes at int8 of the buffer that holds each tensor: its own, or that of the Concat it is part of."""
    sizes: dict[str, int] = {}
    for node in reversed(graph.nodes.values()):
        for tensor in node.outputs:
            stored = graph.storage.get(tensor, tensor)
            size = max(sizes.get(tensor, 0), sizes.get(stored, 0), elements(graph, tensor))
            sizes[tensor] = sizes[stored] = size
            if node.op_type == "Concat":
                for part in graph.variables(node):
                    source = graph.storage.get(part, part)
                    sizes[source] = max(sizes.get(source, 0), size)
    return sizes


def elements(graph: SourceGraph, tensor: str) -> int:
    """Return the elements of a tensor, which are its bytes at int8; PipelineError: its size is unknown."""
    size, dtype = graph.sizes[tensor], graph.dtypes[tensor]
    if size is None:
        remedy = "rerun <op_metrics> with a size for every dynamic dimension (<dim>)"
        raise PipelineError(f"tensor {tensor}", "its size is unknown", remedy)
    count = stored_elements(size, dtype)
    return size if count is None else count


def moved(graph: SourceGraph, nodes: Sequence[str], sizes: Mapping[str, int], bank_bytes: int) -> tuple[int, int]:
    """Return the bytes that fused nodes read and write: maps that fit no bank, and the network's inputs and outputs."""
    read = written = 0
    for tensor in border(graph, nodes):
        name = graph.storage.get(tensor.tensor, tensor.tensor)
        is_end = name not in graph.producer or tensor.tensor in graph.returned or name in graph.returned
        if tensor.role == "weight" or not (is_end or sizes.get(name, 0) > bank_bytes):
            continue
        if tensor.role == "read":
            read += elements(graph, tensor.tensor)
        else:
            written += elements(graph, tensor.tensor)
    return read, written


def ends(graph: SourceGraph) -> tuple[int, int]:
    """Return the numbers of input and output elements of the network, for one image."""
    inputs = {tensor for tensor in graph.consumers if tensor not in graph.producer and tensor not in graph.constants}
    entering, leaving = (sum(elements(graph, tensor) for tensor in names) for names in (inputs, graph.returned))
    return entering, leaving
