"""A long load as text: whether memory grows, whether the service slows down, and what changed when."""

from __future__ import annotations

from common.table_rows import EnduranceSummaryDocument
from common.view.text import duration, percent, significant


def endurance_report(summary: EnduranceSummaryDocument) -> str:
    """Return the closing lines of a long load."""
    return "\n".join([*latency_text(summary), leak_text(summary), speed_text(summary)])


def latency_text(summary: EnduranceSummaryDocument) -> list[str]:
    """Return the latency over all parts in a line; none where it is unknown."""
    times_us = {
        "p50": summary["request_p50_us"],
        "p99": summary["request_p99_us"],
        "p99.9": summary["request_p99_9_us"],
    }
    texts = [f"{name} {duration(time_us, 4)}" for name, time_us in times_us.items() if time_us is not None]
    if not texts:
        return []
    return [f"all valid parts, {summary['counted_request_count']} requests: {', '.join(texts)}"]


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
