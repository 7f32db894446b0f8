"""Cycles of Gemmini's RTL in a search: by hand, against the count of DOSA's rows, and against every mapping."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.design_space.accelerator.hardware import KIB, RtlCosts
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.hierarchy.schedule import RtlInterval
from common.design_space.mapping.cost import cost
from common.design_space.mapping.gemmini_rtl import rtl_cycles
from common.design_space.mapping.mappings import parse_mappings
from common.design_space.mapping.placement import IN_MEMORY, Placement
from common.design_space.mapping.space.layer_by_layer import exact
from common.design_space.mapping.space.nest_fronts import ALONE, nest_fronts
from common.design_space.mapping.tiled_rtl import is_product, tiled_cycles
from common.design_space.mapping.traffic import Nests
from common.design_space.search.fronts import SupportedPoint, lower_left_hull
from common.messages.errors import UnusableValueError
from common.workload.loop_nests import LOOPS, LoopNest
from tests.support.designs.every_chain import brute_force
from tests.support.designs.small_layers import GEMMINI
from tests.support.paths import CONFIGS

FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
NOTHING = dict.fromkeys(RtlCosts.__dataclass_fields__, 0.0)
WINDOW = LoopNest(k=40, c=80, p=12, q=12, r=3, s=3)
TILES = {"K": 2, "P": 4, "Q": 2}  # of 20 channels, of three rows and six columns


def counted(nest, tiles, placement=IN_MEMORY, **costs):
    counts = np.array([[float(tiles.get(loop, 1)) for loop in LOOPS]])
    return float(tiled_cycles(counts, Nests.of([nest]), GEMMINI, RtlCosts(**NOTHING | costs), placement)[0])


@pytest.mark.parametrize(
    ("part", "count"),
    [
        ("window_command_cycles", 1),
        ("product_command_cycles", 0),
        ("row_cycles", 5 * 8 * 2 + 9 * 80),  # 80 channels of an input are two requests, 20 of a weight are one
        ("byte_cycles", 5 * 8 * 80 + 9 * 80 * 20),
        ("block_cycles", 2 * 5 * 9 * 6),  # two blocks of outputs, five of inputs, on 16 x 16; six columns of a tile
        ("pixel_cycles", 2 * 5 * 9 * 18),
        ("weight_row_cycles", 2 * 5 * 9 * 16),
    ],
)
def test_the_parts_of_all_tiles(part, count):
    assert counted(WINDOW, TILES, **{part: 7.0}) == pytest.approx(7 * 16 * count)


def test_a_resident_operand_is_not_loaded_and_words_beside_are():
    loads = {"row_cycles": 0.0, "byte_cycles": 1.0}
    inputs, weights = 16 * 5 * 8 * 80, 16 * 9 * 80 * 20
    assert counted(WINDOW, TILES, **loads) == inputs + weights
    assert counted(WINDOW, TILES, Placement(frozenset({"input"})), **loads) == weights
    beside = Placement(frozenset({"weight"}), ((128.0, 64.0), (), (), ()))
    assert counted(WINDOW, TILES, beside, **loads) == inputs + 192
    assert counted(WINDOW, TILES, beside, row_cycles=1.0) == 16 * 5 * 8 * 2 + 3


def test_cycles_are_those_of_dosas_rows_where_tiles_divide_the_loops_and_fill_the_array():
    generator, texts, nests = np.random.default_rng(5), [], []
    for _ in range(40):
        window, rows, columns = (int(generator.choice(sizes)) for sizes in ([1, 3], [2, 4], [2, 4]))
        k, c, p = (int(size) for size in 2 ** generator.integers(0, 3, 3))
        outer = int(generator.choice([1, 2]))
        side = outer * rows * p * columns  # maps of DOSA's rows are square
        nests.append(LoopNest(k=16 * k * outer, c=16 * c, p=side, q=side, r=window, s=window, stride_p=1, stride_q=1))
        texts.append(
            f"L3[WIO] K{outer} P{outer * columns} Q{outer * rows} - L2[WI] N1 K16X - "
            f"L1[O] K{k} R{window} S{window} Q{p * columns} P{rows * p} C{c} C16X - L0[W] N1"
        )
    large = GEMMINI.resized(capacity_kib={"accumulator": 4096, "scratchpad": 4096})
    mappings = parse_mappings(texts, large)
    of_rows = rtl_cycles(mappings, Nests.of(nests), GEMMINI.rtl)
    found = cost(mappings, Nests.of(nests), large.with_rtl())
    assert np.asarray(found.rtl_cycles) == pytest.approx(of_rows)
    assert (np.asarray(found.cycles) >= np.asarray(cost(mappings, Nests.of(nests), large).cycles)).all()


counts_of = st.lists(st.integers(1, 6), min_size=8, max_size=8)


@settings(max_examples=200, deadline=None)
@given(counts_of, counts_of, st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_a_bound_is_never_above_more_tiles(few, more, stride, dilation, is_a_product):
    sizes = {"n": 2, "groups": 2, "k": 40, "c": 70, "p": 9, **({} if is_a_product else {"q": 6, "r": 3, "s": 2})}
    nest = LoopNest(**sizes, stride_p=stride, stride_q=stride, dilation_r=dilation, dilation_s=dilation)
    extents = np.array([*nest.bounds.values()])
    least = np.minimum(few, extents)
    counts = np.minimum(np.maximum(few, more), extents)
    nests, machine = Nests.of([nest]), GEMMINI.resized(rows=4, columns=8)
    bound = tiled_cycles(least[None] * 1.0, nests, machine, GEMMINI.rtl, is_bound=True)
    assert float(bound[0]) <= float(tiled_cycles(counts[None] * 1.0, nests, machine, GEMMINI.rtl)[0]) * (1 + 1e-12)


@st.composite
def small_nests(draw):
    names = draw(st.sampled_from([("p", "r"), ("k", "c", "p"), ("q", "s"), ("k", "groups"), ("n", "c")]))
    sizes = {name: draw(st.sampled_from([2, 3] if len(names) > 2 or name in "nrs" else [3, 5, 7])) for name in names}
    return LoopNest(**sizes, stride_p=draw(st.integers(1, 2)), dilation_s=draw(st.integers(1, 2)))


@pytest.mark.slow
@FEW
@given(small_nests(), st.sampled_from([6, 15, 40]), st.sampled_from([1, 3, 8]), st.sampled_from([1.0, 9.0, 300.0]))
def test_no_mapping_is_better_by_the_cycles_of_the_rtl(nest, scratchpad, accumulator, command):
    sizes = {"scratchpad": scratchpad / KIB, "accumulator": 3 * accumulator * 4 / KIB}
    costs = replace(GEMMINI.rtl, product_command_cycles=command, window_command_cycles=command / 2)
    hardware = replace(GEMMINI.resized(2, 3, sizes), rtl=costs).with_rtl()
    cycles, energy = brute_force(nest, hardware)
    order = np.lexsort((energy, cycles))
    falls = np.minimum.accumulate(energy[order])
    corners = order[np.concatenate([[True], falls[1:] < falls[:-1]])]
    expected = lower_left_hull(SupportedPoint(energy[at], cycles[at], None) for at in corners)
    found = nest_fronts(nest, hardware, [ALONE]).fronts[ALONE]
    assert [point.cycles for point in found] == [point.cycles for point in expected]
    assert [point.energy_pj for point in found] == pytest.approx([point.energy_pj for point in expected], rel=1e-12)


def test_the_search_takes_fewer_cycles_of_the_rtl_than_the_best_analytic_mapping():
    nest = LoopNest(k=96, c=24, p=56, q=56)  # whose best analytic tiles are small
    counted_rtl = exact({"a": nest}, GEMMINI.with_rtl())
    text = exact({"a": nest}, GEMMINI).choice["a"].choice
    analytic = cost(parse_mappings([text], GEMMINI), Nests.of([nest]), GEMMINI.with_rtl())
    assert counted_rtl.edp < 0.7 * float((analytic.cycles * analytic.energy_pj)[0])


def test_a_tile_of_a_product_is_at_least_a_block_of_the_array():
    product = LoopNest(k=48, c=64, p=40)
    every = {"K": 48, "C": 64, "P": 40}
    assert counted(product, every, product_command_cycles=1.0) == 3 * 4 * 3
    assert counted(product, {"K": 2}, product_command_cycles=1.0) == 2


def test_only_a_file_with_costs_of_the_rtl_is_searched_with_them():
    with pytest.raises(UnusableValueError, match="u280 has no costs of its RTL"):
        load_hardware("u280", CONFIGS / "hardware").with_rtl()


def test_products_have_one_column_and_no_window():
    assert is_product(LoopNest(k=3, c=4, p=5, groups=2))
    assert not is_product(LoopNest(k=3, c=4, p=5, q=2))
    assert not is_product(LoopNest(k=3, c=4, p=5, r=3))


def test_intervals_of_layers_are_added_end_to_end():
    parts = [(2, RtlInterval(1.0, 2.0, 4.0)), (1, RtlInterval(10.0, 20.0, 40.0))]
    assert RtlInterval.sum_of(parts) == (12.0, 24.0, 48.0)
    low, high = GEMMINI.rtl_errors.product
    assert low < 1 < high
