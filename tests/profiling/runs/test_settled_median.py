"""Whether the median of runs of a known course settles a verdict: from the series to the doubt."""

import numpy as np
import pytest

from common.latency.statistics import figures, with_quarters
from common.latency.steady_state import steady_state
from common.messages.host_doubts import host_doubts

RUNS = 100
TURNS = np.arange(RUNS)


def noise(seed, spread=0.01, phi=0.0):
    values = np.random.default_rng(seed).normal(size=RUNS)
    for index in range(1, RUNS if phi else 0):
        values[index] = phi * values[index - 1] + np.sqrt(1 - phi**2) * values[index]
    return 1 + spread * values


def doubts_about(latencies_us):
    """The doubts that the stages derive from a series, and what they call its course."""
    found = steady_state(latencies_us)
    counted = latencies_us[found.start_index or 0 :]
    summary = figures(counted)
    if found.start_index is None:
        summary = with_quarters(summary, counted)
    summary |= {"steady_state": found.kind, "sample_count": len(counted)}
    return host_doubts(summary, 0.0, 7, ()), found.kind


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "course",
    [
        0.12 * ((TURNS >= 90) & (TURNS % 5 > 0)),
        0.05 * (TURNS >= 82),
        -0.05 * (TURNS >= 82),
        0.04 * (TURNS // 12 % 2),
        0.06 * TURNS / RUNS,
    ],
    ids=["slow last runs", "a step of 5 %", "a step of -5 %", "two levels", "a drift of 6 %"],
)
def test_what_does_not_move_the_median_far_leaves_no_doubt(course, seed):
    doubts, _ = doubts_about(20_000 * (1 + course) * noise(seed))
    assert doubts == ()


def test_slow_last_runs_are_no_steady_state_and_no_doubt():
    doubts, kind = doubts_about(20_000 * (1 + 0.12 * (TURNS >= 91)) * noise(3, 0.004))
    assert (doubts, kind) == ((), "no steady state")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "course",
    [
        0.20 * TURNS / RUNS,
        -0.20 * TURNS / RUNS,
        0.2 * (TURNS >= 82),
        1.0 * (TURNS >= 60) + 1.0 * (TURNS >= 85),
        6.0 * (TURNS < 40) + 3.0 * ((TURNS >= 40) & (TURNS < 82)),
    ],
    ids=["slower", "faster", "a step near the end", "two steps up", "two steps down"],
)
def test_a_level_that_moves_the_median_is_a_doubt(course, seed):
    doubts, _ = doubts_about(20_000 * (1 + course) * noise(seed))
    assert doubts


def test_the_interval_holds_the_medians_of_all_quarters():
    latencies_us = 20_000 * (1 + 0.2 * TURNS / RUNS)
    plain, widened = figures(latencies_us), with_quarters(figures(latencies_us), latencies_us)
    # The middles of the first and the last quarter: runs 12 and 87.
    assert widened["p50_low_us"] <= 20_480 and widened["p50_high_us"] >= 23_480
    assert {name for name in plain if plain[name] != widened[name]} <= {"p50_low_us", "p50_high_us"}
    few = figures(latencies_us[:4])
    assert with_quarters(few, latencies_us[:4]) == few
