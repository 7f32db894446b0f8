"""Figures of a load test by the names that other programs know them by.

Triton Inference Server counts requests and cumulative times (its docs/user_guide/metrics.md). It adds each time once
per request, those of a whole batch too (its core, src/infer_stats.cc, ``UpdateSuccessWithDuration``). OpenTelemetry has
names for the process alone: none for requests of a service that is neither HTTP nor RPC, and those for generative
models have left its main conventions (opentelemetry-semantic-conventions 0.66b2).

``python -m common.load.results.standard_names`` prints the table that docs/LOAD.md has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from common.load.requests.load_record import LoadRecord, Outcome

Value = Callable[[LoadRecord], float]
NS_PER_US = 1e3
INPUT_STAGES = ("decode", "resize", "normalize", "assemble", "host_to_device")
ROUND_TRIP = "round_trip"
OUTPUT_STAGES = ("device_to_host", "postprocess")
HANDLES = "process.windows.handle.count" if os.name == "nt" else "process.unix.file_descriptor.count"


class TritonCounter(NamedTuple):
    """One of Triton's counters: its name, what of a load test it is, and its value."""

    name: str
    meaning: str
    value: Value


class ProcessMetric(NamedTuple):
    """One of OpenTelemetry's metrics of a process: its name and unit, and the column that it is."""

    name: str
    unit: str
    column: str


def _count(outcome: Outcome) -> Value:
    return lambda record: record.counts[outcome]


def _waited_us(record: LoadRecord) -> float:
    index = record.batch_indices[record.is_completed]
    return float((record.batches.started_ns[index] - record.intended_ns[record.is_completed]).sum() / NS_PER_US)


def _spent_us(*stages: str) -> Value:
    """Return what sums up some stages over the answered requests: each one waits for its whole batch."""

    def value(record: LoadRecord) -> float:
        index = record.batch_indices[record.is_completed]
        taken = zip(record.stages, record.batches.stages_ns.T, strict=True)
        return sum(float(taken_ns[index].sum()) for name, taken_ns in taken if name in stages) / NS_PER_US

    return value


FAILURES: Mapping[Outcome, str] = {"rejected": "REJECTED", "cancelled": "CANCELED", "failed": "BACKEND"}
TRITON = (
    TritonCounter("nv_inference_request_success", "`completed_count`", _count("completed")),
    *(
        TritonCounter(f'nv_inference_request_failure{{reason="{reason}"}}', f"`{outcome}_count`", _count(outcome))
        for outcome, reason in FAILURES.items()
    ),
    TritonCounter("nv_inference_count", "`completed_count`: a request is one inference", _count("completed")),
    TritonCounter(
        "nv_inference_exec_count",
        "batches that were answered",
        lambda record: len(np.unique(record.batch_indices[record.is_completed])),
    ),
    TritonCounter(
        "nv_inference_request_duration_us",
        "sum of `request_latency_us`, from the intended start",
        lambda record: float(record.latencies_us.sum()),
    ),
    TritonCounter("nv_inference_queue_duration_us", "sum of `started_us` less `intended_us`", _waited_us),
    TritonCounter(
        "nv_inference_compute_input_duration_us",
        f"sum over the requests of {', '.join(f'`{name}_us`' for name in INPUT_STAGES)}",
        _spent_us(*INPUT_STAGES),
    ),
    TritonCounter(
        "nv_inference_compute_infer_duration_us", "sum over the requests of `session_run_us`", _spent_us("session_run")
    ),
    TritonCounter(
        "nv_inference_compute_output_duration_us",
        f"sum over the requests of {' and '.join(f'`{name}_us`' for name in OUTPUT_STAGES)}",
        _spent_us(*OUTPUT_STAGES),
    ),
)
PROCESS = (
    ProcessMetric("process.memory.usage", "By", "resident_bytes"),
    ProcessMetric("process.thread.count", "{thread}", "process_thread_count"),
    ProcessMetric(HANDLES, "{handle}" if os.name == "nt" else "{file_descriptor}", "handle_count"),
)


def standard_metrics(record: LoadRecord, process: Mapping[str, int | None]) -> dict[str, float]:
    """Return the known figures of a load, and of the process at its end, by their standard names."""
    held = {metric.name: value for metric in PROCESS if (value := process.get(metric.column)) is not None}
    is_unknown = ROUND_TRIP in record.stages  # what an endpoint computes
    counters = [counter for counter in TRITON if not (is_unknown and "_compute_" in counter.name)]
    return {**{counter.name: counter.value(record) for counter in counters}, **held}


def markdown() -> str:
    rows = [(entry.name, "Triton", entry.meaning) for entry in TRITON]
    rows += [
        (entry.name, "OpenTelemetry", f"`{entry.column}` at the end of the load, in {entry.unit}") for entry in PROCESS
    ]
    lines = [f"| `{name}` | {convention} | {meaning} |" for name, convention, meaning in rows]
    return "\n".join(["| name | of | what it is here |", "|---|---|---|", *lines]) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
