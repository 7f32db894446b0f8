"""Two services alone and together as text: latency and rate of each, and how much they slow each other down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from common.view.text import MISSING, duration, significant, table

FACTORS = ("request_p50_slowdown", "request_p99_slowdown", "answered_rate")
HEAD = ("model", "runs", "answers/s", "p50", "p99", "p50 x", "p99 x", "rate x")
LEGEND = "x: together over alone, with 95 % limits"


def interference_report(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a line per service and state, and why one has no latency."""
    rows = [*rows]
    doubts = {
        f"{row['served_model']} {row['load_state']}: {row['validity']}: {row['validity_reason']}; no latency is given"
        for row in rows
        if row["validity"] != "valid"
    }
    few = ["too few requests for p99; give a longer <duration>"] if not doubts and _lacks_p99(rows) else []
    return "\n".join([table(HEAD, _cells(rows)), LEGEND, *sorted(doubts), *few])


def _lacks_p99(rows: Iterable[Mapping[str, Any]]) -> bool:
    return any(row["request_p99_us"] is None for row in rows)


def _cells(rows: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Return the cells under ``HEAD``."""
    return [
        [
            row["served_model"].removesuffix(".onnx"),
            row["load_state"],
            significant(row["answered_requests_per_s"]),
            *(duration(row[f"request_{name}_us"]) for name in ("p50", "p99")),
            *(_factor(row, name) for name in FACTORS),
        ]
        for row in rows
    ]


def _factor(row: Mapping[str, Any], name: str) -> str:
    value, low, high = (row[f"{name}{end}_factor"] for end in ("", "_low", "_high"))
    if value is None:
        return MISSING if row["load_state"] == "together" else ""
    return f"{value:.3g}" if low is None or high is None else f"{value:.3g} ({low:.3g} to {high:.3g})"
