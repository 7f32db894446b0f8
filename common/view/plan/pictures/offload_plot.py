"""Latency and energy of one inference before and after offloading, as stacked bars of their parts.

Each case has its own time of the host alone. A mark shows it on the bar, and the speedup beside the bar refers to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from common.messages.names import listed
from common.table_rows import OffloadPlanRow, OffloadVerdictRow, SpeedupRow
from common.view.plan.answer.cases import CASES, Terms, amount, cases_of, doubts_of, is_not_judged, judgement, number
from common.view.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, new_figure
from common.view.text import significant

# Colour, hatch and name of each part. Where the energy of the kernels is split, its parts are vermillion and not the
# green of `kernels`; the darker two differ by their hatch.
DARK_VERMILLION = "#7F3700"
PARTS = {
    "rest": (GREY, "", "stays on the host"),
    "moved": (ORANGE, "", "moves to the card (host)"),
    "kernels": (GREEN, "", "kernels"),
    "card_compute": (VERMILLION, "", "kernels: arithmetic"),
    "card_memory": (DARK_VERMILLION, "////", "kernels: memory"),
    "card_on_chip": (DARK_VERMILLION, "....", "kernels: buffers"),
    "transfer": (BLUE, "", "transfer"),
    "conversion": (YELLOW, "", "conversion"),
    "launch": (PURPLE, "", "launches"),
    "host_idle": ("#A8A8A8", "////", "host waits"),
    "card_static": (SKY, "", "card static"),
}
SPLIT = ("card_compute", "card_memory", "card_on_chip")
ADDED = ("transfer", "conversion", "launch", "host_idle", "card_static")
BAR_HEIGHT = 0.62
LEGEND_COLUMNS, LEGEND_TOP = 7, 0.885  # below a subtitle of two lines
HIDDEN = "overlap"
LABEL_ROOM = 1.15  # of the longest bar, so that its label ends within the picture
LEAST_VISIBLE_SHARE = 0.002  # of the longest bar: about two pixels
END_MARK = {"color": BLACK, "linewidth": 1.6}
HOST_MARK = {"color": BLACK, "linewidth": 1.0, "linestyle": (0, (2, 1))}
NAMES = {case: f"with the card,\n{name}" for case, name in CASES.items()}


def draw_offload(
    speedup: Sequence[SpeedupRow],
    plan: Sequence[OffloadPlanRow] = (),
    verdicts: Sequence[OffloadVerdictRow] = (),
    answer: str = "",
) -> Figure | None:
    """Draw stacked bars for latency and energy; return None where no kernel was chosen.

    ``answer`` is the title; a plan that is not judged shows no speedup, and below the title every doubt.
    """
    terms = Terms.of(speedup)
    known = [objective for objective in ("latency", "energy") if (objective, "total_speedup") in terms]
    known = [objective for objective in known if terms[objective, "kernel_speedup"]["likely"] is not None]
    if not known:
        return None
    words = {row["objective"]: judgement(row) for row in verdicts}
    doubts = doubts_of(verdicts) if is_not_judged(verdicts) else []
    subtitle = "; ".join(doubts) if doubts else _subtitle(plan)
    figure = new_figure(answer or "One inference on the host alone and with the card", subtitle)
    room = {"left": 0.13, "right": 0.9, "bottom": 0.1, "top": 0.77, "hspace": 0.66}
    panels = figure.subplots(len(known), squeeze=False, gridspec_kw=room)
    for axes, objective in zip(panels.flat, known, strict=True):
        _draw(axes, terms, objective, is_judged=not is_not_judged(verdicts))
        axes.set_title(f"{objective} {words.get(objective, '')}", fontsize=10)
    _explain(figure, terms, known)
    return figure


def _subtitle(plan: Sequence[OffloadPlanRow]) -> str:
    kernels = listed((f"{row['kernel']} {row['engine']}" for row in plan), 4)
    on_board = f"{kernels} on {plan[0]['board']} in {plan[0]['precision']} · " if plan else ""
    return f"{on_board}estimated, not measured"


def bars(terms: Terms, objective: str) -> dict[str, dict[str, float]]:
    """Return the parts of each bar by its label, in the unit of the terms; host total × (1 - f) stays, the rest moves.

    Hidden time is a negative part, so that the parts of a bar add up to its total.
    """
    bar_parts = {"host alone": dict(zip(("rest", "moved"), _divided(terms, objective, "likely"), strict=True))}
    for case in CASES:
        rest, moved = _divided(terms, objective, case)
        parts = {"rest": rest}
        if (objective, SPLIT[0]) in terms:
            parts |= {name: _cell(terms, objective, name, case) for name in SPLIT}
        else:
            parts["kernels"] = moved / _cell(terms, objective, "kernel_speedup", case)
        parts |= {name: _cell(terms, objective, name, case) for name in ADDED if (objective, name) in terms}
        if (objective, HIDDEN) in terms:
            parts[HIDDEN] = -_cell(terms, objective, HIDDEN, case)
        bar_parts[NAMES[case]] = parts
    return bar_parts


def _divided(terms: Terms, objective: str, case: str) -> tuple[float, float]:
    """Return the part of the host's total that stays, and the part that moves."""
    total, fraction = (_cell(terms, objective, term, case) for term in ("host_total", "accelerated_fraction"))
    return total * (1 - fraction), total * fraction


def _cell(terms: Terms, objective: str, term: str, case: str) -> float:
    return number(dict(zip(CASES, cases_of(terms[objective, term]), strict=True))[case])


def _draw(axes: Axes, terms: Terms, objective: str, *, is_judged: bool) -> None:
    scale, unit = (1e-3, "ms") if objective == "latency" else (1e-6, "J")
    bar_parts, longest = bars(terms, objective), 0.0
    hosts = [_cell(terms, objective, "host_total", case) for case in ("likely", *CASES)]
    for place, (parts, host) in enumerate(zip(bar_parts.values(), hosts, strict=True)):
        end = _draw_bar(axes, place, {name: value * scale for name, value in parts.items()})
        axes.plot([host * scale] * 2, [place - BAR_HEIGHT / 2, place + BAR_HEIGHT / 2], **HOST_MARK)  # type: ignore[arg-type]
        total, longest = sum(parts.values()), max(longest, end, host * scale)
        text = amount(total, objective) + (f", {significant(host / total)}x" if place and is_judged else "")
        clear = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # lower than a bar, so a mark behind it shows
        at = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}
        axes.annotate(text, (end, place), (5, 0), bbox=clear, **at)  # type: ignore[arg-type]
    axes.set_xlim(0, LABEL_ROOM * longest)
    axes.set_yticks(range(len(bar_parts)), list(bar_parts))
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel(f"{objective} of one inference ({unit})", labelpad=2)
    axes.grid(visible=True, axis="x")


def _draw_bar(axes: Axes, place: int, parts: Mapping[str, float]) -> float:
    """Draw the parts of a bar, the hidden one over their end, and a mark at the total; return the end of all."""
    left = 0.0
    for name, (colour, hatch, _) in PARTS.items():
        if value := parts.get(name, 0.0):
            axes.barh(place, value, BAR_HEIGHT, left, color=colour, edgecolor="white", linewidth=0.5, hatch=hatch)
            left += value
    hidden = -parts.get(HIDDEN, 0.0)
    if hidden > 0:
        total = left - hidden
        axes.barh(place, hidden, BAR_HEIGHT, total, color="white", alpha=0.8)
        axes.barh(place, hidden, BAR_HEIGHT, total, facecolor="none", edgecolor=GREY, linewidth=0.5, hatch="xx")
        axes.plot([total] * 2, [place - BAR_HEIGHT / 2, place + BAR_HEIGHT / 2], **END_MARK)  # type: ignore[arg-type]
    return left


def _explain(figure: Figure, terms: Terms, objectives: Sequence[str]) -> None:
    """Explain the parts that are wide enough to be seen in a bar."""
    shown: set[str] = set()
    for drawn in (bars(terms, objective).values() for objective in objectives):
        longest = max(sum(value for value in parts.values() if value > 0) for parts in drawn)
        parts = [part for parts in drawn for part in parts.items()]
        shown |= {name for name, value in parts if abs(value) > LEAST_VISIBLE_SHARE * longest}
    handles: list[Artist] = [
        Patch(facecolor=colour, edgecolor="white", hatch=hatch, label=label)
        for name, (colour, hatch, label) in PARTS.items()
        if name in shown
    ]
    if HIDDEN in shown:
        handles.append(Patch(facecolor="none", edgecolor=GREY, hatch="xx", label="hidden by overlap"))
        handles.append(Line2D([], [], label="end of the inference", **END_MARK))  # type: ignore[arg-type]
    handles.append(Line2D([], [], label="host alone, same case", **HOST_MARK))  # type: ignore[arg-type]
    columns = min(LEGEND_COLUMNS, len(handles))
    figure.legend(handles=handles, ncols=columns, loc="upper left", bbox_to_anchor=(0.01, LEGEND_TOP), fontsize=8)
