"""The roofline of a host with every executed node (Williams, Waterman, Patterson: CACM 52(4), 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.table_rows import OpRooflineRow
from common.view.executed_nodes import KeyNode, by_op_type, gap_share, gap_text, leading_gap
from common.view.frames import frame_of
from common.view.roofline.roofline_text import REASONS
from common.view.roofline.roofs import COLUMN_SHARE, Roof, draw_roofs, peak_labels_on_screen, roofs_on_screen
from common.view.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LIST_ROWS,
    VERMILLION,
    explain_marks,
    legend_mark,
    list_keys,
    log_scales,
    mark,
    new_figure,
    number_marks,
    on_screen,
    with_side_column,
)
from common.view.text import duration, percent

COLOURS = {"compute": VERMILLION, "memory": BLUE, "": GREEN}
SHAPES = ("o", "s", "^", "D", "v")
OTHER_SHAPE = "P"
POINTS2_PER_SHARE = 2600.0  # marker area at the whole latency, in square points
AREA_POINTS2 = (16.0, 1500.0)
PLACE = ["arithmetic_intensity_flop_per_byte", "attained_flop_per_s"]
MOST_REASONS = 4
MOST_POINTS = 3_000  # more than a picture of a few hundred kB holds
MARK_LAYER = 4  # above the roofs and their labels


def draw_roofline(rows: Sequence[OpRooflineRow], keys: Sequence[KeyNode], roof: Roof | None) -> Figure:
    """Draw arithmetic intensity against attained FLOP/s; ``roof`` is None where no ceilings are known."""
    roofline = frame_of(rows)
    # The slowest nodes with FLOPs and time; logarithmic axes have no place for others.
    known = (roofline["arithmetic_intensity_flop_per_byte"] > 0) & (roofline["attained_flop_per_s"] > 0)
    drawn = roofline[known.fillna(False).astype(bool)].nlargest(MOST_POINTS, "node_latency_us", keep="first")
    roof = None if (roofline["roof_share_reason"] == "other_device").any() else roof
    figure = new_figure(_title(rows, roof), _subtitle(roofline, drawn))
    axes, side = with_side_column(figure)
    _scale(axes, drawn, roof)
    if roof:
        draw_roofs(axes, roof, [(x, y) for x, y in drawn[PLACE].to_numpy(float)])
    shapes = _shapes(drawn)
    _draw_nodes(axes, drawn, shapes)
    _number(axes, drawn, keys, roof)
    list_keys(side, keys, _details(roofline, keys))
    _explain(side, drawn, shapes)
    return figure


def _title(roofline: Sequence[OpRooflineRow], roof: Roof | None) -> str:
    groups = by_op_type(roofline)
    if roof is None or not groups:
        return "Executed nodes by arithmetic intensity (no ceilings known)"
    first = groups[0]
    reach = "" if first.roof_share is None else f" and reaches {percent(first.roof_share, 0)} of its roof"
    is_unstable = any(row["roof_share_reason"] == "unstable" for row in roofline)  # "mostly" is of all nodes
    bound = f", mostly {first.bound}-bound" if first.bound and not is_unstable else ""
    over = max(-gap_share(roofline), 0.0)  # by which the node times exceed the latency: they are the whole then
    taken = f"{first.name} takes {percent(first.latency_share / (1 + over), 0)}"
    if (gap := leading_gap(roofline)) is not None:
        return f"{gap_text(gap)}; {taken}{' of them' if over else ''}{reach}"
    return f"{taken} of the {'node times' if over else 'latency'}{reach}{bound}"


def _subtitle(roofline: pd.DataFrame, drawn: pd.DataFrame) -> str:
    nodes = roofline[roofline["row_kind"] != "gap"]
    rest = nodes[~nodes["executed_node"].isin(drawn["executed_node"])]
    text = f"{len(drawn)} executed nodes; area is the share of latency"
    if len(rest):
        short = "short or " if len(drawn) == MOST_POINTS else ""
        share = percent(rest["latency_share"].sum())
        text += f"; not drawn: {len(rest)} {short}without FLOPs or time ({share} of the latency)"
    if (nodes["roof_share_reason"] == "unstable").any():
        text += "; the ceilings are unstable, so no share of a roof is stated"
    if (nodes["roof_share_reason"] == "other_device").any():
        text += "; the roofs of the device are unknown"
    return text


def _scale(axes: Axes, drawn: pd.DataFrame, roof: Roof | None) -> None:
    intensities, rates = list(drawn["arithmetic_intensity_flop_per_byte"]), list(drawn["attained_flop_per_s"])
    if roof:
        intensities += [intensity for intensity, _ in roof.ridges()]
        rates += [peak.rate for peak in roof.peaks]
    intensities, rates = intensities or [1.0], rates or [1e9]
    axes.set(xlabel="arithmetic intensity (FLOP/byte)", ylabel="attained (FLOP/s)")
    log_scales(axes)
    left, right = min(intensities) / 2.5, max(intensities) * 2
    if roof:  # beyond the marks is room for the labels of the peaks
        right *= (right / left) ** (COLUMN_SHARE / (1 - COLUMN_SHARE))
    axes.set_xlim(left, right)
    axes.set_ylim(min(rates) / 3, max(rates) * 2)


def _shapes(drawn: pd.DataFrame) -> dict[str, str]:
    """Return a marker for each operator type that takes much time."""
    times = drawn.groupby("op_type")["node_latency_us"].sum().sort_values(ascending=False, kind="stable")
    return dict(zip(times.index, SHAPES, strict=False))


def _area(latency_share: float) -> float:
    return min(max(POINTS2_PER_SHARE * latency_share, AREA_POINTS2[0]), AREA_POINTS2[1])


def _draw_nodes(axes: Axes, drawn: pd.DataFrame, shapes: dict[str, str]) -> None:
    shape_of = drawn["op_type"].map(shapes).fillna(OTHER_SHAPE)
    looks = [shape_of, drawn["bound"], drawn["is_correction_dominated"], drawn["is_above_roof"]]
    for look, rows in drawn.groupby(looks, sort=True):
        shape, bound, hollow, above = cast(tuple[str, str, bool, bool], look)
        points = axes.scatter(
            rows["arithmetic_intensity_flop_per_byte"],
            rows["attained_flop_per_s"],
            s=rows["latency_share"].map(_area).astype(float),
            marker=shape,
            facecolors="none" if hollow else COLOURS[bound],
            edgecolors=BLACK if above else COLOURS[bound] if hollow else "white",
            linewidths=1.2 if above else 0.9 if hollow else 0.5,
            alpha=0.8,
            zorder=MARK_LAYER,
        )
        mark(points, ([name] for name in rows["executed_node"]))


def _number(axes: Axes, drawn: pd.DataFrame, keys: Sequence[KeyNode], roof: Roof | None) -> None:
    """Write the rank of each key node beside its mark, with a line to it."""
    if not len(drawn):
        return
    places = {name: (x, y) for name, (x, y) in zip(drawn["executed_node"], drawn[PLACE].to_numpy(float), strict=True)}
    radii = dict(zip(places, drawn["latency_share"].map(_area) ** 0.5 / 2 * axes.figure.dpi / 72, strict=True))
    shown = {key.number: key.name for key in keys if key.name in places}
    others = on_screen(axes, [place for name, place in places.items() if name not in shown.values()])
    if roof:
        others += [*roofs_on_screen(axes, roof), *peak_labels_on_screen(axes)]
    sizes = [radii[name] for name in shown.values()]
    number_marks(axes, {number: places[name] for number, name in shown.items()}, sizes, others)


def _details(roofline: pd.DataFrame, keys: Sequence[KeyNode]) -> dict[str, str]:
    details = {}
    for row in roofline[roofline["executed_node"].isin([key.name for key in keys])].to_dict("records"):
        share = "" if pd.isna(row["roof_share"]) else f" · {percent(row['roof_share'], 0)} of roof"
        details[row["executed_node"]] = f"{duration(row['node_latency_us'])} · {percent(row['latency_share'])}{share}"
    return details


def _explain(side: Axes, drawn: pd.DataFrame, shapes: dict[str, str]) -> None:
    names = {"compute": "compute-bound", "memory": "memory-bound", "": "bound unknown"}
    marks = [
        legend_mark("o", names[bound], color=COLOURS[bound], markeredgecolor="white")
        for bound in COLOURS
        if (drawn["bound"] == bound).any()
    ]
    marks += [legend_mark(shape, op_type, color=GREY, markeredgecolor="white") for op_type, shape in shapes.items()]
    if not drawn["op_type"].isin(shapes).all():
        marks.append(legend_mark(OTHER_SHAPE, "other operators", color=GREY, markeredgecolor="white"))
    if drawn["is_correction_dominated"].any():
        marks.append(legend_mark("o", "profiler dominates", markerfacecolor="none", markeredgecolor=GREY))
    above = drawn[drawn["is_above_roof"]].sort_values("node_latency_us", ascending=False, kind="stable")
    reasons = list(dict.fromkeys(zip(above["bound"], above["roof_share_reason"], strict=True)))[:MOST_REASONS]
    for place, (bound, reason) in enumerate(reasons):
        line = LIST_ROWS - 0.4 - 1.1 * place
        side.plot([0.03], [line], "o", color=COLOURS[bound], markersize=6, markeredgewidth=1.2, markeredgecolor=BLACK)
        side.text(0.065, line, f"above its roof: {REASONS[reason]}", fontsize=8, va="center")
    explain_marks(side, marks, 1.1 * len(reasons) / LIST_ROWS)
