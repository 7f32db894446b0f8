"""Fused groups as choices: whatever is chosen, the groups can run, fit, and cost what their execution counts."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.design_space.accelerator.single_buffer import SingleBuffer
from common.design_space.search.engines import drawing_engines
from common.design_space.search.fronts import SupportedPoint, best, lower_left_hull
from common.design_space.search.search import ModelPart, search
from common.design_space.single_buffer.fusion import fused_front
from common.design_space.single_buffer.fusion_problem import TILINGS, FusionProblem
from common.messages.errors import UnusableValueError
from common.workload.loop_nests import LoopNest
from tests.support.designs.layer_graphs import (
    buffers,
    check_by_execution,
    check_room,
    conv_layer,
    graph_of,
    small_graphs,
)

ROOMY = SingleBuffer(10_000, 50.0, 1000.0, 100.0, 2.5, 0.25, 0.3)


def chosen(problem, count, seed):
    return np.random.default_rng(seed).integers(0, problem.choice_sizes, (count, len(problem.choice_sizes)))


def window(channels=2, rows=5):
    return LoopNest(k=channels, c=channels, p=rows, q=3, r=3, s=3, pad_p=1, pad_q=1, height=rows, width=3)


def diamond():
    """Two branches from t0 that are added in t3; t0 is added in t4 as well."""
    return graph_of(
        [
            conv_layer(window(), "input", "t0"),
            conv_layer(window(), "t0", "t1"),
            conv_layer(window(), "t0", "t2"),
            conv_layer(window(), "t1", "t3", ("t2",)),
            conv_layer(window(), "t3", "t4", ("t0",)),
        ],
        {"t4"},
    )


def check_schedule(graph, schedule):
    """Each layer is in one group, groups run in an order that their tensors allow, and their execution counts alike."""
    assert sorted(member for plan in schedule for member in plan.members) == [*range(len(graph.layers))]
    position = {member: at for at, plan in enumerate(schedule) for member in plan.members}
    flow = nx.DiGraph()
    for reader, layer in enumerate(graph.layers):
        for tensor in layer.reads:
            if tensor in graph.producer:
                assert position[graph.producer[tensor]] <= position[reader]
                flow.add_edge(position[graph.producer[tensor]], position[reader])
    flow.remove_edges_from([*nx.selfloop_edges(flow)])
    assert nx.is_directed_acyclic_graph(flow)  # each group is convex
    for plan in schedule:
        check_by_execution(graph, plan)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(small_graphs(), buffers, st.integers(0, 2**31))
def test_any_choices_are_groups_that_run_fit_and_cost_what_execution_counts(graph, buffer, seed):
    problem = FusionProblem(graph, buffer)
    try:
        optimum = best(fused_front(graph, buffer)).edp
    except UnusableValueError:
        assert np.isinf(problem.evaluate(chosen(problem, 3, seed))).all()
        return
    choices = chosen(problem, 7, seed)
    for one, cycles, energy in zip(choices, *problem.evaluate(choices), strict=True):
        schedule = problem.schedule(one)
        check_schedule(graph, schedule)
        check_room(graph, buffer, schedule)
        assert cycles == pytest.approx(sum(buffer.cycles(plan.macs, plan.moved_bytes) for plan in schedule))
        assert energy == pytest.approx(sum(buffer.energy_pj(plan.macs, plan.moved_bytes) for plan in schedule))
        assert cycles * energy >= optimum * (1 - 1e-12)


def least_of_all_choices(problem):
    """The least product over all joins and resident results, with every tiling of every group."""
    count, sizes = len(problem.graph.layers), problem.choice_sizes
    points = []
    for rest in np.ndindex(sizes[count:]):
        sums = [SupportedPoint(0.0, 0.0, ())]
        for step in problem.steps(np.array([0] * count + [*rest])):
            sums = lower_left_hull(
                SupportedPoint(a.energy_pj + b.energy_pj, a.cycles + b.cycles, ()) for a in sums for b in step.front
            )
        points += sums
    return best(points).edp


@pytest.mark.parametrize("kib", [0.4, 0.6, 1.0, 2.0, 10.0])
@pytest.mark.parametrize("layers", [2, 3, 4])
def test_the_choices_of_a_chain_hold_the_optimum(layers, kib):
    chain = [conv_layer(window(), f"t{index}", f"t{index + 1}") for index in range(layers)]
    graph = graph_of(chain, {f"t{layers}"})
    buffer = SingleBuffer(int(kib * 1024), 3.0, 1000.0, 100.0, 2.5, 0.25, 0.3)
    least = least_of_all_choices(FusionProblem(graph, buffer))
    assert least == pytest.approx(best(fused_front(graph, buffer)).edp, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kib", [0.6, 1.2, 10.0])
def test_the_choices_of_a_diamond_hold_the_optimum(kib):
    buffer = SingleBuffer(int(kib * 1024), 3.0, 1000.0, 100.0, 2.5, 0.25, 0.3)
    problem = FusionProblem(diamond(), buffer)
    picked = chosen(problem, 3000, 1)
    cycles, energy = problem.evaluate(picked)
    assert (cycles * energy).min() == pytest.approx(best(fused_front(diamond(), buffer)).edp, rel=1e-12)


def test_zeros_fuse_nothing_and_leave_nothing():
    problem = FusionProblem(diamond(), ROOMY)
    schedule = problem.schedule(np.zeros(len(problem.choice_sizes), dtype=int))
    assert [plan.members for plan in schedule] == [(index,) for index in range(5)]
    assert not any(plan.resident for plan in schedule)


def test_a_group_waits_for_all_that_join_it():
    """T3 joins t1, and reads t2: so t2 runs first, and then t1 with t3, although t1 could run before."""
    problem = FusionProblem(diamond(), ROOMY)
    choices = np.zeros(len(problem.choice_sizes), dtype=int)
    choices[5 + 3] = 1 + problem.neighbours[3].index(1)
    assert [plan.members for plan in problem.schedule(choices)] == [(0,), (2,), (1, 3), (4,)]


def test_a_group_that_would_not_be_convex_is_split():
    """T4 joins t0, whose result it adds, but reads t3, which comes after t0."""
    problem = FusionProblem(diamond(), ROOMY)
    choices = np.zeros(len(problem.choice_sizes), dtype=int)
    choices[5 + 4] = 1 + problem.neighbours[4].index(0)
    assert [plan.members for plan in problem.schedule(choices)] == [(index,) for index in range(5)]


def test_a_result_rests_only_if_every_layer_after_it_still_fits():
    resident = []
    for capacity in (220, 400, 520):
        problem = FusionProblem(diamond(), SingleBuffer(capacity, 3.0, 1000.0, 100.0, 2.5, 0.25))
        choices = np.zeros(len(problem.choice_sizes), dtype=int)
        choices[len(choices) - len(problem.results) :] = 1
        schedule = problem.schedule(choices)
        check_schedule(problem.graph, schedule)
        check_room(problem.graph, problem.buffer, schedule)
        resident.append({name for plan in schedule for name in plan.resident})
    assert resident[0] < resident[1] < resident[2] == {"t0", "t1", "t2", "t3"}


def test_without_fusion_only_the_tilings_are_chosen():
    problem = FusionProblem(diamond(), ROOMY, most_layers=1)
    assert problem.choice_sizes == (*[TILINGS] * 5, *[1] * 5)


@pytest.mark.slow
def test_random_groups_are_searched_under_the_budget_and_never_below_the_optimum():
    problem = FusionProblem(diamond(), SingleBuffer(700, 3.0, 1000.0, 100.0, 2.5, 0.25))
    optimum = best(fused_front(problem.graph, problem.buffer)).edp
    found = search({"model": ModelPart(problem)}, drawing_engines.propose_at_random, 97, 5)
    assert found.evaluation_count == 97
    assert found.edp >= optimum * (1 - 1e-12)
    assert found.edp == pytest.approx(found.schedules["model"].edp)
    check_schedule(problem.graph, found.schedules["model"].choice)
