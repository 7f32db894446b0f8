"""The HTML report: key figures, the graph by blocks, pictures, the tables behind them, notes and provenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from pathlib import Path
from typing import TypeVar

from common.view.comparison.comparison_tables import difference_table
from common.view.comparison.history_tables import history_section
from common.view.design.design_text import design_tables
from common.view.findings import Findings
from common.view.html import bullet_list, figure, page, section
from common.view.load.compared_loads_text import load_section
from common.view.node_labels import modules_of
from common.view.plan.answer.cases import is_not_judged
from common.view.plan.decode_text import PLANS as DECODE_PLANS
from common.view.plan.replicas_text import PLACES, PLANS, RATES_BY_DIVISION
from common.view.plan.what_if_text import WHAT_IF
from common.view.profile.generation_text import PHASES
from common.view.report.blocks import block_graph, blocks_of
from common.view.report.head import head
from common.view.report.plan_tables import (
    FRONT,
    candidate_table,
    comparison_table,
    plan_table,
    speedup_table,
    verdict_table,
)
from common.view.report.report_tables import (
    ceiling_table,
    energy_table,
    node_table,
    operator_table,
    path_table,
    provenance_tables,
)
from common.view.report.summary_text import answer_of
from common.view.report.warnings_text import TITLES, first_warnings, sorted_warnings
from common.view.trace.bottleneck_tables import bottleneck_table

STYLE, SCRIPT = (Path(__file__).with_suffix(suffix).read_text(encoding="utf-8") for suffix in (".css", ".js"))
Rows = TypeVar("Rows")
MOST_BYTES = 2_900_000
MOST_ROWS = (2_500, 1_000, 300, 60)  # of the nodes: as many as the page has room for


def report_html(
    findings: Findings,
    summary: str,
    pictures: Mapping[str, bytes],
    captions: Mapping[str, str],
    plain: Callable[[str], str] = str,
) -> str:
    """Return the page with its pictures in SVG, and as many rows of nodes as ``MOST_BYTES`` allow."""
    drawings = "\n".join(figure(name, captions[name], svg) for name, svg in pictures.items())
    for most_rows in MOST_ROWS:
        text = _page(findings, summary, drawings, plain, most_rows)
        if len(text.encode("utf-8")) <= MOST_BYTES:
            break
    return text


def _page(findings: Findings, summary: str, drawings: str, plain: Callable[[str], str], most_rows: int) -> str:
    warnings = sorted_warnings(findings, plain)
    notes = "\n".join(
        f"<h3>{escape(TITLES[endangered])}</h3>\n{bullet_list(lines)}"
        for endangered, lines in warnings.items()
        if lines
    )
    sections = _sections(findings, summary, drawings, notes, most_rows)
    links = "".join(f'<a href="#{name}">{title}</a>' for name, (title, content) in sections.items() if content)
    model = next((stage.model_path for stage in findings.stages if stage.model_path), "no model")
    answer = plain(answer_of(findings))
    profile = f"Inference profile of {model}"
    top = [f"<h1>{escape(answer or profile)}</h1>", *([f"<p>{escape(profile)}</p>"] if answer else [])]
    top.append(head(findings, first_warnings(warnings), plain))
    parts = (section(name, *content) for name, content in sections.items())
    return page(f"Profile of {model}", [*top, f"<nav>{links}</nav>", *parts], STYLE, SCRIPT)


def _sections(
    findings: Findings, summary: str, drawings: str, notes: str, most_rows: int
) -> dict[str, tuple[str, str]]:
    """Return title and content of each section by its anchor; one without its tables has no content."""
    tables, documents = findings.tables, findings.documents
    plan, front = tables.get("offload_plan", ()), tables.get("offload_front", ())
    replica_rates = tables.get("replica_rates", ())
    compared, speedup = tables.get("offload_comparison", ()), tables.get("speedup", ())
    is_judged = not is_not_judged(tables.get("offload_verdict"))
    bottlenecks = partial(bottleneck_table, labels=findings.labels(), marks=findings.marks())
    return {
        "graph": ("The model by blocks", graph(findings) if "op_roofline" in tables else ""),
        "pictures": ("Pictures", drawings),
        "generation": ("Tokens of a decoder", PHASES.html(tables.get("generation_phases", ()))),
        "decode-plans": ("A decoder on a card", DECODE_PLANS.html(tables.get("decode_plans", ()))),
        "operators": ("By operator type", _of(tables.get("op_roofline"), operator_table)),
        "nodes": ("Nodes", node_table(findings, most_rows) if "op_roofline" in tables else ""),
        "path": ("Critical path", path_table(findings, most_rows) if "critical_path" in tables else ""),
        "bottlenecks": ("Bottlenecks", _of(tables.get("bottlenecks"), bottlenecks)),
        "npu-bottlenecks": ("Bottlenecks of the NPU", _of(tables.get("npu_bottlenecks"), bottlenecks)),
        "energy-table": ("Energy", energy_table(findings, most_rows) if "ops_profile" in tables else ""),
        "candidates": ("Candidates", _of(tables.get("fpga_candidates"), partial(candidate_table, findings.marks()))),
        "plan": ("Offload plan", plan_table(plan, is_judged=is_judged)),
        "verdict": ("Verdict", verdict_table(tables)),
        "comparison": ("Plan, baselines and what-if plans", comparison_table(compared, is_judged=is_judged)),
        "what-if": ("What if", WHAT_IF.html(tables.get("what_if_plans", ()))),
        "front": ("Front: latency, throughput, energy", FRONT.html(front)),
        "replicas": ("Replicas: frames per second", PLANS.html(tables.get("replica_plans", ()))),
        "replica-places": ("Replicas by region", PLACES.html(tables.get("replica_plans", ()))),
        "replica-rates": ("Replicas: what each resource allows", RATES_BY_DIVISION.html(replica_rates)),
        "speedup": ("Speedup, term by term", speedup_table(speedup, is_judged=is_judged)),
        "since": ("Compared with the baseline", _of(tables.get("comparison"), difference_table)),
        "pair": ("Two models that ran in turn", _of(tables.get("paired_comparison"), difference_table)),
        "history": ("Recorded runs", history_section(tables)),
        "design": ("Design space", design_tables(tables)),
        "load": ("Load tests", load_section(tables, documents)),
        "ceilings": ("Host ceilings", ceiling_table(documents.get("host_ceilings"))),
        "notes": ("Notes and warnings", notes),
        "summary": ("Summary", f"<details><summary>as text</summary><pre>{escape(summary)}</pre></details>"),
        "provenance": ("Provenance", provenance_tables(findings.stages)),
    }


def _of(rows: Rows | None, build: Callable[[Rows], str]) -> str:
    """Build one part of the page from a table; return an empty string where the table is absent."""
    return "" if rows is None else build(rows)


def graph(findings: Findings) -> str:
    roofline = findings.tables["op_roofline"]
    blocks = blocks_of(roofline, modules_of(roofline), findings.on_card())
    return block_graph(blocks, findings.tables.get("executed_edges", ()), findings.numbers())
