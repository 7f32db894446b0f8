"""Alarms: their thresholds, how long they must be exceeded, and their file."""

from __future__ import annotations

import pytest

from common.messages.errors import ConfigurationError
from common.monitor.figures.alarms import Alarm, AlarmWatch, read_alarms
from tests.support.paths import ROOT

SLOW = Alarm("slow", "window_p99_us", 100.0, None, 3.0, "too slow")


def states(alarm, values, period_s=1.0):
    watch = AlarmWatch([alarm])
    return [bool(watch.active(place * period_s, {alarm.figure: value})) for place, value in enumerate(values)]


def test_an_alarm_is_active_when_its_time_has_passed():
    assert states(SLOW, [99, 101, 101, 101, 101, 101]) == [False, False, False, False, True, True]


def test_a_moment_of_relief_starts_it_anew():
    assert states(SLOW, [101, 101, 101, 100, 101, 101, 101, 101]) == [False] * 7 + [True]


def test_an_unknown_figure_ends_it():
    assert states(SLOW, [101, 101, 101, 101, None, 101]) == [False, False, False, True, False, False]


def test_below():
    stalled = Alarm("stalled", "throughput_runs_per_s", None, 2.0, 0.0, "")
    assert states(stalled, [3, 2, 1.9]) == [False, False, True]


def test_the_worst_place_counts():
    watch = AlarmWatch([Alarm("hot", "temperature_c", 80.0, None, 0.0, "")])
    assert watch.active(0.0, {"temperature_c:gpu-0": 60.0, "temperature_c:gpu-1": 81.0}) == ["hot"]
    assert watch.active(1.0, {"temperature_c:gpu-0": 60.0, "sm_clock_mhz:gpu-0": 1400.0}) == []


def test_one_place_can_be_named():
    watch = AlarmWatch([Alarm("hot", "temperature_c:gpu-1", 80.0, None, 0.0, "")])
    assert watch.active(0.0, {"temperature_c:gpu-0": 90.0, "temperature_c:gpu-1": 70.0}) == []


def test_the_thresholds_of_the_project_can_be_read():
    alarms = read_alarms(ROOT / "configs" / "dashboard.yaml")
    assert {alarm.name for alarm in alarms} >= {"slow", "stalled", "hot", "throttled", "queue"}
    assert all(alarm.meaning.endswith(".") for alarm in alarms)


ENTRY = "alarms: {a: {figure: window_p99_us, above: 5, for_s: 1, meaning: m., trust: assumed, source: s}}"


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("window_p99_us", "window_p98_us", "which no tick has"),
        ("above: 5, ", "", "needs either above or below"),
        ("above: 5", "above: 5, below: 3", "needs either above or below"),
        ("above: 5", "above: high", "is not a finite number"),
        ("for_s: 1, ", "", "for_s is missing"),
        ("source: s", "source: s, colour: red", "unknown key"),
        ("trust: assumed", "trust: me", "it takes"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, before, after, problem):
    path = tmp_path / "alarms.yaml"
    path.write_text(ENTRY)
    assert [alarm.above for alarm in read_alarms(path)] == [5.0]
    path.write_text(ENTRY.replace(before, after))
    with pytest.raises(ConfigurationError, match=problem) as caught:
        read_alarms(path)
    assert str(caught.value).startswith(str(path))
