"""Pareto fronts and areas, against plain searches through all pairs."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.design_space.results.comparison import (
    best_within,
    edp,
    log_sum,
    objective,
    pareto,
    require_budgets,
    with_front,
)
from common.messages.errors import UnusableValueError

COST = st.integers(0, 6).map(float)  # small, so that many are equal
COSTS = st.lists(st.tuples(COST, COST, COST), max_size=25)
NAMES = ("modelled_cycles", "modelled_energy_pj", "chip_mm2")


def point(cycles, energy, area, problem=None, design="d"):
    product = None if cycles is None else cycles * energy
    row = {"design": design, "search_engine": "exact", "problem": problem, "edp_pj_cycles": product}
    return row | dict(zip(NAMES, (cycles, energy, area), strict=True)) | {"bound_edp_pj_cycles": 0, "gap_share": 0}


@pytest.mark.slow
@given(COSTS)
def test_a_tuple_is_on_the_front_unless_another_one_dominates_it(costs):
    def is_beaten(mine):
        return any(sum(a > b for a, b in zip(mine, other, strict=True)) and min(
            a - b for a, b in zip(mine, other, strict=True)) >= 0 for other in costs)  # fmt: skip

    assert pareto(costs) == [not is_beaten(mine) for mine in costs]


@pytest.mark.slow
@given(COSTS)
def test_a_front_does_not_depend_on_the_order(costs):
    assert pareto(costs[::-1]) == pareto(costs)[::-1]


def test_designs_that_do_not_fit_stand_beside_the_front():
    points = [point(None, None, 0.5, "too small"), point(2, 3, 1), point(2, 3, 2), point(1, 9, 3)]
    assert [row["is_pareto"] for row in with_front(points)] == [False, True, False, True]
    assert with_front([]) == []


def test_without_areas_the_front_is_that_of_latency_and_energy():
    points = [point(2, 3, None), point(2, 4, None), point(1, 9, None)]
    assert [row["is_pareto"] for row in with_front(points)] == [True, False, True]


@pytest.mark.slow
@given(COSTS.filter(bool), st.lists(st.integers(0, 7).map(float), max_size=4))
def test_the_best_within_an_area_is_the_best_of_all_that_are_as_small(costs, budgets):
    points = [point(*cost, design=str(index)) for index, cost in enumerate(costs)]
    rows = best_within(points, budgets)
    if budgets:
        have_one = [area for area in sorted(set(budgets)) if any(cost[2] <= area for cost in costs)]
        assert [row["area_budget_mm2"] for row in rows] == have_one
    for row in rows:
        within = [cost[0] * cost[1] for cost in costs if cost[2] <= row["area_budget_mm2"]]
        chosen = costs[int(row["design"])]
        assert chosen[0] * chosen[1] == row["edp_pj_cycles"] == min(within)
        assert chosen[2] == row["chip_mm2"] <= row["area_budget_mm2"]


@pytest.mark.slow
@given(COSTS.filter(bool))
def test_without_given_areas_every_step_is_a_gain_and_none_is_missing(costs):
    rows = best_within([point(*cost) for cost in costs], [])
    assert all(a["chip_mm2"] < b["chip_mm2"] for a, b in itertools.pairwise(rows))
    assert all(a["edp_pj_cycles"] > b["edp_pj_cycles"] for a, b in itertools.pairwise(rows))
    for cycles, energy, area in costs:
        assert min(row["edp_pj_cycles"] for row in rows if row["chip_mm2"] <= area) <= cycles * energy


def test_designs_without_areas_have_no_budgets():
    assert best_within([point(2, 3, None)], []) == []


def test_the_log_sum_is_that_of_all_three():
    assert log_sum(point(7, 11, 13)) == pytest.approx(math.log(7 * 11 * 13))
    assert objective("log-sum", [1.0, 2.0]) is log_sum
    assert objective("edp", [None]) is edp
    with pytest.raises(UnusableValueError, match="needs areas"):
        objective("log-sum", [None])


def test_areas_that_no_design_has_are_refused_before_the_search():
    require_budgets([], [None])
    require_budgets([1.0], [1.0, 2.0])
    with pytest.raises(UnusableValueError, match="the smallest has 2 mm²"):
        require_budgets([3.0, 1.0], [5.0, 2.0])
    with pytest.raises(UnusableValueError, match="no areas"):
        require_budgets([1.0], [None])
