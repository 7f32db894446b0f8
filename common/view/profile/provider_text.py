"""Execution providers as text, and the slowest layers by a provider's own counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from common.view.text import WIDTH, duration, percent, table

LABELS = (
    ("package", "package"),
    ("needs", "needs"),
    ("platforms", "runs on"),
    ("trace", "trace"),
    ("measuring", "options"),
)
INDENT = 11
SHOWN_LAYERS = 10


def provider_report(rows: Sequence[Mapping[str, str]]) -> str:
    """Return which providers are present, and for each its package, platforms, trace and options."""
    present = table(("name", "name in ONNX Runtime", "present"), _present(rows), left=(0, 1, 2))
    return "\n\n".join([present, *(_details(row) for row in rows)])


def _present(rows: Sequence[Mapping[str, str]]) -> list[list[str]]:
    return [[row["name"], row["full_name"], row["present"]] for row in rows]


def _details(row: Mapping[str, str]) -> str:
    """Return a paragraph: the name, then each column with its label."""
    lines = [row["name"]]
    for column, label in LABELS:
        lines += wrap(
            row[column],
            WIDTH,
            initial_indent=f"  {label}".ljust(INDENT),
            subsequent_indent=" " * INDENT,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def layer_report(layers: Sequence[Mapping[str, Any]]) -> str:
    """Return the slowest layers by the provider's own counters; empty where there are none."""
    if not layers:
        return ""
    ranked = sorted(layers, key=lambda layer: -layer["layer_mean_us"])[:SHOWN_LAYERS]
    rows = [
        [layer["layer"], layer["layer_type"], duration(layer["layer_mean_us"]), percent(layer["layer_share"])]
        for layer in ranked
    ]
    total_us = sum(layer["layer_mean_us"] for layer in layers)
    rows.append([f"all {len(layers)} layers", "", duration(total_us), percent(1.0)])
    return "\n\n" + table(("provider's layer", "layer_type", "mean", "share"), rows, left=(0, 1))
