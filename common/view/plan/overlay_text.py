"""A whole model on an overlay engine as text: latency, frames per second, and the slowest layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from common.view.text import duration, percent, quantity, table

if TYPE_CHECKING:
    from common.table_rows import OverlayLayersRow, OverlaySummaryDocument

SHOWN_LAYERS = 8


def overlay_report(summary: OverlaySummaryDocument, layers: Sequence[OverlayLayersRow]) -> str:
    """Return latency, frames per second and the slowest layers.

    Args:
        summary: overlay_summary.
        layers: overlay_layers.
    """
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
    timed = [(row["kernel_latency_likely_us"] or 0.0, row) for row in layers]
    total_us = sum(time_us for time_us, _ in timed)
    slowest = sorted(timed, key=lambda pair: -pair[0])[:SHOWN_LAYERS]
    rows = [
        [row["engine_layer"], row["unit"], duration(time_us), percent(time_us / total_us), row["board_bound"]]
        for time_us, row in slowest
    ]
    return table((f"slowest of {len(layers)} layers", "Unit", "Time", "Share", "Bound"), rows, left=(0, 1, 4))
