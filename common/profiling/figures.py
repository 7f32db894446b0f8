"""Figures of a measurement by their column names, and notes on their reliability, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from common.graphs.graph import Graph
from common.latency.sessions import with_sessions
from common.latency.statistics import QUANTILES, counts_for_limits, figures, with_quarters
from common.messages.host_doubts import NO_STEADY_STATE, instabilities
from common.profiling.correction import NodeLatency
from common.profiling.runs.loop import TRACE_EVENT_LIMIT
from common.profiling.runs.measurement import Measurement, SessionRuns
from common.profiling.trace.utilization import node_utilization, peak_resident_bytes, run_utilization
from common.table_rows import LatencySummaryDocument, OpLatencyRow

OVERHEAD_WARNING_FRACTION = 0.10


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


def latency_notes(
    summary: Mapping[str, Any], latencies: Sequence[NodeLatency], more: Sequence[SessionRuns] = ()
) -> list[str]:
    """Return notes on missing limits, the cost of profiling, ``more`` sessions, and the stability of the series."""
    first = summary["sample_count"] - sum(len(session.counted_us) for session in more)
    return [*_tails(summary), *_profiling(summary, first, latencies), *_sessions(more), *_stability(summary)]


def _tails(summary: Mapping[str, Any]) -> Iterator[str]:
    counts = {name: count for name, count in summary["counts_for_limits"].items() if name in QUANTILES}
    few = f"{summary['sample_count']} runs give no upper confidence limit"
    dependent = f"each of the {summary['sample_count']} runs depends on those before it"
    for text, is_empty in ((f"left empty: {few}", True), (f"without an upper limit: {dependent}", False)):
        chosen = {name: count for name, count in counts.items() if (summary[f"{name}_us"] is None) is is_empty}
        if chosen:
            needs = ", ".join(f"{_shown(name)} needs about {count:,}" for name, count in chosen.items())
            yield f"{', '.join(map(_shown, chosen))} {text}; raise <runs>: {needs}"


def _shown(name: str) -> str:
    return name.replace("_", ".")


def _profiling(summary: Mapping[str, Any], unprofiled: int, latencies: Sequence[NodeLatency]) -> Iterator[str]:
    overhead = summary["profiling_overhead_fraction"]
    if abs(overhead) > OVERHEAD_WARNING_FRACTION:
        remedy = "trust the unprofiled latency, compare groups of nodes, and rank by corrected times only"
        if overhead < 0:
            remedy = "the host changed between them; rerun <op_latency> on an idle host"
        change = f"{100 * abs(overhead):.0f} % {'less' if overhead < 0 else 'longer'}"
        yield f"profiled runs took {change} than unprofiled ones; {remedy}"
    if not summary["is_alternating"]:
        order = "one session was held at a time: the profiled runs came after the unprofiled ones"
        change = "What profiling costs, and the gap, include any change of the host in between"
        yield f"the model is large, so {order}. {change}"
    if summary["profiled_sample_count"] < unprofiled:
        counts = f"{summary['profiled_sample_count']} of {unprofiled} runs were profiled"
        yield f"{counts}; a trace is kept below {TRACE_EVENT_LIMIT:,} events"
    yield from (
        f"{latency.node.name} is the first node of a run that uses the thread pool, and pays for waking it: "
        f"{cost.median_us:.3g} µs ({cost.low_us:.3g} to {cost.high_us:.3g}), taken off its time and left in the gap"
        for latency in latencies
        if (cost := latency.wake_up) and cost.median_us > 0
    )
    flagged = [latency for latency in latencies if latency.is_correction_dominated]
    if flagged:
        time_us = sum(latency.statistics["corrected_median_us"] or 0 for latency in flagged)
        yield (
            f"{len(flagged)} of {len(latencies)} nodes ({time_us:.0f} µs together) take less than four times what "
            "profiling adds to them; they are flagged and not ranked"
        )


def _sessions(more: Sequence[SessionRuns]) -> Iterator[str]:
    if more:
        medians = ", ".join(f"{np.median(session.counted_us):.4g}" for session in more)
        yield (
            f"{len(more) + 1} sessions: the limits of all figures include their differences; the medians of the "
            f"further ones are {medians} µs, and the nodes are those of the first"
        )


def _stability(summary: Mapping[str, Any]) -> Iterator[str]:
    if summary["steady_state"] == NO_STEADY_STATE:
        remedy = "stop other work on this host, or measure longer (<runs>, <duration>)"
        interval = "the interval of the median holds the medians of their quarters"
        change = "the latency level still changes in the last runs; all count"
        yield f"{NO_STEADY_STATE}: {change}, and {interval}; {remedy}"
    remedy = "stop other work on this host, or raise <runs>"
    yield from (f"unstable: {text}; {remedy}" for text in instabilities(summary))
