"""A long load: memory, latency and rate over time, with the slope of memory and the levels of speed."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from common.table_rows import EnduranceSummaryDocument
from common.view.load.endurance_text import leak_text, speed_text
from common.view.style import BLUE, GREEN, GREY, ORANGE, new_figure

MEGABYTE, US_PER_MIN, S_PER_MIN = 1e6, 6e7, 60.0


def draw_endurance(parts: pd.DataFrame, summary: EnduranceSummaryDocument) -> Figure | None:
    """Draw the parts of endurance as panels over one time axis."""
    if len(parts) < 2:
        return None
    figure = new_figure(leak_text(summary), speed_text(summary))
    grid = GridSpec(3, 1, figure, left=0.075, right=0.985, bottom=0.09, top=0.86, hspace=0.25)
    minutes = (parts["part_start_us"] + parts["part_duration_us"]) / US_PER_MIN
    memory, latency, rate = panels = [figure.add_subplot(grid[row]) for row in range(3)]
    memory.plot(minutes, parts["resident_bytes"] / MEGABYTE, "o-", color=BLUE, markersize=3)
    memory.set_ylabel("memory (MB)")
    for name, colour in (("request_p99_us", ORANGE), ("request_p50_us", GREEN), ("call_us", GREY)):
        label = {"call_us": "one call"}.get(name, name.split("_")[1])
        latency.plot(minutes, parts[name] / 1e3, "o-", color=colour, markersize=3, label=label)
    latency.set(ylabel="latency (ms)", ylim=(0, None))
    latency.legend(ncols=3, loc="lower left")
    rate.plot(minutes, parts["answered_requests_per_s"], "o-", color=BLUE, markersize=3)
    rate.set(ylabel="answers per second", ylim=(0, None), xlabel="time (min)")
    for axes in panels:
        axes.grid(visible=True)
        axes.set_xlim(0, float(minutes.max()))
        for change in [*summary["call_levels"]][1:]:
            axes.axvline(float(change) / S_PER_MIN, color=GREY, linestyle=":", linewidth=1)
    return figure
