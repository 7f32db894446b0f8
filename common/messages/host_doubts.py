"""Reasons to doubt the times of a host: other work, an unsteady level, unsteady runs, and a gap that nothing explains.

Several rooms use them: those that measure, those that attribute the time, and those that judge by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
BUSY = "the host was busy"  # how the note on other work during the runs begins
OTHER_HOST = "the host of a"  # how the doubt begins that the times are not those of the board's own processor
NOT_JUDGED = "not judged"  # how the note on a verdict that nobody should rely on begins
NO_STEADY_STATE = "no steady state"
NO_RUNS = "the profile has no unprofiled runs"  # of one that another program recorded
EXPECTED_GAP_SHARE = (-0.03, 0.08)  # of the unprofiled median
EXPLAINED_GAP_US = 5.0  # per node: what the runtime takes between two nodes, and what the correction may be off
LARGEST_SPREAD = 0.15  # the 90th percentile of the runs over their median, less one
WIDEST_INTERVAL = 0.10  # of the median, over the median


def host_doubts(latency: Mapping[str, Any], gap_us: float, event_count: int, notes: Iterable[str]) -> tuple[str, ...]:
    """Return in words why the times of a host decide nothing; empty for an undisturbed and steady host.

    The gap is the unprofiled median less the times of all nodes, of which one run executes ``event_count``.
    """
    busy = (note.partition(";")[0] for note in notes if note.startswith(BUSY))
    few = latency["p50_low_us"] is None
    some = f"{latency['sample_count']} unprofiled runs give the median no interval"
    none = f"{NO_RUNS}, and only they give the latency"
    intervals = [some if latency["sample_count"] else none] if few else []
    return (*busy, *intervals, *instabilities(latency), *_of_the_gap(latency["p50_us"], gap_us, event_count))


def remedy(doubts: Iterable[str]) -> str:
    """Return what settles doubts of the profiled host: a profile of another program has no times that decide."""
    if any(doubt.startswith(NO_RUNS) for doubt in doubts):
        return "run the model itself by <op_latency> on the host that the plan is for"
    return "rerun <op_latency> on an idle host"


def recorded_doubts(
    latency: Mapping[str, Any], timed: Iterable[Row], nodes: Iterable[Row], notes: Iterable[str]
) -> tuple[str, ...]:
    """Return the doubts that a measurement leaves: its latency summary, the times with the gap, and op_latency."""
    gap_us = sum(row["node_latency_us"] for row in timed if row["row_kind"] == "gap")
    return host_doubts(latency, gap_us, sum(row["events_per_run_count"] or 0 for row in nodes), notes)


def instabilities(latency: Mapping[str, Any]) -> Iterable[str]:
    """Yield why the median is uncertain: its interval is too wide, or the slow runs are too far from it.

    Without a steady state, the interval includes the medians of all quarters of the runs. A change of level that moved
    none of these did not move the median. Nor did a few very slow runs, although they increase the standard deviation.
    """
    median, low, high = (latency[f"p50{end}_us"] for end in ("", "_low", "_high"))
    if median and low is not None and (width := (high - low) / median) > WIDEST_INTERVAL:
        cause = f"{NO_STEADY_STATE}: " if latency["steady_state"] == NO_STEADY_STATE else ""
        yield f"{cause}the interval of the median is {width:.0%} wide"
    if latency["p90_us"] and median:
        share = latency["p90_us"] / median - 1
        if share > LARGEST_SPREAD:
            yield f"one run in ten takes over {share:.0%} longer than the median"


def _of_the_gap(median_us: float | None, gap_us: float, event_count: int) -> Iterable[str]:
    """Doubt a gap that neither the runtime's own work nor the correction explains: many tiny nodes have a real one."""
    if not median_us:
        return
    low, high = EXPECTED_GAP_SHARE
    share = gap_us / median_us
    if not low <= share <= high and abs(gap_us) > EXPLAINED_GAP_US * event_count:
        yield f"the gap between nodes is {share:+.0%} of the latency, expected {low:+.0%} to {high:+.0%}"
