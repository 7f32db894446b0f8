"""A whole model on an overlay engine as text: latency, frames per second, and the slowest layers."""

from __future__ import annotations

from collections.abc import Sequence

from common.table_rows import OverlayLayersRow, OverlaySummaryDocument
from common.view.tables import Table, TableColumn
from common.view.text import duration, percent, quantity

SHOWN_LAYERS = 8


def overlay_report(summary: OverlaySummaryDocument, layers: Sequence[OverlayLayersRow]) -> str:
    """Return latency, frames per second and the slowest layers."""
    return "\n\n".join([_headline(summary), _slowest(layers)])


def _headline(summary: OverlaySummaryDocument) -> str:
    best_us, worst_us = summary["batch_latency_optimistic_us"], summary["batch_latency_pessimistic_us"]
    latency = f"{duration(best_us)} to {duration(worst_us)}"
    rate = f"{quantity(summary['pessimistic_frames_per_s'], '')} to {quantity(summary['optimistic_frames_per_s'], '')}"
    count = summary["image_count"]
    return "\n".join(
        [
            f"{summary['engine']} on {summary['board']} at {summary['clock_mhz']:g} MHz, int8, "
            + (f"{count} images at once, one on each engine" if count > 1 else "one image at a time"),
            f"latency            {duration(summary['batch_latency_likely_us'])} ({latency})",
            f"frames per second  {summary['likely_frames_per_s']:.4g} ({rate})",
            f"  with a busy host {summary['pipelined_frames_per_s']:.4g}: enough threads that the engine never waits",
            f"roofline bound     {duration(summary['roof_us'])}: peak and bandwidth alone, no estimate",
        ]
    )


def _slowest(layers: Sequence[OverlayLayersRow]) -> str:
    def time_us(row: OverlayLayersRow) -> float:
        return row["kernel_latency_likely_us"] or 0.0

    total_us = sum(map(time_us, layers))
    columns: Table[OverlayLayersRow] = Table(
        TableColumn(f"slowest of {len(layers)} layers", lambda row: row["engine_layer"]),
        TableColumn("Unit", lambda row: row["unit"], is_left=True),
        TableColumn("Time", lambda row: duration(time_us(row))),
        TableColumn("Share", lambda row: percent(time_us(row) / total_us)),
        TableColumn("Bound", lambda row: row["board_bound"], is_left=True),
    )
    return columns.text(sorted(layers, key=lambda row: -time_us(row))[:SHOWN_LAYERS])
