"""Tables and figures of simulated runs whose every number is written out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.virtual_clock import simulate
from common.latency.statistics import figures
from common.load.requests.batching import BatchPolicy
from common.load.requests.schedules import Arrivals, poisson
from common.load.requests.sources import OpenLoop
from common.load.results.load_figures import (
    LoadTest,
    batch_columns,
    latency_shares,
    overlap_share,
    request_columns,
    steady,
    summary,
    warmup_count,
)

MS = 1_000_000


def measured(arrivals, policy, service_ns=lambda batch, now_ns: 10 * MS, flops=None, workers=1):
    return LoadTest(simulate(OpenLoop(arrivals), service_ns, policy, workers=workers), policy, workers, True, flops)


def test_times_of_requests_and_batches():
    run = measured(Arrivals(np.array([0, 1, 2, 13]) * MS), BatchPolicy(most=2, wait_ns=4 * MS, capacity=2))
    requests, batches = request_columns(run.record), batch_columns(run)
    assert requests["outcome"].tolist() == ["completed"] * 4
    assert requests["load_batch_index"] == [0, 0, 1, 2]
    assert requests["batched_us"].tolist() == [1000, 1000, 11_000, 21_000]
    assert requests["request_latency_us"].tolist() == [11_000, 10_000, 19_000, 18_000]
    assert requests["queue_depth_count"].tolist() == [1, 0, 1, 1]
    assert batches["request_count"].tolist() == [2, 1, 1]
    assert batches["formation_us"].tolist() == [1000, 9000, 8000]
    assert batches["generator_late_us"].tolist() == [0, 0, 0]


def test_a_request_without_a_batch_has_no_times():
    run = measured(Arrivals(np.array([0, 1, 2]) * MS), BatchPolicy(capacity=1))
    columns = request_columns(run.record)
    assert columns["outcome"].tolist() == ["completed", "completed", "rejected"]
    assert columns["load_batch_index"] == [0, 1, None]
    assert np.isnan(columns["started_us"][2]) and np.isnan(columns["request_latency_us"][2])


def test_padding_in_tokens_and_in_flops():
    arrivals = Arrivals(np.zeros(3, np.int64), np.array([10, 30, 40]))
    policy = BatchPolicy(most=4, buckets=(64,), pads_size=True)
    # A made-up model: 5 FLOPs per token and 1 per pair of tokens; nothing constant.
    run = measured(arrivals, policy, flops=lambda size, length: size * (5 * length + length**2))
    batch = batch_columns(run)
    assert batch["padded_request_count"].tolist() == [4]
    assert batch["padding_share"][0] == pytest.approx(1 - 80 / 256)
    asked = 5 * 80 + 10**2 + 30**2 + 40**2
    assert batch["padding_flops_share"][0] == pytest.approx(1 - asked / (4 * (5 * 64 + 64**2)))
    figures_of_run = summary(run, steady(run.record))
    assert figures_of_run["padding_share"] == pytest.approx(1 - 80 / 256)


def test_the_warm_up_is_found_in_the_service_and_not_in_the_queue():
    arrivals = poisson(500, 4, seed=3)
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: (3 if now_ns < 400 * MS else 1) * MS, BatchPolicy())
    state = steady(record)
    assert state.kind == "warm-up"
    first = warmup_count(record, state)
    assert arrivals.intended_ns[first] >= 400 * MS > arrivals.intended_ns[first - 40]
    steady_queue = simulate(OpenLoop(poisson(900, 4, seed=3)), lambda batch, now_ns: MS, BatchPolicy())
    assert steady(steady_queue).start_index == 0
    found = summary(LoadTest(record, BatchPolicy(), 1, True), state)
    assert found["warmup_request_count"] == first
    assert found["request_p50_us"] == figures(record.latencies_us[first:])["p50_us"]


def test_an_overload_has_no_percentiles():
    run = measured(poisson(200, 4, seed=1), BatchPolicy())
    found = summary(run, steady(run.record))
    assert found["validity"] == "overload"
    assert [
        name for name, value in found.items() if name.startswith(("request_", "queue_")) and value is not None
    ] == []


def staged(record, stages, rows_ns):
    """The record of a service whose calls had these stages."""
    return replace(record, stages=stages, batches=replace(record.batches, stages_ns=np.array(rows_ns, np.int64)))


def test_each_part_of_the_latency_of_a_request():
    record = simulate(OpenLoop(Arrivals(np.array([0, 1, 2, 13]) * MS)), lambda batch, now_ns: 10 * MS, BatchPolicy(2))
    rows_ns = [[2 * MS, MS, 6 * MS], [3 * MS, MS, 5 * MS], [4 * MS, 0, 6 * MS]]
    record = staged(record, ("decode", "assemble", "session_run"), rows_ns)
    # Batches: request 0 from 0 to 10, requests 1 and 2 from 10 to 20, request 3 from 20 to 30.
    columns = request_columns(record)
    assert columns["decode_us"].tolist() == [2000, 3000, 3000, 4000]
    assert columns["session_run_us"].tolist() == [6000, 5000, 5000, 6000]
    assert np.isnan(columns["resize_us"]).all() and np.isnan(columns["postprocess_us"]).all()
    whole = 10 + 19 + 18 + 17
    shares = latency_shares(record)
    assert shares == pytest.approx(
        {
            "queue": (0 + 9 + 8 + 7) / whole,
            "dispatch": 0.0,
            "decode": (2 + 3 + 3 + 4) / whole,
            "assemble": (1 + 1 + 1 + 0) / whole,
            "session_run": (6 + 5 + 5 + 6) / whole,
            "rest": (1 + 1 + 1 + 0) / whole,
        }
    )
    assert sum(shares.values()) == pytest.approx(1)
    assert latency_shares(record, first=3)["decode"] == pytest.approx(4 / 17)
    assert latency_shares(record, first=4) == {}


def test_stages_of_a_request_without_an_answer_are_unknown():
    policy = BatchPolicy(capacity=1)
    record = simulate(OpenLoop(Arrivals(np.array([0, 1, 2]) * MS)), lambda batch, now_ns: 10 * MS, policy)
    columns = request_columns(staged(record, ("assemble", "session_run"), [[MS, 8 * MS]] * 2))
    assert columns["assemble_us"][:2].tolist() == [1000, 1000] and np.isnan(columns["assemble_us"][2])


@pytest.mark.slow
@given(st.data())
def test_the_overlap_of_copies_with_runs_of_other_workers(data):
    """Against a count of every nanosecond; a worker's stages follow one another."""
    copies, workers = ("host_to_device", "device_to_host"), data.draw(st.integers(1, 4))
    spans, rows_ns, starts = {name: [] for name in (*copies, "session_run")}, [], []
    for _ in range(workers):
        now = data.draw(st.integers(0, 17))
        for _ in range(data.draw(st.integers(1, 4))):
            row = data.draw(st.tuples(*[st.integers(0, 13)] * 3))
            starts.append(now)
            rows_ns.append(row)
            for name, taken in zip((copies[0], "session_run", copies[1]), row, strict=True):
                spans[name].append(range(now, now + taken))
                now += taken
            now += data.draw(st.integers(0, 5))
    count = len(starts)
    record = simulate(OpenLoop(Arrivals(np.arange(count) * MS)), lambda batch, now_ns: 100, BatchPolicy())
    batches = replace(record.batches, started_ns=np.array(starts, np.int64))
    record = staged(replace(record, batches=batches), (copies[0], "session_run", copies[1]), rows_ns)
    running = set().union(*spans["session_run"])
    copied = [moment for name in copies for span in spans[name] for moment in span]
    found = overlap_share(record, copies, "session_run")
    if not copied:
        assert found is None
    else:
        assert found == pytest.approx(sum(moment in running for moment in copied) / len(copied))
        assert workers > 1 or found == 0


def test_a_service_in_host_memory_says_that_it_copies_nothing():
    run = measured(Arrivals(np.array([0, 1]) * MS), BatchPolicy())
    found = summary(run, steady(run.record))
    assert found["copy_overlap_share"] is None
    assert found["device_copies_unavailable"].startswith("the provider computes in host memory")
    copied = replace(run, record=staged(run.record, ("host_to_device", "session_run"), [[MS, 3 * MS]] * 2))
    found = summary(copied, steady(copied.record))
    assert (found["copy_overlap_share"], found["device_copies_unavailable"]) == (0.0, None)
