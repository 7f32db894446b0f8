"""A long load as text: whether memory grows, whether the service slows down, and what changed when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.view.text import duration, percent, significant


def endurance_report(summary: Mapping[str, Any]) -> str:
    """Return the closing lines of a long load."""
    return "\n".join([*latency_text(summary), leak_text(summary), speed_text(summary)])


def latency_text(summary: Mapping[str, Any]) -> list[str]:
    """Return the latency over all parts in a line; none where it is unknown."""
    known = [name for name in ("p50", "p99", "p99_9") if summary[f"request_{name}_us"] is not None]
    if not known:
        return []
    texts = (f"{name.replace('_', '.')} {duration(summary[f'request_{name}_us'], 4)}" for name in known)
    return [f"all valid parts, {summary['counted_request_count']} requests: {', '.join(texts)}"]


def leak_text(summary: Mapping[str, Any]) -> str:
    """Return what memory does."""
    slope = summary["leak_bytes_per_inference"]
    if slope is None:
        return "memory: too few samples to say whether it grows"
    low, high = (significant(summary[f"leak_{end}_bytes_per_inference"]) for end in ("low", "high"))
    figure = f"{significant(slope)} bytes per inference (95 % interval {low} to {high})"
    if summary["is_leak"]:
        return f"Memory grows by {figure}: a leak"
    return f"Memory does not grow beyond doubt: {figure}"


def speed_text(summary: Mapping[str, Any]) -> str:
    """Return what the time of a call does."""
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
