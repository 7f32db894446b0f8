"""A whole model on an overlay engine as text: latency, frames per second, and the slowest layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from common.view.text import duration, percent, quantity, table

SHOWN_LAYERS = 8


def overlay_report(summary: Mapping[str, Any], layers: pd.DataFrame) -> str:
    """Return latency, frames per second and the slowest layers.

    Args:
        summary: overlay_summary.
        layers: overlay_layers.
    """
    return "\n\n".join([_headline(summary), _slowest(layers)])


def _headline(summary: Mapping[str, Any]) -> str:
    latency = " to ".join(duration(summary[f"batch_latency_{case}_us"]) for case in ("optimistic", "pessimistic"))
    rate = " to ".join(quantity(summary[f"{case}_frames_per_s"], "") for case in ("pessimistic", "optimistic"))
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


def _slowest(layers: pd.DataFrame) -> str:
    total_us = layers["kernel_latency_likely_us"].sum()
    rows = [
        [
            row["engine_layer"],
            row["unit"],
            duration(row["kernel_latency_likely_us"]),
            percent(row["kernel_latency_likely_us"] / total_us),
            row["board_bound"],
        ]
        for row in layers.nlargest(SHOWN_LAYERS, "kernel_latency_likely_us").to_dict("records")
    ]
    return table((f"slowest of {len(layers)} layers", "Unit", "Time", "Share", "Bound"), rows, left=(0, 1, 4))
