"""The figures of a measurement under the names that the tables have for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from common.profiling.correction import NodeLatency
from common.profiling.measurement import Measurement
from common.profiling.session import SessionSettings
from common.profiling.statistics import deviation, percentiles


def node_figures(latency: NodeLatency) -> dict[str, Any]:
    """One executed node: identity, statistics and correction."""
    node, correction = latency.node, latency.correction
    return {
        "executed_node": node.name,
        "op_type": node.op_type,
        "provider": node.provider,
        "execution_index": node.execution_index,
        "input_count": latency.input_count,
        "uses_thread_pool": node.uses_thread_pool,
        "input_shapes": node.input_shapes,
        "output_shapes": node.output_shapes,
        "output_dtypes": node.output_dtypes,
        "sample_count": latency.sample_count,
        "events_per_run_count": latency.events_per_run,
        **latency.statistics,
        "correction_us": correction.median_us,
        "correction_low_us": correction.low_us,
        "correction_high_us": correction.high_us,
        "is_correction_dominated": latency.is_correction_dominated,
        "raw_total_us": latency.raw_total_us,
    }


def latency_figures(
    measurement: Measurement, latencies: Sequence[NodeLatency], settings: SessionSettings
) -> dict[str, Any]:
    """The unprofiled runs, and what profiling cost."""
    plain, profiled = measurement.latencies(profiled=False), measurement.latencies(profiled=True)
    profiled_us = float(np.median(profiled))
    return {
        "provider": settings.provider,
        "graph_optimization": settings.optimization,
        "threads": settings.threads,
        "sample_count": len(plain),
        "profiled_sample_count": len(profiled),
        "warmup_count": sum(lap.is_warmup and not lap.is_profiled for lap in measurement.laps),
        "session_creation_us": measurement.session_creation_us,
        "first_run_us": measurement.first_run_us,
        **percentiles(plain),
        "mean_us": float(plain.mean()),
        "jitter_us": deviation(plain),
        "min_us": float(plain.min()),
        "max_us": float(plain.max()),
        "profiled_median_us": profiled_us,
        "profiling_overhead_fraction": profiled_us / float(np.median(plain)) - 1,
        "trace_total_us": sum(latency.raw_total_us for latency in latencies),
        "trace_event_count": measurement.trace.event_count,
    }
