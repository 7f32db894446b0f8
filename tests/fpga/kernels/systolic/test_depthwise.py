"""Depthwise convolutions on an array: the cycles of their windows beside the loops of the C++, and turned maps."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import array_ports
from common.fpga.hand_off.array_call import ArrayCall
from common.fpga.hand_off.trips import ArrayTrips
from common.fpga.kernels.systolic.array import build_array
from common.fpga.kernels.systolic.depthwise import _parts, turned_elements
from common.workload.layers import Convolution
from common.workload.tasks import Task
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"


def array(size):
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
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
    assert ArrayTrips(engine, ArrayCall.of(layer, product)).cycles == pytest.approx(product.cycles, rel=0.1)


@pytest.mark.parametrize(("width", "fold", "most"), [(56, 12, 3), (14, 8, 6), (28, 16, 5), (112, 64, 7), (7, 49, 2)])
def test_parts_of_lines_are_those_of_a_walk_over_the_pixels(width, fold, most):
    """A part ends with its line, with its fold of the array, and after so many pixels."""
    layer = replace(depthwise(width), out_height=9)
    parts, left = 0, 0
    for pixel in range(9 * width):
        if pixel % width == 0 or pixel % fold == 0 or left == 0:
            parts, left = parts + 1, most
        left -= 1
    assert _parts(layer, most, fold) == parts


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
