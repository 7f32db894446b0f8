"""The bound of equal branches against arithmetic, and against every plan."""

import random

import pytest

from common.fpga.offload.baselines import possible_options
from common.fpga.offload.effort import Spending
from common.fpga.offload.program.division import MOST_WAYS, division
from common.fpga.offload.program.whole import WholeSearch
from common.fpga.offload.schedule import Scheduler
from tests.support.kernels.offload_problems import earliest_finish, engine, flow, option, problem

LONG_NS = 1 << 40
PAIR = (engine("E", instances=2),)


def fan(hosts, calls, *, h2d=3, d2h=2, before=5, after=7, engines=PAIR, joint=(), launch_us=0, final=(), gathers=()):
    """A fork, chains side by side, and a join; the host alone can do fork and join, unless ``final`` can do the join.

    Args:
        hosts: for each chain the times of its items on the host.
        calls: for each chain, for each item, its time on each engine; None: cannot.
        joint: for each chain the time of a call over all its items on each engine.
        final: time of the join on each engine.
        gathers: time of a step of the host before each chain.
    """
    times, flows, options, forks, ends = [before], [], [], [], []
    for number, chain in enumerate(hosts):
        if gathers:
            times.append(gathers[number])
            forks.append(len(times) - 1)
        items = range(len(times), len(times) + len(chain))
        times += chain
        if gathers:
            flows.append(flow(f"g{number}", items[0] - 1, [items[0]], h2d))
        else:
            forks.append(items[0])
        for place, item in enumerate(items):
            for index, time in enumerate(calls[number][place]):
                if time is not None:
                    options.append(option(f"{item}@{index}", [item], index, time, launch_us))
        for index, time in enumerate(joint[number] if joint else ()):
            options.append(option(f"{items}@{index}", items, index, time, launch_us))
        flows += [flow(f"t{item}", item, [item + 1], h2d, d2h) for item in items[:-1]]
        ends.append(items[-1])
    join = len(times)
    options += [option(f"join@{index}", [join], index, time) for index, time in enumerate(final)]
    flows += [flow("fork", 0, forks, h2d), *(flow(f"t{end}", end, [join], h2d, d2h) for end in ends)]
    flows.append(flow("out", join, [], h2d, d2h, is_output=True))
    return problem([*times, after], flows, engines, options)


def found_in(given, horizon_ns=LONG_NS):
    scheduler = Scheduler(given)
    options = possible_options(given, scheduler)
    return division(given, scheduler.wiring, options, horizon_ns, Spending(1e9), 1e9)


def bound_us(given):
    return found_in(given).bound_ns / 1000


def singles(hosts, calls, **settings):
    return fan([(host,) for host in hosts], [(each,) for each in calls], **settings)


def test_five_equal_calls_on_two_engines_take_three_of_one():
    # Before 5, to the card 3, three calls of 12 one after the other, to the host 2, after that 7; half calls: 47.
    assert bound_us(singles([100] * 5, [(12,)] * 5)) == 5 + 3 + 3 * 12 + 2 + 7


def test_the_host_takes_its_share_where_that_is_sooner():
    # One of the five on the host: 5 + 30 + 7 there, and two of 12 on each engine: 5 + 3 + 24 + 2 + 7 = 41.
    assert bound_us(singles([30] * 5, [(12,)] * 5)) == 42


def test_what_the_engines_of_a_slow_type_take_off_the_fast_ones_counts():
    # The fast engine takes four of 10, the slow one one of 35; three and two would end at 5 + 3 + 70 + 2 + 7.
    given = singles([100] * 5, [(10, 35)] * 5, engines=(engine("fast"), engine("slow")))
    assert bound_us(given) == 5 + 3 + 40 + 2 + 7


def test_measured_times_of_equal_branches_differ_and_the_shortest_counts():
    # One on the host, the shortest: 5 + 29 + 7; the others as before.
    assert bound_us(singles([30, 31, 29, 33, 30], [(12,)] * 5)) == 41


def test_branches_that_are_not_equal_are_not_counted():
    assert found_in(singles([100] * 4, [(12,), (12,), (13,), (13,)])) is None


def test_the_two_calls_of_a_branch_are_one_after_the_other():
    # A only does first items and B second ones. Three firsts take 60 on A, and the last branch needs B's 10 after that.
    engines = (engine("A"), engine("B"))
    given = fan([(100, 100)] * 3, [((20, None), (None, 10))] * 3, engines=engines)
    assert bound_us(given) == 5 + 3 + 3 * 20 + 10 + 2 + 7


def test_one_call_of_a_branch_or_two():
    # One engine: both in one call of 25, or two of 20 and 10.
    given = fan([(100, 100)] * 3, [((20,), (10,))] * 3, joint=[(25,)] * 3, engines=(engine("A"),))
    assert bound_us(given) == 5 + 3 + 3 * 25 + 2 + 7


def test_engines_begin_with_different_branches_that_the_host_prepares_in_turn():
    # The third engine begins when the host has prepared three: 5 + 3 * 4, then 3 to the card, 20, 2 and 7.
    given = singles([100] * 3, [(20,)] * 3, gathers=(4, 4, 4), engines=(engine("E", instances=3),))
    assert bound_us(given) == 5 + 3 * 4 + 3 + 20 + 2 + 7


def test_a_board_whose_regions_hold_one_engine_each():
    """Both regions together have enough for three, but each holds one."""
    given = fan([(100,)] * 4, [((12,),)] * 4, engines=(engine("E", 60, instances=3),))
    two = problem([item.host_us for item in given.items], given.flows, given.engines, given.options, ((0, 90), (0, 90)))
    assert bound_us(two) == 5 + 3 + 2 * 12 + 2 + 7


def test_a_horizon_before_every_plan_is_the_bound():
    given = singles([100] * 5, [(12,)] * 5)
    assert found_in(given, 52_000).bound_ns == 52_000
    assert found_in(given, 54_000).bound_ns == 53_000


def test_branches_with_too_many_ways_are_left_to_other_bounds():
    times = tuple(range(1, 9))
    given = fan([(100,) * 3] * 3, [(times,) * 3] * 3, engines=[engine(f"E{number}") for number in range(8)])
    assert MOST_WAYS < 9**3
    assert found_in(given) is None


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.exhaustive) for first in range(30, 300, 30))]
)
def test_no_plan_finishes_before_the_bound(first):
    tight = 0
    for seed in range(first, first + 30):
        given = random_fan(seed)
        least_us, bound = earliest_finish(given), bound_us(given)
        assert 0 < bound <= least_us + 1e-3, seed
        tight += bound > 0.8 * least_us
    assert tight > 5


def random_fan(seed):
    """Three equal chains of one or two items over one or two engines; every plan of them can be tried."""
    chance = random.Random(seed)
    length = chance.choice((1, 1, 2))
    engines = [
        engine(
            f"E{number}",
            instances=chance.choice((1, 2)) if length == 1 else 1,
            launch_per=chance.choice(("call", "entry", "engine")),
        )
        for number in range(chance.choice((1, 2)) if length == 1 else 1)
    ]
    calls = tuple(tuple(chance.randint(1, 30) for _ in engines) for _ in range(length))
    joint = tuple(chance.randint(10, 50) for _ in engines)
    return fan(
        [tuple(chance.choice((8, 20, 45, 80)) for _ in range(length)) for _ in range(3)],
        [calls] * 3,
        joint=[joint] * 3 if length > 1 and chance.random() < 0.7 else (),
        engines=engines,
        launch_us=chance.choice((0, 4)),
        final=tuple(chance.randint(1, 9) for _ in engines) if chance.random() < 0.3 else (),
        gathers=[chance.choice((1, 4, 9)) for _ in range(3)] if len(engines) == 1 and chance.random() < 0.5 else (),
        **{name: chance.choice((0, 2, 9)) for name in ("h2d", "d2h", "before", "after")},
    )


def test_a_search_begins_with_this_bound_and_a_plan_that_meets_it():
    """The linear program divides five calls into halves, so it says 47 at most."""
    linear, whole = (WholeSearch(given, range(5), Spending(1e9)) for given in [singles([100] * 5, [(12,)] * 5)] * 2)
    linear.relaxed()
    whole.begin()
    assert linear.bound_ns <= 47_000
    assert whole.bound_ns == 53_000
    assert whole.finish_ns <= 57_000  # the link takes the tensors of two engines one after the other
