"""Figures of a run by the names of Triton and OpenTelemetry, against sums that are written out."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.load.virtual_clock import simulate
from common.load.requests.batching import BatchPolicy
from common.load.requests.schedules import Arrivals
from common.load.requests.sources import OpenLoop
from common.load.results.standard_names import INPUT_STAGES, OUTPUT_STAGES, PROCESS, TRITON, markdown, standard_metrics

MS = 1_000_000
STAGES = (*INPUT_STAGES, "session_run", *OUTPUT_STAGES)


def record_of(policy):
    arrivals = Arrivals(np.array([0, 0, 0, 0, 1]) * MS)
    return simulate(OpenLoop(arrivals), lambda batch, now_ns: 10 * MS, policy)


def test_counts_and_times_of_tritons_counters():
    # Batches 0 to 10 and 10 to 20 of two requests, and a single one from 20 to 30 that came at 1.
    record = record_of(BatchPolicy(most=2))
    stages_ns = np.array([[1, 2, 3, 4, 5, 6, 7, 8], [10, 20, 30, 40, 50, 60, 70, 80], [100] * 8]) * 1000
    record = replace(record, stages=STAGES, batches=replace(record.batches, stages_ns=stages_ns))
    found = standard_metrics(record, {})
    assert found["nv_inference_request_success"] == found["nv_inference_count"] == 5
    assert found["nv_inference_exec_count"] == 3
    assert found["nv_inference_request_duration_us"] == 10_000 * (1 + 1 + 2 + 2) + 29_000
    assert found["nv_inference_queue_duration_us"] == 10_000 * 2 + 19_000
    assert found["nv_inference_compute_input_duration_us"] == 2 * 15 + 2 * 150 + 500
    assert found["nv_inference_compute_infer_duration_us"] == 2 * 6 + 2 * 60 + 100
    assert found["nv_inference_compute_output_duration_us"] == 2 * 15 + 2 * 150 + 200
    assert len(found) == len(TRITON)


def test_requests_without_an_answer_count_by_reason_and_have_no_times():
    record = record_of(BatchPolicy(capacity=1))
    found = standard_metrics(record, {})
    failures = {name: value for name, value in found.items() if "failure" in name}
    assert failures == {
        'nv_inference_request_failure{reason="REJECTED"}': 3,
        'nv_inference_request_failure{reason="CANCELED"}': 0,
        'nv_inference_request_failure{reason="BACKEND"}': 0,
    }
    assert found["nv_inference_request_success"] + sum(failures.values()) == len(record)
    assert found["nv_inference_request_duration_us"] == 10_000 + 19_000
    assert found["nv_inference_compute_infer_duration_us"] == 0


def test_what_the_process_holds_has_opentelemetrys_names():
    held = {"resident_bytes": 11, "process_thread_count": 13, "handle_count": None}
    found = standard_metrics(record_of(BatchPolicy()), held)
    assert (found["process.memory.usage"], found["process.thread.count"]) == (11, 13)
    assert PROCESS[2].name not in found


def test_the_documentation_has_every_name():
    """After a change: paste what `python -m common.load.results.standard_names` prints."""
    assert markdown() in (Path(__file__).parents[3] / "docs/LOAD.md").read_text(encoding="utf-8")
