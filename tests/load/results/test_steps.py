"""A load step by step, on records of a virtual clock whose answers are known."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.load.virtual_clock import simulate
from common.load.requests.batching import BatchPolicy
from common.load.requests.rate_profile import RateProfile, RateStep
from common.load.requests.schedules import Arrivals, profiled
from common.load.requests.sources import ClosedLoop, OpenLoop
from common.load.results.load_figures import LoadTest
from common.load.results.load_tables import requests_of, step_indices, step_rows

MS = 1_000_000
STEPS = [(10, 50, 50), (10, 50, 250), (2, 0, 0), (20, 150, 150)]  # a service of 100/s is too slow from 12.5 s on


def loaded(steps, service_ms=10):
    profile = RateProfile.of(steps)
    record = simulate(OpenLoop(profiled(profile, None)), lambda *_: service_ms * MS, BatchPolicy())
    return LoadTest(record, BatchPolicy(), 1, True, steps=profile.steps)


def test_each_step_has_its_own_requests_and_verdict():
    test = loaded(STEPS)
    rows = step_rows(test, 0)
    assert [row["sent_count"] for row in rows] == [500, 1500, 0, 3000]
    assert sum(row["completed_count"] for row in rows) == test.record.counts["completed"]
    assert [row["validity"] for row in rows] == ["valid", "overload", "valid", "overload"]
    assert rows[0]["request_p50_us"] == pytest.approx(10_000) and rows[3]["request_p50_us"] is None
    assert rows[0]["utilization_share"] == pytest.approx(0.5, abs=0.01)
    assert [row["step_start_us"] for row in rows] == [0, 10e6, 20e6, 22e6]
    assert [(row["begin_requests_per_s"], row["end_requests_per_s"]) for row in rows] == [step[1:] for step in STEPS]


def test_answers_count_in_the_step_in_which_they_come():
    """In the pause the queue of the ramp is still answered: 100 per second."""
    rows = step_rows(loaded(STEPS), 0)
    assert rows[0]["answered_requests_per_s"] == pytest.approx(50, abs=0.2)
    assert rows[3]["answered_requests_per_s"] == pytest.approx(100, abs=0.2)
    assert rows[2]["answered_requests_per_s"] == pytest.approx(100, abs=0.6)


def test_requests_know_their_step():
    test = loaded([(1, 10, 10), (1, 0, 0), (1, 10, 10)])
    assert step_indices(test).tolist() == [0] * 10 + [2] * 10


def test_warm_up_requests_are_counted_in_no_percentile():
    rows = step_rows(loaded([(20, 50, 50), (20, 50, 50)]), 100)
    assert rows[0]["sent_count"] == rows[1]["sent_count"] == 1000
    assert rows[0]["validity"] == "valid"


def test_a_load_without_a_rate_is_one_step():
    record = simulate(ClosedLoop(2, 1_000 * MS), lambda *_: 10 * MS, BatchPolicy())
    test = LoadTest(record, BatchPolicy(), 1, False)
    (row,) = step_rows(test, 0)
    assert row["begin_requests_per_s"] is None and row["sent_count"] == len(record)
    assert (step_indices(test) == 0).all()


def test_a_signal_ends_the_step_in_which_it_comes():
    profile = RateProfile.of([(1, 100, 100), (1, 100, 100), (5, 100, 100), (5, 100, 100)])
    record = simulate(OpenLoop(profiled(profile, None)), lambda *_: MS, BatchPolicy())
    chosen = np.arange(len(record)) < 250
    cut = replace(record, ended_ns=2_500 * MS, is_interrupted=True)
    rows = step_rows(LoadTest(requests_of(cut, chosen), BatchPolicy(), 1, True, steps=profile.steps), 0)
    assert [row["step_duration_us"] for row in rows] == [1e6, 1e6, 0.5e6]
    assert [row["sent_count"] for row in rows] == [100, 100, 50]


def test_the_steps_of_nothing():
    record = simulate(OpenLoop(Arrivals(np.zeros(0, np.int64))), lambda *_: MS, BatchPolicy())
    (row,) = step_rows(LoadTest(record, BatchPolicy(), 1, True, steps=(RateStep(1, 5, 5),)), 0)
    assert row["sent_count"] == 0 and row["request_p50_us"] is None
