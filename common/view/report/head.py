"""The head of the report: the figures that decide, each with what it rests on, and the notes that come first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from common.view.findings import Findings
from common.view.groups import by_op_type, leading_gap
from common.view.html import bullet_list
from common.view.plan.fpga_text import judgement
from common.view.text import MISSING, duration, joules, percent, significant

TAILS = ("p99_9", "p99", "p95", "p90")


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A figure with what it rests on; ``section`` is where the report says more."""

    name: str
    value: str
    detail: str
    section: str


def key_figures(findings: Findings) -> list[KeyFigure]:
    """Return the figures that the tables of a folder tell, the most important first."""
    tables, documents = findings.tables, findings.documents
    return [
        *_latency(documents.get("latency_summary")),
        *_operators(findings),
        *_chain(tables.get("op_schedule")),
        *_energy(documents.get("energy_summary"), documents.get("efficiency")),
        *_offload(tables.get("offload_verdict")),
        *_load(documents.get("load_summary")),
        *_design(tables.get("design_points")),
    ]


def head(findings: Findings, first: Mapping[str, list[str]]) -> str:
    """Return the head: model and host, key figures, and the notes that come first.

    Args:
        findings: tables, documents and records of the stages.
        first: the most important notes by what they endanger.
    """
    figures = "\n".join(
        f'<div><dt><a href="#{figure.section}">{escape(figure.name)}</a></dt>'
        f'<dd class="value">{escape(figure.value)}</dd>'
        f'<dd class="detail">{escape(figure.detail)}</dd></div>'
        for figure in key_figures(findings)
    )
    lines = [line for notes in first.values() for line in notes]
    notes = f'<div class="first"><h3>Read first</h3>{bullet_list(lines)}<p><a href="#notes">all notes</a></p></div>'
    about = f'<p class="aside">{escape(_about(findings))}</p>'
    return "\n".join([about, f'<dl class="figures">\n{figures}\n</dl>' if figures else "", notes if lines else ""])


def _about(findings: Findings) -> str:
    """Return the id of the model, the host, the threads and the provider."""
    model = next((f"model {stage.model_id[:12]}" for stage in findings.stages if stage.model_id), "")
    measured, latency = findings.writer("latency_summary"), findings.documents.get("latency_summary")
    host = str(measured.host.get("cpu_model", "")) if measured else ""
    runtime = f"{latency['threads']} threads, {latency['provider']}" if latency else ""
    return " · ".join(filter(None, (model, host, runtime)))


def _latency(summary: Mapping[str, Any] | None) -> list[KeyFigure]:
    if summary is None:
        return []
    if summary["p50_us"] is None:
        of_trace = summary["profiled_median_us"]
        runs = f"{summary['profiled_sample_count']} profiled runs"
        return [] if of_trace is None else [KeyFigure("Latency, median", duration(of_trace), runs, "pictures")]
    basis = f"{_span(summary, 'p50')}{summary['sample_count']} unprofiled runs"
    figures = [KeyFigure("Latency, median", duration(summary["p50_us"]), basis, "pictures")]
    if tail := next((name for name in TAILS if summary[f"{name}_us"] is not None), None):
        name = tail.replace("_", ".")
        detail = f"{_span(summary, tail)}at most {duration(summary['max_us'])}"
        figures.append(KeyFigure(f"Latency, {name}", duration(summary[f"{tail}_us"]), detail, "pictures"))
    return figures


def _span(summary: Mapping[str, Any], name: str, ahead: str = "") -> str:
    """Return the interval of a percentile with a comma behind it; nothing where it has none."""
    low, high = (summary[f"{ahead}{name}_{end}_us"] for end in ("low", "high"))
    return "" if low is None else f"{duration(low)} to {duration(high)}, "


def _operators(findings: Findings) -> list[KeyFigure]:
    roofline = findings.tables.get("op_roofline")
    groups = [] if roofline is None else by_op_type(roofline)
    if roofline is None or not groups:
        return []
    most = groups[0]
    detail = f"{percent(most.latency_share)} of the latency, {percent(most.roof_share, 0)} of the roof"
    bound = f", {most.bound}-bound" if most.bound else ""
    figures = [KeyFigure("Most time", f"{most.node_count} {most.name}", detail + bound, "operators")]
    if keys := findings.keys():
        row = roofline.loc[roofline["executed_node"] == keys[0].name].iloc[0]
        detail = f"{duration(keys[0].latency_us)}, {percent(row['latency_share'])} of the latency"
        figures.append(KeyFigure("Slowest node", keys[0].label, detail, "nodes"))
    if (gap := leading_gap(roofline)) is not None:
        figures.append(KeyFigure("Between nodes", percent(gap), "of the latency: more than any operator", "operators"))
    return figures


def _chain(schedule: pd.DataFrame | None) -> list[KeyFigure]:
    if schedule is None or not len(schedule):
        return []
    work_us, span_us = float(schedule["node_latency_us"].sum()), float(schedule["earliest_finish_us"].max())
    detail = f"work {duration(work_us)}, longest chain {duration(span_us)}"
    value = significant(work_us / span_us) if span_us else MISSING
    return [KeyFigure("Parallelism", value, detail, "path")]


def _energy(summary: Mapping[str, Any] | None, efficiency: Mapping[str, Any] | None) -> list[KeyFigure]:
    if summary is None or summary["energy_uj"] is None:
        return []
    limits = [joules(summary[f"energy_{end}_uj"]) for end in ("low", "high")]
    span = "" if MISSING in limits else f", {' to '.join(limits)}"
    per_joule = efficiency["inferences_per_joule"] if efficiency else None
    more = "" if per_joule is None else f"; {significant(per_joule)} inferences per joule"
    detail = f"{summary['energy_source']}{span}{more}"
    return [KeyFigure("Energy of an inference", joules(summary["energy_uj"]), detail, "energy-table")]


def _offload(verdicts: pd.DataFrame | None) -> list[KeyFigure]:
    return [
        KeyFigure(
            f"Offloading: {row['objective']}",
            MISSING if pd.isna(row["likely"]) else f"{significant(row['likely'])}x",
            judgement(row).replace(f": {significant(row['likely'])}x,", ":"),
            "speedup",
        )
        for row in (() if verdicts is None else verdicts.to_dict("records"))
    ]


def _load(summary: Mapping[str, Any] | None) -> list[KeyFigure]:
    if summary is None:
        return []
    rate = f"{significant(summary['answered_requests_per_s'])} requests/s"
    if summary["request_p99_us"] is None:
        return [KeyFigure("Load test", rate, summary["validity"], "load")]
    detail = f"{_span(summary, 'p99', 'request_')}at {rate}, {summary['validity']}"
    return [KeyFigure("Load test, p99", duration(summary["request_p99_us"]), detail, "load")]


def _design(points: pd.DataFrame | None) -> list[KeyFigure]:
    known = None if points is None else points[points["edp_pj_cycles"].notna()]
    if known is None or not len(known):
        return []
    best = known.sort_values("edp_pj_cycles", kind="stable").iloc[0]
    return [KeyFigure("Best accelerator", str(best["design"]), f"EDP {best['edp_pj_cycles']:.4e} pJ·cycles", "design")]
