"""The phases of an array's calls: beside the loops of the C++, and added up one by one; maps that are turned."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as iter_product
from math import ceil

import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import array_ports
from common.fpga.hand_off.array_call import ArrayCall
from common.fpga.hand_off.trips import ArrayTrips
from common.fpga.kernels.systolic.array import build_array
from common.fpga.kernels.systolic.loading import _cut
from common.fpga.kernels.systolic.phases import Oriented, Phases, TileLoad
from common.fpga.kernels.systolic.tiling import Operands, Tile, read_bytes, turned_elements
from common.workload.layers import Convolution, Matmul
from common.workload.tasks import Task
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"


def array(size, board_name="u280"):
    board, models = load_board(board_name, CONFIGS / "boards"), load_models(CONFIGS)
    return build_array(size, "int8", array_ports(board), board.macs_per_dsp["int8"], models.systolic)


def depthwise(side, stride=1):
    channels, out = 24, ceil(side / stride)
    return Convolution(1, channels, side, side, channels, out, out, 3, 3, stride, stride, groups=channels)


def task_of(layer):
    read, written = turned_elements(layer)
    return Task("t", "conv", (layer,), "int8", 9 * layer.out_channels, read, written)


@pytest.mark.parametrize("size", [(12, 64, 16), (32, 32, 8), (16, 16, 4)])
@pytest.mark.parametrize(("side", "stride"), [(7, 1), (14, 1), (28, 1), (28, 2), (56, 1), (57, 2)])
def test_planned_cycles_are_those_of_the_loops(size, side, stride):
    engine, layer = array(size), depthwise(side, stride)
    (product,) = engine.products(task_of(layer))
    planned = product.cycles - engine.once_cycles
    assert ArrayTrips(engine, ArrayCall.of(layer, product)).cycles == pytest.approx(planned, rel=0.1)


LAYERS = {
    "few channels": Convolution(1, 3, 40, 40, 24, 20, 20, 3, 3, 2, 2),
    "one channel": Convolution(1, 1, 48, 48, 4, 48, 48, 3, 3),
    "words that no window fills": Convolution(1, 6, 24, 24, 8, 24, 24, 5, 5),
    "pixels that are skipped": Convolution(1, 32, 28, 28, 64, 14, 14, 1, 1, 2, 2),
    "groups": Convolution(1, 64, 24, 24, 64, 24, 24, 3, 3, groups=4),
    "strided groups": Convolution(1, 96, 24, 24, 96, 12, 12, 3, 3, 2, 2, groups=3),
    "dilated": Convolution(1, 48, 20, 20, 48, 20, 20, 3, 3, dilation_height=3, dilation_width=3),
    "large window": Convolution(1, 16, 14, 14, 32, 14, 14, 7, 7),
    "one axis": Convolution(1, 32, 1, 128, 48, 1, 128, 1, 5),
    "one axis, the other one": Convolution(1, 32, 128, 1, 48, 128, 1, 5, 1),
    "several tiles along k": Convolution(1, 256, 14, 14, 128, 14, 14, 3, 3),
    "product": Matmul(50, 288, 96),
    "products of two activations": Matmul(50, 32, 48, 3, has_weight=False),
}


@pytest.mark.parametrize("is_beside", [False, True])
@pytest.mark.parametrize("board_name", ["u280", "kv260"])
@pytest.mark.parametrize("name", LAYERS)
def test_planned_cycles_of_all_kinds_of_layers_are_those_of_the_loops(name, board_name, is_beside):
    """Without the fill and the drain of the array, which the loops do not have."""
    engine, layer = array((8, 16, 16), board_name), LAYERS[name]
    task = whole_task(layer, is_beside)
    (product,) = engine.products(task)
    found = ArrayTrips(engine, ArrayCall.of(layer, product), int(is_beside)).cycles
    assert found == pytest.approx(product.cycles - engine.once_cycles, rel=0.1)


def whole_task(layer, is_beside):
    matmul = layer.as_matmul() if isinstance(layer, Convolution) else layer
    read = read_bytes(layer, 1) * (matmul.batch if isinstance(layer, Convolution) else 1)
    written = matmul.batch * matmul.m * matmul.n
    weights = matmul.batch * matmul.k * matmul.n if matmul.has_weight else 0
    return Task("t", "gemm", (layer,), "int8", weights, read + is_beside * written, written)


@pytest.mark.parametrize("outer_loop", ["rows", "columns"])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 2, 5, 1), (1, 7, 1, 6), (6, 1, 1, 1), (2, 6, 7, 8), (7, 1, 5, 2)])
def test_phases_that_are_alike_are_added_up(sizes, outer_loop):
    """Tiles in the middle of an axis are counted once: the sum is that of all phases, one after the other."""
    batch, rows, cols, deep = sizes
    layer = Matmul(16 * rows - 3, 64 * deep - 5, 32 * cols - 2, batch)
    moved = Operands(layer.m * layer.k, layer.k * layer.n, layer.m * layer.n)
    engine = array((4, 8, 2))
    tile, ports = Tile(16, 32, 64), replace(engine.ports, count=1)
    product = Oriented(layer, layer, False, moved, float(layer.m))
    phases = Phases(product, outer_loop, tile, engine.lanes, engine._tile_cycles, ports)
    outer, inner = (rows, cols) if outer_loop == "rows" else (cols, rows)
    assert phases.cycles() == pytest.approx(one_by_one(phases, (batch, outer, inner, deep)), rel=1e-9)


ALONG_K = [
    ((64, 32, 8), "u280", Convolution(1, 256, 7, 7, 8, 7, 7, 7, 7, groups=4)),
    ((12, 64, 16), "kv260", Convolution(1, 256, 56, 56, 1000, 56, 56, 5, 5, groups=4)),
    ((12, 64, 16), "kv260", Convolution(1, 256, 7, 7, 1000, 4, 4, 5, 5, 2, 2)),
    ((64, 32, 8), "kv260", Matmul(1, 3072, 10, 12)),
]


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(("size", "board_name", "layer"), ALONG_K)
def test_tiles_along_k_begin_elsewhere_in_a_window(size, board_name, layer, is_transposed):
    """A tile may begin within a tap or within a row of the window, so those in the middle are not all alike.

    Those of a product are: the share of 3,072 products that 64 have is no exact number, and no word more for that.
    """
    engine = array(size, board_name)
    matmul = layer.as_matmul() if isinstance(layer, Convolution) else layer
    moved = Operands(read_bytes(layer, 1), matmul.k * matmul.n, matmul.m * matmul.n)
    if is_transposed:
        matmul, moved = Matmul(matmul.n, matmul.k, matmul.m, matmul.batch), moved.swapped
    product = Oriented(layer, matmul, is_transposed, moved, 0.0)
    phases = Phases(product, "rows", engine.tile, engine.lanes, engine._tile_cycles, engine.ports)
    assert phases._counts[3] > 4
    assert phases.cycles() == pytest.approx(one_by_one(phases, phases._counts), rel=1e-9)


def one_by_one(phases, counts):
    places = list(iter_product(*map(range, counts)))
    total = 0.0
    for number in range(len(places) + 2):
        before, two = (places[at] if 0 <= (at := number - back) < len(places) else None for back in (1, 2))
        load = phases._load(places[number], before) if number < len(places) else TileLoad()
        total += phases._cycles(load, before, two)
    return total


@pytest.mark.parametrize(("width", "fold", "most"), [(56, 12, 3), (14, 8, 6), (28, 16, 5), (112, 64, 7), (7, 49, 2)])
def test_parts_of_lines_are_those_of_a_walk_over_the_pixels(width, fold, most):
    """A part ends with its line, with its fold of the array, and after so many pixels."""
    parts, left = 0, 0
    for pixel in range(9 * width):
        if pixel % width == 0 or pixel % fold == 0 or left == 0:
            parts, left = parts + 1, most
        left -= 1
    assert _cut(9 * width, width, fold, most) == parts


def test_a_call_has_the_turns_of_both_maps():
    """Each map is read and written once more: the slower of both directions, and the bytes of all four."""
    engine, layer = array((32, 32, 8)), depthwise(28, 2)
    sizes = 24 * 28 * 28, 24 * 14 * 14
    assert engine.turning_cycles([layer]) == pytest.approx(
        sum(engine.ports.duplex_cycles(size, size) for size in sizes)
    )
    assert engine.turning_cycles([layer]) >= sum(sizes) / engine.ports.bytes_per_cycle
    one_way = replace(engine.ports, count=1).duplex_cycles(sizes[0], 0)
    assert engine.turning_cycles([layer]) <= 2 * sum(size / sizes[0] * one_way for size in sizes)
    dense = Convolution(1, 24, 28, 28, 24, 28, 28, 3, 3)
    assert engine.turning_cycles([dense]) == 0.0
    (product,) = engine.products(task_of(layer))
    estimate = engine.estimate(task_of(layer))
    alone = max(product.cycles, layer.macs / engine.peak_macs_per_cycle / engine.timing.array_share)
    beyond = estimate.cycles.likely / engine.scatter.band.likely - alone - engine.timing.call_cycles
    assert beyond == pytest.approx(engine.turning_cycles([layer]))
    assert estimate.moved_bytes == pytest.approx(product.cost[0] + 2 * sum(sizes), abs=1)
