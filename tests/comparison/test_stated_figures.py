"""Figures that a table states as one value: their intervals, the scatter of repeats, and what nobody can tell."""

from __future__ import annotations

import pytest

from common.artifacts.catalogue import ARTIFACTS
from common.comparison.stated_figures import FIGURES, ComparedFigure, figure_difference

FIGURE = {(figure.document, figure.name): figure for figure in FIGURES}
P99 = FIGURE["latency_summary", "p99_us"]
FIRST = FIGURE["latency_summary", "first_run_us"]
PEAK = ComparedFigure("ceiling", "host_ceilings", "peak_flop_per_s", "halves", is_less_better=False, beside=("apart",))
SPEEDUP = FIGURE["offload_verdict", "likely"]
ENERGY = FIGURE["energy_summary", "energy_uj"]


def p99(value, low, high):
    return {"p99_us": value, "p99_low_us": low, "p99_high_us": high}


IN_COLUMNS = [figure for figure in FIGURES if figure.document != "load_best"]  # whose figures stand in a mapping


@pytest.mark.parametrize("figure", IN_COLUMNS, ids=lambda figure: f"{figure.document}-{figure.name}")
def test_every_figure_is_a_column_of_its_table(figure):
    columns = {column.name for column in ARTIFACTS[figure.document].columns}
    assert {figure.name, *figure.beside, *filter(None, (figure.source,))} <= columns


def test_of_figures_of_speed_more_is_better():
    better = {figure.name for figure in FIGURES if not figure.is_less_better}
    assert {"instructions_per_cycle", "peak_flop_per_s", "memory_bytes_per_s", "likely"} <= better
    assert not [name for name in better if name.endswith(("_us", "_uj", "_j", "_w", "_bytes"))]


def test_one_value_each_has_its_effect_alone():
    found = figure_difference(FIRST, [{"first_run_us": 200.0}], {"first_run_us": 300.0})
    assert (found.baseline, found.candidate, found.share) == (200.0, 300.0, 0.5)
    assert (found.low_share, found.noise_floor_share) == (None, None)


def test_intervals_are_joined_by_the_squares_of_their_reaches():
    """From 100 (97 to 105) to 200 (188 to 204): 5 and 12 give 13 below, 3 and 4 give 5 above.

    One of six figures has limits at 5 % over twelve instead of 5 % over one: 2.638 over 1.645 as wide.
    """
    found = figure_difference(P99, [p99(100.0, 97.0, 105.0)], p99(200.0, 188.0, 204.0))
    assert (found.baseline, found.candidate, found.share) == (100.0, 200.0, pytest.approx(1.0))
    assert found.low_share == pytest.approx(1.0 - 0.13 * 2.638 / 1.645, abs=1e-3)
    assert found.high_share == pytest.approx(1.0 + 0.05 * 2.638 / 1.645, abs=1e-3)
    assert found.noise_floor_share == pytest.approx(0.05)


def test_a_percentile_without_limits_has_an_effect_only():
    found = figure_difference(P99, [p99(100.0, None, None)], p99(110.0, 105.0, 115.0))
    assert (found.share, found.low_share) == (pytest.approx(0.1), None)


def test_a_ceiling_scatters_as_its_halves_do():
    found = figure_difference(
        PEAK, [{"peak_flop_per_s": 100.0, "apart": 0.03}], {"peak_flop_per_s": 110.0, "apart": 0.04}
    )
    assert found.noise_floor_share == pytest.approx(0.05)
    assert (found.baseline, found.candidate) == (100.0, 110.0)
    assert (found.share, found.low_share, found.high_share) == pytest.approx((0.1, 0.05, 0.15))


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


def test_what_both_sides_cannot_know_is_the_same_for_both():
    """Cases far apart, each 10 to 12 % better: the difference is between 10 and 12 %, not somewhere in the cases."""
    before = {"speedup_p5_factor": 1.0, "likely": 2.0, "speedup_p95_factor": 5.0}
    after = {"speedup_p5_factor": 1.1, "likely": 2.22, "speedup_p95_factor": 5.6}
    found = figure_difference(SPEEDUP, [before], after, 0.03)
    assert (found.low_share, found.share, found.high_share) == pytest.approx((0.10, 0.11, 0.12))
    assert found.noise_floor_share == 0.03
    assert figure_difference(SPEEDUP, [before], after).low_share is None  # nobody knows how far the latency scatters
    assert figure_difference(SPEEDUP, [before | {"speedup_p5_factor": None}], after, 0.03).low_share is None


@pytest.mark.parametrize(("source", "reach"), [("modelled", 0.02), ("measured", 2.0)])
def test_the_limits_of_a_modelled_energy_are_the_models_and_those_of_a_measured_one_its_own(source, reach):
    one, other = (
        {"energy_source": source, "energy_low_uj": 20.0 * k, "energy_uj": 100.0 * k, "energy_high_uj": 300.0 * k}
        for k in (1.0, 1.07)
    )
    found = figure_difference(ENERGY, [one], other, 0.01)
    assert found.share == pytest.approx(0.07)
    assert (found.high_share - found.low_share < reach) == (source == "modelled")


def test_what_was_nothing_before_has_no_share_and_is_still_a_change():
    used = FIGURE["board_resources", "used_count"]
    found = figure_difference(used, [{"used_count": 0.0}], {"used_count": 48.0})
    assert (found.baseline, found.candidate, found.share) == (0.0, 48.0, None)
    assert figure_difference(used, [{"used_count": 0.0}], {"used_count": 0.0}) is None


def test_more_is_worse_but_for_rates_speedups_and_instructions_per_cycle():
    """Found by `make mutants`: a throughput that fell would have been an improvement."""
    better = {(figure.document, figure.name) for figure in FIGURES if not figure.is_less_better}
    assert ("load_summary", "answered_requests_per_s") in better
    for document, name in better:
        assert "_per_" in name or document == "offload_verdict", (document, name)
    for document, name in FIGURE:
        assert not name.endswith("_per_s") or (document, name) in better


def test_the_baselines_of_several_are_as_wide_as_all_of_them():
    """The last of the three is the candidate: its limits are its own."""
    known = [p99(100.0, 97.0, 105.0), p99(100.0, 95.0, 103.0)]
    found = figure_difference(P99, known, p99(200.0, 188.0, 204.0))
    assert found.noise_floor_share == pytest.approx(0.05)
    wider = figure_difference(P99, [*known, p99(100.0, 90.0, 140.0)], p99(200.0, 188.0, 204.0))
    assert wider.noise_floor_share == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("figure", "before", "after"),
    [
        (P99, p99(100.0, None, None), p99(110.0, 105.0, 115.0)),
        (PEAK, {"peak_flop_per_s": 100.0, "apart": None}, {"peak_flop_per_s": 110.0, "apart": 1.0}),
        (ENERGY, {"energy_uj": 100.0}, {"energy_uj": 110.0}),
        (
            ENERGY,
            {"energy_uj": 100.0, **dict.fromkeys(ENERGY.beside, 90.0)},
            {"energy_uj": 110.0, **dict.fromkeys(ENERGY.beside, 99.0)},
        ),
    ],
)
@pytest.mark.parametrize("floor", [None, 0.01])
def test_every_difference_has_both_values(figure, before, after, floor):
    found = figure_difference(figure, [before], after, floor)
    assert (found.baseline, found.candidate, found.share) == (100.0, 110.0, pytest.approx(0.1))
