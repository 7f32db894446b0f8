"""A tile at each memory level: against every mapping of small layers, and what a memory more or less changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.design_space.accelerator.hardware import KIB, Fanout, NothingFitsError
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.hierarchy.workload import most_elements
from common.design_space.mapping.cost import cost
from common.design_space.mapping.mappings import hierarchy_of, parse_mappings
from common.design_space.mapping.placement import Placement
from common.design_space.mapping.space import loop_chains
from common.design_space.mapping.space import nest_fronts as nest_fronts_module
from common.design_space.mapping.space.layer_by_layer import exact, unsearched
from common.design_space.mapping.space.nest_fronts import ALONE, nest_fronts
from common.design_space.mapping.traffic import Nests
from common.design_space.search.fronts import SupportedPoint, best, lower_left_hull
from common.messages.errors import UnusableValueError
from common.workload.loop_nests import LoopNest
from tests.support.designs.every_chain import brute_force
from tests.support.designs.small_layers import GEMMINI, TINY
from tests.support.paths import CONFIGS

DRAM, SCRATCHPAD, ACCUMULATOR, REGISTERS = GEMMINI.levels
EVERY = frozenset({"weight", "input", "output"})
FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


def second_level(kib, holds=EVERY, pj_per_byte=4.0):
    """A memory between DRAM and the scratchpad, whose bytes cost the same at any size."""
    return replace(
        SCRATCHPAD,
        name="l2",
        holds=frozenset(holds),
        capacity_kib=kib,
        fanouts=(),
        bytes_per_cycle=64.0,
        bandwidth_of="copy",
        base_pj_per_byte=pj_per_byte,
        slope_pj_per_byte_per_kib=0.0,
    )


def with_second(hardware, kib, **given):
    dram, *inside = hardware.levels
    return replace(hardware, levels=(dram, second_level(kib, **given), *inside))


def least(nest, hardware):
    return exact({"a": nest}, hardware).edp


# --- against every mapping --------------------------------------------------------------------------------------------


@st.composite
def small_nests(draw):
    names = draw(st.sampled_from([("p", "r"), ("k", "c", "p"), ("q", "s"), None]))
    if names is None:
        every = ["n", "groups", "k", "c", "p", "q", "r", "s"]
        names = tuple(sorted(draw(st.sets(st.sampled_from(every), min_size=1, max_size=2))))
    few = len(names) > 2
    sizes = {
        name: draw(st.sampled_from([2, 3] if few or name in ("n", "groups", "r", "s") else [3, 5, 7])) for name in names
    }
    steps = ("stride_p", "stride_q", "dilation_r", "dilation_s")
    return LoopNest(**sizes, **{name: draw(st.integers(1, 3)) for name in steps})


@st.composite
def small_hierarchies(draw):
    """Gemmini with a small array: with a further memory, with scratchpads in elements, or with both axes below one."""
    rows, columns = draw(st.integers(2, 3)), draw(st.integers(2, 3))
    sizes = {
        "scratchpad": draw(st.sampled_from([6, 15, 40, 100])) / KIB,
        "accumulator": columns * draw(st.sampled_from([1, 2, 3, 8])) * 4 / KIB,
    }
    hardware = GEMMINI.resized(rows, columns, sizes)
    dram, scratchpad, accumulator, registers = hardware.levels
    kind = draw(st.sampled_from(["plain", "second", "scratchpads", "both axes"]))
    if kind == "second":
        holds = draw(st.sets(st.sampled_from(sorted(EVERY)), min_size=1))
        l2 = second_level(
            draw(st.sampled_from([8, 20, 60, 200])) / KIB, holds, draw(st.sampled_from([1.0, 10.0, 60.0]))
        )
        return replace(hardware, levels=(dram, l2, scratchpad, accumulator))
    if kind == "scratchpads":
        registers = replace(registers, capacity_kib=draw(st.sampled_from([2, 4])) / KIB)
    if kind == "both axes":
        loops = [tuple(draw(st.permutations("KPQGRSC"))[:2]) for _ in range(2)]
        fanouts = Fanout(loops[0], "columns"), Fanout(loops[1], "rows")
        scratchpad, accumulator = replace(scratchpad, fanouts=fanouts), replace(accumulator, fanouts=(), copies="one")
    return replace(hardware, levels=(dram, scratchpad, accumulator, registers))


def front_of(cycles, energy):
    order = np.lexsort((energy, cycles))
    falls = np.minimum.accumulate(energy[order])
    corners = order[np.concatenate([[True], falls[1:] < falls[:-1]])]
    return lower_left_hull(SupportedPoint(energy[at], cycles[at], None) for at in corners)


def check_front(nest, hardware):
    cycles, energy = brute_force(nest, hardware)
    if not len(cycles):
        with pytest.raises(NothingFitsError):
            nest_fronts(nest, hardware, [ALONE])
        return
    expected, found = front_of(cycles, energy), nest_fronts(nest, hardware, [ALONE]).fronts[ALONE]
    assert [point.cycles for point in found] == [point.cycles for point in expected]
    assert [point.energy_pj for point in found] == pytest.approx([point.energy_pj for point in expected], rel=1e-12)


@pytest.mark.slow
@FEW
@given(small_nests(), small_hierarchies())
def test_no_mapping_with_a_tile_at_each_level_is_better(nest, hardware):
    check_front(nest, hardware)


@pytest.mark.slow
@FEW
@given(small_nests(), small_hierarchies(), st.sets(st.sampled_from(["weight", "input"])))
def test_no_mapping_is_below_what_is_known_without_a_search(nest, hardware, on_chip):
    settings = [ALONE, (Placement(frozenset(on_chip), ((7.0,), *[()] * (len(hardware.levels) - 1))), 0.0)]
    bounds = unsearched(nest, hardware, settings)
    try:
        found = nest_fronts(nest, hardware, settings).fronts
    except NothingFitsError:
        return
    for setting in settings:
        for weight in (0.0, 1e-3, 1.0):
            values = [
                [weight * point.energy_pj + (1 - weight) * point.cycles for point in front]
                for front in (bounds.floor(setting), found[setting])
            ]
            assert min(values[0]) <= min(values[1], default=np.inf) * (1 + 1e-9)


@pytest.mark.exhaustive
@MANY
@given(small_nests(), small_hierarchies())
def test_no_mapping_of_two_hundred_with_a_tile_at_each_level_is_better(nest, hardware):
    check_front(nest, hardware)


# --- a memory more or less --------------------------------------------------------------------------------------------

NESTS = {
    "product": LoopNest(k=6, c=5, p=7),
    "window": LoopNest(k=4, c=3, p=6, r=3),
    "depthwise": LoopNest(p=7, r=3, groups=3),
}


@pytest.mark.parametrize("name", ["product", "depthwise"])
def test_a_level_that_nobody_needs_is_never_used(name):
    costly = with_second(TINY, 1, pj_per_byte=1000.0)
    found = exact({"a": NESTS[name]}, costly).choice["a"]
    assert found.cycles * found.energy_pj == pytest.approx(least(NESTS[name], TINY), rel=1e-12)
    used = hierarchy_of(found.choice, costly).levels[1].keeps
    assert used == frozenset()


@pytest.mark.slow
@pytest.mark.parametrize("name", NESTS)
def test_a_larger_memory_never_hurts_and_a_second_one_helps_where_the_first_is_small(name):
    products = [least(NESTS[name], with_second(TINY, words / KIB)) for words in (8, 16, 40, 80, 200)]
    assert products == sorted(products, reverse=True)
    assert products[0] <= least(NESTS[name], TINY) * (1 + 1e-12)
    assert (products[-1] < products[0]) == (name == "product")  # the others fit the scratchpad of 48 words


@pytest.mark.parametrize("name", NESTS)
def test_a_faster_memory_never_hurts(name):
    products = []
    for bytes_per_cycle in (1.0, 2.0, 8.0, None):
        dram, *inside = TINY.levels
        hardware = replace(TINY, levels=(replace(dram, bytes_per_cycle=bytes_per_cycle), *inside))
        products.append(least(NESTS[name], hardware))
    assert products == sorted(products, reverse=True)


def test_a_tile_of_the_scratchpad_may_be_larger_than_the_accumulators():
    # 14 outputs of each column need 14 words; the accumulator has 8, and the scratchpad all weights and inputs.
    nest = LoopNest(k=4, c=3, p=14)
    mapping = exact({"a": nest}, TINY).choice["a"].choice
    result = cost(parse_mappings([mapping], TINY), Nests.of([nest]), TINY)
    moved = {operand: float(words[0]) for operand, words in result.reads[0].items()}
    assert moved == {"weight": 12, "input": 42, "output": 0}


def test_what_an_operand_passes_by_is_in_the_text_of_its_mapping():
    hardware = with_second(TINY, 1)
    text = "L4[WIO] N1 - L3[IO] N1 - L2[WI] K6 - L1[O] C5 P7 - L0[W] N1"
    assert hierarchy_of(text, hardware).levels[1].passed == {"weight"}
    with pytest.raises(UnusableValueError, match="a level that holds weight is where"):
        hierarchy_of(text.replace("L2[WI]", "L2[W]"), hardware)


def test_results_may_not_pass_by_where_a_file_says_so():
    hardware = with_second(TINY, 1)
    dram, second, *inside = hardware.levels
    closed = replace(hardware, levels=(dram, replace(second, may_pass=frozenset()), *inside))
    assert closed.may_pass(1) == frozenset()
    assert hardware.may_pass(1) == EVERY
    assert least(NESTS["product"], closed) > least(NESTS["product"], hardware)


def test_two_axes_below_one_level_share_out_the_loops_in_any_order():
    nest = LoopNest(k=6, c=3, p=5)
    dram, scratchpad, accumulator, registers = TINY.levels
    fronts = []
    for fanouts in (
        (Fanout(("K", "P"), "columns"), Fanout(("C", "K"), "rows")),
        (Fanout(("K", "C"), "rows"), Fanout(("P", "K"), "columns")),
    ):
        levels = (dram, replace(scratchpad, fanouts=fanouts), replace(accumulator, fanouts=(), copies="one"), registers)
        front = nest_fronts(nest, replace(TINY, levels=levels), [ALONE]).fronts[ALONE]
        fronts.append([(point.cycles, point.energy_pj) for point in front])
    assert fronts[0] == fronts[1]


def test_chains_are_those_that_no_other_chain_dominates():
    generator = np.random.default_rng(0)
    for rows in (1, 40, 400):
        small, equal = generator.integers(0, 6, (4, rows)), generator.integers(0, 3, (1, rows))
        kept = [
            row
            for row in range(rows)
            if not any(
                (small[:, other] <= small[:, row]).all()
                and equal[0, other] == equal[0, row]
                and (other < row or (small[:, other] < small[:, row]).any())
                for other in range(rows)
                if other != row
            )
        ]
        assert loop_chains._undominated([*small], [*equal]).tolist() == kept


# --- searches that end early ------------------------------------------------------------------------------------------


def test_a_search_that_ends_early_says_what_no_mapping_is_below(monkeypatch):
    nest = LoopNest(k=64, c=64, p=28, q=28, r=3, s=3)
    whole = nest_fronts(nest, GEMMINI, [ALONE])
    assert whole.floors == {}
    monkeypatch.setattr(nest_fronts_module, "FEW_CELLS", 200)
    early = nest_fronts(nest, GEMMINI, [ALONE], most_cells=200)
    floor, found = early.floor(ALONE), early.fronts[ALONE]
    assert floor != found
    for weight in (0.0, 0.3, 1.0):
        of_front = {
            name: min(weight * point.energy_pj + (1 - weight) * 1e3 * point.cycles for point in front)
            for name, front in (("floor", floor), ("least", whole.fronts[ALONE]), ("found", found))
        }
        assert of_front["floor"] <= of_front["least"] * (1 + 1e-9)
        assert of_front["least"] <= of_front["found"] * (1 + 1e-9)


@pytest.mark.slow
def test_a_search_that_ends_at_once_is_as_good_as_a_descent(monkeypatch):
    """A million cells in the order of their bounds ended at 7.56e16; five descents begin the search."""
    eyeriss = load_hardware("eyeriss", CONFIGS / "hardware")
    monkeypatch.setattr(nest_fronts_module, "FEW_CELLS", 200)
    found = nest_fronts(LoopNest(k=768, c=768, p=197), eyeriss, [ALONE], most_cells=200)
    assert best(found.fronts[ALONE]).edp < 4e15
    assert best(found.floor(ALONE)).edp < best(found.fronts[ALONE]).edp


def test_descents_find_a_mapping_where_few_cells_find_none(monkeypatch):
    """Cells in the order of their bounds found none in 394,457, and the search had no limit before the first one."""
    eyeriss = load_hardware("eyeriss", CONFIGS / "hardware")
    monkeypatch.setattr(nest_fronts_module, "FEW_CELLS", 200)
    setting = Placement(frozenset({"output"})), eyeriss.levels[1].capacity_words - 100
    found = nest_fronts(LoopNest(k=768, c=768, p=65), eyeriss, [setting], most_cells=200)
    assert found.cell_count < 50_000
    assert found.fronts[setting]
    assert found.floor(setting) != found.fronts[setting]


def test_a_depthwise_layer_uses_one_element_where_only_channels_are_laid_out():
    assert most_elements(LoopNest(p=14, q=14, r=3, s=3, groups=96), GEMMINI) == 1
    assert most_elements(LoopNest(k=8, c=3, p=14), GEMMINI) == 24
    assert most_elements(LoopNest(k=80, c=300), GEMMINI) == 256
