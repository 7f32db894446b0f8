"""Roofs of a roofline plot: a peak per number format and a slope per memory level, at all threads and at one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import atan2, degrees, hypot, inf, log10
from typing import Any, cast

from matplotlib.axes import Axes
from matplotlib.text import Annotation

from common.graphs.number_formats import INT8, MEASURED_PEAKS
from common.table_rows import HostCeilingsDocument
from common.view.placing import Point
from common.view.style import BLACK, BLUE, GREY, VERMILLION, on_screen
from common.view.text import quantity

# Column and unit of each peak, by the name that op_roofline's column roof has.
PEAKS = {name: (column, "OP/s" if name == INT8 else "FLOP/s") for name, column in MEASURED_PEAKS.items()}
SLOPES = {"memory": "memory_bytes_per_s", "cache": "cache_bytes_per_s"}
ROOF_STEPS = 120  # closer together than a label is wide
LABEL_POINTS, LABEL_HEIGHT_PX = 7.5, 13.0
COLUMN_SHARE = 0.27  # of the width: what the label of a peak takes, when the next is beside it
ALONG = (0.62, 0.3, 0.46, 0.78, 0.16, 0.7, 0.38, 0.54, 0.86, 0.23)  # where on its line the label of a slope may be
LETTER_PX, CLEAR_PX = 6.6, 26.0  # of such a label's length, and how far it keeps from marks and other labels
ABOVE, BENEATH = 1, -1  # the line that a label belongs to
LABEL_STEPS = 12  # points along a label that keep clear
LABEL_LAYER = 5  # above the marks
BEHIND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8}


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One line of a roof. ``judges``: the tables' shares of the roof refer to this line."""

    text: str
    rate: float
    judges: bool = False
    is_one_thread: bool = False


@dataclass(frozen=True, slots=True)
class Roof:
    """Peaks in FLOP/s or int8 operations/s and slopes in bytes/s; at least one of each judges."""

    peaks: tuple[Ceiling, ...]
    slopes: tuple[Ceiling, ...]

    @property
    def judging_slope(self) -> Ceiling:
        """Bandwidth that shares of the roof refer to."""
        return next(line for line in self.slopes if line.judges)

    def ridges(self) -> list[tuple[float, float]]:
        """Return intensity and rate of each point where a judging peak meets the judging slope."""
        return [(peak.rate / self.judging_slope.rate, peak.rate) for peak in self.peaks if peak.judges]


def roof_from(
    measured: HostCeilingsDocument | None,
    peak: float | None,
    bandwidth: float | None,
    judging: Collection[str] = ("fp32",),
) -> Roof | None:
    """Return the given roofs, and measured ones in place of those not given; None where peak or slope is unknown.

    A given peak is for all number formats; ``judging`` names the peaks that nodes are compared with.
    """
    peaks = [Ceiling(f"given peak: {quantity(peak, 'FLOP/s')}", peak, judges=True)] if peak else []
    slopes = [Ceiling(f"given memory: {quantity(bandwidth, 'B/s')}", bandwidth, judges=True)] if bandwidth else []
    if measured and not peaks:
        names = {name for name in PEAKS if name in judging} or {"fp32"}
        peaks = [line for name, column in PEAKS.items() for line in _lines(measured, name, *column, name in names)]
    if measured and not slopes:
        slopes = [line for name, key in SLOPES.items() for line in _lines(measured, name, key, "B/s", name == "memory")]
    return Roof(tuple(peaks), tuple(slopes)) if peaks and slopes else None


def _lines(measured: HostCeilingsDocument, name: str, column: str, unit: str, judges: bool) -> list[Ceiling]:
    """Return the line at all threads and, if there are several, the one at one thread; an unmeasured rate has none."""
    rates, threads = cast("Mapping[str, float | None]", measured), measured["threads"]
    lines = []
    if (rate := rates[column]) is not None:
        text = f"{name}, {threads} thread{'s' * (threads > 1)}: {quantity(rate, unit)}"
        lines.append(Ceiling(text, float(rate), judges))
    if (rate := rates[f"one_thread_{column}"]) is not None and threads > 1:
        lines.append(Ceiling(f"{name}, 1 thread: {quantity(rate, unit)}", float(rate), is_one_thread=True))
    return lines


def draw_roofs(axes: Axes, roof: Roof, marks: Sequence[Point] = ()) -> None:
    """Draw every line with its label, clear of the marks, and the ridge points of the judging lines."""
    top, steepest = max(line.rate for line in roof.peaks), max(line.rate for line in roof.slopes)
    left, right = axes.get_xlim()
    for peak in roof.peaks:
        axes.plot([peak.rate / steepest, right], [peak.rate] * 2, color=VERMILLION, **_style(peak))
    for slope in roof.slopes:
        axes.plot([left, top / slope.rate], [left * slope.rate, top], color=BLUE, **_style(slope))
    _draw_judging(axes, roof)
    _label_peaks(axes, roof.peaks)
    points, labels = on_screen(axes, marks), [*peak_labels_on_screen(axes)]
    for rank, slope in enumerate(sorted(roof.slopes, key=lambda line: (not line.judges, line.rate))):
        turn = rank % len(ALONG)  # parallels are close: each begins elsewhere
        is_lowest = slope.rate == min(line.rate for line in roof.slopes)
        along = [*ALONG[turn:], *ALONG[:turn]]
        labels += _label_slope(axes, slope, top, along, labels, points, is_lowest=is_lowest)


def _style(line: Ceiling) -> dict[str, Any]:
    """Return a thin line, dashed for one thread; judging lines are drawn over it."""
    return {"linewidth": 0.8, "linestyle": (0, (5, 3)) if line.is_one_thread else "-", "alpha": 0.8}


def _draw_judging(axes: Axes, roof: Roof) -> None:
    """Draw the judging roofs thick, with their ridge points, which are labelled at the bottom."""
    slope, (left, right) = roof.judging_slope, axes.get_xlim()
    bottom = axes.get_ylim()[0]
    for rank, (ridge, rate) in enumerate(roof.ridges()):
        axes.plot([left, ridge], [left * slope.rate, rate], color=BLUE, linewidth=2)
        axes.plot([ridge, right], [rate] * 2, color=VERMILLION, linewidth=2)
        axes.plot([ridge] * 2, [bottom, rate], color=BLACK, linewidth=0.7, linestyle=":")
        axes.plot([ridge], [rate], marker="D", color=BLACK, markersize=5)
        text, lift = f"ridge {quantity(ridge, 'FLOP/byte')}", 4 + 1.5 * LABEL_POINTS * rank
        place = {"textcoords": "offset points", "fontsize": LABEL_POINTS + 1}
        axes.annotate(text, (ridge, bottom), (4, lift), color=BLACK, bbox=BEHIND, **place)  # type: ignore[arg-type]


def _label_peaks(axes: Axes, peaks: Iterable[Ceiling]) -> None:
    """Label each peak at the right edge, above its line; where lines are close, beside the label before.

    A label whose next line would run through it goes beneath its own line, if no other one is close there.
    """
    left, right = (log10(limit) for limit in axes.get_xlim())
    ordered = sorted(peaks, key=lambda line: line.rate)
    heights = [float(axes.transData.transform((1.0, peak.rate))[1]) for peak in ordered]
    columns: list[float] = []  # height of the last label in each
    for peak, before, height, after in zip(ordered, [-inf, *heights], heights, [*heights[1:], inf], strict=False):
        is_beneath = after - height < LABEL_HEIGHT_PX and height - before > 2 * LABEL_HEIGHT_PX
        place_px = height - LABEL_HEIGHT_PX if is_beneath else height
        free = (place for place, last in enumerate(columns) if place_px - last >= LABEL_HEIGHT_PX)
        column = next(free, len(columns))
        columns[column : column + 1] = [place_px]
        x = 10 ** (right - column * COLUMN_SHARE * (right - left))
        offset, side = ((-3, -3), "top") if is_beneath else ((-3, 2), "bottom")
        axes.annotate(peak.text, (x, peak.rate), offset, ha="right", va=side, **_lettering(peak, VERMILLION))


def _label_slope(
    axes: Axes,
    slope: Ceiling,
    top: float,
    along: Sequence[float],
    labels: Sequence[Point],
    points: Sequence[Point],
    *,
    is_lowest: bool,
) -> list[Point]:
    """Label a slope along its line where most room is; return points in pixels that the label covers.

    ``along`` are possible places, as shares of the visible part; the first ones are better. ``labels`` and ``points``
    are places in pixels, of other labels and of marks, that it keeps clear of if it can.
    """
    low = log10(max(axes.get_xlim()[0], axes.get_ylim()[0] / slope.rate))
    high = log10(top / slope.rate)
    (x0, y0), (x1, y1) = axes.transData.transform([(10**x, 10**x * slope.rate) for x in (low, high)])
    length_px = max(hypot(x1 - x0, y1 - y0), 1.0)
    reach = LETTER_PX * len(slope.text) / length_px  # of the label, as a share of the line

    def covered(place: tuple[float, int]) -> list[Point]:
        share, side = place
        shares = [share + reach * (step / LABEL_STEPS - 0.5) for step in range(LABEL_STEPS + 1)]
        across = side * LABEL_HEIGHT_PX / 2 / length_px
        right, up = across * (y0 - y1), across * (x1 - x0)
        return [(float(x0 + each * (x1 - x0) + right), float(y0 + each * (y1 - y0) + up)) for each in shares]

    def room(place: tuple[float, int]) -> tuple[float, float]:
        share = place[0]
        ends_px = (min(share, 1 - share) - reach / 2) * length_px  # below 0 where it leaves the line
        to_label, to_mark = (
            min((hypot(x - a, y - b) for x, y in covered(place) for a, b in taken), default=CLEAR_PX)
            for taken in (labels, points)
        )
        return min(LABEL_HEIGHT_PX, ends_px + CLEAR_PX, to_label), min(CLEAR_PX, ends_px + CLEAR_PX, to_label, to_mark)

    # The lowest line may be close to the next, so its label goes beneath it. It is the line of one thread or, on a busy
    # host, the judging one.
    sides = (BENEATH, ABOVE) if is_lowest else (ABOVE,) if slope.judges else (ABOVE, BENEATH)
    best = max(((share, side) for side in sides for share in along), key=room)
    at = 10 ** (low + best[0] * (high - low))
    turn: dict[str, Any] = {"rotation": degrees(atan2(y1 - y0, x1 - x0)), "rotation_mode": "anchor"}
    side: dict[str, Any] = {"va": "top"} if best[1] == BENEATH else {}
    offset = (3, -4) if side else (-2, 3)
    axes.annotate(slope.text, (at, at * slope.rate), offset, ha="center", **side, **turn, **_lettering(slope, BLUE))
    return covered(best)


def _lettering(line: Ceiling, colour: str) -> dict[str, Any]:
    weight, colour = ("bold", colour) if line.judges else ("normal", GREY)
    look = {"color": colour, "fontsize": LABEL_POINTS, "fontweight": weight, "bbox": BEHIND}
    return {"textcoords": "offset points", "annotation_clip": True, "zorder": LABEL_LAYER, **look}


def peak_labels_on_screen(axes: Axes) -> Sequence[Point]:
    """Return points in pixels along the labels of the peaks, for other labels to keep clear of."""
    labels = (text for text in axes.texts if isinstance(text, Annotation) and not text.get_rotation())
    boxes = [label.get_window_extent() for label in labels]
    return [
        (float(box.x0 + step * LABEL_HEIGHT_PX), float(box.y0 + box.y1) / 2)
        for box in boxes
        for step in range(-1, int(box.width / LABEL_HEIGHT_PX) + 2)
    ]


def roofs_on_screen(axes: Axes, roof: Roof) -> Sequence[Point]:
    """Return points in pixels along the judging roofs, for other labels to keep clear of."""
    low, high = (log10(limit) for limit in axes.get_xlim())
    intensities = [10 ** (low + (high - low) * step / ROOF_STEPS) for step in range(ROOF_STEPS + 1)]
    lines = [(at, min(rate, at * roof.judging_slope.rate)) for _, rate in roof.ridges() for at in intensities]
    return on_screen(axes, lines)
