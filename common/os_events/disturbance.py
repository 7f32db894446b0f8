"""Causes of slow runs, from the events of the operating system.

The lost time of a run is the union of the intervals in which a thread of this process had no processor: two threads
that lose the same millisecond cost the run one millisecond. The median latency already includes the time that runs
usually lose, so only the time beyond that explains an excess. A thread that hardly ever has a processor in the other
runs is left out: it loses more time in a longer run without being the cause. The explained share is an upper bound: a
thread that loses its processor while it only spins for work delays nothing. If nothing was recorded, the cause is
``none_recorded``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from common.graphs.grouping import grouped
from common.latency.run import Run, RunSeries
from common.latency.slow_runs import slow_limit_us
from common.os_events.events import INTERVALS, OsEvent
from common.os_events.run_events import Competitor, RunEvents, events_by_run, node_hit, union_us
from common.table_rows import RunDisturbancesRow

STARVED_SHARE = 0.9  # of the latency: a thread without a processor for longer usually does no work
LEAST_EXPLAINED_SHARE = 0.1  # below this share, something else must have slowed the run

# Time that a run of a series usually loses, in µs: in all, and by competitor.
Usual = tuple[float, Mapping[Competitor, float]]
Cause = Literal["other_process", "own_thread", "unnamed_process", "hypervisor", "page_fault", "none_recorded"]
_WITHOUT_NAME = {
    "unnamed_process": "another process ran; with tracefs it would be named",
    "page_fault": "it waited for pages from disk ({row[major_fault_count]} major faults)",
    "hypervisor": "no other process ran; the hypervisor took {stolen:.0f} ms of processor time around the run",
    "none_recorded": "no other process ran; possible causes: this process was stopped, the clock frequency, the host "
    "of a virtual machine, memory",
}


def disturbances(series: Iterable[RunSeries], events: Sequence[OsEvent]) -> list[RunDisturbancesRow]:
    """Return every slow run with its likely cause, by time; events may be in any order.

    There is one series of runs after the warm-up per session; they do not overlap.
    """
    slow_runs = [pair for runs in series for pair in _of_series(runs, events)]
    return [row for _, row in sorted(slow_runs, key=lambda pair: pair[0])]


def _of_series(series: RunSeries, events: Sequence[OsEvent]) -> list[tuple[float, RunDisturbancesRow]]:
    """Return the slow runs of a series, each with its start.

    There may be a million other runs. Only the time that each of them lost is computed.
    """
    is_slow = series.latencies_us > slow_limit_us(series.latencies_us)
    if not is_slow.any():
        return []
    slow, others = series.where(is_slow), series.where(~is_slow)
    intervals = [event for event in events if event.event_kind in INTERVALS]
    starved = _starved(others, intervals)
    usual = _usual((near.without(starved) for near in events_by_run(others.runs(), intervals)), len(others))
    median_us, is_traced = float(np.median(series.latencies_us)), bool(intervals)
    return [
        (run.start_s, _explain(run, near.without(starved), run.latency_us - median_us, usual, is_traced))
        for run, near in zip(slow.runs(), events_by_run(slow.runs(), events), strict=True)
    ]


def _starved(others: RunSeries, intervals: Sequence[OsEvent]) -> frozenset[int]:
    """Return the threads that have no processor for nearly all of the median run that is not slow."""
    shares = grouped(
        (thread_id, union_us(lost) / run.latency_us)
        for run, near in zip(others.runs(), events_by_run(others.runs(), intervals), strict=True)
        for thread_id, lost in near.by_thread().items()
    )
    medians = {thread_id: _median_over(parts, len(others)) for thread_id, parts in shares.items()}
    return frozenset(thread_id for thread_id, share in medians.items() if share > STARVED_SHARE)


def _usual(others: Iterable[RunEvents], run_count: int) -> Usual:
    """Return medians over the runs that are not slow; a competitor absent from half of them usually takes 0."""
    times: dict[Competitor, list[float]] = {}
    lost_us = array("d")
    for near in others:
        lost_us.append(near.lost_us)
        for competitor, intervals in near.by_competitor().items():
            times.setdefault(competitor, []).append(union_us(intervals))
    by_competitor = {competitor: _median_over(times_us, run_count) for competitor, times_us in times.items()}
    return float(np.median(lost_us)), by_competitor


def _median_over(amounts: Sequence[float], run_count: int) -> float:
    return float(np.median(np.pad(amounts, (0, run_count - len(amounts)))))


def _explain(run: Run, near: RunEvents, excess_us: float, usual: Usual, is_traced: bool) -> RunDisturbancesRow:
    usual_us, usual_by_competitor = usual
    share = min(1.0, max(0.0, (near.lost_us - usual_us) / excess_us))
    by_competitor = near.by_competitor()
    beyond_us = {
        competitor: union_us(lost) - usual_by_competitor.get(competitor, 0.0)
        for competitor, lost in by_competitor.items()
    }
    competitor = max(beyond_us, key=lambda candidate: beyond_us[candidate], default=None)
    intervals = by_competitor[competitor] if competitor else []
    longest = max(intervals, key=lambda interval: interval.length_us, default=None)
    node, hit_us = node_hit(run.node_spans, intervals)
    return {
        "is_profiled": run.is_profiled,
        "run_index": run.run_index,
        "latency_us": run.latency_us,
        "excess_us": excess_us,
        "lost_us": near.lost_us,
        "usual_lost_us": usual_us,
        "explained_share": share,
        "disturbance_cause": _cause(near, competitor, share, is_traced),
        "other_process": competitor.name if competitor else "",
        "other_process_id": competitor.thread_id if competitor else None,
        "other_us": union_us(intervals) if competitor else None,
        "processor_index": longest.event.processor_index if longest else None,
        "thread_id": longest.event.thread_id if longest else None,
        "is_main_thread": bool(longest and longest.event.is_main_thread),
        "hit_node": node or "",
        "hit_us": hit_us if node is not None else None,
        "stolen_us": near.stolen_us,
        "major_fault_count": near.count("major_fault"),
    }


def _cause(near: RunEvents, competitor: Competitor | None, share: float, is_traced: bool) -> Cause:
    """Return the cause of an excess: a recorded competitor, or else a cause that counts show."""
    if competitor is not None and share >= LEAST_EXPLAINED_SHARE:
        return "own_thread" if competitor.is_own else "other_process"
    if near.stolen_us > 0:
        return "hypervisor"
    if near.count("major_fault"):
        return "page_fault"
    if not is_traced and near.count("involuntary_switch"):
        return "unnamed_process"
    return "none_recorded"


def disturbance_lines(rows: Sequence[RunDisturbancesRow], limit: int = 5, noun: str = "run") -> list[str]:
    """Return a line for each of the worst runs, by excess, and one that counts the others; ``noun`` means a run."""
    worst = sorted(rows, key=lambda row: row["excess_us"], reverse=True)
    lines = [disturbance_line(row, noun) for row in worst[:limit]]
    if left := worst[limit:]:
        named = sum(row["disturbance_cause"] in ("other_process", "own_thread") for row in left)
        lines.append(f"and {len(left)} more slow {noun}s, {named} of them caused by a known thread")
    return lines


def disturbance_line(row: RunDisturbancesRow, noun: str = "run") -> str:
    """Return ``profiled run 17 (+8.1 ms): /conv1/Conv lost processor 1 for 7.9 ms to kworker/1:2 (211)``."""
    series = f"profiled {noun}" if row["is_profiled"] else noun
    return f"{series} {row['run_index']} (+{1e-3 * row['excess_us']:.3g} ms): {_cause_text(row)}"


def _cause_text(row: RunDisturbancesRow) -> str:
    if row["disturbance_cause"] not in ("other_process", "own_thread"):
        return _WITHOUT_NAME[row["disturbance_cause"]].format(row=row, stolen=1e-3 * row["stolen_us"])
    victim = row["hit_node"] or ("between nodes, it" if row["is_profiled"] else "it")
    thread = "another thread of this process" if row["disturbance_cause"] == "own_thread" else row["other_process"]
    lost = f"lost processor {row['processor_index']} for {1e-3 * (row['other_us'] or 0.0):.3g} ms"
    return f"{victim} {lost} to {thread} ({row['other_process_id']})"
