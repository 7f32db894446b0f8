"""The best mappings of layers: against every mapping of small layers, and ResNet-18's known optimum on Gemmini."""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.design_space.accelerator.hardware import KIB, Fanout, NothingFitsError
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.cost import cost
from common.design_space.mapping.mappings import parse_mappings
from common.design_space.mapping.placement import IN_MEMORY, Placement
from common.design_space.mapping.space import layer_by_layer
from common.design_space.mapping.space.layer_by_layer import NestSearches, exact, repeats_of
from common.design_space.mapping.space.mapping_problem import MappingProblem
from common.design_space.mapping.space.nest_fronts import ALONE, nest_fronts
from common.design_space.mapping.traffic import Nests
from common.design_space.search.engines.registry import engine, is_installed
from common.design_space.search.fronts import SupportedPoint, lower_left_hull
from common.design_space.search.search import ModelPart, search
from common.messages.errors import UnusableValueError
from common.workload.loop_nests import LOOPS, LoopNest
from common.workload.nest_rows import nests_by_node
from models.__main__ import BUILDERS
from tests.support.designs.every_mapping import every_mapping
from tests.support.designs.small_layers import GEMMINI, SMALL, TINY
from tests.support.paths import CONFIGS
from tests.support.tables.source import source_rows


def brute_force(nest, hardware):
    """Cycles and energy of every mapping that fits."""
    result = cost(every_mapping(nest, hardware), Nests.of([nest]), hardware)
    return result.cycles[result.fits], result.energy_pj[result.fits]


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_no_mapping_of_a_layer_is_better(name):
    cycles, energy = brute_force(SMALL[name], TINY)
    assert exact({name: SMALL[name]}, TINY).edp <= (cycles * energy).min() * (1 + 1e-12)


@pytest.mark.slow
def test_no_mappings_of_two_layers_are_better_together():
    names = ("window", "product")
    (cycles, energy), (other_cycles, other_energy) = (brute_force(SMALL[name], TINY) for name in names)
    products = (cycles[:, None] + other_cycles) * (energy[:, None] + other_energy)
    found = exact({name: SMALL[name] for name in names}, TINY)
    assert found.edp <= products.min() * (1 + 1e-12)


def test_a_repeated_layer_is_searched_once_and_counted_each_time():
    searches = NestSearches(), NestSearches()
    one = exact({"a": SMALL["product"]}, TINY, searches=searches[0])
    three = exact(dict.fromkeys("abc", SMALL["product"]), TINY, searches=searches[1])
    assert searches[0].mapping_count == searches[1].mapping_count
    assert three.edp == pytest.approx(9 * one.edp)


def test_the_mapping_that_is_given_costs_what_is_stated():
    for name, layer in exact(SMALL, TINY).choice.items():
        result = cost(parse_mappings([layer.choice], TINY), Nests.of([SMALL[name]]), TINY)
        assert (result.cycles[0], result.energy_pj[0]) == (layer.cycles, layer.energy_pj)
        assert result.fits[0]


def test_a_layer_of_which_no_tile_fits_is_refused():
    level = GEMMINI.levels[1]
    shut = GEMMINI.resized(capacity_kib={level.name: 2 / 1024})
    assert exact({"a": SMALL["product"]}, shut).edp > 0  # a word of weight and one of input
    with pytest.raises(UnusableValueError, match="below one tile"):
        GEMMINI.resized(capacity_kib={level.name: 1 / 1024})


def test_one_buffer_for_all_operands_is_a_hierarchy_too():
    hardware = load_hardware("fa-dosa", CONFIGS / "hardware").resized(capacity_kib={"buffer": 4 * 40 / 1024})
    nest = LoopNest(k=6, c=6, p=4)
    mapping = exact({"a": nest}, hardware).choice["a"].choice
    result = cost(parse_mappings([mapping], hardware), Nests.of([nest]), hardware)
    moved = sum(float(words[0]) for part in (result.reads[0], result.writes[0]) for words in part.values())
    assert moved == min(
        moved_words(k, c, p, inner)
        for k, c, p in itertools.product((1, 2, 3, 6), (1, 2, 3, 6), (1, 2, 4))
        for inner in "KCP"
        if k * c + c * p + k * p <= 40
    )


def moved_words(k, c, p, inner):
    """Words of a product of 6 x 6 by 6 x 4 with the tile given and one loop innermost; a loop of one step is none."""
    steps = {"K": 6 // k, "C": 6 // c, "P": 4 // p}
    running = [loop for loop in (inner, "P", "K", "C") if steps[loop] > 1]
    stays = running[0] if running else ""
    weights = 36 * (1 if stays in ("P", "") else steps["P"])
    inputs = 24 * (1 if stays in ("K", "") else steps["K"])
    visits = 1 if stays in ("C", "") else steps["C"]
    return weights + inputs + 24 * (2 * visits - 1)


@cache
def resnet18():
    nests = nests_by_node(*source_rows(BUILDERS["resnet18"](has_weights=False), N=1))
    return {f"{name}.{index}": nest for name, found in nests.items() for index, nest in enumerate(found)}


# --- tiles that divide nothing ---------------------------------------------------------------------------------------


def front_of(cycles, energy):
    """The lower left hull of all mappings, by falling energy."""
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
    assert [*found] == [*lower_left_hull([*expected, *found])] or all(
        any(ours.cycles <= point.cycles and ours.energy_pj <= point.energy_pj * (1 + 1e-12) for ours in found)
        for point in expected
    )  # one tile for all memories on the chip: tiles at each level may be better


PRIME = {
    "product": LoopNest(k=7, c=5, p=3),
    "window": LoopNest(k=5, p=7, r=3, stride_p=2),
    "dilated": LoopNest(c=5, p=11, r=3, dilation_r=2),
    "steep": LoopNest(k=3, p=5, r=5, stride_p=3),
    "depthwise": LoopNest(p=9, q=5, s=3, groups=3),
}


@pytest.mark.parametrize("name", PRIME)
def test_no_mapping_of_prime_and_odd_extents_is_better(name):
    check_front(PRIME[name], TINY)


def test_no_order_inside_a_tile_is_better():
    nest = LoopNest(k=5, c=7, p=3)
    loops = [LOOPS.index(loop) for loop in "KCP"]
    rest = [loop for loop in range(len(LOOPS)) if loop not in loops]
    mappings = every_mapping(nest, TINY, [(*order, *rest) for order in itertools.permutations(loops)])
    result = cost(mappings, Nests.of([nest]), TINY)
    least = (result.cycles * result.energy_pj)[result.fits].min()
    assert exact({"a": nest}, TINY).edp == pytest.approx(least, rel=1e-12)


@st.composite
def ragged_nests(draw):
    """Up to three loops of prime and odd extents, with strides and dilations."""
    names = draw(st.sets(st.sampled_from(["n", "groups", "k", "c", "p", "q", "r", "s"]), min_size=1, max_size=3))
    most = {"n": (2, 3), "groups": (2, 3), "r": (2, 3, 5), "s": (2, 3)}
    sizes = {name: draw(st.sampled_from(most.get(name, (3, 5, 7, 9, 11, 13)))) for name in sorted(names)}
    steps = ("stride_p", "stride_q", "dilation_r", "dilation_s")
    return LoopNest(**sizes, **{name: draw(st.integers(1, 3)) for name in steps})


@st.composite
def small_arrays(draw):
    """Gemmini with a small array of any sides, and often with two loops along one axis, in any order."""
    rows, columns = draw(st.integers(2, 5)), draw(st.integers(2, 5))
    sizes = {
        "scratchpad": draw(st.sampled_from([6, 15, 40, 100, 300])) / KIB,
        "accumulator": columns * draw(st.sampled_from([1, 3, 8, 30])) * 4 / KIB,
    }
    hardware = GEMMINI.resized(rows, columns, sizes)
    if draw(st.booleans()):
        loops = [tuple(draw(st.permutations("KPQGRSC"))[:2]) for _ in range(2)]
        fanouts = [(), (Fanout(loops[0], "columns"),), (Fanout(loops[1], "rows"),), ()]
        levels = [replace(level, fanouts=of_level) for level, of_level in zip(hardware.levels, fanouts, strict=True)]
        hardware = replace(hardware, levels=tuple(levels))
    return hardware


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(ragged_nests(), small_arrays())
def test_no_mapping_of_a_ragged_layer_is_better(nest, hardware):
    check_front(nest, hardware)


@pytest.mark.exhaustive
@settings(max_examples=1_000, deadline=None)
@given(ragged_nests(), small_arrays())
def test_no_mapping_of_a_thousand_ragged_layers_is_better(nest, hardware):
    check_front(nest, hardware)


def test_a_nest_that_fits_but_not_beside_resident_maps_has_an_empty_front():
    full = (IN_MEMORY, 1e9)
    fronts = nest_fronts(PRIME["product"], TINY, [ALONE, full]).fronts
    assert fronts[ALONE]
    assert fronts[full] == ()
    assert nest_fronts(PRIME["product"], TINY, [full]).fronts[full] == ()


def test_a_layer_that_fits_only_beside_a_resident_map_has_no_mapping_alone():
    """One word is room for a weight, and for an input beside it only if that is elsewhere."""
    dram, scratchpad, *inside = TINY.levels
    hardware = replace(TINY, levels=(dram, replace(scratchpad, capacity_kib=1 / KIB), *inside))
    resident, searches = (Placement(frozenset({"input"})), 0.0), NestSearches()
    fronts = searches.fronts(PRIME["product"], hardware, [ALONE, resident]).fronts
    assert fronts[resident]
    assert fronts[ALONE] == ()
    with pytest.raises(NothingFitsError, match="no tile of a layer fits its memories"):
        exact({"a": PRIME["product"]}, hardware, searches=searches)


def test_a_nest_is_searched_once_for_each_setting(monkeypatch):
    asked = []

    def counted(nest, hardware, settings, most_cells):
        asked.append((nest, [*settings]))
        return nest_fronts(nest, hardware, settings, most_cells)

    monkeypatch.setattr(layer_by_layer, "nest_fronts", counted)
    nest, beside, searches = PRIME["product"], (IN_MEMORY, 5.0), NestSearches()
    first = searches.fronts(nest, TINY, [ALONE])
    both = searches.fronts(nest, TINY, [ALONE, beside])
    assert searches.fronts(nest, TINY, [beside]) == both
    assert asked == [(nest, [ALONE]), (nest, [beside])]
    assert both.fronts[ALONE] == first.fronts[ALONE]
    assert searches.left == layer_by_layer.MOST_CELLS_OF_MODEL - both.cell_count


def test_the_order_in_which_a_file_names_loops_changes_nothing():
    nest = LoopNest(k=6, c=3, p=5)
    fronts = []
    for loops in (("K", "P"), ("P", "K")):
        levels = [*TINY.levels]
        levels[1] = replace(levels[1], fanouts=(Fanout(loops, "columns"),))
        fronts.append(nest_fronts(nest, replace(TINY, levels=tuple(levels)), [ALONE]).fronts)
    assert fronts[0] == fronts[1]


@pytest.mark.slow
def test_97_channels_use_the_array_as_well_as_96_do():
    found = exact({"a": LoopNest(k=97, c=97, p=28, q=28, r=3, s=3)}, GEMMINI)
    assert found.cycles == 28 * 28 * 9 * 7 * 7  # 97 channels in seven steps of 16


def test_a_head_of_attention_takes_thirteen_steps_of_sixteen_words():
    found = exact({"a": LoopNest(k=197, c=64, p=197)}, GEMMINI)
    assert found.cycles == 13 * 4 * 197


@pytest.mark.slow
def test_vit_on_gemmini_has_its_known_optimum():
    nests = nests_by_node(*source_rows(BUILDERS["vit-b16"](batch=1, has_weights=False)))
    named = {f"{name}.{index}": nest for name, found in nests.items() for index, nest in enumerate(found)}
    assert exact(named, GEMMINI).edp * 1e-6 <= 3.316e12


@pytest.mark.slow
def test_resnet_18_on_gemmini_has_its_known_optimum():
    assert sum(nest.macs for nest in resnet18().values()) == 1_814_073_344
    found = exact(resnet18(), GEMMINI)
    assert len(found.choice) == 21
    assert found.edp * 1e-6 == pytest.approx(4.33331e10, rel=1e-5)
    assert found.energy_pj * 1e-6 == pytest.approx(4737.49, abs=0.05)
    assert found.cycles == pytest.approx(9.147e6, abs=500)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        pytest.param("random", 2.0, 5.0),
        pytest.param("two-step", 1.0, 1.1, marks=pytest.mark.exhaustive),
        pytest.param("cma", 1.0, 1.15, marks=pytest.mark.exhaustive),
    ],
)
def test_a_thousand_mappings_per_layer_end_above_it(name, least, most):
    if not is_installed(name):
        pytest.skip("comes with requirements-search.txt")
    repeats = repeats_of(resnet18())
    parts = {nest: ModelPart(MappingProblem(nest, GEMMINI), times) for nest, times in repeats.items()}
    found = search(parts, engine(name), 1000 * len(parts), seed=0)
    assert least - 1e-12 < found.edp * 1e-6 / 4.33331e10 < most
