"""Segments between gates: their bounds and plans against brute force, and the search under a clock."""

import dataclasses
import random
import threading

import pytest

from benchmarks.plans.scaling import mixture
from common.fpga.offload.baselines import extended, possible_options
from common.fpga.offload.effort import Effort, Spending
from common.fpga.offload.problem import Wiring
from common.fpga.offload.program.whole import WholeSearch
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler, evaluate
from common.fpga.offload.search import plan_search
from common.fpga.offload.search import segments as gates
from common.fpga.offload.search.plan_search import optimize
from common.fpga.offload.search.segments import Parts, segments
from common.fpga.offload.search.sequence import GateStep, SequenceSearch, largest_sets
from common.process import interrupts
from tests.support.kernels.offload_problems import (
    earliest_finish,
    engine,
    flow,
    option,
    problem,
    random_problem,
    random_towers,
)


def in_sequence(given, left=50.0, loose_share=gates.LOOSE_SHARE):
    """Bound and best finish in ns of the segments alone, and how many segments there are."""
    scheduler = Scheduler(given)
    options = possible_options(given, scheduler)
    parts = segments(given, scheduler.wiring, options, loose_share)
    best = [round(1000 * given.host_only_us)]

    def offer(calls, begins, bound_ns):
        used = {(given.options[call.option].engine, call.instance) for call in calls}
        weights = sum(given.options[call.option].weight_bytes for call in calls)
        assert len(used) < 4
        if weights <= given.memory_capacity_bytes:
            plan = Assignment(tuple(calls))
            served = {key: begin for key, (begin, _) in scheduler.spans(plan).items()} | begins
            for order in (None, tuple(sorted(served, key=served.get))):
                finish_us = scheduler.run(dataclasses.replace(plan, order=order)).finish_us
                best[0] = min(best[0], round(1000 * finish_us))
        return best[0]

    search = SequenceSearch(given, options, parts, scheduler.wiring, Spending(left), offer)
    search.run()
    return search.bound_ns, best[0], len(parts)


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(
    "first", [1000, *(pytest.param(at, marks=pytest.mark.exhaustive) for at in range(1040, 1320, 40))]
)
def test_segments_bound_every_plan(first):
    cut = tight = 0
    for seed in range(first, first + 40):
        given = random_problem(seed)
        bound_ns, best_ns, count = in_sequence(given)
        least_ns = round(1000 * earliest_finish(given))
        assert bound_ns <= least_ns <= best_ns, seed
        cut += count > 1
        tight += count > 1 and bound_ns >= least_ns - 1
    assert cut > 15
    assert tight > cut / 2


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(
    "first", [1, *(pytest.param(at, marks=pytest.mark.exhaustive) for at in range(1001, 1401, 40))]
)
@pytest.mark.parametrize(("given_by", "large"), [(random_problem, 1), (random_towers, 1), (random_problem, 3)])
def test_segments_bound_every_plan_whatever_is_loose(monkeypatch, given_by, large, first):
    monkeypatch.setattr(gates, "LARGE", large)
    loose = tight = 0
    for seed in range(first, first + 40):
        given = given_by(seed)
        scheduler = Scheduler(given)
        parts = segments(given, scheduler.wiring, possible_options(given, scheduler), 1.0)
        inside = [item for part in parts for item in part.items]
        assert len(inside) == len(set(inside)), seed
        bound_ns, best_ns, _ = in_sequence(given, loose_share=1.0)
        least_ns = round(1000 * earliest_finish(given))
        assert bound_ns <= least_ns <= best_ns, seed
        if len(inside) < len(given.items):
            loose += 1
            tight += bound_ns >= 0.9 * least_ns
    assert loose >= 5
    assert tight > 0


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(
    "first", [1, *(pytest.param(at, marks=pytest.mark.exhaustive) for at in range(2001, 2401, 40))]
)
def test_no_plan_for_two_towers_is_better(first):
    moved = 0
    for seed in range(first, first + 40):
        given = random_towers(seed)
        found = optimize(given)
        least_us = earliest_finish(given)
        assert (found.status, found.finish_us) == ("optimal", pytest.approx(least_us, abs=0.02)), seed
        moved += least_us < given.host_only_us
    assert moved > 10


def two_towers(length):
    """Two chains that the host computes one after the other, and a join; calls compute every second step."""
    starts, join = (0, length), 2 * length
    chains = [range(start, start + length) for start in starts]
    flows = [flow(f"in{start}", None, [start], 0, 0) for start in starts]
    flows += [flow(f"t{item}", item, [item + 1], 0, 0) for chain in chains for item in chain[:-1]]
    flows += [flow(f"t{chain[-1]}", chain[-1], [join], 0, 0) for chain in chains]
    moves = [*chains[0][1::2], *chains[1][::2]]
    options = [option(f"c{item}", [item], 0, 3, 5) for item in moves]
    return problem([10] * (join + 1), flows, [engine("E")], options)


@pytest.mark.slow
def test_towers_that_the_host_computes_one_after_the_other_are_cut():
    given = two_towers(201)
    parts = segments(given, Wiring(given), range(len(given.options)))
    inside = {item for part in parts for item in part.items}
    # The card may compute the first step of the second tower at any time while the host computes the first tower.
    assert set(range(len(given.items))) - inside == {201}
    may_move = {item for each in given.options for item in each.covers}
    assert max(len(may_move.intersection(part.items)) for part in parts) <= gates.LARGE
    assert optimize(given, Effort(0.2)).gap < 0.01


def test_calls_of_loose_items_join_the_plan_of_the_segments():
    given = two_towers(5)
    scheduler = Scheduler(given)
    loose = [index for index, each in enumerate(given.options) if each.covers == (5,)]
    longer = extended(Assignment(), loose, scheduler, Spending(1))
    assert [call.option for call in longer.calls] == loose
    assert scheduler.finish_us(longer) == given.host_only_us - 10


@pytest.mark.slow
def test_a_plan_that_loose_items_cannot_mend_is_not_tried_with_them(monkeypatch):
    """The greedy plan is best at 3,620; the plan of the segments is not, and the loose item takes 10 of its 4,030."""
    given, tried = two_towers(201), []
    monkeypatch.setattr(plan_search, "extended", lambda plan, *more: tried.append(plan) or extended(plan, *more))
    monkeypatch.setattr(plan_search, "FEW_OPTIONS", 0)
    assert optimize(given, Effort(0.2)).finish_us == 3620
    assert tried == []


def test_gates_cut_where_all_paths_meet_and_no_call_spans():
    given = problem(
        [10] * 6,
        [
            flow("in", None, [0]),
            flow("a", 0, [1, 2]),
            flow("b", 1, [3]),
            flow("c", 2, [3]),
            flow("d", 3, [4]),
            flow("e", 4, [5]),
        ],
        [engine("E")],
        [option("b", [1], 0, 3), option("c", [2], 0, 3), option("de", [4, 5], 0, 3), option("a", [0], 0, 3)],
    )
    parts = segments(given, Wiring(given), range(4))
    assert [(part.entry, part.exit, part.items) for part in parts] == [
        (None, 0, (0,)),
        (0, 3, (1, 2, 3)),
        (3, 5, (4, 5)),
        (5, None, ()),
    ]


def test_steps_that_only_the_host_can_do_are_one_segment():
    size = 50
    flows = [flow(f"t{item}", item, [item + 1] if item + 1 < size else []) for item in range(size)]
    given = problem([3] * size, flows, [engine("E")], [option("o", [20], 0, 1)])
    parts = segments(given, Wiring(given), [0])
    assert [part.items for part in parts if part.items] == [tuple(range(20)), (20,), (21,), tuple(range(22, size))]


@pytest.mark.parametrize("rule", ["entry", "engine"])
def test_a_tensor_that_is_never_on_the_card_is_a_reason_to_launch_in_every_segment(rule):
    """A mask that every layer reads, as an input of the graph and as what the host alone writes; checked by hand."""
    for source in (None, 0):
        first = 0 if source is None else 1
        calls = range(first, first + 3)
        flows = [flow("mask", source, calls, 1, 1), flow("x", None, [0], 1, 1)]
        flows += [
            flow(f"t{at}", at, [at + 1] if at < calls[-1] else [], 1, 1, is_output=at == calls[-1]) for at in calls
        ]
        options = [option(f"o{at}", [at], 0, 5, 20) for at in calls]
        given = problem([100] * (first + 3), flows, [engine("E", launch_per=rule)], options)
        bound_ns, best_ns, count = in_sequence(given)
        least_us = earliest_finish(given)
        assert least_us == 100 * first + (1 if first else 2) + 3 * (20 + 5) + 1
        assert (bound_ns, best_ns) == (1000 * least_us, 1000 * least_us)
        assert count > 2


def beside_a_chain(count):
    """A chain of blocks, and beside each block a short step that depends on an input alone: 5 % of the host's time."""
    hosts, flows, options, last = [], [], [], 5 * count - 1
    for side in range(0, 5 * count, 5):
        hosts += [8, 31, 37, 41, 43]
        flows += [flow(f"in{side}", None, [side], 1, 1), flow(f"t{side}", side, [side + 3], 1, 1)]
        following = {side + 4: side + 6}
        for item in range(side + 1, side + 5):
            readers = [] if item == last else [following.get(item, item + 1)]
            flows.append(flow(f"t{item}", item, readers, 2, 3, is_output=item == last))
        options += [option(f"o{item}", [item], item % 2, 9 + item % 5, 4) for item in range(side, side + 5)]
    return problem(hosts, flows, [engine("E"), engine("F")], options)


def test_more_loose_items_make_smaller_segments():
    given = beside_a_chain(40)
    sizes = {
        share: max(len(part.items) for part in segments(given, Wiring(given), range(200), share))
        for share in (gates.LOOSE_SHARE, gates.LOOSER_SHARE)
    }
    assert sizes[gates.LOOSE_SHARE] > 100
    assert sizes[gates.LOOSER_SHARE] <= gates.LARGE


def two_branches(count):
    """A chain of blocks, in each a branch of four steps and one of two; beside each block a step of an input alone."""
    hosts, flows, options, size = [], [], [], 9 * count
    for at in range(0, size, 9):
        hosts += [60, 20, 20, 20, 20, 5, 5, 40, 40]
        flows += [flow(f"in{at}", None, [at], 1, 1), flow(f"k{at}", at, [at + 1], 1, 1)]
        flows += [flow(f"t{at + n}", at + n, [at + n + 1], 1, 1) for n in (1, 2, 3)]
        flows += [flow(f"long{at}", at + 4, [at + 7], 1, 1), flow(f"s{at}", at + 5, [at + 6], 1, 1)]
        flows += [flow(f"short{at}", at + 6, [at + 7], 1, 1), flow(f"m{at}", at + 7, [at + 8], 1, 1)]
        following = [at + 10, at + 14] if at + 9 < size else []
        flows.append(flow(f"o{at}", at + 8, following, 1, 1, is_output=not following))
        options += [option(f"o{item}", [item], item % 2, 9, 4) for item in range(at, at + 9)]
    return problem(hosts, flows, [engine("E"), engine("F")], options)


def test_gates_are_taken_back_where_loose_items_return_to_a_small_segment(monkeypatch):
    """Gates in a longer branch leave the shorter one loose; without them both are in a segment that is small."""
    given = two_branches(12)

    def within():
        parts = segments(given, Wiring(given), range(len(given.options)), 1.0)
        assert max(len(part.items) for part in parts) <= gates.LARGE
        return {item for part in parts for item in part.items}

    inside = within()
    monkeypatch.setattr(gates, "RETURN_SHARE", 1.0)
    returned = inside - within()
    assert returned == {at + step for at in range(27, len(given.items), 9) for step in (5, 6)}


@pytest.mark.parametrize(("is_cut", "first"), [(True, "segments"), (False, "whole")])
def test_a_wide_gap_is_searched_by_segments_first_where_they_are_all_of_the_network(monkeypatch, is_cut, first):
    """Too little effort for 20 blocks: more of it closes the gap by segments alone. Branches leave loose items."""
    given, steps = blocks(20) if is_cut else two_branches(12), []

    def record(kind, name, shown):
        step = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda search, *more: (steps.append(shown), step(search, *more)))

    record(plan_search._PlanSearch, "_by_segments_with_half", "segments")
    record(WholeSearch, "improved", "whole")
    assert optimize(given, Effort(0.001)).gap == 0
    assert steps == [first]


@pytest.mark.slow
def test_a_wide_gap_is_searched_in_smaller_segments_as_well(monkeypatch):
    """Eight experts side by side, without effort for CP-SAT: the greedy plan and the linear bounds leave a gap."""
    shares = []
    monkeypatch.setattr(plan_search, "segments", lambda *given: (shares.append(given[3]), segments(*given))[1])
    assert optimize(mixture(layers=1).problem(), Effort(0.0)).gap > plan_search.WIDE
    assert shares == [gates.LOOSE_SHARE, gates.LOOSER_SHARE]


def blocks(count, kinds=2, seed=4):
    """A chain of blocks of two branches, of so many kinds; blocks of one kind are equal."""
    chance = random.Random(seed)
    times = [[chance.randint(10, 70) for _ in range(8)] for _ in range(kinds)]
    hosts, flows, options = [], [flow("in", None, [0], 2, 3)], []
    for number in range(count):
        at, own = 4 * number, times[number % kinds]
        hosts += own[:4]
        flows += [flow(f"a{at}", at, [at + 1, at + 2], 2, 3), flow(f"b{at}", at + 1, [at + 3], 2, 3)]
        flows += [flow(f"c{at}", at + 2, [at + 3], 2, 3)]
        flows += [flow(f"d{at}", at + 3, [at + 4] if number + 1 < count else [], 2, 3, is_output=number + 1 == count)]
        fast = number % 2  # the engine that is better for this block
        options += [
            option(f"o{at + n}@{e}", [at + n], e, own[4 + n] // (3 if e == fast else 2), 2)
            for n in range(4)
            for e in range(2)
        ]
    return problem(hosts, flows, [engine("E"), engine("F")], options)


def solver_runs(monkeypatch):
    """A list that grows by one with every run of CP-SAT or HiGHS."""
    runs, wait = [], Spending.wait_for
    monkeypatch.setattr(Spending, "wait_for", lambda self, *work: (runs.append(1), wait(self, *work))[1])
    return runs


@pytest.mark.slow
def test_equal_blocks_are_solved_once(monkeypatch):
    runs = solver_runs(monkeypatch)
    few = in_sequence(blocks(6))
    count = len(runs)
    many = in_sequence(blocks(60))
    assert count > 4
    assert len(runs) - count <= count + 4
    assert few[0] == few[1]
    assert many[0] == many[1]


def disturbed(given, chance, by):
    """The same problem with other times of the host."""
    items = (
        dataclasses.replace(item, host_us=round(item.host_us * chance.uniform(1 - by, 1 + by))) for item in given.items
    )
    return dataclasses.replace(given, items=tuple(items))


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(
    "first", [2000, *(pytest.param(at, marks=pytest.mark.exhaustive) for at in range(2040, 2240, 40))]
)
def test_what_is_learned_from_a_problem_with_other_times_bounds_every_plan(first):
    tight = useful = 0
    for seed in range(first, first + 40):
        kin_problem = random_problem(seed)
        given = disturbed(kin_problem, random.Random(seed), 0.95)
        kin, search = (WholeSearch(one, range(len(one.options)), Spending(9.0)) for one in (kin_problem, given))
        options = possible_options(kin_problem, kin.scheduler)
        for one in (kin, search):
            one.options = options
            one.offer(Assignment())
        kin.bounded()
        kin.scheduled(5.0)
        before_ns = search.bound_ns
        search.learn(kin)
        least_ns = round(1000 * earliest_finish(given))
        assert before_ns <= search.bound_ns <= least_ns <= search.finish_ns, seed
        useful += search.bound_ns > before_ns
        tight += search.finish_ns == least_ns
    assert useful > 15
    assert tight > 15


def solved(part):
    search = WholeSearch(part.problem, range(len(part.problem.options)), Spending(9.0))
    search.begin()
    while not search.is_final:
        search.refine(5.0)
    return search


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(
    "first", [3000, *(pytest.param(at, marks=pytest.mark.exhaustive) for at in range(3025, 3125, 25))]
)
def test_what_a_segment_inherits_from_more_engines_bounds_its_plans(first):
    bounded = kept = 0
    for seed in range(first, first + 25):
        given = random_problem(seed)
        given = dataclasses.replace(
            given, engines=tuple(dataclasses.replace(one, max_instances=2) for one in given.engines)
        )
        wiring = Wiring(given)
        options = possible_options(given, Scheduler(given))
        parts = Parts(given, wiring, options)
        for segment in segments(given, wiring, options):
            more = parts.part(segment, (2, 2), False, False)
            for counts in ((1, 2), (2, 0), (0, 1)):
                part = parts.part(segment, counts, False, False)
                fewer = GateStep(part, WholeSearch(part.problem, range(len(part.options)), Spending(9.0)))
                before_ns = fewer.lower_ns
                fewer.inherit(GateStep(more, solved(more)))
                best = solved(part)
                assert before_ns <= fewer.lower_ns <= best.finish_ns <= fewer.upper_ns, seed
                bounded += fewer.lower_ns > before_ns
                kept += fewer.search.plan is not None and len(fewer.search.plan.calls) > 0
    assert bounded > 20
    assert kept > 10


@pytest.mark.slow
def test_blocks_that_differ_in_measured_times_share_plans_and_bounds(monkeypatch):
    """Without shared plans, counted branches alone take 272 runs for 80 blocks of three kinds, and with them 238."""
    given = disturbed(blocks(80, 3), random.Random(5), 0.1)
    runs = solver_runs(monkeypatch)
    bound_ns, best_ns, _ = in_sequence(given)
    shared = len(runs)
    monkeypatch.setattr(SequenceSearch, "_nearest_kin", lambda *_: None)
    assert in_sequence(given)[:2] == (bound_ns, best_ns)
    assert bound_ns == best_ns
    assert shared < 0.95 * (len(runs) - shared)


class Clock:
    """Leaves time for so many looks at it."""

    def __init__(self, looks):
        self.looks, self.heard = looks, []

    def begin(self):
        self.heard.clear()

    def left_s(self):
        self.looks -= 1
        return self.looks

    def hear(self, plan_us, bound_us):
        self.heard.append((plan_us, bound_us))

    def end(self, plan_us, bound_us):
        self.heard.append((plan_us, bound_us))


@pytest.mark.slow
def test_at_whatever_moment_the_clock_ends_the_search_there_is_a_plan_and_a_bound():
    given = blocks(9, 3)
    best = optimize(given, Effort(5.0))
    assert best.status == "optimal"
    finishes = []
    for looks in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89):
        clock = Clock(looks)
        found = optimize(given, Effort(5.0), clock)
        assert found.bound_us <= best.finish_us <= found.finish_us
        assert evaluate(given, found.assignment).finish_us == pytest.approx(found.finish_us)
        assert found.is_cut_short == (found.status == "feasible")
        assert clock.heard[-1] == (found.finish_us, found.bound_us)
        plans, bounds = zip(*clock.heard[:-1], strict=True)
        assert list(plans) == sorted(plans, reverse=True)
        assert list(bounds) == sorted(bounds)
        finishes.append(found.finish_us)
    assert finishes[0] == given.host_only_us
    assert finishes[-1] < 0.9 * finishes[0]


def test_a_solver_that_does_not_stop_is_left_alone():
    ends, told = threading.Event(), []
    budget = Spending(1.0, watch=Clock(2))
    assert budget.wait_for(ends.wait, lambda: told.append(1)) is None
    assert told == [1]
    assert interrupts.has_left_alone()
    ends.set()


def test_many_steps_of_the_host_are_one_job_of_a_schedule():
    size = 97
    flows = [flow(f"t{item}", item, [item + 1, item + 5] if item + 5 < size else []) for item in range(size)]
    given = problem([3] * size, flows, [engine("E")], [option("o", [40], 0, 1)])
    jobs = Scheduler(given).jobs(Assignment((KernelCall(0),)))
    found = evaluate(given, Assignment((KernelCall(0),)))
    transfers = [("h2d", 35), ("h2d", 39), ("d2h", 40)]
    assert [job.key for job in jobs] == [("host", 0), ("host", 41), ("host", 45), ("call", 0), *transfers]
    assert len(found.bars) == size + 3
    host = [bar for bar in found.bars if bar.kind == "host"]
    assert [bar.label for bar in host] == [f"n{item}" for item in range(size) if item != 40]
    # the host has done item 39 after 120, and waits for the tensor from 39, the call and the tensor to item 41
    starts = [3 * n for n in range(40)] + [120 + 5 + 1 + 7 + 3 * n for n in range(size - 41)]
    assert [bar.start_us for bar in host] == pytest.approx(starts)


@pytest.mark.slow
def test_a_clock_that_leaves_time_changes_no_plan():
    given = blocks(9, 3)
    assert optimize(given, Effort(1.0), Clock(10**9)) == optimize(given, Effort(1.0))


@pytest.mark.slow
def test_engines_that_do_not_fit_together_are_chosen_among():
    """Each block is fastest on another engine, and the board holds one of the two."""
    given = blocks(12, 3)
    small = dataclasses.replace(given, engines=(engine("E", 60), engine("F", 60)))
    found, roomy = optimize(small), optimize(given)
    used = {small.options[call.option].engine for call in found.assignment.calls}
    alone = [
        optimize(dataclasses.replace(small, options=tuple(o for o in small.options if o.engine == index))).finish_us
        for index in range(2)
    ]
    assert len(used) == 1
    assert found.status == "optimal"
    assert found.finish_us == pytest.approx(min(alone))
    assert roomy.finish_us < found.finish_us


def test_largest_sets_of_engines_by_hand():
    """The region holds 100: 60 and 40, or three of 30."""
    sizes = [engine("A", 60), engine("B", 40), engine("C", 30, instances=3), engine("huge", 101)]
    given = problem([1], [flow("in", None, [0])], sizes, [])
    assert sorted(largest_sets(given)) == [(0, 0, 3, 0), (0, 1, 2, 0), (1, 0, 1, 0), (1, 1, 0, 0)]


@pytest.mark.slow
def test_engines_that_do_not_fit_together_are_not_left_out_one_by_one(monkeypatch):
    """Eight engines of which the board holds three: 56 sets hold any plan, and 255 fit or do not."""
    refined, rating = set(), SequenceSearch._refined

    def counted(self, counts, limit):
        refined.add(counts)
        return rating(self, counts, limit)

    monkeypatch.setattr(SequenceSearch, "_refined", counted)
    chance = random.Random(3)
    size, count = 24, 8
    flows = [flow(f"t{item}", item - 1 if item else None, [item], 1, 1) for item in range(size)]
    flows.append(flow("out", size - 1, [], 1, 1, is_output=True))
    options = [option(f"o{i}@{e}", [i], e, chance.randint(5, 20), 2) for i in range(size) for e in range(count)]
    given = problem([50] * size, flows, [engine(f"E{index}", 33) for index in range(count)], options)
    bound_ns, best_ns, _ = in_sequence(given)
    assert bound_ns == best_ns
    assert len(refined) <= 2 * len(largest_sets(given)) - 1
