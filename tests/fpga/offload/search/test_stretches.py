"""Stretches of the host's work as one item: every plan and the best one finish when they did."""

import random
from dataclasses import replace

import pytest

from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler
from common.fpga.offload.search.plan_search import optimize, with_joined_stretches
from tests.support.kernels.offload_problems import (
    earliest_finish,
    engine,
    flow,
    option,
    problem,
    random_problem,
    random_towers,
)


def some_plan(given, chance):
    """Calls that share no item, one for each of some options."""
    taken, calls = set(), []
    for index in chance.sample(range(len(given.options)), len(given.options)):
        if taken.isdisjoint(given.options[index].covers) and chance.random() < 0.7:
            taken.update(given.options[index].covers)
            calls.append(KernelCall(index))
    return Assignment(tuple(calls))


def with_items_of_the_host(given, chance):
    """The same problem, half of its items for the host alone."""
    fixed = {item for item in range(len(given.items)) if chance.random() < 0.5}
    return replace(given, options=tuple(each for each in given.options if fixed.isdisjoint(each.covers)))


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("given_by", [random_problem, random_towers])
def test_every_plan_finishes_when_it_did(given_by):
    chance, joined = random.Random(7), 0
    for seed in range(7000, 7120):
        given = with_items_of_the_host(given_by(seed), chance)
        smaller = with_joined_stretches(given)
        joined += len(smaller.items) < len(given.items)
        assert smaller.host_only_us == given.host_only_us, seed
        for _ in range(5):
            plan = some_plan(given, chance)
            assert Scheduler(smaller).finish_us(plan) == pytest.approx(Scheduler(given).finish_us(plan), abs=1e-6), seed
        if len(smaller.items) < len(given.items):
            assert earliest_finish(smaller) == pytest.approx(earliest_finish(given), abs=1e-6), seed
    assert joined > 10


def test_a_stretch_ends_where_the_card_reads_and_begins_where_it_writes():
    given = problem(
        [2, 3, 5, 7, 11, 13, 17],
        [
            flow("in", None, [0, 4]),
            flow("a", 0, [1, 4]),
            flow("b", 1, [2]),
            flow("c", 2, [3]),
            flow("d", 3, [4]),
            flow("e", 4, [5, 6]),
            flow("f", 5, [], is_output=True),
        ],
        [engine("E")],
        [option("C", [2], 0, 1)],
    )
    smaller = with_joined_stretches(given)
    assert [item.host_us for item in smaller.items] == [2 + 3, 5, 7 + 11 + 13 + 17]
    assert [(each.producer, each.consumers) for each in smaller.flows] == [
        (None, (0, 2)),
        (0, (2,)),
        (0, (1,)),
        (1, (2,)),
        (2, ()),
        (2, ()),
        (2, ()),
    ]
    assert smaller.options[0].covers == (1,)


def test_thousands_of_steps_that_only_the_host_can_do_are_planned_as_one(monkeypatch):
    size, sizes = 3000, []
    flows = [flow(f"t{item}", item, [item + 1] if item + 1 < size else []) for item in range(size)]
    given = problem([3] * 10 + [100] * 2 + [3] * (size - 12), flows, [engine("E")], [option("o", [10, 11], 0, 1)])
    monkeypatch.setattr(Scheduler, "jobs", lambda self, plan, jobs=Scheduler.jobs: counted(self, plan, jobs, sizes))
    found = optimize(given)
    assert found.status == "optimal"
    assert found.finish_us == given.host_only_us - 200 + 5 + 1 + 7
    # all but the first and the last look at the whole run
    assert max(sizes) == size
    assert sizes.count(size) <= 2


def counted(scheduler, plan, jobs, sizes):
    """The jobs of a schedule, their problem's size added to a list."""
    sizes.append(len(scheduler.problem.items))
    return jobs(scheduler, plan)
