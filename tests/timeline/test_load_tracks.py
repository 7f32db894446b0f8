"""A load test as tracks: every slice from rows whose numbers are written out, and whole runs of the simulator."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.virtual_clock import simulate
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.frames import records
from common.load.requests.batching import BatchPolicy
from common.load.requests.schedules import Arrivals, poisson
from common.load.requests.sources import OpenLoop
from common.load.results.load_figures import LoadTest, batch_columns, request_columns
from common.timeline import load_tracks
from common.timeline.load_tracks import few_depths, in_lanes, load_timeline, waiting

MS = 1_000_000
NO_TIMES = dict.fromkeys(("load_batch_index", "batched_us", "started_us", "ended_us", "request_latency_us"))


def request(index, intended_us, batch=None, batched_us=None, started_us=None, ended_us=None, outcome="completed"):
    known = {"load_batch_index": batch, "batched_us": batched_us, "started_us": started_us, "ended_us": ended_us}
    latency_us = ended_us - intended_us if outcome == "completed" else None
    row = {"request_index": index, "outcome": outcome, "intended_us": intended_us, "queue_depth_count": 0}
    return {**row, **known, "request_latency_us": latency_us, "is_warmup_request": False}


def batch(index, worker, size, formation_us, batched_us, started_us, ended_us, assemble_us, session_run_us):
    times = {"batched_us": batched_us, "started_us": started_us, "ended_us": ended_us, "formation_us": formation_us}
    stages = {"assemble_us": assemble_us, "session_run_us": session_run_us}
    unknown = dict.fromkeys(column.name for column in ARTIFACTS["load_batches"].columns)
    return {**unknown, "load_batch_index": index, "worker_index": worker, "request_count": size, **times, **stages}


REQUESTS = [
    request(0, 2.0, 0, 7.0, 7.5, 31.0),
    request(1, 3.0, 0, 7.0, 7.5, 31.0),
    request(2, 11.0, 1, 13.0, 13.5, 60.5, "failed"),
    {**request(3, 17.0, outcome="rejected"), **NO_TIMES},
    request(4, 41.0, 2, 43.0, 43.5, 61.0),
]
BATCHES = [
    batch(0, 1, 2, 5.0, 7.0, 7.5, 31.0, 3.0, 19.0),
    batch(1, 2, 1, 2.0, 13.0, 13.5, 60.5, 0.0, 0.0),
    batch(2, 1, 1, 2.0, 43.0, 43.5, 61.0, 0.0, 17.0),
]


def parts(process):
    return [(part.track, part.name, part.start_us, part.start_us + part.duration_us) for part in process.slices]


def test_every_slice_of_a_run():
    made = load_timeline(REQUESTS, BATCHES, replica_count=2)
    requests, forming, sessions = made.processes
    assert parts(requests) == [
        ("requests 1", "request 0", 2.0, 31.0),
        ("requests 1", "waits", 2.0, 7.5),
        ("requests 1", "request 4", 41.0, 61.0),
        ("requests 1", "waits", 41.0, 43.5),
        ("requests 2", "request 1", 3.0, 31.0),
        ("requests 2", "waits", 3.0, 7.5),
        ("requests 3", "request 2 (failed)", 11.0, 60.5),
        ("requests 3", "waits", 11.0, 13.5),
        ("requests 4", "request 3 (rejected)", 17.0, 17.0),
    ]
    assert parts(forming) == [
        ("for worker 1", "batch 0: 2 requests", 2.0, 7.0),
        ("for worker 1", "batch 2: 1 request", 41.0, 43.0),
        ("for worker 2", "batch 1: 1 request", 11.0, 13.0),
    ]
    assert parts(sessions) == [
        ("session 0, replica 1", "batch 0: 2 requests", 7.5, 31.0),
        ("session 0, replica 1", "assemble", 7.5, 10.5),
        ("session 0, replica 1", "session_run", 10.5, 29.5),
        ("session 0, replica 1", "batch 2: 1 request", 43.5, 61.0),
        ("session 0, replica 1", "session_run", 43.5, 60.5),
        ("session 1, replica 0", "batch 1: 1 request", 13.5, 60.5),
    ]
    assert [(depth.time_us, depth.value) for depth in requests.samples] == [
        *((2.0, 1), (3.0, 2), (7.0, 0), (11.0, 1), (13.0, 0), (41.0, 1), (43.0, 0))
    ]
    assert made.counts == {"load requests": 5, "load batches": 3} and not made.notes


def test_a_batch_that_queued_behind_another_begins_where_that_one_was_formed():
    rows = [batch(0, 0, 1, 1.0, 5.0, 5.0, 20.0, 0, 15.0), batch(1, 0, 1, 18.0, 20.0, 20.0, 33.0, 0, 13.0)]
    served = [request(0, 4.0, 0, 5.0, 5.0, 20.0), request(1, 2.0, 1, 20.0, 20.0, 33.0)]
    _, forming, sessions = load_timeline(served, rows, 1).processes
    assert [part[2:] for part in parts(forming)] == [(4.0, 5.0), (5.0, 20.0)]
    assert {part.track for part in sessions.slices} == {"session 0"}


def tables(record, policy):
    run = LoadTest(record, policy, 1, True)
    return [records(pd.DataFrame(columns)) for columns in (request_columns(record), batch_columns(run))]


def test_as_many_wait_as_the_table_says_when_a_request_comes():
    policy = BatchPolicy(most=4, wait_ns=3 * MS, capacity=7)
    record = simulate(OpenLoop(poisson(400, 2, seed=5)), lambda batch, now_ns: 7 * MS, policy)
    requests, _ = tables(record, policy)
    steps = waiting(requests)
    came_us = [row["intended_us"] for row in requests]
    at = np.searchsorted([step.time_us for step in steps], came_us, side="right") - 1
    assert max(row["queue_depth_count"] for row in requests) > 5
    assert {row["outcome"] for row in requests} == {"completed", "rejected"}
    assert [steps[index].value for index in at] == [row["queue_depth_count"] for row in requests]
    assert steps[-1].value == 0


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 97), st.integers(1, 31)), max_size=60))
def test_lanes_hold_one_request_at_a_time_and_are_as_few_as_can_be(spans):
    rows = [{"intended_us": start, "ended_us": start + length} for start, length in sorted(spans)]
    placed = in_lanes(rows, most=len(rows))
    assert [row for row, _ in placed] == rows
    held = np.zeros((len(rows), 130), int)
    for row, lane in placed:
        held[lane, row["intended_us"] : row["ended_us"]] += 1
    assert held.max(initial=0) <= 1
    assert len({lane for _, lane in placed}) == held.sum(axis=0).max(initial=0)


def test_of_too_many_requests_those_around_the_slowest_remain(monkeypatch):
    monkeypatch.setattr(load_tracks, "MOST_REQUESTS", 20)
    policy = BatchPolicy()
    slow = 101
    record = simulate(
        OpenLoop(Arrivals(np.arange(200) * 10 * MS)),
        lambda batch, now_ns: (9 if batch.index == slow else 3) * MS,
        policy,
    )
    requests, batches = tables(record, policy)
    made = load_timeline(requests, batches, 1)
    shown = [part.name for part in made.processes[0].slices if part.name != "waits"]
    assert shown == [f"request {index}" for index in range(91, 111)]
    assert [part.name for part in made.processes[1].slices] == [f"batch {index}: 1 request" for index in range(91, 111)]
    assert len(made.processes[0].samples) == 200
    (note,) = made.notes
    assert "leaves out 180 of 200 load requests, 180 of 200 load batches" in note
    assert load_timeline(requests, batches, 1, is_bounded=False).counts["load requests"] == 200


def test_requests_beyond_the_most_lanes_are_left_out(monkeypatch):
    monkeypatch.setattr(load_tracks, "MOST_LANES", 3)
    rows = [request(index, float(index), index, 50.0, 50.0 + index, 51.0 + index) for index in range(5)]
    made = load_timeline([*rows, request(5, 99.0, 5, 99.0, 99.0, 101.0)], [], 1)
    assert [part.name for part in made.processes[0].slices if part.name != "waits"] == [
        *("request 0", "request 5", "request 1", "request 2")
    ]
    assert "leaves out 2 of 6 load requests" in made.notes[0]


def test_the_peaks_of_a_long_queue_remain(monkeypatch):
    monkeypatch.setattr(load_tracks, "MOST_DEPTHS", 10)
    depths = waiting([request(index, float(index), 0, 1000.0, 1000.0, 1001.0) for index in range(97)])
    kept = few_depths(depths)
    assert len(kept) == 10 and max(depth.value for depth in kept) == 97
    assert [depth.time_us for depth in kept] == sorted(depth.time_us for depth in kept)


def test_a_run_without_requests_has_no_slices():
    made = load_timeline([], [], 1)
    assert [len(process.slices) for process in made.processes] == [0, 0, 0]
