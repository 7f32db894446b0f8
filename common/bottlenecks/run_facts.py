"""Figures of the runs as a whole: clocks, throttling, page faults, slow runs, levels of the latency, and an NPU's.

The times of an NPU's emulator are left out: no finding follows from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median

from common.bottlenecks.executed_nodes import CPU
from common.bottlenecks.rules import Facts
from common.graphs.grouping import grouped
from common.graphs.sums import ratio
from common.table_rows import (
    HostSamplesRow,
    LatencySummaryDocument,
    NpuNodesRow,
    NpuRunsRow,
    OsEventsRow,
    RunDisturbancesRow,
    RunLatencyRow,
    Tables,
)

Figures = dict[str, float | str]
GPU_CLOCK = "sm_clock_mhz"
CLOCKS = ("cpu_frequency_mhz", GPU_CLOCK)
THROTTLED = "is_throttled_by_"
CONTRACTIONS = ("Conv2d", "Conv3d", "DepthWiseConv2d", "FullyConnected", "MatMul", "TransposeConv2d")


def run_facts(tables: Tables, summary: LatencySummaryDocument | None, processor_count: int | None) -> Facts:
    """Return the figures of the runs; ``processor_count`` is that of the host's logical processors."""
    runs, samples = tables.get("run_latency", []), tables.get("host_samples", [])
    gpu = next((row["sensor_domain"] for row in samples if row["quantity"] == GPU_CLOCK), None)
    is_on_processor = summary is not None and summary["provider"] == CPU
    return {
        "latency_summary": {**summary, **_session(summary, processor_count)} if summary else {},
        "run_latency": _early(summary, runs) if summary else {},
        "host_samples": {**_clocks(samples), **({"unused_gpu": gpu} if gpu is not None and is_on_processor else {})},
        "os_events": _faults(runs, tables.get("os_events", ())),
        "run_disturbances": _slow_runs(runs, tables.get("run_disturbances", ())),
    }


def _session(summary: LatencySummaryDocument, processor_count: int | None) -> dict[str, object]:
    """Return what the first run took longer than the median, and how many threads share a processor."""
    first_us, p50_us = summary["first_run_us"], summary["p50_us"]
    facts: dict[str, object] = {}
    if first_us and p50_us:
        facts |= {"first_run_excess_us": first_us - p50_us, "first_run_share": p50_us / first_us}
    if processor_count:
        facts |= {
            "processor_count": processor_count,
            "threads_per_processor_share": summary["threads"] / processor_count,
        }
    return facts


def _early(summary: LatencySummaryDocument, runs: Iterable[RunLatencyRow]) -> Figures:
    """Return the faster level before a slowdown, and its share of the median."""
    start, p50_us = summary["steady_start_index"], summary["p50_us"]
    if summary["steady_state"] != "slowdown" or not start or not p50_us:
        return {}
    faster = [
        row["latency_us"]
        for row in runs
        if not row["is_profiled"] and row["run_index"] < start and row["latency_us"] < p50_us
    ]
    return {"early_median_us": median(faster), "early_share": median(faster) / p50_us} if faster else {}


def _clocks(samples: Sequence[HostSamplesRow]) -> Figures:
    """Return the clock during the runs over the highest one that was seen, and how often clocks were throttled."""
    seen = grouped((row["quantity"], row["value"]) for row in samples)
    during = grouped((row["quantity"], row["value"]) for row in samples if row["phase"] == "run")
    shares = {
        name: fmean(during[name]) / max(values)
        for name, values in seen.items()
        if name in CLOCKS and max(during.get(name, ()), default=0) > 0
    }
    throttled = {name: fmean(during[name]) for name in seen if name.startswith(THROTTLED) and name in during}
    facts: Figures = {}
    if shares:
        facts |= {"clock_share": min(shares.values()), "clock": min(shares, key=lambda name: shares[name])}
    if throttled:
        worst = max(throttled, key=lambda name: throttled[name])
        facts |= {"throttled_share": throttled[worst], "throttled_by": worst.removeprefix(THROTTLED)}
    return facts


def _faults(runs: Sequence[RunLatencyRow], events: Iterable[OsEventsRow]) -> Figures:
    """Return the page faults per run after the warm-up, counted in the sampling periods that began after it."""
    measured = [row for row in runs if not row["is_warmup"]]
    if not measured:
        return {}
    begin_us = min(row["start_us"] for row in measured)
    facts: Figures = {}
    for kind in ("minor_fault", "major_fault"):
        periods = [row for row in events if row["event_kind"] == kind and row["time_us"] >= begin_us]
        spans_us = [(period["time_us"], period["time_us"] + period["duration_us"]) for period in periods]
        counted = [row for row in measured if any(begin <= row["start_us"] < end for begin, end in spans_us)]
        if counted:
            facts[f"{kind}s_per_run_count"] = sum(row["event_count"] or 0 for row in periods) / len(counted)
    return facts


def _slow_runs(runs: Iterable[RunLatencyRow], disturbances: Iterable[RunDisturbancesRow]) -> Figures:
    """Return for each cause how many runs it made slow, and what it took of a run on average."""
    count = sum(not row["is_warmup"] for row in runs)
    slow = grouped(
        (row["disturbance_cause"], row["excess_us"] * (row["explained_share"] or 0.0)) for row in disturbances
    )
    facts: Figures = {}
    for cause, excess in slow.items() if count else ():
        facts |= {f"{cause}_run_count": len(excess), f"{cause}_excess_us": sum(excess) / count}
    return facts


def npu_node_facts(nodes: Sequence[NpuNodesRow]) -> list[dict[str, object]]:
    halves = [[row["dram_read_bytes"], row["dram_write_bytes"]] for row in nodes]
    moved = [None if pair == [None, None] else sum(size or 0 for size in pair) for pair in halves]
    total = sum(size or 0 for size in moved)
    return [
        {**row, **_op_shares([row]), "dram_bytes": size, "dram_bytes_share": ratio(size, total)}
        for row, size in zip(nodes, moved, strict=True)
    ]


def npu_run_facts(runs: Sequence[NpuRunsRow], nodes: Sequence[NpuNodesRow], summary: Mapping[str, object]) -> Facts:
    """Return the figures of the runs: waits with their least and most, operators by unit, and npu_summary's."""
    op_types = [row["qnn_op_type"] for row in nodes]
    contractions = sum(op_type in CONTRACTIONS for op_type in op_types) if any(op_types) else None
    resources = summary.get("resource_utilization")
    return {
        "npu_runs": _waits([row for row in runs if not row["is_emulated"]]),
        "npu_nodes": {**_op_shares(nodes), "contraction_count": contractions},
        "npu_summary": resources if isinstance(resources, dict) else {},
    }


def _waits(runs: Sequence[NpuRunsRow]) -> dict[str, object]:
    """Return what a run waits for, its median and ends; the first run of a session powers the processor up."""
    later = [row for before, row in pairwise(runs) if row["session_index"] == before["session_index"]]
    counted = later or runs
    waits: dict[str, list[float | None]] = {
        "vtcm_acquire": [row["vtcm_acquire_us"] for row in counted],
        "accelerator_wait": [_difference(row["accelerator_us"], row["accelerator_busy_us"]) for row in counted],
        "rpc": [_difference(row["rpc_execute_us"], row["qnn_accelerator_us"]) for row in counted],
    }
    wholes = [row["qnn_execute_us"] for row in counted if row["qnn_execute_us"]]
    facts: dict[str, object] = {"qnn_execute_us": median(wholes)} if wholes else {}
    for name, waited in waits.items():
        if values := [value for value in waited if value is not None]:
            facts |= {f"{name}_us": median(values), f"{name}_low_us": min(values), f"{name}_high_us": max(values)}
            facts[f"{name}_share"] = median(values) / median(wholes) if wholes else None
    return facts


def _op_shares(nodes: Sequence[NpuNodesRow]) -> dict[str, float | None]:
    total = sum(row["htp_op_count"] or 0 for row in nodes)
    counts = {
        "hvx": sum(row["hvx_op_count"] or 0 for row in nodes),
        "hmx": sum(row["hmx_op_count"] or 0 for row in nodes),
        "dma": sum(row["dma_op_count"] or 0 for row in nodes),
    }
    return {f"{unit}_op_share": ratio(count, total) for unit, count in counts.items()}


def _difference(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part
