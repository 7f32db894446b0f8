"""Slow runs of a feed and their culprits, with a recorder whose events are written out."""

from __future__ import annotations

import json

from common.monitor.figures.alarms import AlarmWatch
from common.monitor.history import History
from common.monitor.monitor import LiveSource, Monitor
from common.monitor.slow_runs import KEPT, SlowRuns
from common.monitor.store import Store
from common.os_events.events import OsEvent

MS = 1_000_000


class Written:
    """A recorder of events that are known."""

    def __init__(self):
        self.events, self.drained = [], 0

    def restart(self):
        self.events = []

    def drain_if_due(self):
        self.drained += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.drained = -1


def preempted(time_s, duration_us):
    return OsEvent("preempted", time_s, duration_us, 1, duration_us, 7, True, 1, "compiler", 4321, False)


def runs(source, durations_ms, begin=0):
    """Runs that follow one another, from a time in ms."""
    end = begin
    for duration in durations_ms:
        end += duration
        source.feed.record(end * MS, duration * MS)
    return end


def test_the_culprit_of_a_slow_run_is_named():
    source, recorder = LiveSource("m"), Written()
    slow = SlowRuns(source.feed, recorder)
    runs(source, [10] * 23 + [19] + [10] * 20)
    recorder.events = [preempted(0.233, 8500.0)]
    slow.look()
    (line,) = slow.lines
    assert line == "run 23 (+9 ms): it lost processor 1 for 8.5 ms to compiler (4321)"
    assert recorder.events == []


def test_a_look_is_at_the_runs_since_the_last_one():
    source = LiveSource("m")
    slow = SlowRuns(source.feed, Written())
    end = runs(source, [10] * 30 + [50] + [10] * 30)
    slow.look()
    runs(source, [10] * 17 + [30] + [10] * 17, end)
    slow.look()
    slow.look()
    assert [line.split(":")[0] for line in slow.lines] == ["run 78 (+20 ms)", "run 30 (+40 ms)"]


def test_few_lines_are_kept():
    source = LiveSource("m")
    slow = SlowRuns(source.feed, Written())
    end = 0
    for _ in range(3):
        end = runs(source, ([10] * 20 + [40]) * 5, end)
        slow.look()
    assert len(slow.lines) == KEPT


def test_ticks_have_the_slow_runs(tmp_path):
    store, source = Store(tmp_path / "h"), LiveSource("m")
    slow = SlowRuns(source.feed, Written())
    history = History(store, store.begin("m", 0.0, {}))
    with Monitor(source, history, AlarmWatch([]), dict, lambda rate: {}, slow) as monitor:
        runs(source, [10] * 30 + [50] + [10] * 30)
        assert json.loads(monitor.tick(100, {}))["slow_runs"] == []
        monitor._writer.submit(lambda: None).result()  # after the look
        (line,) = json.loads(monitor.tick(101, {}))["slow_runs"]
    assert line.startswith("run 30 (+40 ms): ")
    store.close()
