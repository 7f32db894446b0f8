"""The roofline of a board with the kernels of a list, each alone and fused with its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.view.roofline.roofs import Ceiling, Roof, draw_roofs, roofs_on_screen
from common.view.style import (
    BLUE,
    GREY,
    VERMILLION,
    explain_marks,
    legend_mark,
    log_scales,
    new_figure,
    number_marks,
    on_screen,
    with_side_column,
)
from common.view.text import duration, quantity, significant

COLOURS = {"compute": VERMILLION, "memory": BLUE}
MARK_POINTS, BESIDE_PX = 9.0, 8.0
LINES_A_KERNEL = 2.05
MOST_LISTED = 11
NAMES_WIDTH = 34


@dataclass(frozen=True, slots=True)
class Point:
    """Kernels of equal intensity. ``fused_intensity`` is None where fusion changes nothing or leaves no traffic."""

    names: tuple[str, ...]
    intensity: float
    fused_intensity: float | None
    roof_us: float


def draw_kernels(title: str, kernels: pd.DataFrame, ceilings: pd.DataFrame, precision: str) -> Figure:
    """Draw one number format of the kernels or kernels_corrected table; the peaks of other formats are thin lines."""
    shown = kernels[kernels["precision"] == precision]
    roof = _roof(ceilings, precision)
    points = _points(shown, roof)
    alike = "kernels at one place share a number; a mark is what the roof allows, not what a kernel attains"
    on_board = f"{len(shown)} kernels in {precision.upper()} on {ceilings['board'].iloc[0]}"
    figure = new_figure(_title(title, points, roof), f"{on_board}; {alike}")
    axes, side = with_side_column(figure)
    intensities = [value for point in points for value in (point.intensity, point.fused_intensity) if value]
    places = [(value, _attainable(roof, value)) for value in intensities]
    _scale(axes, places, roof)
    draw_roofs(axes, roof, places)
    _draw_points(axes, points, roof)
    _number(axes, points, roof)
    _list(side, points, roof)
    marks = [legend_mark("^", f"{bound}-bound", color=colour) for bound, colour in COLOURS.items()]
    if any(point.fused_intensity for point in points):
        marks.append(legend_mark("^", "fused with its neighbours", markerfacecolor="white", markeredgecolor=GREY))
    explain_marks(side, marks)
    return figure


def _title(title: str, points: Sequence[Point], roof: Roof) -> str:
    bound = [name for point in points if _bound(roof, point.intensity) == "memory" for name in point.names]
    count = sum(len(point.names) for point in points)
    rest = f"; memory bounds {bound[0]}" if len(bound) == 1 else ""
    return f"{title}: {count - len(bound)} of {count} kernels are compute-bound{rest}"


def _roof(ceilings: pd.DataFrame, precision: str) -> Roof:
    known = ceilings[ceilings["kernel_peak_flop_per_s"].notna()]
    peaks = tuple(
        Ceiling(f"{name.upper()}: {quantity(rate, 'OP/s')}", float(rate), name == precision)
        for name, rate in zip(known["precision"], known["kernel_peak_flop_per_s"], strict=True)
    )
    bandwidth = float(ceilings["board_memory_bytes_per_s"].iloc[0])
    return Roof(peaks, (Ceiling(f"memory: {quantity(bandwidth, 'B/s')}", bandwidth, judges=True),))


def _attainable(roof: Roof, intensity: float) -> float:
    return min(roof.ridges()[0][1], roof.judging_slope.rate * intensity)


def _bound(roof: Roof, intensity: float) -> str:
    return "compute" if intensity >= roof.ridges()[0][0] else "memory"


def _points(shown: pd.DataFrame, roof: Roof) -> list[Point]:
    """Group kernels of equal intensities, alone and fused, into points, in the order of the list."""
    groups: dict[tuple[float, float | None], list[dict[str, Any]]] = {}
    rows: list[dict[str, Any]] = shown.to_dict("records")  # type: ignore[assignment]
    for row in rows:
        fused = row.get("fused_bytes", row["bytes"])
        changed = row["flops"] / fused if fused and fused != row["bytes"] else None
        groups.setdefault((row["arithmetic_intensity_flop_per_byte"], changed), []).append(row)
    points = []
    for (intensity, fused_intensity), alike in groups.items():  # the time of all calls, with every operand moved
        roof_us = sum(
            float(row.get("call_count", 1) * row["flops"] / _attainable(roof, intensity) * 1e6) for row in alike
        )
        points.append(Point(tuple(row["kernel"] for row in alike), intensity, fused_intensity, roof_us))
    return points


def _scale(axes: Axes, places: Sequence[tuple[float, float]], roof: Roof) -> None:
    intensities = [intensity for intensity, _ in (*places, *roof.ridges())]
    rates = [rate for _, rate in places] + [peak.rate for peak in roof.peaks]
    axes.set(xlabel="arithmetic intensity (OP/byte)", ylabel="attainable (OP/s)")
    log_scales(axes)
    axes.set_xlim(min(intensities) / 3, max(intensities) * 6)
    axes.set_ylim(min(rates) / 3, max(rates) * 2)


def _draw_points(axes: Axes, points: Sequence[Point], roof: Roof) -> None:
    look: dict[str, Any] = {"marker": "^", "markersize": MARK_POINTS, "zorder": 5}
    for point in points:
        start = (point.intensity, _attainable(roof, point.intensity))
        axes.plot(*start, color=COLOURS[_bound(roof, point.intensity)], markeredgecolor="white", **look)
        if fused := point.fused_intensity:
            end = (fused, _attainable(roof, fused))
            axes.plot(*end, color=COLOURS[_bound(roof, fused)], markerfacecolor="white", **look)
            arrow = {"arrowstyle": "->", "color": GREY, "linewidth": 0.9, "shrinkA": 5, "shrinkB": 5}
            axes.annotate("", end, start, arrowprops={**arrow, "connectionstyle": "arc3,rad=-0.25"}, zorder=4)


def _number(axes: Axes, points: Sequence[Point], roof: Roof) -> None:
    """Write the number of each point beside it, clear of the roofs and of other marks."""
    places = ((point.intensity, _attainable(roof, point.intensity)) for point in points)
    alone = dict(enumerate(places, start=1))
    fused = [(at, _attainable(roof, at)) for point in points if (at := point.fused_intensity)]
    lines = roofs_on_screen(axes, roof)
    others = [*on_screen(axes, fused), *lines, *((x - BESIDE_PX, y + BESIDE_PX) for x, y in lines)]  # labels are above
    number_marks(axes, alone, [MARK_POINTS / 2 * axes.figure.dpi / 72] * len(alone), others)


def _list(side: Axes, points: Sequence[Point], roof: Roof) -> None:
    side.text(0, 0, "Kernels, and the time of their calls at the roof", fontsize=8.5, fontweight="bold")
    for number, point in enumerate(points[:MOST_LISTED], 1):
        top = 1.3 + LINES_A_KERNEL * (number - 1)
        side.text(0.06, top, str(number), fontweight="bold", ha="right", va="top")
        side.text(0.09, top, _joined(point.names), va="top", fontsize=8)
        fused = f" (fused {significant(point.fused_intensity)})" if point.fused_intensity else ""
        bound = f"{_bound(roof, point.intensity)} · {duration(point.roof_us)}"
        detail = f"{significant(point.intensity)} OP/byte{fused} · {bound}"
        side.text(0.09, top + 0.92, detail, va="top", fontsize=7.5, color=GREY)


def _joined(names: Sequence[str]) -> str:
    shown: list[str] = []
    for name in names:
        if shown and len(", ".join([*shown, name])) > NAMES_WIDTH:
            return f"{', '.join(shown)} and {len(names) - len(shown)} more"
        shown.append(name)
    return ", ".join(shown)
