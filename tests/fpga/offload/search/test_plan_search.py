"""The program against brute force, against shortest paths on chains, and against arithmetic."""

import random
import sys
from dataclasses import replace

import pytest

from common.fpga.offload.baselines import greedy, possible_options
from common.fpga.offload.effort import Effort, Spending
from common.fpga.offload.program.whole import WholeSearch
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler, evaluate
from common.fpga.offload.search.plan_search import optimize
from common.messages.errors import PipelineError
from tests.support.kernels.offload_problems import (
    earliest_finish,
    engine,
    flow,
    option,
    problem,
    random_problem,
    random_towers,
    started_by_others,
)

# Fork and join. On the host alone 100 + 60 + 80 + 10.
DIAMOND = problem(
    [100, 60, 80, 10],
    [flow("a", 0, [1, 2], 10), flow("b", 1, [3], 0, 7), flow("c", 2, [3], 0, 8), flow("d", 3, [], is_output=True)],
    [engine("E")],
    [option("B", [1], 0, 20, 5), option("C", [2], 0, 30, 5)],
)


def test_the_host_works_while_the_card_does():
    found = optimize(DIAMOND)
    # C alone: it is back at 100 + 10 + 5 + 30 + 8 = 153, while the host does B until 160. Both would end at 187.
    assert [call.option for call in found.assignment.calls] == [1]
    assert (found.finish_us, found.bound_us, found.status, found.gap) == (100 + 60 + 10, 170, "optimal", 0)
    assert evaluate(DIAMOND, Assignment((KernelCall(0), KernelCall(1)))).finish_us == pytest.approx(188)


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.exhaustive) for first in range(40, 320, 40))]
)
def test_no_plan_is_better(first):
    for seed in range(first, first + 40):
        given = random_problem(seed)
        found = optimize(given)
        assert found.finish_us == pytest.approx(earliest_finish(given), abs=1e-6), seed
        assert found.status == "optimal", seed
        assert evaluate(given, found.assignment).finish_us == found.finish_us
        assert_fits(given, found.assignment)


@pytest.mark.slow
@pytest.mark.no_cover
def test_whole_choices_without_an_order_bound_every_plan_and_are_one():
    """The linear program alone allows half a call; whole choices narrow the bound, and never beyond the best plan."""
    narrowed = 0
    for seed in range(40):
        given, best_us = random_problem(seed), earliest_finish(random_problem(seed))
        search, linear = (
            WholeSearch(given, possible_options(given, Scheduler(given)), Spending(1e9)) for _ in range(2)
        )
        linear.relaxed()
        search.assigned(1000)
        assert search.bound_ns / 1000 <= best_us + 1e-3, seed
        assert search.plan is None or search.finish_ns / 1000 >= best_us - 1e-3, seed
        narrowed += search.bound_ns > linear.bound_ns + 1
    assert narrowed > 4


def test_the_relaxation_knows_that_the_host_waits_for_a_call_that_it_cannot_hide():
    # The host has 5 to do beside a call of 30: half a call would be hidden, the whole one makes it wait for 25.
    given = problem(
        [10, 20, 5, 10],
        [flow("a", 0, [1, 2], 0), flow("b", 1, [3], 0, 0), flow("c", 2, [3], 0, 0)],
        [engine("E")],
        [option("B", [1], 0, 30)],
    )
    assert relaxed_ns(given) == pytest.approx(1000 * given.host_only_us, abs=1)


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("given_by", [random_problem, random_towers])
def test_the_relaxation_bounds_every_plan(given_by):
    tight = 0
    for seed in range(5000, 5040):
        given = given_by(seed)
        least_ns = 1000 * earliest_finish(given)
        bound_ns = relaxed_ns(given)
        assert bound_ns <= least_ns + 1, seed
        tight += bound_ns > 0.999 * least_ns
    assert tight > 10


def relaxed_ns(given):
    scheduler = Scheduler(given)
    search = WholeSearch(given, possible_options(given, scheduler), Spending(1.0))
    search.relaxed()
    return search.bound_ns


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.exhaustive) for first in range(20, 320, 20))]
)
def test_no_plan_is_better_where_an_engine_must_be_started_at_least_once(first):
    for seed in range(first, first + 20):
        given = started_by_others(random_problem(seed))
        found = optimize(given)
        assert found.finish_us == pytest.approx(earliest_finish(given), abs=1e-6), seed
        assert found.bound_us <= found.finish_us * (1 + 1e-9)
        starts_all_engines(given, found.assignment)


def starts_all_engines(given, plan):
    """Every engine type that fetches its own instructions is launched at least once, unless its launches are free."""
    launched = {bar.resource.partition("#")[0] for bar in evaluate(given, plan).bars if bar.launch_us}
    for call in plan.calls:
        kind = given.engines[given.options[call.option].engine]
        costs = [given.options[one.option].launch_us.likely for one in plan.calls]
        assert kind.name in launched or 0 in costs


def test_an_engine_that_another_one_feeds_is_started_once():
    """A on the array, B and C on the overlay, which reads nothing that the host wrote."""
    given = problem(
        [100, 100, 100],
        [flow("x", None, [0], 1), flow("a", 0, [1]), flow("b", 1, [2]), flow("c", 2, [], is_output=True)],
        [engine("array"), engine("overlay", launch_per="engine")],
        [option("A", [0], 0, 10, 3), option("B", [1], 1, 10, 3), option("C", [2], 1, 10, 3)],
    )
    plan = evaluate(given, Assignment((KernelCall(0), KernelCall(1), KernelCall(2))))
    assert [(bar.label, bar.launch_us) for bar in plan.bars if bar.kind == "call"] == [("A", 3), ("B", 3), ("C", 0)]
    assert optimize(given).finish_us == plan.finish_us == 1 + 13 + 13 + 10 + 7
    free = replace(given, engines=(given.engines[0], replace(given.engines[1], launch_per="entry")))
    assert optimize(free).finish_us == plan.finish_us - 3


def assert_fits(given, plan):
    """The regions that the plan names hold their engines."""
    for kind in ("lut", "dsp"):
        placed = [(getattr(given.engines[index].resources, kind), region) for index, _, region in plan.regions]
        for number, region in enumerate(given.regions):
            assert sum(need for need, at in placed if at == number) <= getattr(region.budget, kind)
        assert sum(need for need, _ in placed) <= sum(getattr(region.budget, kind) for region in given.regions)
    used = {(given.options[call.option].engine, call.instance) for call in plan.calls}
    assert {(index, number) for index, number, _ in plan.regions} == used
    assert all((region is None) == given.engines[index].spans_regions for index, _, region in plan.regions)
    assert sum(given.options[call.option].weight_bytes for call in plan.calls) <= given.memory_capacity_bytes


def chain(size, seed):
    chance = random.Random(seed)
    hosts = [chance.randint(1, 90) for _ in range(size)]
    cards = [chance.choice((None, chance.randint(1, 40))) for _ in range(size)]
    ways = [(chance.randint(1, 30), chance.randint(1, 30)) for _ in range(size + 1)]
    flows = [
        flow(f"t{i}", i - 1 if i else None, [i] if i < size else [], *ways[i], is_output=i == size)
        for i in range(size + 1)
    ]
    options = [option(f"o{i}", [i], 0, card, 7) for i, card in enumerate(cards) if card]
    return problem(hosts, flows, [engine("E")], options), hosts, cards, ways


def shortest_path(hosts, cards, ways):
    host, card = 0.0, float("inf")  # where the tensor is before each item
    for here, there, (inward, outward) in zip(hosts, cards, ways[:-1], strict=True):
        on_host = min(host, card + outward) + here
        card = min(card, host + inward) + there + 7 if there else float("inf")
        host = on_host
    return min(host, card + ways[-1][1])


@pytest.mark.slow
@pytest.mark.parametrize(("size", "seed"), [(40, 1), (97, 2), (211, 3)])
def test_a_long_chain_is_a_shortest_path(size, seed):
    given, *numbers = chain(size, seed)
    found = optimize(given)
    assert (found.status, found.finish_us) == ("optimal", pytest.approx(shortest_path(*numbers)))


def branches(size, seed):
    """Blocks of two branches on two engines, so that no step short of the whole program can prove a plan."""
    chance = random.Random(seed)
    readers = {source: [] for source in range(-1, size)}
    for item in range(size):
        for source in {0: [item - 1], 1: [item - 2], 2: [item - 1, item - 2]}[item % 3]:
            readers[max(source, -1)].append(item)
    flows = [flow(f"t{i}", None if i < 0 else i, to, 2, 3, is_output=i == size - 1) for i, to in readers.items()]
    options = [option(f"o{i}@{e}", [i], e, chance.randint(5, 40), 2) for i in range(size) for e in range(2)]
    return problem([chance.randint(10, 70) for _ in range(size)], flows, [engine("E"), engine("F")], options)


@pytest.mark.slow
def test_a_long_network_of_branches_has_a_plan_between_bound_and_greedy():
    given = branches(75, 5)
    found = optimize(given, Effort(0.1))
    assert evaluate(given, found.assignment).finish_us == pytest.approx(found.finish_us)
    assert 0 < found.bound_us <= found.finish_us < evaluate(given, greedy(given)).finish_us
    assert found.gap == pytest.approx(1 - found.bound_us / found.finish_us)
    longer = optimize(given, Effort(0.3))
    assert longer.finish_us <= found.finish_us * (1 + 1e-9)
    assert found.bound_us <= longer.finish_us


@pytest.mark.slow
def test_the_same_problem_has_the_same_plan():
    given = branches(30, 2)
    assert optimize(given, Effort(0.2)) == optimize(given, Effort(0.2))


@pytest.mark.slow
def test_without_time_to_search_a_plan_comes_back_all_the_same():
    given = branches(30, 2)
    found = optimize(given, Effort(0.0))
    assert found.status == "feasible"
    assert found.bound_us < found.finish_us <= evaluate(given, greedy(given)).finish_us


def test_of_equal_plans_the_one_with_fewer_engines_then_calls_is_taken():
    """The host is busy for 100 with its own branch; whatever the card does meanwhile ends earlier."""
    given = problem(
        [10, 20, 20, 100, 10],
        [flow("a", 0, [1, 2, 3], 1), *(flow(f"t{item}", item, [4], 0, 1) for item in (1, 2, 3)), flow("e", 4, [])],
        [engine("E"), engine("F"), engine("G")],
        [option("both", [1, 2], 2, 40), *(option(f"{item}@{e}", [item], e, 9) for item in (1, 2) for e in range(2))],
    )
    found = optimize(given)
    assert (found.finish_us, found.status) == (10 + 100 + 10, "optimal")
    assert [call.option for call in found.assignment.calls] == [0]


def test_nothing_to_offload():
    given = problem([3, 5], [flow("x", 0, [1])], [], [])
    assert optimize(given).assignment == Assignment()
    assert optimize(given).finish_us == 8


def test_a_missing_solver_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools", None)
    with pytest.raises(PipelineError, match="ortools: is not installed; pip install -r "):
        optimize(DIAMOND)
