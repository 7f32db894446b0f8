"""Energy of one inference by operator type and by node, divided into compute, data movement and static."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.table_rows import EnergySummaryDocument
from common.view.executed_nodes import KeyNode
from common.view.style import BLUE, GREY, ORANGE, mark, new_figure
from common.view.text import joules, percent, quantity

CAUSES = {"compute": ORANGE, "movement": BLUE, "static": GREY}
LABELS = {"compute": "compute", "movement": "data movement", "static": "static"}
COLUMNS = [f"{cause}_energy_uj" for cause in CAUSES]
GROUPS, NODES = 6, 10
THIN_SHARE = 0.006  # of the axis: a white outline would cover a part that is narrower, or the eye would miss a bar


def draw_energy(
    profile: pd.DataFrame, summary: EnergySummaryDocument | None, keys: Sequence[KeyNode], labels: Mapping[str, str]
) -> Figure:
    """Draw stacked bars by operator type and by node of ops_profile, whose energies are known."""
    figure = new_figure(_title(profile, summary), _subtitle(profile, summary))
    room = {"left": 0.13, "right": 0.94, "bottom": 0.1, "top": 0.79, "wspace": 0.86}
    groups, nodes = figure.subplots(1, 2, gridspec_kw=room)
    _draw_bars(groups, _by_group(profile), "by operator type")
    largest = profile[profile["row_kind"] != "gap"].nlargest(NODES, "energy_uj", keep="first")
    numbers, names = {key.name: key.number for key in keys}, [*largest["executed_node"]]
    shown = largest.set_index(pd.Index([f"{labels[name]}  {numbers.get(name, ' ')}" for name in names]))
    _draw_bars(nodes, shown, "by node, the largest (number: rank by latency)", names)
    figure.legend(*groups.get_legend_handles_labels(), ncols=3, loc="upper left", bbox_to_anchor=(0.01, 0.89))
    return figure


def _title(profile: pd.DataFrame, summary: EnergySummaryDocument | None) -> str:
    source = profile["energy_source"].iloc[0]
    total_uj = summary["energy_uj"] if summary else profile["energy_uj"].sum()
    parts = profile[COLUMNS].sum()
    most = str(parts.idxmax()).removesuffix("_energy_uj")
    share = percent(float(parts.max()) / float(parts.sum()) if parts.sum() else None, 0)
    return f"One inference takes {joules(total_uj)} ({source}), {share} of it {LABELS[most]}"


def _subtitle(profile: pd.DataFrame, summary: EnergySummaryDocument | None) -> str:
    if not summary:
        return "energy_summary.json is absent: no interval"
    span = f"{joules(summary['energy_low_uj'])} to {joules(summary['energy_high_uj'])}"
    average, static = quantity(summary["average_power_w"], "W"), quantity(summary["static_power_w"], "W")
    powers = f"average {average}, static {static} ({summary['static_power_source']})"
    return f"total {span} · {powers} · the division over nodes and causes is always modelled"


def _by_group(profile: pd.DataFrame) -> pd.DataFrame:
    """Return the operator types and the gap by falling energy, small ones in one row."""
    named = profile.assign(label=profile["op_type"].where(profile["row_kind"] != "gap", "gap between nodes"))
    sums = named.groupby("label")[["energy_uj", *COLUMNS]].sum().sort_values("energy_uj", ascending=False)
    first, rest = sums.head(GROUPS), sums.iloc[GROUPS:]
    if len(rest) == 1:
        return sums
    if len(rest):
        first.loc[f"{len(rest)} other types"] = rest.sum()
    return first


def _draw_bars(axes: Axes, rows: pd.DataFrame, title: str, names: Sequence[str] = ()) -> None:
    scale, prefix = _prefix(float(rows["energy_uj"].max()))
    places, widest = range(len(rows)), float(rows["energy_uj"].max()) * scale
    left = pd.Series(0.0, index=rows.index)
    for cause, colour in CAUSES.items():
        width = rows[f"{cause}_energy_uj"].astype(float).fillna(0.0) * scale
        bars = axes.barh(places, width, left=left, color=colour, edgecolor="white", linewidth=0.5, label=LABELS[cause])
        for bar in bars:
            bar.set_linewidth(0.5 if bar.get_width() > THIN_SHARE * widest else 0.0)
        for bar, name in zip(bars, names, strict=False):
            mark(bar, [[name]])
        left += width
    for place, energy_uj, end in zip(places, rows["energy_uj"], left, strict=True):
        axes.annotate(joules(energy_uj), (end, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    _mark_slivers(axes, rows, widest, scale)
    axes.set_yticks(places, list(rows.index))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)  # it would cover a sliver
    axes.set_xlabel(f"energy ({prefix}J)")
    axes.set_title(title, fontsize=10)
    axes.set_xlim(0, float(left.max()) * 1.05 or 1.0)
    axes.grid(visible=True, axis="x")
    axes.invert_yaxis()


def _mark_slivers(axes: Axes, rows: pd.DataFrame, widest: float, scale: float) -> None:
    """Draw a line at the end of each bar that is too short to be seen, in the colour of its largest part."""
    for place, (_, row) in enumerate(rows.iterrows()):
        end = float(row["energy_uj"]) * scale
        if 0 < end < THIN_SHARE * widest:
            largest = max(CAUSES, key=lambda cause: row[f"{cause}_energy_uj"])
            axes.plot([end] * 2, [place - 0.4, place + 0.4], color=CAUSES[largest], linewidth=1.4)


def _prefix(largest_uj: float) -> tuple[float, str]:
    """Return the factor from µJ to the unit of the axis, and its prefix."""
    return next(pair for limit, pair in ((1e6, (1e-6, "")), (1e3, (1e-3, "m")), (0, (1.0, "µ"))) if largest_uj >= limit)
