"""Words beside loop nests, and operands that are resident: by hand, and against a nest without them."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.cost import cost, stream_cost
from common.design_space.mapping.mappings import parse_mappings
from common.design_space.mapping.placement import Placement, resident_level, side_streams
from common.design_space.mapping.traffic import Nests
from common.workload.loop_nests import LoopNest
from tests.support.paths import CONFIGS

GEMMINI = load_hardware("gemmini", CONFIGS / "hardware")
ONE_BUFFER = load_hardware("fa-dosa", CONFIGS / "hardware")
NEST = LoopNest(k=32, c=16, p=14, q=7, r=3, s=3)
# Tiles of all channels; steps over rows outside, so weights stay and each input tile comes once.
MAPPING = "L3[WIO] P7 - L2[WI] N1 K16X - L1[O] K2 R3 S3 P2 Q7 C16X - L0[W] N1"


def detailed(placement=None):
    batch, nests = parse_mappings([MAPPING], GEMMINI), Nests.of([NEST])
    return cost(batch, nests, GEMMINI) if placement is None else cost(batch, nests, GEMMINI, placement=placement)


def test_a_stream_costs_its_blocks_in_every_memory_that_it_passes():
    words = side_streams(GEMMINI, in_memory=[1003, 17], on_chip=[101], copied=[50])
    assert words == ((1003, 17, 50), (101, 50), 2 * (1003, 17, 101), ())
    found = stream_cost(words, 5 * 256, GEMMINI)
    scratchpad, accumulator = 0.49 + 0.02513 * 128, 4 * (0.485 + 0.025125 * 2)
    dram = (16 + 1 + 1) * 64 * 100  # blocks of 64 words
    on_chip = (7 + 4) * 16 * scratchpad  # blocks of 16 words
    assert found.energy_parts_pj == pytest.approx(
        (5 * 256 * 0.5608, dram, on_chip, 2 * (1003 + 17 + 101) * accumulator, 0.0)
    )
    assert found.cycles == ceil((1003 + 17 + 50) / 8)  # DRAM is the slowest: 32 words per cycle on the chip
    assert stream_cost(words, 256_000, GEMMINI).cycles == 1000
    assert stream_cost(side_streams(GEMMINI, on_chip=[9999]), 0, GEMMINI).cycles == ceil(2 * 9999 / 32)


def test_an_operand_that_rests_moves_nothing_in_memory_and_needs_no_tile():
    plain, is_resident = detailed(), detailed(Placement(frozenset({"input"})))
    assert "input" in plain.reads[0]
    assert "input" not in is_resident.reads[0]
    assert "input" not in is_resident.writes[1]
    assert is_resident.reads[1]["input"] == plain.reads[1]["input"]
    assert plain.needed_words[1] - is_resident.needed_words[1] == 16 * 4 * 9  # two rows of outputs read four of inputs
    for level in (2, 3):
        assert is_resident.energy_parts_pj[1 + level] == plain.energy_parts_pj[1 + level]


def test_a_result_that_rests_is_written_to_the_scratchpad_instead_of_memory():
    plain, is_resident = detailed(), detailed(Placement(frozenset({"output"})))
    assert plain.writes[0]["output"] == is_resident.writes[1]["output"] == 32 * 14 * 7
    assert is_resident.reads[1]["output"] == 0
    assert "output" not in is_resident.writes[0]
    assert is_resident.needed_words[1] == plain.needed_words[1]
    split = MAPPING.replace("P7", "C2 P7").replace("C16X", "C8X")  # half of the channels at a time, outside
    batch, nests = parse_mappings([split], GEMMINI), Nests.of([NEST])
    partial = cost(batch, nests, GEMMINI, placement=Placement(frozenset({"output"})))
    assert partial.reads[1]["output"] == 32 * 14 * 7  # sums that come back


def test_words_beside_a_nest_move_while_it_runs():
    plain = detailed()
    words = side_streams(GEMMINI, in_memory=[128])
    added = detailed(Placement(side_words=words))
    expected = plain.energy_pj + 128 * 100 + 2 * 128 * 4 * (0.485 + 0.025125 * 2)
    np.testing.assert_allclose(added.energy_pj, expected)
    assert added.level_cycles[0] == plain.level_cycles[0] + 128 / 8
    assert added.cycles == plain.cycles  # the array is slower
    slow = detailed(Placement(side_words=side_streams(GEMMINI, in_memory=[800_000])))
    assert slow.cycles == ceil(float(plain.level_cycles[0][0]) + 100_000)


def test_maps_rest_in_the_outermost_memory_that_holds_inputs():
    assert resident_level(GEMMINI) == resident_level(ONE_BUFFER) == 1
    assert Placement(frozenset({"output"})).holders("output", GEMMINI) == (1, 2)
    assert Placement().holders("output", GEMMINI) == (0, 2)
    assert Placement(frozenset({"input"})).holders("input", GEMMINI) == (1,)
