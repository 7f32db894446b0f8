"""The best mappings of layers: against every mapping of small layers, and ResNet-18's known optimum on Gemmini."""

import itertools
from functools import cache

import pytest

from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.cost import cost
from common.design_space.mapping.layer_by_layer import exact, least_product, repeats_of
from common.design_space.mapping.mapping_problem import MappingProblem
from common.design_space.mapping.mapping_space import mapping_space
from common.design_space.mapping.mappings import parse_mappings
from common.design_space.mapping.traffic import Nests
from common.design_space.search.engines.registry import engine, is_installed
from common.design_space.search.search import ModelPart, search
from common.errors import UnusableValueError
from common.workload.loop_nests import LoopNest
from common.workload.nest_rows import nests_by_node
from models.__main__ import BUILDERS
from tests.support.every_mapping import every_mapping
from tests.support.paths import CONFIGS
from tests.support.small_layers import GEMMINI, SMALL, TINY
from tests.support.source_tables import source_rows


def brute_force(nest, hardware):
    """Cycles and energy of every mapping that fits and has room in the array."""
    mappings = every_mapping(nest)
    result = cost(mappings, Nests.of([nest]), hardware)
    has_room = (mappings.spatial[:, 1].prod(-1) <= hardware.array.columns) & (
        mappings.spatial[:, 2].prod(-1) <= hardware.array.rows
    )
    kept = result.fits & has_room
    return result.cycles[kept], result.energy_pj[kept]


@pytest.mark.parametrize("name", SMALL)
def test_no_mapping_of_a_layer_is_better(name):
    cycles, energy = brute_force(SMALL[name], TINY)
    assert len(cycles) > len(mapping_space(SMALL[name], TINY))
    assert exact({name: SMALL[name]}, TINY).edp == pytest.approx((cycles * energy).min(), rel=1e-12)


def test_no_mappings_of_two_layers_are_better_together():
    names = ("window", "product")
    (cycles, energy), (other_cycles, other_energy) = (brute_force(SMALL[name], TINY) for name in names)
    products = (cycles[:, None] + other_cycles) * (energy[:, None] + other_energy)
    found = exact({name: SMALL[name] for name in names}, TINY)
    assert found.edp == pytest.approx(products.min(), rel=1e-12)


def test_a_repeated_layer_is_searched_once_and_counted_each_time():
    one, three = exact({"a": SMALL["product"]}, TINY), exact(dict.fromkeys("abc", SMALL["product"]), TINY)
    assert three.evaluations == one.evaluations
    assert three.edp == pytest.approx(9 * one.edp)


def test_the_mapping_that_is_given_costs_what_is_stated():
    for layer in exact(SMALL, TINY).layers.values():
        result = cost(parse_mappings([layer.mapping], TINY), Nests.of([layer.nest]), TINY)
        assert (result.cycles[0], result.energy_pj[0]) == (layer.cycles, layer.energy_pj)
        assert result.fits[0]


@pytest.mark.parametrize("name", SMALL)
def test_no_mapping_is_below_what_the_bound_counts(name):
    assert 0 < least_product({SMALL[name]: 1}, TINY) < exact({name: SMALL[name]}, TINY).edp
    assert least_product({SMALL[name]: 3}, TINY) == pytest.approx(9 * least_product({SMALL[name]: 1}, TINY))


def test_a_layer_of_which_no_tile_fits_is_refused():
    level = GEMMINI.levels[1]
    shut = GEMMINI.resized(capacity_kib={level.name: 2 / 1024})
    assert len(mapping_space(SMALL["product"], shut)) > 0  # a word of weight and one of input
    with pytest.raises(UnusableValueError, match="below one tile"):
        GEMMINI.resized(capacity_kib={level.name: 1 / 1024})


def test_one_buffer_for_all_operands_is_a_hierarchy_too():
    hardware = load_hardware("fa-dosa", CONFIGS / "hardware").resized(capacity_kib={"buffer": 4 * 40 / 1024})
    found = exact({"a": LoopNest(k=6, c=6, p=4)}, hardware).layers["a"]
    result = cost(parse_mappings([found.mapping], hardware), Nests.of([found.nest]), hardware)
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


@pytest.mark.slow
def test_resnet_18_on_gemmini_has_its_known_optimum():
    assert sum(nest.macs for nest in resnet18().values()) == 1_814_073_344
    found = exact(resnet18(), GEMMINI)
    assert len(found.layers) == 21
    assert found.edp * 1e-6 == pytest.approx(4.3562e10, rel=1e-5)
    assert found.energy_pj * 1e-6 == pytest.approx(4762.5, abs=0.05)
    assert found.cycles == pytest.approx(9.147e6, abs=500)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        pytest.param("random", 1.2, 1.8),
        pytest.param("two-step", 1.0, 1.01, marks=pytest.mark.exhaustive),
        pytest.param("cma", 1.0, 1.05, marks=pytest.mark.exhaustive),
    ],
)
def test_a_thousand_mappings_per_layer_end_above_it(name, least, most):
    if not is_installed(name):
        pytest.skip("comes with requirements-search.txt")
    repeats = repeats_of(resnet18())
    parts = {nest: ModelPart(MappingProblem(nest, GEMMINI), times) for nest, times in repeats.items()}
    found = search(parts, engine(name), 1000 * len(parts), seed=0)
    assert least - 1e-12 < found.edp * 1e-6 / 4.35623e10 < most
