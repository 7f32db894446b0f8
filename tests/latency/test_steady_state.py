"""Steady states of series whose course is known, with seeded noise."""

import numpy as np
import pytest

from common.latency.steady_state import Segment, steady_state

RUNS = 600
TURNS = np.arange(RUNS)


def noise(seed, count=RUNS, phi=0.0):
    """Of deviation 1; each value keeps so much of its neighbour."""
    values = np.random.default_rng(seed).normal(size=count)
    for index in range(1, count if phi else 0):
        values[index] = phi * values[index - 1] + np.sqrt(1 - phi**2) * values[index]
    return values


def series(course, seed=0, spread=0.02, phi=0.0):
    """Latencies about 1,000 µs whose level is the course, as a share above it."""
    return 1000 * (1 + course) * (1 + spread * noise(seed, len(course), phi))


FLAT = np.zeros(RUNS)
STEP = 0.05 * (TURNS < RUNS // 3)


# --- no change ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("phi", [0.0, 0.5])
@pytest.mark.parametrize("count", [13, 61, RUNS, 3001])
def test_noise_is_flat(count, phi, seed):
    found = steady_state(series(np.zeros(count), seed, phi=phi))
    assert (found.kind, found.start_index) == ("flat", 0)


@pytest.mark.parametrize("seed", range(5))
def test_skewed_noise_and_noise_of_two_modes_are_flat(seed):
    generator = np.random.default_rng(seed)
    assert steady_state(generator.lognormal(7, 0.3, RUNS)).kind == "flat"
    assert steady_state(1000 + 200 * (generator.random(RUNS) < 0.3) + generator.normal(size=RUNS)).kind == "flat"


@pytest.mark.parametrize("where", [0, 1, RUNS // 2, RUNS - 1])
def test_one_slow_run_is_no_change(where):
    latencies_us = series(FLAT)
    latencies_us[where] *= 50
    found = steady_state(latencies_us)
    assert (found.kind, found.start_index, len(found.segments)) == ("flat", 0, 1)


def test_slow_runs_here_and_there_are_no_change():
    latencies_us = series(FLAT)
    latencies_us[7::41] *= 3
    assert steady_state(latencies_us).kind == "flat"


def test_a_short_stretch_of_somebody_elses_work_stays_in_the_steady_part():
    course = 0.3 * ((TURNS >= 300) & (TURNS < 324))  # 4 % of the runs
    found = steady_state(series(course))
    assert (found.kind, found.start_index) == ("flat", 0)
    assert [(segment.start, segment.end) for segment in found.segments] == [(0, 300), (300, 324), (324, RUNS)]


def test_a_change_within_the_tolerance_is_none():
    found = steady_state(series(0.02 * (TURNS < RUNS // 2), spread=0.005))
    assert (found.kind, len(found.segments)) == ("flat", 2)


def test_a_drift_within_the_tolerance_is_none():
    found = steady_state(series(0.02 * TURNS / RUNS, spread=0.003))
    assert (found.kind, len(found.segments) > 1) == ("flat", True)


@pytest.mark.parametrize("level", [0.0, 7.0])
@pytest.mark.parametrize("count", [5, 11, 100])
def test_equal_latencies_are_flat(count, level):
    assert steady_state(np.full(count, level)).kind == "flat"


# --- a steady part after something else ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("course", "kind"), [(STEP, "warm-up"), (-STEP, "slowdown")])
def test_a_step_by_a_twentieth_is_found(course, kind, seed):
    found = steady_state(series(course, seed))
    assert found.kind == kind
    assert abs(found.start_index - 200) <= 8
    assert [segment.end for segment in found.segments] == [found.start_index, RUNS]


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_an_exponential_warm_up(phi):
    found = steady_state(series(0.5 * np.exp(-TURNS / 30), phi=phi))
    assert found.kind == "warm-up"
    assert 50 < found.start_index < 150  # 0.5·e^(-50/30) = 9 %, 0.5·e^(-5) = 0.3 % above


def test_a_few_slow_first_runs():
    found = steady_state(series(1.0 * (TURNS < 5)))
    assert (found.kind, found.start_index) == ("warm-up", 5)


def test_a_slowdown_ends_slower_than_something_before():
    between = 0.2 * ((TURNS >= 100) & (TURNS < 300))
    assert steady_state(series(between)).kind == "warm-up"  # nothing before was faster
    assert steady_state(series(between + 0.1 * (TURNS >= 300))).kind == "slowdown"


def test_a_high_warm_up_in_few_runs():
    found = steady_state(series(0.5 * np.exp(-np.arange(30) / 1.5), spread=0.01))
    assert (found.kind, found.start_index) == ("warm-up", 4)  # 0.5·e^(-4/1.5) = 3.5 % above


def test_a_step_of_few_runs_without_noise():
    found = steady_state(np.where(np.arange(100) < 10, 8.0, 7.0))
    assert (found.kind, found.start_index) == ("warm-up", 10)


def test_a_step_without_noise():
    found = steady_state(np.where(np.arange(100) < 30, 8.0, 7.0))
    assert found.segments == (Segment(0, 30, 8.0), Segment(30, 100, 7.0))
    assert (found.kind, found.start_index) == ("warm-up", 30)


def test_a_long_series_is_looked_at_in_blocks():
    count = 200_003
    found = steady_state(series(0.06 * (np.arange(count) < 50_000)))
    assert found.kind == "warm-up"
    assert 0 <= found.start_index - 50_000 <= 2 * 201  # blocks: 200,003 / 1000 rounded up; not one slow run in it
    assert found.segments[-1].end == count


# --- none -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "course", [0.2 * TURNS / RUNS, -0.2 * TURNS / RUNS, 0.1 * TURNS / RUNS], ids=["slower", "faster", "a little"]
)
def test_a_slow_drift_is_no_steady_state(course, seed):
    found = steady_state(series(course, seed))
    assert (found.kind, found.start_index) == ("no steady state", None)
    assert (found.segments[0].start, found.segments[-1].end) == (0, RUNS)


def test_a_drift_after_a_warm_up():
    course = np.where(TURNS < 60, 0.5, 0.08 * TURNS / RUNS)
    assert steady_state(series(course, spread=0.01)).kind == "no steady state"


@pytest.mark.parametrize("change", [0.05, -0.05])
def test_a_step_in_the_last_tenth_is_no_steady_state(change):
    assert steady_state(series(change * (TURNS >= 0.9 * RUNS), spread=0.01)).kind == "no steady state"


def test_less_than_a_quarter_is_no_steady_state():
    assert steady_state(series(0.2 * (TURNS < 0.8 * RUNS))).kind == "no steady state"
    assert steady_state(series(0.2 * (TURNS < 0.7 * RUNS))).kind == "warm-up"


@pytest.mark.parametrize("count", [1, 2, 4])
def test_fewer_than_five_runs_are_no_steady_state(count):
    assert steady_state(np.full(count, 7.0)).kind == "no steady state"


# --- what it is of --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("course", [FLAT, STEP, 0.2 * TURNS / RUNS])
def test_the_segments_are_all_runs(course):
    latencies_us = series(course)
    segments = steady_state(latencies_us).segments
    assert [segment.start for segment in segments] == [0, *(segment.end for segment in segments[:-1])]
    assert sum(segment.length for segment in segments) == RUNS
    for segment in segments:
        assert segment.level_us == np.median(latencies_us[segment.start : segment.end])


def test_the_unit_does_not_matter():
    latencies_us = series(STEP)
    one, thousand = steady_state(latencies_us), steady_state(1000 * latencies_us)
    assert (one.kind, one.start_index) == (thousand.kind, thousand.start_index)


def test_the_series_is_left_as_it_was():
    latencies_us = series(STEP)
    before = latencies_us.copy()
    steady_state(latencies_us)
    assert (latencies_us == before).all()
