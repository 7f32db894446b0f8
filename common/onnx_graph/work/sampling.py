"""Windows and samples: pools, resizing, sampling on grids and regions.

A value interpolated between ``taps`` others costs ``taps`` products and ``taps - 1`` sums; the weights, which many
values share, are not counted. A nearest value is a copy.
"""

from __future__ import annotations

from math import prod

from common.graphs.operators import MICROSOFT, NCHWC, NHWC, ONNX
from common.onnx_graph.work.registry import Cost, Operation, UnknownShapeError, formula

TAPS_PER_AXIS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


def interpolation_flops(taps_per_axis: int, axes: int) -> int:
    """Return the FLOPs of one interpolated value: a product per tap and the sums; none for a nearest value."""
    return int(2 * taps_per_axis**axes - 2) + (taps_per_axis > 1 and axes > 0)


@formula("MaxPool", "AveragePool", domains=(ONNX, NCHWC, NHWC))
@formula("NhwcMaxPool", domains=(MICROSOFT,))
def count_pool(operation: Operation) -> Cost:
    """Count ``taps - 1`` comparisons or additions per output, and a division for an average."""
    taps = prod(operation.integers("kernel_shape"))
    steps = taps - 1 + (operation.node.op_type == "AveragePool")
    return Cost(other_flops=steps * operation.output_elements())


@formula("LpPool", domains=(ONNX, NHWC))
def count_lp_pool(operation: Operation) -> Cost:
    """Count ``taps`` powers, ``taps - 1`` additions and a root per output."""
    taps = prod(operation.integers("kernel_shape"))
    return Cost(other_flops=2 * taps * operation.output_elements())


@formula("Resize", "Upsample", domains=(ONNX,))
@formula("Resize", domains=(NHWC,))
@formula("Upsample", domains=(NCHWC,))
def count_resize(operation: Operation) -> Cost:
    """Interpolate over the axes whose extent changes; the wider support of antialiasing is not counted."""
    data = operation.shape(0)
    output = operation.output_shape(rank=len(data))
    taps = operation.choice("mode", TAPS_PER_AXIS, "nearest")
    resized = sum(before != after for before, after in zip(data, output, strict=True))
    flops = interpolation_flops(taps, resized)
    reads = {0: operation.touched_bytes(0, prod(output))} if taps == 1 else {}
    return Cost(other_flops=flops * prod(output), reads=reads)


@formula("GridSample", domains=(ONNX, MICROSOFT, NHWC))
def count_grid_sample(operation: Operation) -> Cost:
    """Interpolate over all spatial axes: operands X, grid (N, …, axes)."""
    taps, axes = operation.choice("mode", TAPS_PER_AXIS, "linear"), len(operation.shape(0, least=2)) - 2
    return Cost(other_flops=interpolation_flops(taps, axes) * operation.output_elements())


@formula("RoiAlign")
def count_roi_align(operation: Operation) -> Cost:
    """``sampling_ratio²`` bilinear samples per output, their sums and a division, or their comparisons.

    With a ratio of 0, the number of samples depends on the region's size, so the work is unknown.
    """
    samples = operation.integer("sampling_ratio", 0) ** 2
    if not samples:
        raise UnknownShapeError
    combined = samples - (operation.text("mode", "avg") == "max")
    return Cost(
        other_flops=(samples * interpolation_flops(TAPS_PER_AXIS["linear"], 2) + combined) * operation.output_elements()
    )


@formula("CropAndResize", domains=(MICROSOFT,))
def count_crop_and_resize(operation: Operation) -> Cost:
    """Interpolate one sample per output."""
    flops = interpolation_flops(operation.choice("mode", TAPS_PER_AXIS, "bilinear"), 2)
    return Cost(other_flops=flops * operation.output_elements())


@formula("AffineGrid")
def count_affine_grid(operation: Operation) -> Cost:
    """Count a product and a sum per axis: each coordinate is a row of θ times (x, y, …, 1)."""
    return Cost(other_flops=2 * operation.output_shape(least=1)[-1] * operation.output_elements())
