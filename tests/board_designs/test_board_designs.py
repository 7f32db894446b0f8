"""Arrays for a board: their cost by hand, the front against all designs, and budgets that only help as they grow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import ceil

import numpy as np
import pytest

from common.board_designs.array_runs import Energies, array_hardware, nest_runs, spread
from common.board_designs.board_search import ModelRuns, element_bytes, engine_rows, front_of
from common.board_designs.model import BoardModel, read_budget, require_precision
from common.board_designs.simulation import nest_text, simulation_rows
from common.fpga.array_designs import ArrayBuilder, DesignSet, designs_of_rows, offered_designs
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.device.resources import UNLIMITED
from common.fpga.engine_catalogue import ServedTasks
from common.fpga.rtl import programs
from common.messages.errors import UnusableValueError
from common.workload.layers import Matmul
from common.workload.loop_nests import LoopNest
from tests.support.kernels.dataflow_kernels import task_of
from tests.support.paths import CONFIGS

MODELS = load_models(CONFIGS)
U280 = load_board("u280", CONFIGS / "boards")
ENERGIES = Energies(2.0, 3.0, 0.0)
PRODUCT = LoopNest(k=5, c=7, p=11)
NESTS = Counter({PRODUCT: 2, LoopNest(k=13, c=3, p=10, q=10, r=3, s=3, stride_p=2, stride_q=2): 1})
TASK = task_of(Matmul(11, 7, 5), precision="int8")
SMALL = DesignSet(sizes=((4, 4, 1), (4, 8, 1), (8, 4, 2), (16, 16, 4)), folds=(1, 4))


def model(board=U280, limits=UNLIMITED, nests=NESTS, precision="int8"):
    builder = ArrayBuilder(board, precision, MODELS, ServedTasks.of([TASK]), limits)
    return BoardModel(nests, builder, ENERGIES)


def test_a_product_that_fits_the_buffers_costs_what_a_hand_counts():
    """Four pixels, two channels, two products at a time: 3 · 3 · 4 steps; each element crosses memory once."""
    size = (4, 2, 2)
    runs = nest_runs(PRODUCT, size, [(4, 4, 8)], array_hardware(size, 1, ENERGIES))
    best = np.lexsort((runs.memory_bytes, runs.steps))[0]
    assert runs.steps[best] == ceil(11 / 4) * ceil(5 / 2) * ceil(7 / 2) == 36
    assert runs.memory_bytes[best] == 11 * 7 + 7 * 5 + 11 * 5
    assert runs.energy_pj[best] == 2 * 11 * 7 * 5 + 3 * (11 * 7 + 7 * 5 + 11 * 5)


def test_a_tile_of_one_fold_brings_an_operand_again_for_each_tile_of_the_other():
    """Pixels outside: the weights come for each of three tiles of pixels; channels outside: the inputs come thrice."""
    size = (4, 2, 7)
    runs = nest_runs(PRODUCT, size, [(1, 1, 1)], array_hardware(size, 1, ENERGIES))
    assert set(runs.memory_bytes) == {77 + 3 * 35 + 55, 3 * 77 + 35 + 55}
    assert not runs.fit(4, 1, 7).any()
    assert runs.fit(4, 2, 7).all()


@pytest.mark.parametrize(("extents", "room"), [((7, 5), 12), ((14, 14), 16), ((3, 7, 7), 8), ((11, 1), 4), ((1, 1), 9)])
def test_pixels_and_products_are_spread_in_the_fewest_steps_of_all_ways(extents, room):
    steps = [
        np.prod([ceil(extent / count) for extent, count in zip(extents, ways, strict=True)])
        for ways in np.ndindex(*[room + 1] * len(extents))
        if 1 <= np.prod(ways) <= room
    ]
    chosen = spread(extents, room)
    assert np.prod(chosen) <= room
    assert np.prod([ceil(e / c) for e, c in zip(extents, chosen, strict=True)]) == min(steps)


def test_exactly_one_array_fits_a_tiny_board():
    """By hand: 4 x 4 products take 8 DSPs, ceil(16 sums / 7 cycles) requantizations 3; the next array takes 21."""
    board, limits = read_budget("dsp=11,memory_channels=1,regions=1", U280)
    front = front_of(model(board, limits), replace(SMALL, folds=(1,)))
    assert front.fitting_count == len(front.designs) == 1
    (only,) = front.designs
    assert (only.design.size, only.design.port_count, only.array.resources.dsp) == ((4, 4, 1), 1, 11)
    with pytest.raises(UnusableValueError, match="no array of the 96 fits"):
        front_of(model(board, replace(limits, dsp=10)), SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("budgets", [
    ["dsp=11", "dsp=21", "dsp=36", "dsp=2000"],
    ["memory_channels=1", "memory_channels=2", "memory_channels=8", "memory_channels=32"],
    ["lut=30000", "lut=40000", "lut=60000", "lut=500000"],
    ["regions=1", "regions=2", "regions=3"],
])  # fmt: skip
def test_a_larger_budget_never_has_a_worse_best(budgets):
    best = []
    for text in budgets:
        board, limits = read_budget(text, U280)
        found = front_of(model(board, limits), SMALL).designs
        best.append((min(design.latency_us for design in found), min(design.energy_pj for design in found)))
    for smaller, larger in pairwise(best):
        assert larger[0] <= smaller[0]
        assert larger[1] <= smaller[1]
    assert "regions" in budgets[0] or best[-1][0] < best[0][0]


@pytest.mark.slow
def test_the_front_is_that_of_all_designs():
    """Every design of the set is built and costed one by one here, and compared with every other."""
    found, of = front_of(model(), SMALL), model()
    costs = {}
    for size in SMALL.sizes:
        runs = ModelRuns.of(of, size, SMALL)
        for design in SMALL.of_size(size, U280):
            array = of.builder.built(design)
            if array is not None and (nest_costs := runs.fastest(array)) is not None:
                cycles, _, energy = (float(part @ runs.times) for part in nest_costs)
                costs[design] = (cycles / array.clock_mhz, energy, of.builder.share(array))
    undominated = {
        cost
        for cost in costs.values()
        if not any(other != cost and all(map(float.__le__, other, cost)) for other in costs.values())
    }
    assert {design.costs for design in found.designs} == undominated
    assert len(undominated) > 3
    assert found.designs[0].latency_us == min(cost[0] for cost in costs.values())


@pytest.mark.slow
def test_each_design_of_the_front_fits_by_the_check_of_plans_and_its_row_describes_it():
    of = model()
    found = front_of(of, SMALL).designs
    rows = engine_rows(found, of.builder)
    assert designs_of_rows(rows, U280, "int8") == tuple(design.design for design in found)
    offered = offered_designs(designs_of_rows(rows, U280, "int8"), U280, "int8", MODELS, [TASK])
    assert offered
    for array in [*offered, *(design.array for design in found)]:
        budgets = (U280.total_budget,) if array.spans_regions else U280.budgets
        assert any(array.resources.fits(budget) for budget in budgets)
    times = {row["array_design"]: row["kernel_latency_likely_us"] for row in rows}
    in_a_region = [row["array_design"] for row in rows if not row["spans_regions"]]
    quickest = min(in_a_region, key=times.__getitem__)
    assert any(array.name.startswith("systolic-" + quickest.partition("-t")[0]) for array in offered)
    with pytest.raises(UnusableValueError, match="for u280 in int8, not for u280 in int16"):
        designs_of_rows(rows, U280, "int16")


@pytest.mark.parametrize("text", ["dsp", "dsp=0", "dsp=-1", "dsp=1.5", "dsp=1,dsp=2", "cells=3", "regions=0"])
def test_a_text_that_is_no_budget_is_refused(text):
    with pytest.raises(UnusableValueError, match="no budget"):
        read_budget(text, U280)


def test_what_dsps_of_a_board_do_not_compute_is_refused():
    with pytest.raises(UnusableValueError, match="bits"):
        element_bytes("int4")
    with pytest.raises(UnusableValueError, match="AI engines"):
        require_precision(load_board("vck190", CONFIGS / "boards"), "int8")
    with pytest.raises(UnusableValueError, match="no rate"):
        require_precision(U280, "int2")


def test_nests_in_words():
    window = LoopNest(k=64, c=3, p=112, q=112, r=7, s=7, stride_p=2, stride_q=2, dilation_r=2)
    assert nest_text(window) == "K64 C3 P112 Q112 R7 S7 / 2 dilated 2x1"
    assert nest_text(LoopNest()) == "N1"


@pytest.mark.slow
@pytest.mark.skipif(not programs.is_there("verilator"), reason="no verilator: make rtl-tools")
def test_the_verilog_of_a_design_takes_the_cycles_of_the_equation():
    """11 pixels by 5 channels of 7 products on 4 x 4 x 1: by hand, fill and drain 4 + 4 + 4 - 2, then folds of 7."""
    of = model()
    found = front_of(of, replace(SMALL, sizes=((4, 4, 1),))).designs[0]
    costs = ModelRuns.of(of, (4, 4, 1), SMALL).fastest(found.array)
    product, window = simulation_rows(found, of.nests, costs)
    assert (product["fold_count"], product["simulated_fold_count"]) == (3 * 2, 2 * 2)
    assert product["simulated_cycles"] == 4 + 4 + 4 + 7 - 2 + 3 * 7 == product["simulated_equation_cycles"]
    assert window["simulated_cycles"] == window["simulated_equation_cycles"]
    assert product["compute_cycles"] == 3 * 2 * 7 < product["equation_cycles"]
