"""From what is asked of a product or a convolution to a systolic array for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod

from common.errors import CommandLineError
from common.fpga.coefficients import Models
from common.fpga.device.board import Board
from common.fpga.kernel_study.kernel_builders import Asked, Built, quickest, shortage
from common.fpga.kernels.catalogue import ARRAY_SIDES, ARRAY_SIMD, array_ports
from common.fpga.kernels.systolic import ELEMENT_BYTES, SystolicArray, build_array
from common.workload.layers import Convolution, Matmul
from common.workload.tasks import Task

LARGEST_SIDE = 1024  # of an array
Size = tuple[int, int, int]


def gemm(asked: Asked, board: Board, models: Models) -> Built:
    """``batch`` products of one size, the second operand being a weight."""
    m, k, n, batch = (
        asked.size(name, default) for name, default in (("m", None), ("k", None), ("n", None), ("batch", 1))
    )
    layer = Matmul(m, k, n, batch, has_weight=batch == 1)
    sizes = (asked.bytes_of(elements) for elements in (batch * k * n, batch * m * k, batch * m * n))
    return _on_an_array(asked, board, models, Task("gemm", "gemm", (layer,), asked.precision, *sizes))


def conv(asked: Asked, board: Board, models: Models) -> Built:
    """The convolution as the array takes it, as a product of pixels and windows."""
    layer = convolution(asked)
    weights = layer.out_channels * (layer.in_channels // layer.groups) * layer.kernel_height * layer.kernel_width
    pixels = (layer.in_height * layer.in_width, layer.out_height * layer.out_width)
    read, written = layer.batch * layer.in_channels * pixels[0], layer.batch * layer.out_channels * pixels[1]
    sizes = (asked.bytes_of(elements) for elements in (weights, read, written))
    return _on_an_array(asked, board, models, Task("conv", "conv", (layer,), asked.precision, *sizes))


def convolution(asked: Asked) -> Convolution:
    """The extents of the output follow from window, stride and padding.

    Raises:
        CommandLineError: the groups do not divide the channels, or the window is larger than the padded input.
    """
    height = asked.size("height")
    width, groups = asked.size("width", height), asked.size("groups", 1)
    window, stride = asked.sizes["kernel"], asked.sizes["stride"]
    dilation, padding = asked.sizes["dilation"], asked.sizes.get("padding")
    reach = tuple(spread * (size - 1) + 1 for size, spread in zip(window, dilation, strict=True))
    pads = (reach[0] // 2, reach[1] // 2) if padding is None else (asked.size("padding"),) * 2
    channels = (asked.size("in_channels"), asked.size("out_channels"))
    if channels[0] % groups or channels[1] % groups:
        raise CommandLineError("--groups", f"{groups} does not divide {channels[0]} and {channels[1]} channels")
    extents = zip((height, width), reach, stride, pads, strict=True)
    out_height, out_width = ((extent + 2 * pad - size) // step + 1 for extent, size, step, pad in extents)
    if min(out_height, out_width) < 1:
        raise CommandLineError("--kernel", f"{window[0]}x{window[1]} is larger than the padded input")
    return Convolution(
        batch=asked.size("batch", 1),
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


def _on_an_array(asked: Asked, board: Board, models: Models, task: Task) -> Built:
    """On the array that is given, or on the quickest that fits."""
    if asked.precision not in ELEMENT_BYTES:
        known = ", ".join(ELEMENT_BYTES)
        raise CommandLineError("--dtype", f"no systolic array of {asked.precision} is modelled", f"there is {known}")
    found = [_built(asked, board, models, task, size) for size in _sizes(asked, board)]
    return found[0] if len(found) == 1 else quickest(found, board)


def _sizes(asked: Asked, board: Board) -> Iterator[Size]:
    """Rows, columns and products per element; of all that a region could hold, those that use at least half of it."""
    given, simd = asked.sizes.get("array"), asked.sizes.get("simd")
    if max(*(given or (1, 1)), simd or 1) > LARGEST_SIDE:
        raise CommandLineError("--array, --simd", f"a side is above {LARGEST_SIDE}", "no device holds such an array")
    if given:
        yield (*given, simd or 1)
        return
    macs = max(budget.dsp for budget in board.budgets) * board.macs_per_dsp[asked.precision]
    sizes = product(ARRAY_SIDES, ARRAY_SIDES, ARRAY_SIMD if simd is None else (simd,))
    fitting = [size for size in sizes if prod(size) <= macs] or [(ARRAY_SIDES[0], ARRAY_SIDES[0], simd or 1)]
    largest = max(map(prod, fitting))
    yield from (size for size in fitting if 2 * prod(size) >= largest)


def _built(asked: Asked, board: Board, models: Models, task: Task, size: Size) -> Built:
    ports = array_ports(board, asked.channels_up_to(board.memory_port_count))
    rate = board.macs_per_dsp[asked.precision]
    engine = build_array(size, asked.precision, ports, rate, models.systolic)
    if asked.sizes.get("array") and shortage(engine, board):
        engine = replace(engine, spans_regions=True)  # a large array is laid over regions, as AutoSA's are
    found = engine.estimate(task)
    if found is None:
        raise CommandLineError(asked.kind, "cannot be computed by a systolic array")
    return Built(engine, found, task.border_bytes, _assumptions(engine))


def _assumptions(engine: SystolicArray) -> tuple[str, ...]:
    tile = engine.tile
    return (
        f"{engine.rows} x {engine.cols} elements with {engine.simd} products each, output-stationary, "
        f"{engine.schedule} schedule",
        f"tiles on the chip: {tile.rows} x {tile.cols} sums, operands {tile.depth} deep and double-buffered",
    )
