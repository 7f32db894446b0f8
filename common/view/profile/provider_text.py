"""Execution providers as text, and the slowest layers by a provider's own counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from common.table_rows import ProviderLayersRow
from common.view.tables import Table, TableColumn
from common.view.text import WIDTH, duration, percent

LABELS = {"package": "package", "needs": "needs", "platforms": "runs on", "trace": "trace", "measuring": "options"}
INDENT = 11
SHOWN_LAYERS = 10
PROVIDERS: Table[Mapping[str, str]] = Table(
    TableColumn("name", lambda row: row["name"]),
    TableColumn("name in ONNX Runtime", lambda row: row["full_name"], is_left=True),
    TableColumn("present", lambda row: row["present"], is_left=True),
)
LAYERS: Table[ProviderLayersRow] = Table(
    TableColumn("provider's layer", lambda row: row["layer"]),
    TableColumn("layer_type", lambda row: row["layer_type"], is_left=True),
    TableColumn("mean", lambda row: duration(row["layer_mean_us"])),
    TableColumn("share", lambda row: percent(row["layer_share"])),
)


def provider_report(rows: Sequence[Mapping[str, str]]) -> str:
    """Return which providers are present, and for each its package, platforms, trace and options."""
    return "\n\n".join([PROVIDERS.text(rows), *(_details(row) for row in rows)])


def _details(row: Mapping[str, str]) -> str:
    """Return a paragraph: the name, then each column with its label."""
    lines, indent = [row["name"]], " " * INDENT
    for column, label in LABELS.items():
        start = f"  {label}".ljust(INDENT)
        lines += wrap(row[column], WIDTH, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)


def layer_report(layers: Sequence[ProviderLayersRow]) -> str:
    """Return the slowest layers by the provider's own counters; empty where there are none."""
    if not layers:
        return ""
    ranked = sorted(layers, key=lambda layer: -layer["layer_mean_us"])[:SHOWN_LAYERS]
    total_us = sum(layer["layer_mean_us"] for layer in layers)
    last = [[f"all {len(layers)} layers", "", duration(total_us), percent(1.0)]]
    return "\n\n" + LAYERS.text(ranked, last=last)
