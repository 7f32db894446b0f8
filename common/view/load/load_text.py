"""A load test as text: what came of the requests, the latency with its limits, queue and batches, and each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, cast

from common.table_rows import LoadStepsRow, LoadSummaryDocument
from common.view.tables import Table, TableColumn, table_of_cells
from common.view.text import duration, percent, quantity, significant

PLAIN = {"queue", "dispatch", "assemble", "session_run", "rest"}
LEAST_SHARE, WIDTH, NO_BREAK = 0.0005, 80, "\u00a0"
FIGURES = ("p50", "p90", "p95", "p99", "p99_9", "mean")
LOADGEN_RULES = {
    "result_perf_constraints_met": "bound",
    "result_min_duration_met": "duration",
    "result_min_queries_met": "queries",
    "early_stopping_met": "early stopping",
}
LOADGEN_PERCENTILES = ("50.00", "90.00", "95.00", "99.00")
LATENCY = table_of_cells("latency from the intended start", "value", "low", "high")


def load_report(summary: LoadSummaryDocument) -> str:
    lines = [
        f"{summary['sent_count']} requests sent ({summary['arrivals']}): {summary['completed_count']} completed, "
        f"{summary['rejected_count']} rejected, {summary['failed_count']} failed, "
        f"{summary['cancelled_count']} cancelled{_goodput(summary)}",
        f"{_rate(summary['offered_requests_per_s'])} offered, {_rate(summary['answered_requests_per_s'])} answered; "
        f"workers busy {percent(summary['utilization_share'])}; generator late for "
        f"{percent(summary['generator_late_share'], 2)} of the requests{_delay(summary['generator_delay_share'])}",
        f"{summary['load_batch_count']} batches of {_number(summary['mean_request_count'])} requests; padding "
        f"{percent(summary['padding_share'])}; {_number(summary['mean_queue_depth_count'])} requests wait on average, "
        f"{summary['most_queue_depth_count']} at most",
    ]
    if loadgen_results := summary["loadgen_results"]:
        lines += _loadgen(loadgen_results)
    lines += _shares(summary)
    if summary["validity"] != "valid":
        return "\n".join([*lines, f"{summary['validity']}: {summary['validity_reason']}; no latency is given"])
    rows = [[name.replace("_", "."), *_limits(summary, name)] for name in FIGURES]
    waited = f"waiting for a batch: median {duration(summary['queue_p50_us'])}, p99 {duration(summary['queue_p99_us'])}"
    return "\n".join([*lines, LATENCY.text(rows), *_limit_lines(summary), waited])


def _limit_lines(summary: LoadSummaryDocument) -> list[str]:
    """Return how many requests would give each figure its limits, and whether the goal of the load was reached."""
    counts = {name: count for name, count in summary["counts_for_limits"].items() if name in FIGURES}
    needs = ", ".join(f"{name.replace('_', '.')} about {count:,}" for name, count in counts.items())
    return [*([f"for all limits: {needs} requests"] if needs else []), *_goal(summary)]


def _goal(summary: LoadSummaryDocument) -> list[str]:
    goal, share = summary["precision_goal"], summary["precision_reached_share"]
    if not goal:
        return []
    reached = f"limits within {percent(share)}" if share is not None else "no limits"
    return [f"goal {goal}: {reached} after {summary['counted_request_count']:,} requests"]


def _delay(share: float) -> str:
    return f" ({percent(share, 2)} of the latency)" if share >= LEAST_SHARE else ""


def _goodput(summary: LoadSummaryDocument) -> str:
    if (bound_us := summary["goodput_bound_us"]) is None:
        return ""
    return f"; {_rate(summary['goodput_requests_per_s'])} within {duration(bound_us)}"


def _shares(summary: LoadSummaryDocument) -> list[str]:
    """Return where requests spent their time, for calls that are more than a copy and a run."""
    shares = summary["latency_shares"]
    if {*shares} <= PLAIN:
        return []
    parts = (f"{name.replace('_', ' ')} {percent(share)}" for name, share in shares.items() if share >= LEAST_SHARE)
    unbroken = (part.replace(" ", NO_BREAK) for part in parts)
    text = fill(f"where requests spent their time: {', '.join(unbroken)}", WIDTH, subsequent_indent="  ")
    return [text.replace(NO_BREAK, " ")]


def _loadgen(results: Mapping[str, Any]) -> list[str]:
    """Return LoadGen's verdict, which of its rules hold, what it says of early stopping, and its percentiles."""
    rules = ", ".join(f"{text} {_held(results[name])}" for name, text in LOADGEN_RULES.items() if name in results)
    stopping = " ".join(str(results.get("early_stopping_result", "")).replace("*", "").split())
    lines = [
        f"MLPerf LoadGen: {results['result_validity']}; its rules: {rules}",
        *([f"  {stopping}"] if stopping else []),
    ]
    times_us = {name: results.get(f"result_{name}_percentile_latency_ns") for name in LOADGEN_PERCENTILES}
    known = ", ".join(f"p{float(name):g} {duration(ns / 1e3, 4)}" for name, ns in times_us.items() if ns is not None)
    return [*lines, f"  {known}, in loadgen_summary.txt with its settings"]


def _held(is_met: Any) -> str:
    return "met" if is_met else "NOT MET"


def _limits(summary: LoadSummaryDocument, name: str) -> list[str]:
    times_us = cast("Mapping[str, float | None]", summary)  # names that are put together are no literals
    return [duration(times_us[f"request_{name}{end}_us"], 4) for end in ("", "_low", "_high")]


def _rate(value: float | None) -> str:
    return quantity(value, "requests/s")


def _number(value: float | None) -> str:
    return "no" if value is None else significant(value)


def asked_rate(row: LoadStepsRow) -> str:
    """Return the rate of a step, or both ends of a ramp."""
    begin_hz, end_hz = row["begin_requests_per_s"], row["end_requests_per_s"]
    if begin_hz is None or end_hz is None:
        return "–"
    return significant(begin_hz) if begin_hz == end_hz else f"{significant(begin_hz)} to {significant(end_hz)}"


STEPS: Table[LoadStepsRow] = Table(
    TableColumn("step", lambda row: str(row["step_index"])),
    TableColumn("begins", lambda row: duration(row["step_start_us"])),
    TableColumn("lasts", lambda row: duration(row["step_duration_us"])),
    TableColumn("requests/s", asked_rate),
    TableColumn("answered/s", lambda row: significant(row["answered_requests_per_s"])),
    TableColumn("busy", lambda row: percent(row["utilization_share"])),
    TableColumn("p50", lambda row: duration(row["request_p50_us"])),
    TableColumn("p99", lambda row: duration(row["request_p99_us"])),
    TableColumn("validity", lambda row: row["validity"]),
)


def steps_report(rows: Sequence[LoadStepsRow]) -> str:
    """Return a row per step; nothing for a load of one step, whose figures its summary has."""
    return STEPS.text(rows) if len(rows) > 1 else ""
