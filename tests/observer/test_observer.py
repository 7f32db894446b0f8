"""The observer on a host without sensors: disturbances of plain runs, draining of events, empty tables."""

import pytest

from common.latency.run import NodeSpan, Run
from common.measurements.observer import Observer
from common.messages.errors import UnusableValueError
from common.os_events.events import OsEvent
from tests.support.profiles.run_series import series_of


@pytest.fixture
def observer(monkeypatch):
    monkeypatch.setattr("common.measurements.observer.available_sensors", lambda root: ([], ["power: no sensor here"]))
    return Observer(None, 10.0)


@pytest.mark.parametrize("rate_hz", [0.07, 1009.0, float("nan")])
def test_a_rate_out_of_range_is_a_value_that_cannot_be_used(rate_hz):
    with pytest.raises(UnusableValueError, match=f"<sensor_rate_hz>: {rate_hz:g} is not from 0.1 to 1000"):
        Observer(None, rate_hz)


def test_a_slow_run_is_given_with_its_event_and_its_node(observer, monkeypatch):
    competitor = {"other_process": "spin", "other_process_id": 50, "is_own_thread": False}
    taken = OsEvent("preempted", 5.0007, 2900.0, 1, 2900.0, thread_id=7, processor_index=1, **competitor)
    monkeypatch.setattr(type(observer.events), "events", [taken])
    quiet = [Run(True, index, float(index), latency) for index, latency in enumerate((1000, 1010, 990, 1000, 1005))]
    slow = Run(True, 5, 5.0, 4000, [NodeSpan("conv", 5e6, 5e6 + 4000)])
    rows, lines = observer.disturbances(series_of([*quiet, slow]))
    assert [(row["run_index"], row["hit_node"], row["other_process"]) for row in rows] == [(5, "conv", "spin")]
    assert lines == ["profiled run 5 (+3 ms): conv lost processor 1 for 2.9 ms to spin (50)"]


def test_pending_events_are_drained_on_request_only(observer, monkeypatch):
    drained = []
    monkeypatch.setattr(observer.events, "drain_if_due", lambda: drained.append("drained"))
    with observer.recording(0.0), observer:
        assert drained == []
        observer.events.drain_if_due()
        assert drained == ["drained"]
    assert drained == ["drained"]


def test_the_tables_of_a_host_without_sensors_are_empty_and_a_note_says_so(observer):
    with observer.recording(3600.0), observer:  # without a power sensor the idle host is not waited for
        pass
    tables = {name: list(rows) for name, rows, _ in observer.tables(0.0)}
    assert (tables["power_samples"], tables["host_samples"]) == ([], [])
    assert "power: no sensor here" in observer.notes
