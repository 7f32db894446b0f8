"""Builders of systolic arrays, for a matrix product and for a convolution."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from common.fpga.coefficients import Models
from common.fpga.device.board import Board
from common.fpga.engine_catalogue import ARRAY_SIDES, ARRAY_SIMD, Size, array_ports, close_to_largest, closing
from common.fpga.kernel_study.kernel_builders import BuiltKernel, KernelRequest, quickest, shortage
from common.fpga.kernels.systolic.array import ELEMENT_BYTES, SystolicArray, build_array
from common.fpga.kernels.systolic.epilogue import epilogue, fused_products
from common.messages.errors import UnusableValueError
from common.workload.layers import Convolution, Matmul
from common.workload.tasks import Task

LARGEST_SIDE = 1024  # of an array
LEAST_SHARE = 0.5  # of the multipliers of the largest array that fits


def gemm(request: KernelRequest, board: Board, models: Models) -> BuiltKernel:
    """Build an array for ``batch`` products of one size; the second operand of a single product is a weight."""
    m, k, n, batch = *map(request.size, ("m", "k", "n")), request.size("batch", 1)
    layer = Matmul(m, k, n, batch, has_weight=batch == 1)
    weights, read, written = (request.bytes_of(elements) for elements in (batch * k * n, batch * m * k, batch * m * n))
    task = Task("gemm", "gemm", (layer,), request.precision, weights, read, written)
    return _on_an_array(request, board, models, task)


def conv(request: KernelRequest, board: Board, models: Models) -> BuiltKernel:
    """Build an array for a convolution, which it computes as a product of pixels and windows."""
    layer = convolution(request)
    weights = layer.out_channels * (layer.in_channels // layer.groups) * layer.kernel_height * layer.kernel_width
    pixels = (layer.in_height * layer.in_width, layer.out_height * layer.out_width)
    read, written = layer.batch * layer.in_channels * pixels[0], layer.batch * layer.out_channels * pixels[1]
    sizes = request.bytes_of(weights), request.bytes_of(read), request.bytes_of(written)
    return _on_an_array(request, board, models, Task("conv", "conv", (layer,), request.precision, *sizes))


def convolution(request: KernelRequest) -> Convolution:
    """Return the convolution with the extents of its output, which follow from window, stride and padding.

    Raises:
        UnusableValueError: the groups do not divide the channels, or the window is larger than the padded input.
    """
    height = request.size("height")
    width, groups = request.size("width", height), request.size("groups", 1)
    window, stride = request.sizes["kernel"], request.sizes["stride"]
    dilation, padding = request.sizes["dilation"], request.sizes.get("padding")
    reach = tuple(spread * (size - 1) + 1 for size, spread in zip(window, dilation, strict=True))
    pads = (reach[0] // 2, reach[1] // 2) if padding is None else (request.size("padding"),) * 2
    channels = (request.size("in_channels"), request.size("out_channels"))
    if channels[0] % groups or channels[1] % groups:
        raise UnusableValueError("groups", f"{groups} does not divide {channels[0]} and {channels[1]} channels")
    extents = zip((height, width), reach, stride, pads, strict=True)
    out_height, out_width = ((extent + 2 * pad - size) // step + 1 for extent, size, step, pad in extents)
    if min(out_height, out_width) < 1:
        raise UnusableValueError("kernel", f"{window[0]}x{window[1]} is larger than the padded input")
    return Convolution(
        batch=request.size("batch", 1),
        in_channels=channels[0],
        in_height=height,
        in_width=width,
        out_channels=channels[1],
        out_height=out_height,
        out_width=out_width,
        kernel_height=window[0],
        kernel_width=window[1],
        stride_height=stride[0],
        stride_width=stride[1],
        groups=groups,
        dilation_height=dilation[0],
        dilation_width=dilation[1],
    )


def _on_an_array(request: KernelRequest, board: Board, models: Models, task: Task) -> BuiltKernel:
    if request.precision not in ELEMENT_BYTES:
        known = ", ".join(ELEMENT_BYTES)
        raise UnusableValueError(
            "dtype", f"no systolic array of {request.precision} is modelled", f"give one of {known}"
        )
    given, simd = request.sizes.get("array"), request.sizes.get("simd")
    if max(*(given or (1, 1)), simd or 1) > LARGEST_SIDE:
        raise UnusableValueError("array, simd", f"a side is above {LARGEST_SIDE}", "no device holds such an array")
    if given:
        array = _array((*given, simd or 1), request, board, models, task)
        # A large array spans regions, as those of AutoSA do.
        array = replace(array, spans_regions=True) if shortage(array, board) else array
        return _built(array, request, board, models, task)
    sizes = list(product(ARRAY_SIDES, ARRAY_SIDES, ARRAY_SIMD if simd is None else (simd,)))

    def fitting(size: Size) -> SystolicArray | None:
        array = _array(size, request, board, models, task)
        return None if shortage(array, board) else array

    # Where none fits, the smallest one says what it lacks.
    large = close_to_largest(sizes, LEAST_SHARE, fitting) or [
        _array(min(sizes, key=prod), request, board, models, task)
    ]
    return quickest((_built(array, request, board, models, task) for array in large), request, board)


def _array(size: Size, request: KernelRequest, board: Board, models: Models, task: Task) -> SystolicArray:
    ports = array_ports(board, request.channels_up_to(board.memory_port_count))
    behind = epilogue(size, request.precision, fused_products([task]), models.dataflow.on(board.dsp_type))
    rate = board.macs_per_dsp[request.precision]
    return build_array(size, request.precision, ports, rate, models.systolic, epilogue=behind, serves="product")


def _built(array: SystolicArray, request: KernelRequest, board: Board, models: Models, task: Task) -> BuiltKernel:
    engine = closing(array, board, models)
    if (estimate := engine.estimate(task)) is None:
        raise UnusableValueError("array", f"a systolic array cannot compute this {request.kind}")
    tile = engine.tile
    assumptions = (
        f"{engine.rows} x {engine.cols} processing elements of {engine.simd} products each, output-stationary, "
        f"{engine.schedule} schedule",
        f"tiles on the chip: {tile.rows} x {tile.cols} sums; operands are {tile.depth} deep and double-buffered",
    )
    return BuiltKernel(engine, estimate, task.border_bytes, assumptions)
