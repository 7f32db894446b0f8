"""Greedy, the rule of thumb, reasons, and what they stand on: fitting the board, forks and joins."""

import dataclasses
import random

import networkx as nx
import pytest

from common.fpga.offload.baselines import GroupClass, Thresholds, apply_rule, greedy, possible_options
from common.fpga.offload.problem import Wiring, misfit, place
from common.fpga.offload.program.timing import between_forks
from common.fpga.offload.reasons import Reasons
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler, evaluate
from common.fpga.offload.search.plan_search import optimize
from tests.support.kernels.offload_problems import engine, flow, option, problem, random_problem

CHAIN = problem(
    [40, 50, 60, 70],
    [
        flow("in", None, [0]),
        flow("a", 0, [1]),
        flow("b", 1, [2]),
        flow("c", 2, [3]),
        flow("out", 3, [], is_output=True),
    ],
    [engine("E", 60), engine("F", 50), engine("huge", 101), engine("wide", 0, lut=9)],
    [
        option("one@E", [1], 0, 10, 2, 100),
        option("two@E", [2], 0, 20, 2, 100),
        option("two@F", [2], 1, 15, 2, 100),
        option("three@F", [3], 1, 1, 2, 100),
        option("one@huge", [1], 2, 1),
        option("pair@E", [1, 2], 0, 31, 2, 100),
        option("heavy@E", [3], 0, 1, 2, 1001),
        option("gap@E", [1, 3], 0, 1, 2),
        option("one@wide", [1], 3, 1),
    ],
)
LIMITS = Thresholds(0.1, 8.0, 0.1)


def reasons(problem, plan):
    """One for each option, in their order."""
    why = Reasons(problem, plan)
    return [why.of(index) for index in range(len(problem.options))]


def test_greedy_takes_the_largest_gain_first_and_stays_with_it():
    # pair@E saves 50 + 60 - 31 - 2 - 5 - 7 and leaves no room for F, with which three@F and two@F would save more.
    found = greedy(CHAIN)
    assert [CHAIN.options[call.option].name for call in found.calls] == ["pair@E"]
    assert evaluate(CHAIN, found).finish_us == 40 + 5 + (2 + 31) + 7 + 70
    assert optimize(CHAIN).finish_us == 40 + 50 + 5 + (2 + 15) + (2 + 1) + 7


def test_greedy_goes_on_while_something_helps():
    without = dataclasses.replace(CHAIN, options=CHAIN.options[2:4])
    assert evaluate(without, greedy(without)).finish_us == 40 + 50 + 5 + (2 + 15) + (2 + 1) + 7


@pytest.mark.slow
def test_greedy_is_no_better_than_the_program_and_no_worse_than_the_host():
    for seed in range(400, 460):
        given = random_problem(seed)
        reached = evaluate(given, greedy(given)).finish_us
        assert optimize(given).finish_us <= reached + 1e-9
        assert reached <= given.host_only_us + 1e-9


@pytest.mark.parametrize(
    ("change", "engines"),
    [
        ({"latency_share": 0.1, "energy_share": None}, []),
        ({"latency_share": None, "energy_share": None}, []),
        ({"latency_share": 0.01, "energy_share": 0.2}, ["F", "F"]),
        ({"is_regular": False}, []),
        ({"intensity_flop_per_byte": 7.9}, []),
        ({"intensity_flop_per_byte": None, "fused_share": 0.1}, ["F", "F"]),
        ({"groups": ((3,), (0,))}, []),  # no engine computes all its groups
        ({"groups": ((1,), (2,))}, ["E", "E"]),
    ],
)
def test_the_rule_takes_what_is_large_regular_and_intense_or_fusable(change, engines):
    usual = GroupClass("conv", ((2,), (3,)), 0.5, 0.4, is_regular=True, intensity_flop_per_byte=8.0, fused_share=None)
    taken = apply_rule(CHAIN, [dataclasses.replace(usual, **change)], LIMITS)
    assert [CHAIN.engines[CHAIN.options[call.option].engine].name for call in taken.calls] == engines


def test_the_rule_gives_the_first_class_the_engine_that_two_would_need():
    def a_class(label, *groups):
        return GroupClass(label, groups, 0.5, None, is_regular=True, intensity_flop_per_byte=9.0, fused_share=None)

    taken = apply_rule(CHAIN, [a_class("late", (2,), (3,)), a_class("early", (1,))], LIMITS)
    assert taken.regions == ((1, 0, 0),)
    assert evaluate(CHAIN, taken).finish_us == 40 + 50 + 5 + (2 + 15) + (2 + 1) + 7


def test_every_option_has_its_reason():
    plan = Assignment((KernelCall(2), KernelCall(3)), ((1, 0, 0),))
    told = {option.name: reason for option, reason in zip(CHAIN.options, reasons(CHAIN, plan), strict=True)}
    assert told == {
        "one@E": "E does not fit beside F: dsp",
        "two@E": "E does not fit beside F: dsp",
        "two@F": "computed by F",
        "three@F": "computed by F",
        "one@huge": "huge needs more dsp than the board has",
        "pair@E": "its items are computed in two@F",
        "heavy@E": "its weights exceed the memory of the card",
        "gap@E": "a path leaves its items and comes back: it would wait for its own results",
        "one@wide": "wide needs more lut than the board has",
    }


def test_what_was_not_worth_it_says_how_much_it_would_cost():
    plan = Assignment((KernelCall(0), KernelCall(1)), ((0, 0, 0),))
    roomy = dataclasses.replace(
        CHAIN, regions=tuple(dataclasses.replace(r, budget=r.budget.times(9)) for r in CHAIN.regions)
    )
    told = {o.name: r for o, r in zip(roomy.options, reasons(roomy, plan), strict=True)}
    assert told["two@F"] == "would finish 5.0 us earlier instead of two@E; the search ended before it tried this"
    best = optimize(roomy)
    changes = [reason for reason in reasons(roomy, best.assignment) if reason.startswith("would finish")]
    assert best.status == "optimal"
    assert changes
    assert all("later" in change for change in changes)


def test_memory_that_is_taken_is_a_reason():
    tight = dataclasses.replace(CHAIN, memory_capacity_bytes=150)
    found = reasons(tight, Assignment((KernelCall(0),), ((0, 0, 0),)))
    assert found[1] == "its weights do not fit beside those of the plan"
    assert [call.option for call in optimize(tight).assignment.calls] in ([0], [1], [2], [3], [5])


def test_engines_are_packed_where_a_first_fit_would_fail():
    # 60 and 40 fill one region, 50 and 50 the other; by size alone 60 and 50 + 50 leaves no room for 40.
    parts = [engine(str(need), need) for need in (60, 50, 50, 40)]
    given = problem([1], [], parts, [], ((0, 100), (0, 100)))
    found = place(given, [(index, 0) for index in range(4)])
    regions = {name: region for name, _, region in found}
    assert regions[0] == regions[3] != regions[1] == regions[2]
    assert place(problem([1], [], parts, [], ((0, 100), (0, 99))), [(index, 0) for index in range(4)]) is None


def test_an_engine_that_spans_takes_what_the_others_leave():
    parts = [engine("fixed", 70), engine("across", 120, spans=True)]
    given = problem([1], [], parts, [], ((0, 100), (0, 100)))
    assert place(given, [(0, 0), (1, 0)]) == ((0, 0, 0), (1, 0, None))
    assert place(given, [(0, 0), (0, 1), (1, 0)]) is None
    assert misfit(dataclasses.replace(given, engines=(engine("whole", 120), *parts)), 0) == "dsp"


def test_memory_channels_belong_to_the_whole_board():
    given = problem([1], [], [engine("E", channels=20)], [], channels=32)
    assert place(given, [(0, 0)]) is not None
    assert place(given, [(0, 0), (0, 1)]) is None


def test_a_group_that_waits_for_itself_is_no_option():
    names = [CHAIN.options[index].name for index in possible_options(CHAIN, Scheduler(CHAIN))]
    assert names == ["one@E", "two@E", "two@F", "three@F", "pair@E"]


def test_forks_are_dominators_and_items_whose_readers_do_not_meet_again_before_the_join():
    for seed in range(40):
        chance, size = random.Random(seed), 25
        sources = {
            item: {max(-1, item - chance.randint(1, 5)) for _ in range(chance.choice((1, 2)))} for item in range(size)
        }
        readers = {source: [item for item in sources if source in sources[item]] for source in range(-1, size)}
        given = problem([1] * size, [flow(f"t{i}", None if i < 0 else i, to) for i, to in readers.items()], [], [])
        graph = nx.DiGraph([(source, item) for item, found in sources.items() for source in found])
        dominators = nx.immediate_dominators(graph, -1)
        graph.add_edges_from((item, size) for item in range(size) if not readers[item])
        closes = nx.immediate_dominators(graph.reverse(), size)
        expected = set()
        for join in (item for item in range(size) if len(sources[item]) > 1):
            inside = {*nx.ancestors(graph, join)} & {*nx.descendants(graph, dominators[join])}
            open_forks = [fork for fork in inside if len(readers[fork]) > 1 and closes[fork] >= join]
            for fork in (dominators[join], *open_forks):
                if between := inside & nx.descendants(graph, fork):
                    expected.add((fork, join, frozenset(between)))
        pairs = between_forks(given, Wiring(given))
        assert {(-1 if fork is None else fork, join, frozenset(between)) for fork, join, between in pairs} == expected
