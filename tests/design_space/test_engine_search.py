"""A search under one budget, on mapped layers and on a problem whose every schedule is known."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from common.design_space.accelerator.hardware import KIB
from common.design_space.mapping.cost import cost
from common.design_space.mapping.mappings import parse_mappings
from common.design_space.mapping.space.layer_by_layer import exact
from common.design_space.mapping.space.mapping_problem import MappingProblem
from common.design_space.mapping.traffic import Nests
from common.design_space.search.engines import drawing_engines
from common.design_space.search.engines.registry import PROPOSING, engine, is_installed
from common.design_space.search.problem import UNFIT, losses
from common.design_space.search.search import ModelPart, search
from common.messages.errors import UnusableValueError
from common.workload.loop_nests import LoopNest
from tests.support.designs.small_layers import SMALL, TINY

LAYERS = SMALL | {"point": LoopNest()}


class Table:
    """A problem whose schedules are written out: cycles and energy by the only choice."""

    first_choice_count = 1

    def __init__(self, *pairs):
        self.cycles, self.energy = np.array(pairs, dtype=float).T
        self.choice_sizes = (len(pairs),)
        self.asked = []

    def evaluate(self, choices):
        self.asked += choices[:, 0].tolist()
        return self.cycles[choices[:, 0]], self.energy[choices[:, 0]]

    def schedule(self, choices):
        return int(choices[0])


class Interrupting:
    """A observer that ends the search once so many evaluations are spent."""

    def __init__(self, last):
        self.last, self.heard = last, []

    @property
    def is_interrupted(self):
        return self.heard[-1][0] >= self.last

    def begin(self, bound):
        """Take no note."""

    def hear(self, *figures):
        self.heard.append(figures)


def one_by_one(problem, seed):
    """Propose every value of the only choice, batches growing, and stop."""
    start, count = 0, 1
    while start < problem.choice_sizes[0]:
        yield np.arange(start, min(start + count, problem.choice_sizes[0]))[:, None]
        start, count = start + count, count + 1


def every(problem):
    return np.array(list(itertools.product(*map(range, problem.choice_sizes))))


# --- mappings as choices --------------------------------------------------------------------------------------------


SMALLER = TINY.resized(rows=2, columns=2, capacity_kib={"scratchpad": 10 / KIB, "accumulator": 16 / KIB})
SECOND = replace(SMALLER.levels[1], name="l2", holds=frozenset({"weight", "input", "output"}), fanouts=())
MACHINES = {
    "product": (SMALLER, LoopNest(k=5, c=3, p=3)),
    "window": (SMALLER, LoopNest(k=2, p=5, r=3, stride_p=2)),
    "point": (SMALLER, LoopNest()),
    "a second memory": (replace(SMALLER, levels=(SMALLER.levels[0], SECOND, *SMALLER.levels[1:])), LoopNest(k=3, p=3)),
    "weights stay": (
        replace(SMALLER, levels=(replace(SMALLER.levels[0], stationary="weight"), *SMALLER.levels[1:])),
        LoopNest(k=5, c=3, p=3),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_the_choices_of_a_mapped_layer_hold_its_optimum_and_nothing_below(name):
    hardware, nest = MACHINES[name]
    problem = MappingProblem(nest, hardware)
    cycles, energy = problem.evaluate(every(problem))
    assert (cycles * energy).min() == pytest.approx(exact({name: nest}, hardware).edp, rel=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_a_schedule_of_a_mapped_layer_costs_what_its_text_does(name):
    problem = MappingProblem(LAYERS[name], TINY)
    chosen = drawing_engines.draw(problem, 97, np.random.default_rng(5))
    parsed = parse_mappings([problem.schedule(one) for one in chosen], TINY)
    written, (cycles, energy) = cost(parsed, Nests.of([LAYERS[name]]), TINY), problem.evaluate(chosen)
    assert np.isfinite(cycles).tolist() == np.isfinite(energy).tolist() == written.fits.tolist()
    assert cycles[written.fits] == pytest.approx(written.cycles[written.fits])
    assert energy[written.fits] == pytest.approx(written.energy_pj[written.fits])


@pytest.mark.parametrize("name", LAYERS)
def test_the_vector_of_zeros_fits(name):
    problem = MappingProblem(LAYERS[name], TINY)
    assert np.isfinite(problem.evaluate(np.zeros((1, len(problem.choice_sizes)), dtype=int))[0])


# --- the budget -----------------------------------------------------------------------------------------------------


def test_the_supported_points_of_all_parts_are_combined():
    """The best of each part alone are (2, 5) and (9, 9); together, (1, 11) and (9, 9) would be worse than (2, 5)."""
    pairs = {"a": [(40, 40), (1, 11), (2, 5), (10, 2)], "b": [(50, 50), (30, 2), (9, 9), (3, 40)]}
    parts = {"a": ModelPart(Table(*pairs["a"]), 3), "b": ModelPart(Table(*pairs["b"]), 2)}
    found = search(parts, one_by_one, 1000, 0)
    totals = {
        (one, two): (3 * pairs["a"][one][0] + 2 * pairs["b"][two][0])
        * (3 * pairs["a"][one][1] + 2 * pairs["b"][two][1])
        for one, two in itertools.product(range(4), range(4))
    }
    best = min(totals, key=totals.get)
    assert (found.schedules["a"].choice, found.schedules["b"].choice) == best
    assert found.edp == totals[best]
    assert found.is_complete
    assert found.evaluation_count == 2 * (1 + 4)  # of each part, the vector of zeros and then every schedule


def test_a_schedule_that_does_not_fit_is_not_chosen():
    table = Table((7, 7), (np.inf, np.inf), (3, 5))
    assert search({"a": ModelPart(table)}, one_by_one, 100, 0).edp == 15


@pytest.mark.parametrize("evaluations", [2, 3, 10, 11, 12, 201])
def test_every_evaluation_is_counted_and_none_is_above_the_budget(evaluations):
    tables = [Table(*((50 - i, 3) for i in range(40))), Table(*((3, 90 - i) for i in range(80)))]
    found = search(
        {index: ModelPart(table) for index, table in enumerate(tables)},
        drawing_engines.propose_at_random,
        evaluations,
        3,
    )
    assert found.evaluation_count == sum(len(table.asked) for table in tables) == evaluations
    assert abs(len(tables[0].asked) - len(tables[1].asked)) <= 1


def test_the_curve_falls_to_the_result():
    table = Table(*((101 - i, 7) for i in range(0, 100, 3)))
    observer = Interrupting(10_000)
    found = search({"a": ModelPart(table)}, one_by_one, 10_000, 0, observer)
    counts, products = zip(*found.curve, strict=True)
    assert list(counts) == sorted(set(counts))
    assert list(products) == sorted(set(products), reverse=True)
    assert (counts[0], products[0]) == (1, 101 * 7)
    assert products[-1] == found.edp == 2 * 7
    for count, product in found.curve:
        assert product == min(7 * (101 - 3 * choice) for choice in table.asked[:count])
    assert observer.heard[-1] == (found.evaluation_count, 10_000, found.edp)


@pytest.mark.parametrize("last", [2, 13, 60])
def test_an_interrupted_search_has_the_best_so_far(last):
    tables = {name: Table(*((50 - i, 3) for i in range(40))) for name in "ab"}
    observer = Interrupting(last)
    found = search({name: ModelPart(table) for name, table in tables.items()}, one_by_one, 10_000, 0, observer)
    assert not found.is_complete
    assert last <= found.evaluation_count == sum(len(table.asked) for table in tables.values()) < 82
    best = [min(50 - choice for choice in table.asked) for table in tables.values()]
    assert found.edp == sum(best) * (3 + 3) == found.curve[-1][1]


def test_the_seed_decides():
    parts = {name: ModelPart(MappingProblem(nest, TINY)) for name, nest in LAYERS.items()}
    runs = [search(parts, drawing_engines.propose_at_random, 55, seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0].schedules != runs[2].schedules


def test_parts_draw_differently():
    tables = [Table(*((1, 1) for _ in range(1000))) for _ in range(2)]
    search({index: ModelPart(table) for index, table in enumerate(tables)}, drawing_engines.propose_at_random, 200, 0)
    assert tables[0].asked != tables[1].asked


def test_a_budget_below_the_parts_is_refused():
    with pytest.raises(UnusableValueError, match="2 is fewer than one for each of 3 distinct parts"):
        search({name: ModelPart(Table((1, 1))) for name in "abc"}, one_by_one, 2, 0)


def test_an_accelerator_on_which_nothing_fits_is_refused():
    with pytest.raises(UnusableValueError, match="no tile of a layer fits"):
        search({"a": ModelPart(Table((np.inf, np.inf)))}, one_by_one, 20, 0)


# --- engines --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=PROPOSING)
def propose(request):
    if not is_installed(request.param):
        pytest.skip("comes with requirements-search.txt")
    return engine(request.param)


@pytest.mark.parametrize("name", LAYERS)
def test_an_engine_proposes_choices_that_there_are(propose, name):
    problem, count = MappingProblem(LAYERS[name], TINY), 0
    proposals = propose(problem, 11)
    batch = next(proposals, None)
    while batch is not None and count < 90:
        assert batch.shape == (len(batch), len(problem.choice_sizes))
        assert batch.dtype.kind == "i"
        assert (batch >= 0).all()
        assert (batch < problem.choice_sizes).all()
        count += len(batch)
        try:
            batch = proposals.send(np.multiply(*problem.evaluate(batch)))
        except StopIteration:  # it knows every schedule
            batch = None


def test_an_engine_draws_by_its_seed_alone(propose):
    parts = {name: ModelPart(MappingProblem(nest, TINY)) for name, nest in LAYERS.items()}
    runs = [search(parts, propose, 200, seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0].curve != runs[2].curve


@pytest.mark.slow
def test_no_engine_is_below_the_optimum_and_each_comes_near(propose):
    parts = {name: ModelPart(MappingProblem(nest, TINY)) for name, nest in LAYERS.items()}
    found, optimum = search(parts, propose, 1000, 3), exact(LAYERS, TINY)
    assert optimum.edp * (1 - 1e-12) <= found.edp < 1.5 * optimum.edp


@pytest.mark.parametrize("name", sorted(set(PROPOSING) - {"gradient"}))
def test_an_engine_goes_on_where_nothing_that_it_proposes_fits(name):
    if not is_installed(name):
        pytest.skip("comes with requirements-search.txt")
    table = Table((5, 7), *[(np.inf, np.inf)] * 40)
    found = search({"a": ModelPart(table)}, engine(name), 60, 0)
    assert found.edp == 35
    assert found.evaluation_count == 60


class Steps:
    """A problem in which a mapping that is best by itself is not the best with what comes later."""

    choice_sizes = (2, 2)
    first_choice_count = 1
    products = np.array([[5.0, 4.0], [6.0, 1.0]])

    def evaluate(self, choices):
        products = self.products[choices[:, 0], choices[:, 1]]
        return products, np.ones(len(products))

    def schedule(self, choices):
        return tuple(choices.tolist())


def test_two_steps_miss_what_only_both_choices_together_give():
    """The first step settles on 5 before 6; from there the second finds 4. A start may see (1, 0) alone, never 1."""
    found = search({"a": ModelPart(Steps())}, engine("two-step"), 500, 0)
    assert found.schedules["a"].choice == (0, 1)
    assert found.edp == 4


def test_losses_order_schedules_as_their_products_do():
    assert losses(np.array([1.0, np.e, np.inf, np.nan])) == pytest.approx([0, 1, UNFIT, UNFIT])
