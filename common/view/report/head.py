"""The head of the report: what would change the answer, why to doubt it, and the figures behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from operator import itemgetter
from typing import NamedTuple

from common.table_rows import (
    DesignPointsRow,
    EfficiencyDocument,
    EnergySummaryDocument,
    LatencySummaryDocument,
    LoadSummaryDocument,
    OffloadVerdictRow,
    OpScheduleRow,
)
from common.view.executed_nodes import by_op_type, leading_gap
from common.view.findings import Findings
from common.view.html import bullet_list
from common.view.plan.answer.cases import judgement
from common.view.plan.verdict_text import outlook, outlook_title
from common.view.profile.latency_text import percentiles
from common.view.report.warnings_text import by_effect
from common.view.text import MISSING, duration, joules, percent, significant


class KeyFigure(NamedTuple):
    """A figure and its basis (``detail``); ``section`` is the part of the report that says more."""

    name: str
    value: str
    detail: str
    section: str


def key_figures(findings: Findings) -> list[KeyFigure]:
    """Return the figures in the tables of a folder, the most important first."""
    tables, documents = findings.tables, findings.documents
    return [
        *_latency(documents.get("latency_summary")),
        *_operators(findings),
        *_chain(tables.get("op_schedule", ())),
        *_energy(documents.get("energy_summary"), documents.get("efficiency")),
        *_offload(tables.get("offload_verdict", ())),
        *_load(documents.get("load_summary")),
        *_design(tables.get("design_points", ())),
    ]


def head(findings: Findings, first: Mapping[str, list[str]], plain: Callable[[str], str]) -> str:
    """Return the head below the answer: model and host, what would change the answer, the first notes, key figures.

    ``first`` are these notes by what they endanger; ``plain`` spells out the names in angle brackets.
    """
    figures = "\n".join(
        f'<div><dt><a href="#{figure.section}">{escape(figure.name)}</a></dt>'
        f'<dd class="value">{escape(figure.value)}</dd>'
        f'<dd class="detail">{escape(figure.detail)}</dd></div>'
        for figure in key_figures(findings)
    )
    changes = bullet_list(map(plain, outlook(findings.tables)))
    effects = by_effect(first).items()
    notes = "".join(f"<h3>Warnings that {effect}</h3>{bullet_list(lines)}" for effect, lines in effects)
    origin = findings.origin()
    facts = (f"model {origin.model_id}" if origin.model_id else "", origin.processor, origin.runtime)
    parts = [
        f'<p class="aside">{escape(" · ".join(filter(None, facts)))}</p>',
        f"<h2>{outlook_title(findings.tables)}</h2>{changes}" if changes else "",
        f'<div class="first"><h2>Warnings</h2>{notes}<p><a href="#notes">all notes</a></p></div>' if notes else "",
        f'<h2>Key figures</h2>\n<dl class="figures">\n{figures}\n</dl>' if figures else "",
    ]
    return "\n".join(filter(None, parts))


def _latency(summary: LatencySummaryDocument | None) -> list[KeyFigure]:
    if summary is None:
        return []
    if summary["p50_us"] is None:
        of_trace = summary["profiled_median_us"]
        runs = f"{summary['profiled_sample_count']} profiled runs"
        return [] if of_trace is None else [KeyFigure("Latency, median", duration(of_trace), runs, "pictures")]
    basis = f"{_span(summary['p50_low_us'], summary['p50_high_us'])}{summary['sample_count']} unprofiled runs"
    figures = [KeyFigure("Latency, median", duration(summary["p50_us"]), basis, "pictures")]
    name, (tail_us, *limits_us) = [entry for entry in percentiles(summary).items() if entry[1][0] is not None][-1]
    if name != "p50":
        detail = f"{_span(*limits_us)}longest run {duration(summary['max_us'])}"
        figures.append(KeyFigure(f"Latency, {name}", duration(tail_us), detail, "pictures"))
    return figures


def _span(low_us: float | None, high_us: float | None) -> str:
    """Return the interval of a percentile with a comma behind it; nothing where it has none."""
    return "" if low_us is None else f"{duration(low_us)} to {duration(high_us)}, "


def _operators(findings: Findings) -> list[KeyFigure]:
    roofline = findings.tables.get("op_roofline", ())
    if not (groups := by_op_type(roofline)):
        return []
    most = groups[0]
    detail = f"{percent(most.latency_share)} of the latency"
    if most.roof_share is not None:  # without a share of it, as with unstable ceilings, no roof is claimed to bound
        detail += f", {percent(most.roof_share, 0)} of the roof{f', {most.bound}-bound' if most.bound else ''}"
    figures = [KeyFigure("Most time", f"{most.node_count} {most.name}", detail, "operators")]
    if keys := findings.key_nodes():
        row = next(row for row in roofline if row["executed_node"] == keys[0].name)
        detail = f"{duration(keys[0].latency_us)}, {percent(row['latency_share'])} of the latency"
        figures.append(KeyFigure("Slowest node", keys[0].label, detail, "nodes"))
    if (gap := leading_gap(roofline)) is not None:
        figures.append(KeyFigure("Between nodes", percent(gap), "of the latency: more than any operator", "operators"))
    return figures


def _chain(schedule: Sequence[OpScheduleRow]) -> list[KeyFigure]:
    if not schedule:
        return []
    work_us = sum(row["node_latency_us"] for row in schedule)
    span_us = max(row["earliest_finish_us"] for row in schedule)
    detail = f"work {duration(work_us)}, longest chain {duration(span_us)}"
    value = significant(work_us / span_us) if span_us else MISSING
    return [KeyFigure("Parallelism", value, detail, "path")]


def _energy(summary: EnergySummaryDocument | None, efficiency: EfficiencyDocument | None) -> list[KeyFigure]:
    if summary is None or summary["energy_uj"] is None:
        return []
    limits = [joules(summary["energy_low_uj"]), joules(summary["energy_high_uj"])]
    span = "" if MISSING in limits else f", {' to '.join(limits)}"
    per_joule = efficiency["inferences_per_joule"] if efficiency else None
    more = "" if per_joule is None else f"; {significant(per_joule)} inferences per joule"
    detail = f"{summary['energy_source']}{span}{more}"
    return [KeyFigure("Energy of an inference", joules(summary["energy_uj"]), detail, "energy-table")]


def _offload(verdicts: Sequence[OffloadVerdictRow]) -> list[KeyFigure]:
    """Return a figure for each objective, its interval as large as its likely value; without a verdict it has none."""
    figures = []
    for row in verdicts:
        word, _, text = judgement(row).partition(": ")
        gain, _, odds = text.rpartition(", pays with ")
        detail = f"{word}: {odds}" if odds else word
        figures.append(KeyFigure(f"Offloading: {row['objective']}", gain or MISSING, detail, "verdict"))
    return figures


def _load(summary: LoadSummaryDocument | None) -> list[KeyFigure]:
    if summary is None:
        return []
    rate = f"{significant(summary['answered_requests_per_s'])} requests/s"
    if summary["request_p99_us"] is None:
        return [KeyFigure("Load test", rate, summary["validity"], "load")]
    detail = f"{_span(summary['request_p99_low_us'], summary['request_p99_high_us'])}at {rate}, {summary['validity']}"
    return [KeyFigure("Load test, p99", duration(summary["request_p99_us"]), detail, "load")]


def _design(points: Sequence[DesignPointsRow]) -> list[KeyFigure]:
    products = [(edp, point["design"]) for point in points if (edp := point["edp_pj_cycles"]) is not None]
    if not products:
        return []
    edp, design = min(products, key=itemgetter(0))
    return [KeyFigure("Best accelerator", design, f"EDP {edp:.4e} pJ·cycles", "design")]
