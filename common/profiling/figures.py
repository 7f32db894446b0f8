"""Figures of a measurement by their column names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from common.graphs.graph import Graph
from common.latency.sessions import with_sessions
from common.latency.statistics import counts_for_limits, figures, with_quarters
from common.messages.host_doubts import NO_STEADY_STATE
from common.profiling.correction import NodeLatency
from common.profiling.runs.measurement import Measurement
from common.profiling.trace.utilization import node_utilization, peak_resident_bytes, run_utilization
from common.table_rows import LatencySummaryDocument, OpLatencyRow


def node_rows(latencies: Iterable[NodeLatency], graph: Graph, warmup: int) -> list[OpLatencyRow]:
    """Return a row of op_latency per executed node; ``warmup`` runs at the start of the trace are in no statistic."""
    rows = [_node_figures(latency, graph.by_name[latency.node.name].domain, warmup) for latency in latencies]
    return cast("list[OpLatencyRow]", rows)  # their statistics have names that are put together


def _node_figures(latency: NodeLatency, domain: str, warmup: int) -> dict[str, Any]:
    node, correction = latency.node, latency.correction
    return {
        "executed_node": node.name,
        "op_type": node.op_type,
        "domain": domain,
        "provider": node.provider,
        "execution_index": node.execution_index,
        "input_count": latency.input_count,
        "uses_thread_pool": node.uses_thread_pool,
        "input_shapes": node.input_shapes,
        "output_shapes": node.output_shapes,
        "output_dtypes": node.output_dtypes,
        "shape_variants": node.shapes.rows(),
        "sample_count": latency.sample_count,
        "events_per_run_count": latency.events_per_run,
        **node_utilization(node, warmup),
        **latency.statistics,
        "correction_us": correction.median_us if correction else None,
        "correction_low_us": correction.low_us if correction else None,
        "correction_high_us": correction.high_us if correction else None,
        "is_correction_dominated": latency.is_correction_dominated,
        "raw_total_us": latency.raw_total_us,
    }


def latency_figures(measurement: Measurement, latencies: Sequence[NodeLatency]) -> LatencySummaryDocument:
    """Return the fields of latency_summary: unprofiled runs, cost of profiling, threads and memory."""
    plain, steady, settings = measurement.plain, measurement.steady, measurement.settings
    of_runs = _run_figures(measurement)
    profiled_us, median_us = float(np.median(measurement.profiled.counted_us)), of_runs["p50_us"]
    figures_by_name = {
        "provider": settings.provider,
        "graph_optimization": settings.optimization,
        "threads": settings.threads,
        "sample_count": sum(map(len, measurement.sessions_us)) if measurement.more else plain.sample_count,
        "profiled_sample_count": measurement.profiled.sample_count,
        "warmup_count": plain.warmup_count,
        "steady_state": steady.kind,
        "steady_start_index": steady.start_index,
        **measurement.cold._asdict(),
        **of_runs,
        "counts_for_limits": counts_for_limits(np.concatenate(measurement.sessions_us)),
        "profiled_median_us": profiled_us,
        "profiling_overhead_fraction": profiled_us / (median_us or float(np.median(plain.counted_us))) - 1,
        "is_alternating": measurement.is_alternating,
        "trace_total_us": sum(latency.raw_total_us for latency in latencies),
        "trace_event_count": measurement.trace.event_count,
        **run_utilization(measurement.trace, measurement.profiled_warmup),
        "peak_resident_bytes": peak_resident_bytes(),
        "matched_time_share": None,
        "matched_contraction_share": None,
        "matched_operation_share": None,
    }
    return cast("LatencySummaryDocument", figures_by_name)  # names that are put together are no literals


def _run_figures(measurement: Measurement) -> dict[str, float | None]:
    """Return the figures of the unprofiled runs of all sessions, with limits for what their series show."""
    plain, sessions_us = measurement.plain, measurement.sessions_us
    if len(sessions_us) > 1:
        return with_sessions(figures(np.concatenate(sessions_us)), sessions_us)
    alone = plain.runs.figures(plain.warmup_count)
    return with_quarters(alone, plain.counted_us) if measurement.steady.kind == NO_STEADY_STATE else alone


def run_columns(measurement: Measurement) -> dict[str, Any]:
    """Return the columns of run_latency: the stored runs of both sessions, timed from the start of the first run."""
    both = (measurement.plain, measurement.profiled)
    indices = [np.arange(series.runs.stored_count) for series in both]
    starts_s = np.concatenate([series.runs.starts_s for series in both])
    return {
        "is_profiled": np.repeat([False, True], [len(numbers) for numbers in indices]),
        "run_index": np.concatenate(indices),
        "is_warmup": np.concatenate(
            [numbers < series.warmup_count for numbers, series in zip(indices, both, strict=True)]
        ),
        "start_us": 1e6 * (starts_s - measurement.start_s),
        "latency_us": np.concatenate([series.runs.latencies_us for series in both]),
    }
