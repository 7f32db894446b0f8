"""Figures that a table states as one value: their intervals, the scatter of repeats, and what nobody can tell."""

from __future__ import annotations

import pytest

from common.artifacts.catalogue import ARTIFACTS
from common.comparison.figures import FIGURES, ComparedFigure, figure_difference

P99 = ComparedFigure("end_to_end", "latency_summary", "p99_us", "interval")
PEAK = ComparedFigure("ceiling", "host_ceilings", "peak_flop_per_s", "halves", is_less_better=False, halves="apart")
FIRST = ComparedFigure("end_to_end", "latency_summary", "first_run_us", "single")


def p99(value, low, high):
    return {"p99_us": value, "p99_low_us": low, "p99_high_us": high}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_figure_is_a_column_of_its_document(figure):
    columns = {column.name for column in ARTIFACTS[figure.document].columns}
    stem, _, unit = figure.name.rpartition("_")
    ends = {"interval": {f"{stem}_low_{unit}", f"{stem}_high_{unit}"}, "halves": {figure.halves}}
    assert {figure.name} | ends.get(figure.spread, set()) <= columns


def test_intervals_are_joined_by_the_squares_of_their_reaches():
    """From 100 (97 to 104) to 200 (188 to 209): 5 = 3-4-5 below with 12 gives 13 wide, and so on."""
    found = figure_difference(P99, [p99(100.0, 97.0, 105.0)], p99(200.0, 188.0, 204.0))
    assert found.share == pytest.approx(1.0)
    assert found.low_share == pytest.approx(1.0 - 0.13)  # 12 and 5
    assert found.high_share == pytest.approx(1.0 + 0.05)  # 4 and 3
    assert found.noise_floor_share == pytest.approx(0.05)


def test_a_percentile_without_limits_has_an_effect_only():
    found = figure_difference(P99, [p99(100.0, None, None)], p99(110.0, 105.0, 115.0))
    assert (found.share, found.low_share) == (pytest.approx(0.1), None)


def test_a_ceiling_scatters_as_its_halves_do():
    found = figure_difference(
        PEAK, [{"peak_flop_per_s": 100.0, "apart": 0.03}], {"peak_flop_per_s": 110.0, "apart": 0.04}
    )
    assert found.noise_floor_share == pytest.approx(0.05)
    assert (found.low_share, found.high_share) == (pytest.approx(0.05), pytest.approx(0.15))


def test_repeats_say_how_far_the_next_one_may_be_away():
    repeats = [{"first_run_us": value} for value in (100.0, 104.0, 96.0, 102.0, 98.0)]
    found = figure_difference(FIRST, repeats, {"first_run_us": 120.0})
    assert (found.baseline, found.noise_floor_share) == (100.0, pytest.approx(0.08))
    assert found.low_share == pytest.approx(0.12)
    assert figure_difference(FIRST, repeats[:4], {"first_run_us": 120.0}).noise_floor_share is None


@pytest.mark.parametrize("missing", [{}, {"first_run_us": None}])
def test_what_a_side_does_not_have_is_not_compared(missing):
    assert figure_difference(FIRST, [missing], {"first_run_us": 3.0}) is None
    assert figure_difference(FIRST, [{"first_run_us": 3.0}], missing) is None
