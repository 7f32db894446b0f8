"""Notes on the reliability of the latencies, each with a remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from common.latency.statistics import QUANTILES
from common.messages.host_doubts import NO_STEADY_STATE, instabilities
from common.profiling.correction import NodeLatency
from common.profiling.runs.loop import TRACE_EVENT_LIMIT
from common.profiling.runs.measurement import SessionRuns

OVERHEAD_WARNING_FRACTION = 0.10


def latency_notes(
    summary: Mapping[str, Any], latencies: Sequence[NodeLatency], more: Sequence[SessionRuns] = ()
) -> list[str]:
    """Return notes on missing limits, the cost of profiling, ``more`` sessions, and the stability of the series."""
    first = summary["sample_count"] - sum(len(session.counted_us) for session in more)
    return [*_tails(summary), *_profiling(summary, first, latencies), *_sessions(more), *_stability(summary)]


def _tails(summary: Mapping[str, Any]) -> list[str]:
    counts = {name: count for name, count in summary["counts_for_limits"].items() if name in QUANTILES}
    few = f"{summary['sample_count']} runs give no upper confidence limit"
    dependent = f"each of the {summary['sample_count']} runs depends on those before it"
    notes = []
    for text, is_empty in ((f"left empty: {few}", True), (f"without an upper limit: {dependent}", False)):
        chosen = {name: count for name, count in counts.items() if (summary[f"{name}_us"] is None) is is_empty}
        if chosen:
            needs = ", ".join(f"{_shown(name)} needs about {count:,}" for name, count in chosen.items())
            notes.append(f"{', '.join(map(_shown, chosen))} {text}; raise <runs>: {needs}")
    return notes


def _shown(name: str) -> str:
    return name.replace("_", ".")


def _profiling(summary: Mapping[str, Any], unprofiled: int, latencies: Sequence[NodeLatency]) -> list[str]:
    notes = []
    overhead = summary["profiling_overhead_fraction"]
    if abs(overhead) > OVERHEAD_WARNING_FRACTION:
        remedy = "trust the unprofiled latency, compare groups of nodes, and rank by corrected times only"
        if overhead < 0:
            remedy = "the host changed between them; rerun <op_latency> on an idle host"
        change = f"{100 * abs(overhead):.0f} % {'less' if overhead < 0 else 'longer'}"
        notes.append(f"profiled runs took {change} than unprofiled ones; {remedy}")
    if not summary["is_alternating"]:
        notes.append(
            "the model is large, so one session was held at a time: the profiled runs came after the unprofiled ones. "
            "What profiling costs, and the gap, include any change of the host in between"
        )
    if summary["profiled_sample_count"] < unprofiled:
        counts = f"{summary['profiled_sample_count']} of {unprofiled} runs were profiled"
        notes.append(f"{counts}; a trace is kept below {TRACE_EVENT_LIMIT:,} events")
    notes += [
        f"{latency.node.name} is the first node of a run that uses the thread pool, and pays for waking it: "
        f"{cost.median_us:.3g} µs ({cost.low_us:.3g} to {cost.high_us:.3g}), taken off its time and left in the gap"
        for latency in latencies
        if (cost := latency.wake_up) and cost.median_us > 0
    ]
    flagged = [latency for latency in latencies if latency.is_correction_dominated]
    if flagged:
        time_us = sum(latency.statistics["corrected_median_us"] or 0 for latency in flagged)
        notes.append(
            f"{len(flagged)} of {len(latencies)} nodes ({time_us:.0f} µs together) take less than four times what "
            "profiling adds to them; they are flagged and not ranked"
        )
    return notes


def _sessions(more: Sequence[SessionRuns]) -> list[str]:
    if not more:
        return []
    medians = ", ".join(f"{np.median(session.counted_us):.4g}" for session in more)
    return [
        f"{len(more) + 1} sessions: the limits of all figures include their differences; the medians of the "
        f"further ones are {medians} µs, and the nodes are those of the first"
    ]


def _stability(summary: Mapping[str, Any]) -> list[str]:
    notes = []
    if summary["steady_state"] == NO_STEADY_STATE:
        remedy = "stop other work on this host, or measure longer (<runs>, <duration>)"
        interval = "the interval of the median holds the medians of their quarters"
        change = "the latency level still changes in the last runs; all count"
        notes.append(f"{NO_STEADY_STATE}: {change}, and {interval}; {remedy}")
    remedy = "stop other work on this host, or raise <runs>"
    return [*notes, *(f"unstable: {text}; {remedy}" for text in instabilities(summary))]
