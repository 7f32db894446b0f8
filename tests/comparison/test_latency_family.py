"""Figures of the latency as one family: by hand, alarms between equal series, and what is not judged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from common.comparison.latency_family import (
    FEW_INDEPENDENT,
    LEVELS,
    QUARTERS_REACH,
    LatencySide,
    judged_latency,
    latency_differences,
    least_runs,
    too_few_runs,
)
from common.latency.sessions import FIGURES, student_quantile
from common.latency.statistics import QUANTILES, figures, limit_ranks

LOUD = {"regressed", "improved"}


def verdicts(before, after, margin=0.05):
    found = judged_latency(LatencySide(before), LatencySide(after), margin)
    return {name: judgement.outcome for name, (_, judgement) in found.items()}


def alarmed(before, after):
    return bool({*verdicts(before, after).values()} & LOUD)


def correlated(rng, count, phi):
    values = [rng.standard_normal()]
    for step in rng.standard_normal(count - 1) * math.sqrt(1 - phi**2):
        values.append(phi * values[-1] + step)
    return np.array(values)


def test_the_figures_are_those_of_the_measurement():
    before, after = (np.random.default_rng(seed).lognormal(5, 0.1, 400) for seed in (1, 2))
    found, stated = latency_differences(LatencySide([before]), LatencySide([after])), figures(before)
    assert {*found} == {*FIGURES} - {"p99_9"}  # 400 runs do not have it
    assert [found[name].baseline for name in found] == [stated[f"{name}_us"] for name in found]


@pytest.mark.parametrize(("name", "quantile"), QUANTILES.items())
def test_as_many_independent_runs_have_both_limits_and_one_fewer_have_not(name, quantile):
    count = least_runs(name)
    lower, upper = limit_ranks(count, quantile)
    assert lower and upper
    assert not all(limit_ranks(count - 1, quantile))


def test_the_floor_of_one_session_is_that_of_its_quarters_by_hand():
    """Quarters of 100, 104, 100 and 104: a variance of 16/3, so an error of the mean of the root of 4/3."""
    steady, stepping = np.full(20, 100.0), np.repeat([100.0, 104, 100, 104], 5)
    change = latency_differences(LatencySide([steady]), LatencySide([stepping]))["mean"]
    assert change.noise_floor_share == pytest.approx(QUARTERS_REACH * math.sqrt(4 / 3) / 100)


def test_the_floor_of_sessions_is_students_by_hand():
    """Medians of 100 and 102, and of 100 and 104: a common variance of (2 + 8) / 2, over two sessions on each side."""
    sides = [LatencySide([np.full(9, level) for level in levels]) for levels in ((100.0, 102.0), (100.0, 104.0))]
    change = latency_differences(*sides)["mean"]
    error = math.sqrt(5 * (1 / 2 + 1 / 2))
    assert change.noise_floor_share == pytest.approx(student_quantile(2, 1 - 0.025 / 6 / 2) * error / 101)
    assert LEVELS.sum() == pytest.approx(0.05)


def test_a_drift_shows_in_the_deviation_of_the_quarters():
    """Each quarter alone is quiet; from the mean of all, the outer ones are thrice as far away as the inner ones."""
    away = LatencySide([np.repeat([97.0, 99.0, 101.0, 103.0], 50)]).of_quarters[:, FIGURES.index("jitter")]
    assert away.tolist() == [3.0, 1.0, 1.0, 3.0]


@pytest.mark.parametrize("slope", [0.02, 0.1, 0.4])
def test_hosts_that_drift_apart_raise_no_alarm(slope):
    """One becomes faster and the other slower, from one level: the quarters of both are as far apart as they are."""
    ramp, noise = np.linspace(0, slope, 200), np.random.default_rng(3).standard_normal((2, 200)) * 1e-3
    assert not alarmed([100 * (1 + ramp + noise[0])], [100 * (1 - ramp + noise[1])])


def test_a_figure_of_too_few_independent_runs_is_not_judged_and_as_many_as_said_are_enough():
    rng = np.random.default_rng(5)

    def series(count):
        return 100 + 5 * correlated(rng, count, 0.8)

    found = judged_latency(LatencySide([series(400)]), LatencySide([1.5 * series(400)]), 0.05)
    judgement = found["p99"][1]
    assert (judgement.outcome, judgement.reason) == ("not judged", FEW_INDEPENDENT)
    assert 400 < judgement.runs_needed < 10_000
    enough = 2 * judgement.runs_needed
    assert verdicts([series(enough)], [1.5 * series(enough)])["p99"] == "regressed"


def test_what_is_not_judged_is_one_note():
    def row(figure, verdict, needed=None):
        return {
            "compared_kind": "end_to_end",
            "compared_figure": figure,
            "comparison_verdict": verdict,
            "runs_needed_count": needed,
        }

    rows = [row("p50_us", "unchanged"), row("p90_us", "regressed"), row("p95_us", "not judged", 1520)]
    rows += [row("mean_us", "unchanged"), row("jitter_us", "not judged")]
    assert too_few_runs(rows) == [
        "too few independent runs to judge p95 (1,520 would do), p99 (299 or more would do), p99.9 (2,995 or more "
        "would do), jitter; raise <runs>"
    ]
    assert too_few_runs(rows[:1]) == []


def test_no_interval_holds_a_time_below_zero():
    wide = [[np.full(12, level) for level in (10.0, 20.0)], [np.full(12, level) for level in (12.0, 18.0)]]
    found = latency_differences(*map(LatencySide, wide))
    assert found["mean"].low_share == -1.0


def test_few_runs_have_no_family():
    assert judged_latency(LatencySide([np.ones(4)]), LatencySide([np.ones(100)]), 0.05) == {}


LAWS = {
    "independent": lambda rng, count: 100 + 5 * rng.standard_normal(count),
    "correlated": lambda rng, count: 100 + 5 * correlated(rng, count, 0.95),
    "spiky": lambda rng, count: 100 + 2 * rng.standard_normal(count) + 100 * (rng.random(count) < 0.02),
    "heavy": lambda rng, count: 100 + 5 * rng.pareto(2.5, count),
    "wandering": lambda rng, count: 100 + np.cumsum(rng.standard_normal(count)) * 2 / math.sqrt(count),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("count", [200, 1000])
def test_of_thirty_equal_pairs_at_most_two_raise_an_alarm_in_any_figure(law, count):
    rng = np.random.default_rng(7)
    alarms = [alarmed([LAWS[law](rng, count)], [LAWS[law](rng, count)]) for _ in range(30)]
    assert sum(alarms) <= 2


def test_a_slowdown_of_a_tenth_is_found_in_every_figure_that_is_judged():
    rng = np.random.default_rng(11)
    before, after = ([level * (1 + 0.02 * rng.standard_normal(1000))] for level in (100.0, 110.0))
    found = verdicts(before, after)
    assert {name for name, verdict in found.items() if verdict == "regressed"} >= {"p50", "p90", "p95", "p99", "mean"}


def sessions(rng, count, level=1000.0):
    """Sessions that differ by 1 % of the level, of runs that differ by 0.3 %."""
    levels = level * (1 + 0.01 * rng.standard_normal(count))
    return [one * (1 + 0.003 * rng.standard_normal(60)) for one in levels]


def test_three_sessions_that_differ_by_a_percent_raise_no_alarm_where_one_does():
    rng = np.random.default_rng(13)
    apart = sum(alarmed(sessions(rng, 1), sessions(rng, 1)) for _ in range(12))
    together = sum(alarmed(sessions(rng, 3), sessions(rng, 3)) for _ in range(12))
    assert apart >= 6
    assert together == 0
    slower = verdicts(sessions(rng, 3), sessions(rng, 3, 1100.0))
    assert [slower[name] for name in ("p50", "p90", "p95", "mean")] == ["regressed"] * 4
