"""Tables of the report on executed nodes: each row lights up with its node in pictures and in the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from common.names import printable
from common.view.findings import Findings
from common.view.html import html_table
from common.view.report.host_tables import ROOF
from common.view.text import MISSING, duration, joules, percent, quantity, significant

INTENSITY = "arithmetic_intensity_flop_per_byte"
CAUSES = ("compute", "movement", "static")


def node_table(findings: Findings, most_rows: int) -> str:
    """Return the executed nodes, the slowest first: what each of the tables knows of it, and its full name at last."""
    roofline, labels, numbers = findings.tables["op_roofline"], findings.labels(), findings.numbers()
    every = roofline[roofline["row_kind"] != "gap"]
    nodes = every.nlargest(most_rows, "node_latency_us", keep="first")
    others = _others(findings)
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
            *(of.get(row["executed_node"], MISSING) for of in others.values()),
            printable(row["executed_node"]),
        ]
        for row in nodes.to_dict("records")
    ]
    header = ("node", "operators", "time", "latency", "work", "traffic", "FLOP/byte", *ROOF, *others, "executed as")
    starred = "* dominated by the profiler's correction. " if nodes["is_correction_dominated"].any() else ""
    about = [[numbers[name]] for name in nodes["executed_node"]]
    return html_table(header, rows, starred + _more(every, len(rows), "op_roofline.csv"), about)


def _others(findings: Findings) -> dict[str, dict[str, str]]:
    """Return energy, slack and place of the nodes by their names, as far as tables tell them."""
    tables, others = findings.tables, {}
    if "ops_profile" in tables:
        profile = tables["ops_profile"]
        others["energy"] = dict(zip(profile["executed_node"], map(joules, profile["energy_uj"]), strict=True))
    if "op_schedule" in tables:
        columns = (tables["op_schedule"][name] for name in ("executed_node", "is_critical", "slack_us"))
        rows = zip(*columns, strict=True)
        others["slack"] = {name: "critical" if critical else duration(slack_us) for name, critical, slack_us in rows}
    if (on_card := findings.on_card()) is not None:
        others["plan"] = {name: "card" if name in on_card else "host" for name in findings.labels()}
    return others


def path_table(findings: Findings, most_rows: int) -> str:
    """Return the nodes of the critical path, from the input."""
    path, labels, numbers = findings.tables["critical_path"], findings.labels(), findings.numbers()
    shown = path.head(most_rows)
    rows = [
        [
            str(row["position_index"]),
            labels[row["executed_node"]],
            row["op_type"],
            duration(row["node_latency_us"]),
            duration(row["cumulative_us"]),
            percent(row["span_share"]),
        ]
        for row in shown.to_dict("records")
    ]
    header = ("", "node", "operator", "time", "finishes at", "of span")
    about = [[numbers[name]] for name in shown["executed_node"]]
    return html_table(header, rows, _more(path, len(rows), "critical_path.csv"), about)


def energy_table(findings: Findings, most_rows: int) -> str:
    """Return the nodes, and the gap, by the energy that they take."""
    profile, labels, numbers = findings.tables["ops_profile"], findings.labels(), findings.numbers()
    ranked = profile.sort_values("energy_uj", ascending=False, kind="stable").head(most_rows)
    rows = [[labels[row["executed_node"]], *_energy_cells(row)] for row in ranked.to_dict("records")]
    header = ("node", "operator", "energy", "interval", "of energy", "of latency", *CAUSES, "source")
    about = [[numbers[name]] for name in ranked["executed_node"]]
    return html_table(header, rows, _more(profile, len(rows), "ops_profile.csv"), about)


def _energy_cells(row: Mapping[Any, Any]) -> list[str]:
    return [
        row["op_type"],
        joules(row["energy_uj"]),
        f"{joules(row['energy_low_uj'])} to {joules(row['energy_high_uj'])}",
        percent(row["energy_share"]),
        percent(row["latency_share"]),
        *(joules(row[f"{cause}_energy_uj"]) for cause in CAUSES),
        row["energy_source"],
    ]


def _more(rows: pd.DataFrame, shown: int, file: str) -> str:
    return f"{shown} of {len(rows)} rows; all of them in {file}" if len(rows) > shown else ""
