"""The price of a peer's mapping: where all operands have one cut, it is the cost of the mapping itself."""

import numpy as np
import pytest

from benchmarks.designs.peers.__main__ import as_layer, as_mapping, best
from benchmarks.designs.peers.pricing import CutMapping, price
from benchmarks.designs.peers.published import published_mappings
from common.design_space.mapping.cost import cost
from common.design_space.mapping.mappings import parse_mappings
from common.design_space.mapping.traffic import Nests
from common.workload.loop_nests import LoopNest
from tests.support.designs.small_layers import GEMMINI

NEST = LoopNest(k=64, c=64, p=56, q=56, r=3, s=3)
# Loops from the innermost: those of a register's weight, of the tile, of DRAM; each operand cut at its own memories.
REGISTER, TILE, DRAM = [("P", 8)], [("R", 3), ("S", 3), ("C", 4), ("K", 2)], [("Q", 56), ("P", 7), ("K", 2)]
EVEN = CutMapping(
    {"weight": [REGISTER, TILE, DRAM], "input": [REGISTER + TILE, DRAM], "output": [REGISTER + TILE, DRAM]},
    {"scratchpad": {"K": 16}, "accumulator": {"C": 16}},
)
SAME = "L3[WIO] K2 P7 Q56 - L2[WI] N1 K16X - L1[O] K2 C4 S3 R3 C16X - L0[W] P8"


def test_a_mapping_with_one_cut_for_all_operands_has_the_price_of_its_cost():
    result = cost(parse_mappings([SAME], GEMMINI), Nests.of([NEST]), GEMMINI)
    found = price(NEST, EVEN, GEMMINI)
    assert found.cycles == result.cycles[0]
    assert found.energy_pj == pytest.approx(result.energy_pj[0])
    assert found.fits == result.fits[0]


def test_an_operand_that_stays_longer_moves_less():
    """Rows of the whole input stay in the scratchpad, where outputs leave theirs after a column."""
    inside = dict(EVEN.inside) | {
        "weight": [REGISTER, TILE + DRAM, []],
        "input": [REGISTER + TILE + DRAM[:1], DRAM[1:]],
    }
    longer = price(NEST, CutMapping(inside, EVEN.spatial), GEMMINI)
    assert longer.energy_pj < price(NEST, EVEN, GEMMINI).energy_pj
    assert not price(NEST, CutMapping(inside | {"output": [REGISTER + TILE + DRAM, []]}, EVEN.spatial), GEMMINI).fits


def test_what_zigzag_found_is_read_by_memory_and_loop():
    found = {
        "temporal": {"weight": [[["OY", 8.0]], [["FY", 3.0]], []], "input": [[["OY", 8.0], ["FY", 3.0]], []]},
        "spatial": {"weight": [[], [["K", 16.0], ["C", 3.0]], [], []]},
    }
    mapping = as_mapping(found)
    assert mapping.inside["weight"] == [[("P", 8)], [("R", 3)], []]
    assert mapping.spatial == {"scratchpad": {"K": 16}, "accumulator": {"C": 3}}
    assert as_layer(LoopNest(k=2, stride_p=3, dilation_s=5)) == {
        "extents": {"B": 1, "G": 1, "K": 2, "C": 1, "OY": 1, "OX": 1, "FY": 1, "FX": 1},
        "strides": [3, 1],
        "dilations": [1, 5],
    }
    assert np.isfinite(price(NEST, EVEN, GEMMINI).edp)


def test_a_published_mapping_is_priced_as_by_hand():
    """CoSA's product of 4,096 by 64 by 4,096 moves each word of weight and input once, and no partial sum leaves."""
    _, mappings = published_mappings()
    (ktq,) = [row for row in mappings if row.problem == "BERT-large KTQ"]
    macs, weights, outputs = 4096 * 64 * 4096, 4096 * 64, 4096 * 4096
    scratchpad = 2 * weights + (weights + macs / 16)  # filled with both, read for registers and for columns of 16
    energy = macs * 0.28 + (2 * weights + outputs) * 64 + scratchpad * 3.47
    energy += 2 * macs / 16 * 4.01 + (weights + macs) * 0.01
    assert ktq.edp == pytest.approx(energy * 256 * 4 * 4096)
    assert ktq.fits


@pytest.mark.slow
def test_no_published_mapping_is_better_than_the_best_one():
    hardware, mappings = published_mappings()
    assert {row.peer for row in mappings} == {"timeloop", "factorflow", "cosa"}
    for row in mappings:
        assert row.fits
        assert best(row.nest, hardware)[0] <= row.edp * (1 + 1e-9), row.problem


@pytest.mark.parametrize(("rows", "inner", "columns", "theirs"), [
    (128, 64, 128, 20457.93593625376), (128, 768, 768, 59130996.53833949),
])  # fmt: skip
def test_accelforge_found_the_same_least_products(rows, inner, columns, theirs):
    """AccelForge 1.0.467 on accelforge_gemmini.yaml, by its own mapper and cost model, in uJ·cycles."""
    assert best(LoopNest(p=rows, c=inner, k=columns), GEMMINI)[0] * 1e-6 == pytest.approx(theirs, rel=1e-9)
