"""The HTML report: closing summary, pictures, tables behind them, and provenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from common.names import printable
from common.view.bottleneck_html import bottleneck_table
from common.view.design_html import design_tables
from common.view.findings import Findings, StageRecord
from common.view.fpga_text import CASES, INTERVAL, LABELS, value_text
from common.view.groups import by_op_type
from common.view.html import bullet_list, figure, html_table, page, section
from common.view.load_html import load_section
from common.view.text import MISSING, duration, joules, percent, quantity, significant
from common.view.warnings_text import TITLES, sorted_warnings

INTENSITY = "arithmetic_intensity_flop_per_byte"
ROOF = ("attained", "of roof", "bound")
CAUSES = ("compute", "movement", "static")
Labels = Mapping[str, str]  # label by name of an executed node
TOP_NODES, MOST_ROWS = 20, 60
CAPTIONS = {
    "roofline": "Roofline: arithmetic intensity from compulsory bytes against attained FLOP/s",
    "energy": "Energy of one inference, split into compute, data movement and static",
    "schedule": "Schedule: the sequential order, and the earliest starts that dependencies allow",
    "latency": "Latency run by run, and its distribution",
    "offload": "Latency and energy of one inference before and after offloading, part by part",
    "timeline": "One inference before and after offloading, lane by lane",
    "front": "Plans for latency, throughput and energy",
    "resources": "Resources of the board that the plan uses",
    "load": "A load test: requests that wait, sizes of batches, padding",
    "load_curve": "Latency against the rate, measured and predicted, and every run of the search",
    "long_load": "A long load: memory, latency and rate",
    "design_front": "Accelerators by cycles, energy, area and their energy-delay product",
    "design_buffer": "The energy-delay product against the size of a memory on the chip",
    "design_energy": "Energy of accelerators by part",
    "design_nest": "The mapping of the contraction that takes most energy, as a loop nest",
    "design_progress": "How the searches come near to the bound, evaluation by evaluation",
}


def report_html(
    findings: Findings, summary: str, pictures: Mapping[str, bytes], plain: Callable[[str], str] = str
) -> str:
    """Return the page.

    Args:
        findings: tables, documents and records of the stages.
        summary: the closing summary.
        pictures: SVG by the name of the picture.
        plain: spells out the names in angle brackets.
    """
    drawings = [figure(name, CAPTIONS[name], svg) for name, svg in pictures.items()]
    tables, labels = findings.tables, findings.labels()
    sections = {
        "summary": ("Summary", f"<pre>{escape(summary)}</pre>"),
        "pictures": ("Pictures", "\n".join(drawings)),
        "operators": ("By operator type", _from(tables, "op_roofline", operator_table)),
        "nodes": ("Slowest nodes", _from(tables, "op_roofline", node_table, labels)),
        "path": ("Critical path", _from(tables, "critical_path", path_table, labels)),
        "bottlenecks": ("Bottlenecks", _from(tables, "bottlenecks", bottleneck_table, labels)),
        "energy-table": ("Energy", _from(tables, "ops_profile", energy_table, labels)),
        "candidates": ("Candidates", _from(tables, "fpga_candidates", candidate_table)),
        "plan": ("Offload plan", _from(tables, "offload_plan", plan_table)),
        "comparison": ("Plan, baselines and what-if plans", _from(tables, "offload_comparison", comparison_table)),
        "front": ("Front: latency, throughput, energy", _from(tables, "offload_front", front_table)),
        "speedup": ("Speedup, term by term", _from(tables, "speedup", speedup_table)),
        "design": ("Design space", design_tables(tables)),
        "load": ("Load tests", load_section(tables, findings.documents)),
        "ceilings": ("Host ceilings", ceiling_table(findings.documents.get("host_ceilings"))),
        "notes": ("Notes and warnings", note_groups(sorted_warnings(findings, plain))),
        "provenance": ("Provenance", provenance_tables(findings.stages)),
    }
    links = "".join(f'<a href="#{name}">{title}</a>' for name, (title, content) in sections.items() if content)
    model = next((stage.model_path for stage in findings.stages if stage.model_path), "no model")
    head = [f"<h1>Inference profile of {escape(model)}</h1>", f"<nav>{links}</nav>"]
    return page(f"Profile of {model}", [*head, *(section(name, *content) for name, content in sections.items())])


def _from(tables: Mapping[str, pd.DataFrame], name: str, build: Callable[..., str], *labels: Labels) -> str:
    """Build one part of the page from a table; return an empty string where the table is absent."""
    return build(tables[name], *labels) if name in tables else ""


def _more(rows: pd.DataFrame, shown: int, file: str) -> str:
    return f"{shown} of {len(rows)} rows; all of them in {file}" if len(rows) > shown else ""


def note_groups(found: Mapping[str, Sequence[str]]) -> str:
    """Return all notes by what they endanger, the most important first."""
    return "\n".join(
        f"<h3>{escape(TITLES[endangered])}</h3>\n{bullet_list(lines)}" for endangered, lines in found.items() if lines
    )


def operator_table(roofline: pd.DataFrame) -> str:
    """Return a row for each operator type, and the gap."""
    rows = [
        [
            group.name,
            str(group.node_count),
            duration(group.latency_us),
            percent(group.latency_share),
            quantity(group.flops, "FLOP"),
            quantity(group.attained_flop_per_s, "FLOP/s"),
            percent(group.roof_share, 0),
            group.bound,
        ]
        for group in by_op_type(roofline)
    ]
    for row in roofline[roofline["row_kind"] == "gap"].to_dict("records"):
        gap = [duration(row["node_latency_us"]), percent(row["latency_share"])]
        rows.append(["gap between nodes", MISSING, *gap, MISSING, MISSING, MISSING, ""])
    return html_table(("operator", "nodes", "time", "latency", "work", *ROOF), rows)


def node_table(roofline: pd.DataFrame, labels: Labels) -> str:
    """Return the slowest nodes: label, operators, time, work, and the name that the runtime gave each."""
    nodes = roofline[roofline["row_kind"] != "gap"].nlargest(TOP_NODES, "node_latency_us", keep="first")
    rows = [
        [
            labels[row["executed_node"]],
            "+".join(row["op_types"]) or row["op_type"],
            duration(row["node_latency_us"]) + (" *" if row["is_correction_dominated"] else ""),
            percent(row["latency_share"]),
            quantity(row["flops"], "FLOP"),
            quantity(row["bytes"], "B"),
            MISSING if pd.isna(row[INTENSITY]) else significant(row[INTENSITY]),
            quantity(row["attained_flop_per_s"], "FLOP/s"),
            percent(row["roof_share"], 0) + (" above" if row["is_above_roof"] else ""),
            row["bound"],
            printable(row["executed_node"]),
        ]
        for row in nodes.to_dict("records")
    ]
    header = ("node", "operators", "time", "latency", "work", "traffic", "FLOP/byte", *ROOF, "executed as")
    starred = "* dominated by the profiler's correction. " if nodes["is_correction_dominated"].any() else ""
    return html_table(header, rows, starred + _more(roofline, len(rows), "op_roofline.csv"))


def path_table(path: pd.DataFrame, labels: Labels) -> str:
    """Return the nodes of the critical path, from the input."""
    rows = [
        [
            str(row["position_index"]),
            labels[row["executed_node"]],
            row["op_type"],
            duration(row["node_latency_us"]),
            duration(row["cumulative_us"]),
            percent(row["span_share"]),
        ]
        for row in path.head(MOST_ROWS).to_dict("records")
    ]
    header = ("", "node", "operator", "time", "finishes at", "of span")
    return html_table(header, rows, _more(path, len(rows), "critical_path.csv"))


def energy_table(profile: pd.DataFrame, labels: Labels) -> str:
    """Return the nodes that take most energy."""
    ranked = profile.sort_values("energy_uj", ascending=False, kind="stable").head(TOP_NODES)
    rows = [
        [
            labels[row["executed_node"]],
            row["op_type"],
            joules(row["energy_uj"]),
            f"{joules(row['energy_low_uj'])} to {joules(row['energy_high_uj'])}",
            percent(row["energy_share"]),
            percent(row["latency_share"]),
            *(joules(row[f"{cause}_energy_uj"]) for cause in CAUSES),
            row["energy_source"],
        ]
        for row in ranked.to_dict("records")
    ]
    header = ("node", "operator", "energy", "interval", "of energy", "of latency", *CAUSES, "source")
    return html_table(header, rows, _more(profile, len(rows), "ops_profile.csv"))


def candidate_table(candidates: pd.DataFrame) -> str:
    """Return every group of nodes, chosen or not, and why."""
    rows = [
        [
            row["candidate"],
            row["kernel"] or MISSING,
            row["kernel_class"],
            row["pattern"],
            duration(row["host_latency_us"]),
            percent(row["host_latency_share"]),
            percent(row["host_energy_share"]),
            quantity(row["flops"], "FLOP"),
            row["reason"],
        ]
        for row in candidates.head(MOST_ROWS).to_dict("records")
    ]
    header = ("", "kernel", "class", "pattern", "host time", "latency", "energy", "work", "why")
    return html_table(header, rows, _more(candidates, len(rows), "fpga_candidates.csv"))


def plan_table(plan: pd.DataFrame) -> str:
    """Return the kernels of the plan with their engines."""
    rows = [
        [
            row["kernel"],
            row["engine"],
            f"{row['board']} {row['region']}, {row['precision']}",
            f"{row['group_count']} in {row['call_count']} calls",
            percent(row["host_latency_share"]),
            percent(row["host_energy_share"]),
            row["board_bound"] or MISSING,
            duration(row["host_latency_us"]),
            duration(row["kernel_latency_likely_us"]),
            f"{duration(row['kernel_latency_optimistic_us'])} to {duration(row['kernel_latency_pessimistic_us'])}",
            duration(row["launch_us"]),
            *(f"{row[f'{kind}_count']:,.0f}" for kind in ("lut", "ff", "bram36", "uram", "dsp", "memory_channel")),
            row["comment"],
        ]
        for row in plan.to_dict("records")
    ]
    columns = "kernel|engine|board|groups|latency|energy|bound|on host|on card|interval|launch"
    return html_table((*columns.split("|"), "LUT", "FF", "BRAM", "URAM", "DSP", "channels", "comment"), rows)


def comparison_table(compared: pd.DataFrame) -> str:
    """Return the plan, its baselines, and the what-if plans."""
    rows = [
        [
            row["alternative"],
            f"{row['board']}, {row['precision']}, {row['clock_mhz']:g} MHz",
            row["plan_status"] or MISSING,
            *(duration(row[f"plan_latency_{case}_us"]) for case in CASES),
            *(value_text(row[f"{objective}_speedup_factor"], "ratio") for objective in ("latency", "energy")),
        ]
        for row in compared.to_dict("records")
    ]
    header = ("", "on", "status", *CASES, "latency", "energy")
    return html_table(header, rows)


def front_table(front: pd.DataFrame) -> str:
    """Return the plans for each objective, by batch and as a stream; those that no other one beats are marked."""
    rows = [
        [
            row["objective"],
            row["operation"],
            *(str(row[f"{name}_count"]) for name in ("inference", "in_flight")),
            *(duration(row[f"batch_latency_{case}_us"]) for case in CASES),
            *(value_text(row[f"{case}_inferences_per_s"], "per_s") for case in CASES),
            *(joules(row[f"inference_energy_{case}_uj"]) for case in CASES),
            ", ".join(row["engines"]) or MISSING,
            "yes" if row["is_on_front"] else "",
        ]
        for row in front.to_dict("records")
    ]
    header = ["best for", "operation", "batch", "in flight"]
    header += [f"{name}, {case}" for name in ("latency", "rate", "energy of one") for case in CASES]
    return html_table((*header, "engines", "on the front"), rows)


def speedup_table(speedup: pd.DataFrame) -> str:
    """Return the terms of Amdahl's law, a row for each."""
    rows = [
        [
            row["objective"],
            {**LABELS, **(INTERVAL if row["objective"] == "throughput" else {})}.get(row["term"], row["term"]),
            *(value_text(row[case], row["term_unit"]) for case in CASES),
        ]
        for row in speedup.to_dict("records")
    ]
    return html_table(("", "term", *CASES), rows)


def ceiling_table(ceilings: Mapping[str, Any] | None) -> str:
    """Return the measured ceilings of the host."""
    if ceilings is None:
        return ""
    rates = (
        ("fp32 peak", "peak_flop_per_s", "FLOP/s"),
        ("int8 peak", "int8_op_per_s", "OP/s"),
        ("memory", "memory_bytes_per_s", "B/s"),
        ("cache", "cache_bytes_per_s", "B/s"),
    )
    rows = [
        *([name, *(quantity(ceilings[f"{at}{key}"], unit) for at in ("", "one_thread_"))] for name, key, unit in rates),
        ["threads", str(ceilings["threads"]), "1"],
        ["reached by", str(ceilings["peak_operator"]), ""],
        ["processor", str(ceilings["cpu_model"]), ""],
        ["stable", "yes" if ceilings["stable"] else "no", ""],
    ]
    return html_table(("", "at all threads", "at one"), rows)


def provenance_tables(stages: tuple[StageRecord, ...]) -> str:
    """Return the command, model, host and tools of every stage, and each setting with its origin."""
    runs = [
        [
            stage.command,
            stage.model_id[:12] or MISSING,
            stage.model_path or MISSING,
            ", ".join(f"{key} {value}" for key, value in stage.host.items()),
            ", ".join(f"{key} {value}" for key, value in stage.tools.items()),
        ]
        for stage in stages
    ]
    settings = [
        [stage.script, name, str(entry.get("value")), str(entry.get("from"))]
        for stage in stages
        for name, entry in stage.settings.items()
    ]
    run_table = html_table(("command", "model id", "model", "host", "tools"), runs)
    return run_table + html_table(("stage", "setting", "value", "from"), settings)
