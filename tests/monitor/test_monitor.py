"""Ticks, the model that runs in its own thread, and the newest samples."""

from __future__ import annotations

import json
import threading
import time

import pytest

from common.messages.errors import PipelineError
from common.monitor import continuous
from common.monitor.continuous import MOST_FAILURES, ContinuousRuns, LiveModel
from common.monitor.figures.alarms import Alarm, AlarmWatch
from common.monitor.figures.figure_names import is_known
from common.monitor.figures.gauges import Conditions, Sensed, derived_figures
from common.monitor.history import History
from common.monitor.monitor import POSTED_S, LiveSource, Monitor, NodeShare, enter
from common.monitor.slow_runs import SlowRuns
from common.monitor.store import Store
from common.sensors.sensor import Sample


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "h")
    yield store
    store.close()


def monitor_of(source, store, alarms=(), sensed=dict):
    history = History(store, store.begin("m", 0.0, {}))
    return Monitor(source, history, AlarmWatch(alarms), sensed, lambda rate: derived_figures(rate, 5.0, Conditions()))


def test_a_tick_holds_what_was_posted(store):
    source = LiveSource("m")
    enter(source, [1000.0] * 60 + [3000.0] * 3, 2, {"queue_depth_count": 4.0})
    failing = Alarm("failing", "failed_run_count", 0.0, None, 0.0, "")
    with monitor_of(source, store, [failing], lambda: {"temperature_c:gpu-0": 61.5}) as monitor:
        tick = json.loads(monitor.tick(1, {"client_count": 3.0}))
    assert (tick["tick"], tick["model"], tick["is_ready"], tick["problem"]) == (1, "m", True, "")
    figures = tick["figures"]
    assert figures["window_p50_us"] == 1000.0
    assert figures["window_max_us"] == 3000.0
    assert figures["window_p99_us"] is None
    assert figures["window_run_count"] == 63
    assert (figures["failed_run_count"], figures["queue_depth_count"], figures["client_count"]) == (2, 4, 3)
    assert figures["temperature_c:gpu-0"] == 61.5
    assert figures["energy_per_run_j"] == pytest.approx(5.0 / figures["throughput_runs_per_s"], rel=1e-4)
    assert sum(count for _, count in tick["cells"]) == 63
    assert tick["alarms"] == ["failing"]
    assert all(is_known(name) for name in figures)


def test_what_is_posted_stands_where_nothing_is_known_here(store):
    source = LiveSource("m")
    enter(source, [1000.0] * 60, 0, {"flop_per_s": 7e9, "total_power_w": 3.0})
    with monitor_of(source, store) as monitor:
        figures = json.loads(monitor.tick(1, {}))["figures"]
    assert figures["flop_per_s"] == 7e9
    assert figures["total_power_w"] == 5.0  # known here
    assert figures["peak_share"] is None


def test_each_second_is_entered_and_the_rest_at_the_end(store):
    source = LiveSource("m")
    with monitor_of(source, store) as monitor:
        for number in range(1, 11):
            enter(source, [1000.0] * 3, 0, {})
            monitor.tick(number, {})
        enter(source, [2000.0] * 7, 0, {})
    assert store.runs()[0]["run_count"] == 37


def test_a_database_that_fails_is_told_and_the_ticks_go_on(store):
    source = LiveSource("m")
    with monitor_of(source, store) as monitor:
        store.close()
        monitor.tick(10, {})
        monitor._written.exception()  # waits for the writer
        assert "cannot be used as the history" in json.loads(monitor.tick(20, {}))["problem"]


def test_a_model_that_cannot_be_loaded_ends_the_dashboard(store):
    def prepare(_):
        raise PipelineError("model.onnx", "is broken")

    source = LiveSource("m")
    runs = ContinuousRuns(source, prepare, SlowRuns(source.feed))
    with monitor_of(source, store) as monitor, runs:
        runs.begin()
        runs._thread.join()
        with pytest.raises(PipelineError, match="is broken"):
            monitor.tick(1, {})


def test_runs_are_entered_until_the_block_ends():
    source, twelve = LiveSource("m"), threading.Event()

    def run():
        if source.feed.count >= 12:
            twelve.set()

    with ContinuousRuns(source, lambda _: LiveModel(run), SlowRuns(source.feed)) as runs:
        runs.begin()
        assert twelve.wait(60)
    assert not runs._thread.is_alive()
    assert source.feed.count >= 12
    assert (source.is_ready, source.error, source.failed_run_count) == (True, None, 0)


def test_a_run_that_hangs_is_given_up_at_the_end():
    source, began, given_up = LiveSource("m"), threading.Event(), threading.Event()

    def run():
        began.set()
        given_up.wait(60)
        raise PipelineError("model", "was stopped")

    def prepare(runs):
        runs.stop_by(given_up.set)
        return LiveModel(run)

    with ContinuousRuns(source, prepare, SlowRuns(source.feed)) as runs:
        runs.begin()
        assert began.wait(60)
    assert not runs._thread.is_alive()
    assert (source.failed_run_count, source.problem) == (0, "")


def test_a_first_run_that_hangs_is_given_up_although_the_model_is_not_loaded_yet(monkeypatch):
    monkeypatch.setattr(continuous, "END_S", 60.0)
    source, began, stopped = LiveSource("m"), threading.Event(), []

    def prepare(runs):
        runs.stop_by(lambda: stopped.append(runs.are_over))
        began.set()
        while len(stopped) < 3:  # a run that begins after a try to stop it goes on until the next one
            time.sleep(0.001)
        raise PipelineError("model", "was stopped")

    with ContinuousRuns(source, prepare, SlowRuns(source.feed)) as runs:
        runs.begin()
        assert began.wait(60)
    assert not runs._thread.is_alive()
    assert set(stopped) == {True}
    assert (source.is_ready, source.problem) == (False, "")


def test_a_thread_that_nothing_ends_is_left_alone(monkeypatch):
    monkeypatch.setattr(continuous, "END_S", 0.05)
    left, began, end = [], threading.Event(), threading.Event()
    monkeypatch.setattr(continuous.interrupts, "leave_alone", left.append)
    source = LiveSource("m")

    def run():
        began.set()
        end.wait(60)

    with ContinuousRuns(source, lambda _: LiveModel(run), SlowRuns(source.feed)) as runs:
        runs.begin()
        assert began.wait(60)
    assert left == [runs._thread]
    end.set()
    runs._thread.join()


def test_a_run_that_fails_now_and_then_is_counted():
    source, calls, enough = LiveSource("m"), [], threading.Event()

    def run():
        calls.append(len(calls))
        if len(calls) >= 100:
            enough.set()
        if calls[-1] % 3 == 1:
            raise PipelineError("model", "fails")

    with ContinuousRuns(source, lambda _: LiveModel(run), SlowRuns(source.feed)) as runs:
        runs.begin()
        assert enough.wait(60)
    assert source.problem == ""
    failed = sum(call % 3 == 1 for call in calls)
    assert failed - source.failed_run_count in (0, 1)  # one that fails after the end counts for nothing
    assert source.feed.count == len(calls) - failed


def test_runs_that_fail_in_a_row_end_with_a_problem(store):
    def run():
        raise PipelineError("model", "is out of memory")

    source = LiveSource("m")
    runs = ContinuousRuns(source, lambda _: LiveModel(run), SlowRuns(source.feed))
    with runs, monitor_of(source, store) as monitor:
        runs.begin()
        runs._thread.join()
        assert json.loads(monitor.tick(1, {}))["problem"] == "model: is out of memory"
    assert source.failed_run_count == MOST_FAILURES


def test_runs_that_never_begin_end_at_once():
    source = LiveSource("m")
    with ContinuousRuns(source, lambda _: LiveModel(dict), SlowRuns(source.feed)):
        pass
    assert source.feed.count == 0


def test_what_the_nodes_of_the_model_take_is_known_before_its_first_run():
    source, seen, began = LiveSource("m"), [], threading.Event()
    nodes = [NodeShare("conv", "Conv", 0.75), NodeShare("add", "Add", 0.25)]

    def run():
        seen.append(source.nodes)
        began.set()

    with ContinuousRuns(source, lambda _: LiveModel(run, nodes), SlowRuns(source.feed)) as runs:
        runs.begin()
        assert began.wait(60)
    assert seen[0] == nodes


def test_a_posted_gauge_holds_until_its_sender_falls_silent(store):
    source = LiveSource("m")
    with monitor_of(source, store) as monitor:
        enter(source, [], 0, {"queue_depth_count": 4.0, "batch_size_count": 2.0})
        enter(source, [], 0, {"queue_depth_count": 5.0})
        figures = json.loads(monitor.tick(1, {}))["figures"]
        assert (figures["queue_depth_count"], figures["batch_size_count"]) == (5, 2)
        source.gauges_s -= POSTED_S
        assert "queue_depth_count" not in json.loads(monitor.tick(2, {}))["figures"]
        enter(source, [], 0, {"batch_size_count": 3.0})
        assert source.gauges == {"batch_size_count": 3.0}


def test_the_newest_sample_of_each_place():
    sensed = Sensed()
    sensed.extend(
        [Sample(1.0, "rapl", "package-0", "power_w", 5.0), Sample(1.0, "nvml", "gpu-0", "temperature_c", 50.0)]
    )
    sensed.extend([Sample(2.0, "rapl", "package-0", "power_w", 7.0)])
    assert sensed.figures() == {"power_w:package-0": 7.0, "temperature_c:gpu-0": 50.0}
    assert [sample.value for sample in sensed.power()] == [5.0, 7.0]
