"""Timelines worked out by hand."""

import dataclasses
import math

import pytest

from common.fpga.offload.reasons import Reasons
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler, evaluate
from common.intervals import ThreePoint
from tests.support.kernels.offload_problems import engine, flow, known, option, problem

CHAIN = problem(
    [11, 13, 17, 19],
    [
        flow("in", None, [0]),
        flow("a", 0, [1]),
        flow("b", 1, [2]),
        flow("c", 2, [3]),
        flow("out", 3, [], is_output=True),
    ],
    [engine("E"), engine("F")],
    [
        option("one", [1], 0, 2, 3),
        option("two", [2], 0, 1, 3),
        option("both", [1, 2], 1, 4, 3),
        option("last", [3], 1, 6, 3),
    ],
)


def reasons(problem, plan):
    """One for each option, in their order."""
    why = Reasons(problem, plan)
    return [why.of(index) for index in range(len(problem.options))]


def bars(schedule):
    return {(bar.resource, bar.label): (bar.start_us, bar.finish_us) for bar in schedule.bars}


def plan(*options, order=None):
    return Assignment(tuple(KernelCall(index) for index in options), order=order)


def test_without_a_call_the_host_does_all():
    assert evaluate(CHAIN, Assignment()).finish_us == 11 + 13 + 17 + 19


def test_a_call_waits_for_its_transfer_and_the_host_for_the_way_back():
    found = evaluate(CHAIN, plan(0))
    assert bars(found) == {
        ("host", "n0"): (0, 11),
        ("h2d", "a"): (11, 11 + 5),
        ("E", "one"): (16, 16 + 3 + 2),
        ("d2h", "b"): (21, 21 + 7),
        ("host", "n2"): (28, 28 + 17),
        ("host", "n3"): (45, 45 + 19),
    }


def test_what_stays_on_the_card_does_not_travel():
    assert evaluate(CHAIN, plan(0, 1)).finish_us == 11 + 5 + (3 + 2) + (3 + 1) + 7 + 19


def test_a_chain_pays_one_launch():
    assert evaluate(CHAIN, plan(2)).finish_us == 11 + 5 + (3 + 4) + 7 + 19


def test_the_graph_output_comes_back():
    assert evaluate(CHAIN, plan(3)).finish_us == 11 + 13 + 17 + 5 + (3 + 6) + 7


def test_totals_add_up():
    totals = evaluate(CHAIN, plan(0, 1, 3)).totals
    assert (totals.host_us, totals.offloaded_host_us) == (11, 13 + 17 + 19)
    assert (totals.kernel_us, totals.launch_us, totals.launch_count, totals.call_count) == (2 + 1 + 6, 3 * 3, 3, 3)
    assert (totals.h2d_us, totals.d2h_us, totals.convert_us) == (5, 7, 0)
    assert totals.engine_us == {"E": 2 + 1 + 6, "F": 6 + 3}


def test_an_engine_that_fetches_its_instructions_is_launched_where_the_host_enters():
    entry = dataclasses.replace(CHAIN, engines=(engine("E", launch_per="entry"), engine("F", launch_per="entry")))
    found = evaluate(entry, plan(0, 1, 3))
    assert found.finish_us == 11 + 5 + (3 + 2) + 1 + 6 + 7
    assert found.totals.launch_count == 1


def test_a_tensor_travels_once_for_all_its_readers():
    fork = problem(
        [7, 31, 37],
        [flow("x", 0, [1, 2]), flow("y", 1, [], is_output=True), flow("z", 2, [], is_output=True)],
        [engine("E"), engine("F")],
        [option("one", [1], 0, 2), option("two", [2], 1, 3)],
    )
    found = evaluate(fork, plan(0, 1))
    # y leaves at 14, so z, which is there at 15, waits for the link until 21.
    assert bars(found)["h2d", "x"] == (7, 12)
    assert bars(found)["d2h", "z"] == (21, 28)
    assert found.totals.h2d_us == 5
    assert bars(evaluate(fork, plan(0, 1, order=(("h2d", 0), ("call", 0), ("call", 1), ("d2h", 2), ("d2h", 1))))) == {
        ("host", "n0"): (0, 7),
        ("h2d", "x"): (7, 12),
        ("E", "one"): (12, 14),
        ("F", "two"): (12, 15),
        ("d2h", "z"): (15, 22),
        ("d2h", "y"): (22, 29),
    }


def test_conversion_delays_the_tensor_and_holds_up_no_other():
    slow = dataclasses.replace(
        CHAIN,
        flows=tuple(
            dataclasses.replace(tensor, h2d_convert_us=known(23), d2h_convert_us=known(29)) for tensor in CHAIN.flows
        ),
    )
    found = evaluate(slow, plan(0))
    assert found.finish_us == 11 + 5 + 23 + (3 + 2) + 29 + 7 + 17 + 19
    assert bars(found)["convert-in", "a"] == (16, 39)
    assert bars(found)["convert-out", "b"] == (44, 73)
    assert found.totals.convert_us == 23 + 29


def test_cases_take_their_own_times():
    uncertain = dataclasses.replace(CHAIN.options[0], time_us=ThreePoint(20, 2, 1), launch_us=ThreePoint(30, 3, 0))
    wide = dataclasses.replace(CHAIN, options=(uncertain,))
    found = {case: evaluate(wide, plan(0), case).finish_us for case in ("pessimistic", "likely", "optimistic")}
    assert found == {"pessimistic": 59 + 50, "likely": 59 + 5, "optimistic": 59 + 1}


def test_host_and_card_work_at_once():
    apart = problem(
        [41, 43],
        [flow("in", None, [0]), flow("x", 0, [], is_output=True), flow("y", 1, [], is_output=True)],
        [engine("E")],
        [option("one", [0], 0, 20)],
    )
    assert evaluate(apart, plan(0)).finish_us == max(5 + 20 + 7, 43)


def test_an_item_is_computed_once():
    with pytest.raises(ValueError, match="two calls compute n1"):
        evaluate(CHAIN, plan(0, 2))


def test_calls_that_wait_for_each_other_are_refused():
    ring = problem(
        [1, 1, 1, 1],
        [flow("a", 0, [1]), flow("b", 2, [3])],
        [engine("E")],
        [option("outer", [0, 3], 0, 1), option("inner", [1, 2], 0, 1)],
    )
    with pytest.raises(ValueError, match="wait for each other"):
        evaluate(ring, plan(0, 1))
    assert Scheduler(ring).finish_us(plan(0, 1)) == math.inf
    assert Scheduler(ring).finish_us(plan(1)) < math.inf
    assert reasons(ring, plan(1)) == [
        "it and another call of the plan would wait for each other",
        "computed by E",
    ]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"flows": (flow("x", 2, [1]),)}, "tensor x is read before"),
        ({"flows": (flow("x", 2, [9]),)}, "tensor x is read before"),
        ({"flows": (flow("x", 0, [1], float("nan")),)}, "x: nan is no duration"),
        ({"options": (option("o", [2, 1], 0, 1),)}, "option o does not cover items in order"),
        ({"options": (option("o", [], 0, 1),)}, "option o does not cover"),
        ({"options": (option("o", [1], 7, 1),)}, "option o has no engine"),
        ({"options": (option("o", [1], 0, -1),)}, "o: -1.0 is no duration"),
    ],
)
def test_a_problem_that_makes_no_sense_is_refused(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        dataclasses.replace(CHAIN, **change)


def test_a_call_that_is_needed_late_waits_for_those_that_are_needed_soon():
    """Both calls can start at once on one engine; the host waits for the second one and reads the first one's last."""
    given = problem(
        [9, 9, 40, 9],
        [
            flow("x", None, [0], 0, 0),
            flow("y", None, [1], 0, 0),
            flow("a", 1, [2], 0, 0),
            flow("b", 2, [3], 0, 0),
            flow("c", 0, [3], 0, 0),
        ],
        [engine("E")],
        [option("late", [0], 0, 30), option("soon", [1], 0, 10)],
    )
    scheduler, both = Scheduler(given), plan(0, 1)
    assert scheduler.finish_us(both) == 30 + 10 + 40 + 9
    assert scheduler.ordered(both)[0] == 10 + 40 + 9


def test_a_call_that_is_needed_late_fills_a_pause_and_delays_no_urgent_one():
    """The urgent chain leaves its engine after 5 for 9 on another one: too short for the late call, but not for 30."""
    given = problem(
        [99] * 5,
        [
            flow("x", None, [0], 0, 0),
            flow("y", None, [4], 0, 0),
            flow("a", 0, [1], 0, 0),
            flow("b", 1, [2], 0, 0),
            flow("c", 2, [3], 0, 0),
            flow("d", 3, [], 0, 0, is_output=True),
            flow("e", 4, [], 0, 0, is_output=True),
        ],
        [engine("E"), engine("F")],
        [
            option("first", [0], 0, 5),
            option("short", [1], 1, 9),
            option("second", [2], 0, 6),
            option("long", [3], 1, 30),
            option("late", [4], 0, 20),
        ],
    )
    scheduler, all_calls = Scheduler(given), plan(0, 1, 2, 3, 4)
    finish_us, ordered = scheduler.ordered(all_calls)
    assert finish_us == scheduler.finish_us(ordered) == 5 + 9 + 6 + 30
    assert scheduler.finish_us(all_calls) == 5 + 20 + 6 + 30  # a free engine that never waits takes the late call


def test_calls_that_wait_for_each_other_have_no_order():
    given = problem(
        [9] * 4,
        [flow("a", 0, [3], 0, 0), flow("b", 1, [2], 0, 0), flow("c", 2, [], 0, 0), flow("d", 3, [], 0, 0)],
        [engine("E")],
        [option("one", [0, 2], 0, 1), option("other", [1, 3], 0, 1)],
    )
    assert Scheduler(given).ordered(plan(0, 1))[0] == float("inf")
