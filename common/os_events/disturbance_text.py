"""Slow runs in words, the worst first."""

from __future__ import annotations

from collections.abc import Sequence

from common.os_events.disturbance import Cause, Disturbance

_WITHOUT_NAME: dict[Cause, str] = {
    "unnamed_process": "another process ran; with tracefs it would be named",
    "page_fault": "it waited for pages from disk ({row.major_fault_count} major faults)",
    "hypervisor": "no other process ran; the hypervisor took {stolen:.0f} ms of processor time around the run",
    "none_recorded": "no other process ran; possible causes: this process was stopped, the clock frequency, the host "
    "of a virtual machine, memory",
}


def disturbance_lines(rows: Sequence[Disturbance], limit: int = 5, noun: str = "run") -> list[str]:
    """Return one line for each of the worst runs, by excess, and one line for the number of the others.

    Args:
        rows: slow runs.
        limit: runs that get a line of their own.
        noun: what a run is called.
    """
    worst = sorted(rows, key=lambda row: row.excess_us, reverse=True)
    lines = [disturbance_line(row, noun) for row in worst[:limit]]
    if left := worst[limit:]:
        named = sum(row.disturbance_cause in ("other_process", "own_thread") for row in left)
        lines.append(f"and {len(left)} more slow {noun}s, {named} of them caused by a known thread")
    return lines


def disturbance_line(row: Disturbance, noun: str = "run") -> str:
    """Return ``profiled run 17 (+8.1 ms): /conv1/Conv lost processor 1 for 7.9 ms to kworker/1:2 (211)``."""
    series = f"profiled {noun}" if row.is_profiled else noun
    return f"{series} {row.run_index} (+{1e-3 * row.excess_us:.3g} ms): {_cause_text(row)}"


def _cause_text(row: Disturbance) -> str:
    if row.disturbance_cause not in ("other_process", "own_thread"):
        return _WITHOUT_NAME[row.disturbance_cause].format(row=row, stolen=1e-3 * row.stolen_us)
    victim = row.hit_node or ("between nodes, it" if row.is_profiled else "it")
    thread = "another thread of this process" if row.disturbance_cause == "own_thread" else row.other_process
    lost = f"lost processor {row.processor_index} for {1e-3 * (row.other_us or 0.0):.3g} ms"
    return f"{victim} {lost} to {thread} ({row.other_process_id})"
