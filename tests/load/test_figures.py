"""Tables and figures of simulated runs whose every number is written out."""

import numpy as np
import pytest

from common.latency.statistics import figures
from common.load.arrivals import Arrivals, poisson
from common.load.batching import BatchPolicy
from common.load.figures import LoadRun, batch_columns, request_columns, steady, summary, warmup_count
from common.load.simulated import simulate
from common.load.sources import OpenLoop

MS = 1_000_000


def measured(arrivals, policy, service_ns=lambda batch, now_ns: 10 * MS, flops=None, workers=1):
    return LoadRun(simulate(OpenLoop(arrivals), service_ns, policy, workers=workers), policy, workers, True, flops)


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
    found = summary(LoadRun(record, BatchPolicy(), 1, True), state)
    assert found["warmup_request_count"] == first
    assert found["request_p50_us"] == figures(record.latencies_us[first:])["p50_us"]


def test_an_overload_has_no_percentiles():
    run = measured(poisson(200, 4, seed=1), BatchPolicy())
    found = summary(run, steady(run.record))
    assert found["validity"] == "overload"
    assert [
        name for name, value in found.items() if name.startswith(("request_", "queue_")) and value is not None
    ] == []


def test_counters_by_tritons_names():
    arrivals = Arrivals(np.array([0, 0, 0, 0, 1]) * MS)
    run = measured(arrivals, BatchPolicy(most=2, capacity=4))
    found = summary(run, steady(run.record))["standard_metrics"]
    # Batches 0 to 10, 10 to 20, and a single one from 20 to 30 that came at 1.
    assert found["nv_inference_request_success"] == found["nv_inference_count"] == 5
    assert found["nv_inference_exec_count"] == 3
    assert found["nv_inference_request_duration_us"] == 10_000 * (1 + 1 + 2 + 2) + 29_000
    assert found["nv_inference_queue_duration_us"] == 10_000 * 2 + 19_000
