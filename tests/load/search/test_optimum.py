"""The whole search on a virtual clock: services whose times are given, so that the best configuration is known."""

import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.load.virtual_clock import simulate
from common.load.requests.load_record import FAILED
from common.load.search.batch_times import predicted
from common.load.search.curve import curve
from common.load.search.halving import Configuration
from common.load.search.optimum import SCREENING_SHARE, SearchTask, find_optimum
from common.load.search.search_tables import batch_rows, best_document, trial_rows
from common.load.service.concurrency import SHARING, USUAL, Concurrency

BOUND_US = 60_000.0


class VirtualHarness:
    """Batches of n take a + b n ms on one thread; threads divide it by their number to the power of 0.7."""

    def __init__(self, fixed_ms=4.0, each_ms=2.0, slower_under_load=1.0, watts=None):
        self.fixed_ms, self.each_ms, self.slower, self.watts = fixed_ms, each_ms, slower_under_load, watts
        self.time_s, self.random = 0.0, np.random.default_rng(0)
        self.policies = []

    def run(self, shape, source, policy, last_ns):
        self.policies.append((shape, policy))
        factor = 1.0 if last_ns is None else self.slower

        def service_ns(batch, now_ns):
            mean_ms = (self.fixed_ms + self.each_ms * batch.padded_size) / shape[1] ** 0.7
            return round(1e6 * factor * mean_ms * self.random.uniform(0.97, 1.03))

        record = simulate(source, service_ns, policy, workers=shape[0])
        self.time_s += record.ended_ns / 1e9
        return record

    def power_w(self, begin_s, end_s):
        return self.watts

    def now_s(self):
        return self.time_s


class EndedHarness(VirtualHarness):
    """A signal comes in the run of a number."""

    def __init__(self, last_run):
        super().__init__()
        self.last_run = last_run

    def run(self, shape, source, policy, last_ns):
        record = super().run(shape, source, policy, last_ns)
        return replace(record, is_interrupted=len(self.policies) == self.last_run)


@pytest.fixture(scope="module")
def found():
    return find_optimum(VirtualHarness(watts=23.0), SearchTask(BOUND_US, 60.0, 8, 2, usd_per_hour=1.7))


@pytest.mark.slow
def test_the_time_of_batches_by_size_is_measured_first(found):
    rows = batch_rows(found)
    assert [(row["session_count"], row["threads"], row["request_count"]) for row in rows] == [
        (sessions, threads, size) for sessions, threads in ((1, 2), (2, 1)) for size in (1, 2, 4, 8)
    ]
    for row in rows:
        expected_us = 1000 * (4 + 2 * row["request_count"]) / row["threads"] ** 0.7
        assert row["call_mean_us"] == pytest.approx(expected_us, rel=0.01)
        assert row["full_requests_per_s"] == pytest.approx(
            1e6 * row["session_count"] * row["request_count"] / expected_us, rel=0.01
        )
        assert row["requests_per_joule"] == pytest.approx(row["full_requests_per_s"] / 23)


@pytest.mark.slow
def test_the_best_sustains_nearly_what_any_configuration_does(found):
    """Two sessions of one thread answer more than one session of two; batches of eight more than others."""
    text = best_document(found)
    best = text["best_by"]["rate"]
    assert (best["session_count"], best["threads"], best["batch_max_count"]) == (2, 1, 8)
    most = max(
        rate
        for rate in np.linspace(500, 800, 13)
        if (response := predicted(found.times[2, 1, USUAL], found.result.best["rate"].configuration, rate))
        and response.p99_us <= BOUND_US
    )
    assert 0.8 * most <= best["sustained_requests_per_s"] <= 1.08 * most
    assert text["is_bound_met"]
    assert best["million_requests_usd"] == pytest.approx(1e6 * 1.7 / 3600 / best["goodput_requests_per_s"])
    assert best["request_energy_j"] == pytest.approx(23.0 / best["goodput_requests_per_s"])
    assert text["margin_share"] >= -0.05


def test_every_run_is_a_row_and_the_curve_rises(found):
    rows = trial_rows(found)
    assert [row["trial_index"] for row in rows] == [*range(len(rows))]
    assert len(rows) == best_document(found)["trial_count"]
    curve = [row for row in rows if row["trial_kind"] == "curve"]
    assert [row["validity"] for row in curve[:5]] == ["valid"] * 5
    assert curve[-1]["validity"] == "overload" and curve[-1]["request_p99_us"] is None
    p99 = [row["request_p99_us"] for row in curve if row["request_p99_us"]]
    assert p99[-1] > p99[0]
    assert all(
        row["is_within_bound"] == (row["request_p99_us"] is not None and row["request_p99_us"] <= BOUND_US)
        for row in rows
    )


@pytest.mark.slow
def test_prediction_and_measurement_agree_below_80_percent():
    found = find_optimum(VirtualHarness(), SearchTask(BOUND_US, 900.0, 8, 2))
    points = [point for point in found.curve if point.response and point.response.utilization < 0.8]
    assert len(points) >= 2
    for point in points:
        assert point.response.p50_us == pytest.approx(point.trial.p50_us.value, rel=0.1)
        assert point.response.p99_us == pytest.approx(point.trial.p99_us.value, rel=0.1)
        assert point.doubt == ""


def timed_alone(setup):
    """ServiceTimes of batches of 1, 2 and 4 requests on one thread, of a service that takes 4 ms and 2 ms for each."""
    return {size: np.full(299, (4 + 2 * size) / 1e3) for size in (1, 2, setup.batch_max)}


def drawn(harness, budget_s, seed=0):
    """The points below 80 % utilization of batches of up to four on one thread."""
    setup = Configuration(4, 0.0, 1, 1)
    points = curve(harness, setup, timed_alone(setup), budget_s, seed)
    return [one for one in points if one.response and one.response.utilization < 0.8 and one.trial.p99_us.value]


@pytest.mark.slow
def test_calls_that_took_longer_are_the_reason_if_their_times_predict_what_was_measured():
    points = drawn(VirtualHarness(slower_under_load=1.4), 900.0)
    assert len(points) >= 4
    for point in points:
        found = re.fullmatch(
            r"calls took 1\.4 times as long as when batches were timed; "
            r"with their times p50 is predicted as ([\d.]+) ms, p99 as ([\d.]+) ms",
            point.doubt,
        )
        assert [1e3 * float(number) for number in found.groups()] == [
            pytest.approx(point.trial.p50_us.value, rel=0.1),
            pytest.approx(point.trial.p99_us.value, rel=0.1),
        ]


@pytest.mark.slow
def test_a_short_run_says_that_it_had_too_few_requests():
    doubts = [point.doubt for seed in range(20) for point in drawn(VirtualHarness(), 25.0, seed)]
    too_few = "too few requests: the prediction is within the limits of the measurement"
    assert doubts.count(too_few) >= 0.1 * len(doubts)
    assert len(doubts) - doubts.count(too_few) - doubts.count("") <= 0.1 * len(doubts)  # two limits of 95 % each
    assert not any("calls took" in doubt for doubt in doubts)


class PhasedHarness(VirtualHarness):
    """Calls take half as long as usual in the first half of a run, and half as long again in the second."""

    def run(self, shape, source, policy, last_ns):
        def service_ns(batch, now_ns):
            return round(1e6 * (4.0 + 2.0 * batch.padded_size) * (0.5 if now_ns < last_ns / 2 else 1.5))

        record = simulate(source, service_ns, policy, workers=shape[0])
        self.time_s += record.ended_ns / 1e9
        return record


@pytest.mark.slow
def test_calls_that_are_slow_together_are_not_explained_by_their_times():
    doubts = [point.doubt for point in drawn(PhasedHarness(), 900.0)]
    assert any("not as the queue assumes" in doubt or "explains a part" in doubt for doubt in doubts)
    assert not any("with their times" in doubt for doubt in doubts[2:])  # a light load hardly queues


@pytest.mark.slow
def test_too_few_timed_calls_are_the_reason_before_arrivals_are():
    """The queue of calls that were timed five times differs from the measured one, and the mean call does not."""
    harness, setup = MixedHarness(), Configuration(1, 0.0, 1, 1)
    points = [*curve(harness, setup, {1: np.array([0.004, 0.004, 0.004, 0.004, 0.024])}, 900.0, 0)]
    doubts = [one.doubt for one in points if one.doubt]
    assert doubts and all("5 calls with a batch of 1 were timed, and 829 are needed" in doubt for doubt in doubts)


class MixedHarness(VirtualHarness):
    """Calls take 8 ms on average: most of them 7 ms, and one in a hundred 107 ms."""

    def run(self, shape, source, policy, last_ns):
        def service_ns(batch, now_ns):
            return round(1e6 * (107.0 if self.random.random() < 0.01 else 7.0))

        record = simulate(source, service_ns, policy, workers=shape[0])
        self.time_s += record.ended_ns / 1e9
        return record


@pytest.mark.slow
def test_a_bound_below_one_call_names_what_is_nearest():
    text = best_document(find_optimum(VirtualHarness(), SearchTask(1000.0, 20.0, 4, 2)))
    assert not text["is_bound_met"] and text["best_by"] == {} and text["runner_up"] == {}
    assert text["margin_share"] is None
    assert text["nearest"]["request_p99_us"] > 1000
    assert text["nearest"]["request_p99_us"] < 2 * 6000 / 2**0.7  # two of the shortest calls that there are


@pytest.mark.slow
def test_the_budget_is_kept():
    harness = VirtualHarness()
    find_optimum(harness, SearchTask(BOUND_US, 25.0, 4, 2))
    assert harness.time_s < 36


KINDS = [Concurrency(spinning=spinning, workers=own) for own in SHARING["workers"] for spinning in SHARING["spinning"]]


class SharedHarness(VirtualHarness):
    """Sessions that never spin are faster by half, those in processes slower by a tenth; opening takes 50 ms."""

    def run(self, shape, source, policy, last_ns):
        if not self.policies or shape != self.policies[-1][0]:
            self.time_s += 0.05
        kind = shape[2]
        factor = (1 / 1.5 if kind.spinning == "never" else 1.0) * (1.1 if kind.workers == "processes" else 1.0)
        self.fixed_ms, self.each_ms = 4.0 * factor, 2.0 * factor
        return super().run(shape, source, policy, last_ns)


@pytest.mark.slow
def test_ways_to_share_the_host_are_compared_in_one_table_and_searched():
    found = find_optimum(SharedHarness(), SearchTask(BOUND_US, 60.0, 4, 2, concurrencies=KINDS))
    rows = [row for row in batch_rows(found) if row["request_count"] == 4]
    assert len(rows) == 2 * len(KINDS) and best_document(found)["untimed_shape_count"] == 0
    for row in rows:
        expected_us = 1000 * 12 / row["threads"] ** 0.7 / (1.5 if row["spinning"] == "never" else 1)
        expected_us *= 1.1 if row["session_workers"] == "processes" else 1
        assert row["call_mean_us"] == pytest.approx(expected_us, rel=0.02)
    best = best_document(found)["best_by"]["rate"]
    assert (best["spinning"], best["session_workers"]) == ("never", "threads")
    searched = {one.configuration.shape for one in found.result.standings}
    assert {shape[2].spinning for shape in searched} == {"never"}  # the best two of each division


@pytest.mark.slow
@pytest.mark.parametrize("budget_s", [3.0, 10.0, 30.0])
def test_many_ways_to_share_the_host_keep_the_budget(budget_s):
    """Where it is short, some ways are not tried; the usual one is."""
    usual, harness = SharedHarness(), SharedHarness()
    find_optimum(usual, SearchTask(BOUND_US, budget_s, 4, 2))
    found = find_optimum(harness, SearchTask(BOUND_US, budget_s, 4, 2, concurrencies=KINDS))
    assert harness.time_s < usual.time_s + SCREENING_SHARE * budget_s + 2.0  # a run that has begun ends
    shapes = {one[:2]: [] for one in found.times}
    for shape in found.times:
        shapes[shape[:2]].append(shape[2])
    assert KINDS[0] in shapes[1, 2]
    assert best_document(found)["untimed_shape_count"] == 2 * len(KINDS) - len(found.times)
    if budget_s == 30.0:
        assert all(len(kinds) == len(KINDS) for kinds in shapes.values())


def test_shapes_that_the_runtime_does_not_take_are_left_out():
    task = SearchTask(BOUND_US, 1.0, 4, 2, concurrencies=KINDS, is_possible=lambda shape: shape[0] == 2)
    assert [shape[:2] for shape in task.shapes] == [(2, 1)] * len(KINDS)


def test_configurations_use_all_processors():
    shapes = SearchTask(BOUND_US, 1.0, 4, 6).shapes
    assert [shape[:2] for shape in shapes] == [(1, 6), (2, 3), (4, 1), (6, 1)]
    task = SearchTask(BOUND_US, 1.0, 4, 1)
    setups = task.configurations(task.shapes)
    assert [(one.batch_max, round(1000 * one.wait_s)) for one in setups] == [
        (1, 0), (2, 0), (2, 6), (2, 15), (4, 0), (4, 6), (4, 15),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_signal_ends_the_search_with_what_was_measured():
    """Two shapes and sizes of 1 and 2 take two loads each to time: eight; the runs of the search follow."""
    task = SearchTask(BOUND_US, 60.0, 2, 2)
    whole = VirtualHarness()
    find_optimum(whole, task)
    with pytest.raises(KeyboardInterrupt):
        find_optimum(EndedHarness(1), task)
    timing, searching, drawing = (find_optimum(EndedHarness(n), task) for n in (5, 13, len(whole.policies)))
    assert all(one.is_interrupted for one in (timing, searching, drawing))
    assert [len(batch_rows(one)) for one in (timing, searching, drawing)] == [2, 4, 4]
    assert [len(one.result.trials) for one in (timing, searching)] == [0, 4]
    assert best_document(timing)["best_by"] == {} and best_document(timing)["nearest"] == {}
    assert searching.curve == [] and len(trial_rows(searching)) == 4
    assert len(drawing.curve) == 6 and drawing.result.best


class FailingHarness(VirtualHarness):
    """A sixth of the requests fails in batches of eight, which answer most: 104 of 628, as if their memory ran out."""

    def run(self, shape, source, policy, last_ns):
        record = super().run(shape, source, policy, last_ns)
        if policy.most < 8:
            return record
        fails = record.is_completed & (np.arange(len(record)) % 6 == 0)
        outcomes = np.where(fails, FAILED, record.outcomes)
        return replace(record, outcomes=outcomes, failures={"no memory": int(fails.sum())} if fails.any() else {})


@pytest.mark.slow
def test_a_search_chooses_no_configuration_that_fails():
    found = find_optimum(FailingHarness(), SearchTask(BOUND_US, 60.0, 8, 2))
    text, rows = best_document(found), trial_rows(found)
    assert text["best_by"]["rate"]["batch_max_count"] < 8
    failing = [row for row in rows if row["validity"] == "failing"]
    assert len(failing) == text["failing_trial_count"] > 0 and "no memory" in text["failing_trial_reason"]
    assert {row["batch_max_count"] for row in failing} == {8} and all(row["failed_count"] for row in failing)
    assert not any(row["is_within_bound"] for row in failing)
    best = text["best_by"]["rate"]
    assert 0.98 * best["sustained_requests_per_s"] <= best["goodput_requests_per_s"] <= best["sustained_requests_per_s"]
