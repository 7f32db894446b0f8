"""Load tests as text: of one service, of two services, of token streams, and of hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, cast

from common.table_rows import (
    EnduranceSummaryDocument,
    LoadInterferenceRow,
    LoadStepsRow,
    LoadSummaryDocument,
    StreamSummaryDocument,
)
from common.view.tables import Table, TableColumn, table_of_cells
from common.view.text import MISSING, WIDTH, duration, percent, quantity, significant, span

PLAIN = {"queue", "dispatch", "assemble", "session_run", "rest"}
LEAST_SHARE, NO_BREAK = 0.0005, "\u00a0"
FIGURES = ("p50", "p90", "p95", "p99", "p99_9", "mean")
LOADGEN_RULES = {
    "result_perf_constraints_met": "bound",
    "result_min_duration_met": "duration",
    "result_min_queries_met": "queries",
    "early_stopping_met": "early stopping",
}
LOADGEN_PERCENTILES = ("50.00", "90.00", "95.00", "99.00")
LATENCY = table_of_cells("latency from the intended start", "value", "low", "high")
LEGEND = "x: together over alone, with 95 % limits"
TOKEN_SERIES = {
    "time_to_first_token": "time to first token",
    "inter_token": "inter-token latency",
    "request": "request latency",
}
QUANTILES = ("p50", "p90", "p95", "p99")
TOKEN_TIMES = table_of_cells("", *QUANTILES, "p99 at most", left=(0,))


def load_report(summary: LoadSummaryDocument) -> str:
    """Return what came of the requests, queue and batches, and the latency with its limits."""
    within, delay = "", ""
    if (bound_us := summary["goodput_bound_us"]) is not None:
        within = f"; {_rate(summary['goodput_requests_per_s'])} within {duration(bound_us)}"
    if summary["generator_delay_share"] >= LEAST_SHARE:
        delay = f" ({percent(summary['generator_delay_share'], 2)} of the latency)"
    lines = [
        f"{summary['sent_count']} requests sent ({summary['arrivals']}): {summary['completed_count']} completed, "
        f"{summary['rejected_count']} rejected, {summary['failed_count']} failed, "
        f"{summary['cancelled_count']} cancelled{within}",
        f"{_rate(summary['offered_requests_per_s'])} offered, {_rate(summary['answered_requests_per_s'])} answered; "
        f"workers busy {percent(summary['utilization_share'])}; generator late for "
        f"{percent(summary['generator_late_share'], 2)} of the requests{delay}",
        f"{summary['load_batch_count']} batches of {_number(summary['mean_request_count'])} requests; padding "
        f"{percent(summary['padding_share'])}; {_number(summary['mean_queue_depth_count'])} requests wait on average, "
        f"{summary['most_queue_depth_count']} at most",
    ]
    if loadgen_results := summary["loadgen_results"]:
        lines += _loadgen(loadgen_results)
    lines += _shares(summary)
    if summary["validity"] != "valid":
        return "\n".join([*lines, f"{summary['validity']}: {summary['validity_reason']}; no latency is given"])
    times_us = cast("Mapping[str, float | None]", summary)  # names that are put together are no literals
    limits_us = {name: [times_us[f"request_{name}{end}_us"] for end in ("", "_low", "_high")] for name in FIGURES}
    lines.append(
        LATENCY.text([name.replace("_", "."), *(duration(us, 4) for us in of)] for name, of in limits_us.items())
    )
    counts = {name: count for name, count in summary["counts_for_limits"].items() if name in FIGURES}
    if needs := ", ".join(f"{name.replace('_', '.')} about {count:,}" for name, count in counts.items()):
        lines.append(f"for all limits: {needs} requests")
    if goal := summary["precision_goal"]:
        share = summary["precision_reached_share"]
        reached = f"limits within {percent(share)}" if share is not None else "no limits"
        lines.append(f"goal {goal}: {reached} after {summary['counted_request_count']:,} requests")
    waited = f"waiting for a batch: median {duration(summary['queue_p50_us'])}, p99 {duration(summary['queue_p99_us'])}"
    return "\n".join([*lines, waited])


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
    rules = ", ".join(
        f"{text} {'met' if results[name] else 'NOT MET'}" for name, text in LOADGEN_RULES.items() if name in results
    )
    stopping = " ".join(str(results.get("early_stopping_result", "")).replace("*", "").split())
    lines = [
        f"MLPerf LoadGen: {results['result_validity']}; its rules: {rules}",
        *([f"  {stopping}"] if stopping else []),
    ]
    times_us = {name: results.get(f"result_{name}_percentile_latency_ns") for name in LOADGEN_PERCENTILES}
    known = ", ".join(f"p{float(name):g} {duration(ns / 1e3, 4)}" for name, ns in times_us.items() if ns is not None)
    return [*lines, f"  {known}, in loadgen_summary.txt with its settings"]


def _rate(value: float | None) -> str:
    return quantity(value, "requests/s")


def _number(value: float | None) -> str:
    return "no" if value is None else significant(value)


def asked_rate(row: LoadStepsRow) -> str:
    """Return the rate of a step, or both ends of a ramp."""
    begin_hz, end_hz = row["begin_requests_per_s"], row["end_requests_per_s"]
    return significant(begin_hz) if begin_hz is not None and begin_hz == end_hz else span(begin_hz, end_hz)


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


def interference_report(rows: Sequence[LoadInterferenceRow]) -> str:
    """Return a line per service and state, and why one has no latency."""
    doubts = {
        f"{row['served_model']} {row['load_state']}: {row['validity']}: {row['validity_reason']}; no latency is given"
        for row in rows
        if row["validity"] != "valid"
    }
    lacks_p99 = not doubts and any(row["request_p99_us"] is None for row in rows)
    few = ["too few requests for p99; give a longer <duration>"] if lacks_p99 else []
    return "\n".join([SERVICES.text(rows), LEGEND, *sorted(doubts), *few])


def _factor(row: LoadInterferenceRow, name: str) -> str:
    factors = cast("Mapping[str, float | None]", row)
    value, low, high = (factors[f"{name}{end}_factor"] for end in ("", "_low", "_high"))
    if value is None:
        return MISSING if row["load_state"] == "together" else ""
    return f"{value:.3g}" if low is None or high is None else f"{value:.3g} ({low:.3g} to {high:.3g})"


SERVICES: Table[LoadInterferenceRow] = Table(
    TableColumn("model", lambda row: row["served_model"].removesuffix(".onnx")),
    TableColumn("runs", lambda row: row["load_state"]),
    TableColumn("answers/s", lambda row: significant(row["answered_requests_per_s"])),
    TableColumn("p50", lambda row: duration(row["request_p50_us"])),
    TableColumn("p99", lambda row: duration(row["request_p99_us"])),
    TableColumn("p50 x", lambda row: _factor(row, "request_p50_slowdown")),
    TableColumn("p99 x", lambda row: _factor(row, "request_p99_slowdown")),
    TableColumn("rate x", lambda row: _factor(row, "answered_rate")),
)


def stream_report(summary: StreamSummaryDocument) -> str:
    """Return the rates of a load of token streams, and the times of tokens with their limits."""
    figures = cast("Mapping[str, float | None]", summary)
    times_us = {name: [figures[f"{name}_{end}_us"] for end in (*QUANTILES, "p99_high")] for name in TOKEN_SERIES}
    cells = [
        (text, *("" if time_us is None else duration(time_us) for time_us in times_us[name]))
        for name, text in TOKEN_SERIES.items()
    ]
    each = "one call gives all streams a token" if summary["is_batched"] else "each stream has calls of its own"
    output, answered, good = (
        significant(summary[name] or 0.0)
        for name in ("output_tokens_per_s", "answered_requests_per_s", "goodput_requests_per_s")
    )
    rates = (
        f"{output} tokens/s, {answered} requests/s of {summary['completed_count']} requests; goodput {good} requests/s"
    )
    served = (
        f"{summary['batching_policy']} batching, at most {summary['most_in_flight_count']} streams in flight, "
        f"{significant(summary['streams_in_flight_count'])} on average; {each}"
    )
    worth = [] if summary["validity"] == "valid" else [f"{summary['validity']}: {summary['validity_reason']}"]
    return "\n".join([rates, served, *worth, TOKEN_TIMES.text(cells)])


def endurance_report(summary: EnduranceSummaryDocument) -> str:
    """Return the latency over all parts of a long load, where it is known, and what changed meanwhile."""
    p50_us, p99_us, p99_9_us = summary["request_p50_us"], summary["request_p99_us"], summary["request_p99_9_us"]
    times_us = {"p50": p50_us, "p99": p99_us, "p99.9": p99_9_us}
    texts = [f"{name} {duration(time_us, 4)}" for name, time_us in times_us.items() if time_us is not None]
    lines = [f"all valid parts, {summary['counted_request_count']} requests: {', '.join(texts)}"] if texts else []
    return "\n".join([*lines, leak_text(summary), speed_text(summary)])


def leak_text(summary: EnduranceSummaryDocument) -> str:
    slope = summary["leak_bytes_per_inference"]
    if slope is None:
        return "memory: too few samples to say whether it grows"
    limits = (summary["leak_low_bytes_per_inference"], summary["leak_high_bytes_per_inference"])
    interval = " to ".join(significant(limit) for limit in limits if limit is not None)
    figure = f"{significant(slope)} bytes per inference (95 % interval {interval})"
    if summary["is_leak"]:
        return f"Memory grows by {figure}: a leak"
    return f"Memory does not grow beyond doubt: {figure}"


def speed_text(summary: EnduranceSummaryDocument) -> str:
    course, drift = summary["call_steady_state"], summary["call_drift_share"]
    if course is None:
        return "nothing was answered"
    begins = summary["call_levels"].items()
    levels = ", ".join(f"{duration(level)} from {significant(float(begin) / 60)} min" for begin, level in begins)
    text = {"flat": "the time of a call holds", "warm-up": "the time of a call holds after a warm-up"}.get(course)
    if text:
        return f"{text}: {levels}"
    cause = summary["slowdown_cause"]
    if cause is None:
        return f"the time of a call changes to and fro: {levels}"
    clock = " as the processor's clock falls" if cause == "throttling" else ""
    return f"{cause}: the time of a call changes by {percent(drift)}{clock}: {levels}"
