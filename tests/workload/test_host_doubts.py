"""When the times of a host decide nothing."""

from __future__ import annotations

import pytest

from common.messages.host_doubts import host_doubts, remedy

QUIET = {
    "p50_us": 10_007.0,
    "p50_low_us": 10_003.0,
    "p50_high_us": 10_031.0,
    "p90_us": 11_503.0,
    "jitter_us": 5_003.0,
    "steady_state": "flat",
    "sample_count": 101,
}
NOTES = ["p99 left empty: 101 runs give no upper confidence limit", "nvml: the host was busy"]


def test_an_undisturbed_and_steady_host_leaves_no_doubt():
    assert host_doubts(QUIET, gap_us=211.0, event_count=7, notes=NOTES) == ()
    assert host_doubts(QUIET | {"steady_state": "warm-up"}, 0.0, 7, ()) == ()


def test_a_level_that_changes_without_moving_the_median_leaves_no_doubt():
    assert host_doubts(QUIET | {"steady_state": "no steady state"}, 0.0, 7, ()) == ()


BUSY = "the host was busy: other work took 1.3 of its 2 processors during the runs"
MOVING = {"steady_state": "no steady state", "p50_low_us": 9_001.0}
FEW = {"p50_low_us": None, "p50_high_us": None, "sample_count": 5}


@pytest.mark.parametrize(
    ("changes", "gap_us", "notes", "doubt"),
    [
        ({}, 0.0, [f"{BUSY}; stop it"], BUSY),
        (MOVING, 0.0, (), "no steady state: the interval of the median is 10% wide"),
        ({"p90_us": 11_701.0}, 0.0, (), "one run in ten takes over 17% longer than the median"),
        ({"p50_low_us": 9_029.0}, 0.0, (), "the interval of the median is 10% wide"),
        (FEW, 0.0, (), "5 unprofiled runs give the median no interval"),
        ({}, 3_803.0, (), "the gap between nodes is +38% of the latency, expected -3% to +8%"),
        ({}, -501.0, (), "the gap between nodes is -5% of the latency, expected -3% to +8%"),
    ],
)
def test_each_disturbance_is_a_doubt(changes, gap_us, notes, doubt):
    assert host_doubts(QUIET | changes, gap_us, 7, notes) == (doubt,)


def test_many_tiny_nodes_have_a_real_gap():
    assert host_doubts(QUIET, gap_us=3_803.0, event_count=761, notes=()) == ()  # 5 us for each
    assert len(host_doubts(QUIET, gap_us=3_803.0, event_count=760, notes=())) == 1


def test_an_imported_trace_has_no_median_to_judge_by():
    imported = {**dict.fromkeys(QUIET), "steady_state": "", "sample_count": 0}
    doubts = host_doubts(imported, 0.0, 7, ())
    assert doubts == ("the profile has no unprofiled runs, and only they give the latency",)
    assert remedy(doubts) == "run the model itself by <op_latency> on the host that the plan is for"
    assert remedy(("the host was busy",)) == "rerun <op_latency> on an idle host"
