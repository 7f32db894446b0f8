"""Depthwise convolutions on an array: the cycles of their windows beside the loops of the C++, and turned maps."""

from __future__ import annotations

from math import ceil

import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import array_ports
from common.fpga.hand_off.array_call import ArrayCall
from common.fpga.hand_off.trips import ArrayTrips
from common.fpga.kernels.systolic.array import build_array
from common.fpga.kernels.systolic.depthwise import turned_elements
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


def test_a_call_has_the_turns_of_both_maps():
    """Each map is read and written once, a word of every port at a time."""
    engine, layer = array((32, 32, 8)), depthwise(28, 2)
    turned = sum(max(ceil(size / engine.ports.bytes_per_cycle) * engine.ports.word_cycles, 0) for size in (18816, 4704))
    assert engine.turning_cycles([layer]) >= turned
    dense = Convolution(1, 24, 28, 28, 24, 28, 28, 3, 3)
    assert engine.turning_cycles([dense]) == 0.0
    (product,) = engine.products(task_of(layer))
    estimate = engine.estimate(task_of(layer))
    alone = max(product.cycles, layer.macs / engine.peak_macs_per_cycle / engine.timing.array_share)
    beyond = estimate.cycles.likely / engine.scatter.band.likely - alone - engine.timing.call_cycles
    assert beyond == pytest.approx(engine.turning_cycles([layer]))
