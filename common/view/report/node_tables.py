"""Tables of the report on executed nodes: each row lights up with its node in pictures and in the graph."""

from __future__ import annotations

from collections.abc import Mapping

from common.table_rows import CriticalPathRow, OpRooflineRow, OpsProfileRow
from common.view.findings import Findings
from common.view.tables import Table, TableColumn, rows_left_out
from common.view.text import MISSING, duration, joules, percent, quantity, significant


def node_table(findings: Findings, most_rows: int) -> str:
    """Return the executed nodes, the slowest first: what each of the tables knows of it, and its full name at last."""
    labels, numbers = findings.labels(), findings.numbers()
    every = [row for row in findings.tables["op_roofline"] if row["row_kind"] != "gap"]
    nodes = sorted(every, key=lambda row: -row["node_latency_us"])[:most_rows]
    columns: Table[OpRooflineRow] = Table(
        TableColumn("node", lambda row: labels[row["executed_node"]]),
        TableColumn("operators", lambda row: "+".join(row["op_types"]) or row["op_type"]),
        TableColumn("time", lambda row: duration(row["node_latency_us"]) + " *" * row["is_correction_dominated"]),
        TableColumn("of latency", lambda row: percent(row["latency_share"])),
        TableColumn("work", lambda row: quantity(row["flops"], "FLOP")),
        TableColumn("traffic", lambda row: quantity(row["bytes"], "B")),
        TableColumn("FLOP/byte", _intensity),
        TableColumn("attained", lambda row: quantity(row["attained_flop_per_s"], "FLOP/s")),
        TableColumn("of roof", lambda row: percent(row["roof_share"], 0) + " above" * row["is_above_roof"]),
        TableColumn("bound", lambda row: row["bound"]),
        *(_looked_up(header, texts) for header, texts in _of_other_tables(findings).items()),
        TableColumn("executed as", lambda row: row["executed_node"]),
    )
    starred = "* dominated by the profiler's correction. " * any(row["is_correction_dominated"] for row in nodes)
    about = [[numbers[row["executed_node"]]] for row in nodes]
    return columns.html(nodes, starred + rows_left_out(nodes, every, "op_roofline.csv"), about)


def _intensity(row: OpRooflineRow) -> str:
    intensity = row["arithmetic_intensity_flop_per_byte"]
    return MISSING if intensity is None else significant(intensity)


def _looked_up(header: str, texts: Mapping[str, str]) -> TableColumn[OpRooflineRow]:
    return TableColumn(header, lambda row: texts.get(row["executed_node"], MISSING))


def _of_other_tables(findings: Findings) -> dict[str, dict[str, str]]:
    """Return energy, slack and place of the nodes by their names, as far as tables have them."""
    columns: dict[str, dict[str, str]] = {}
    if profile := findings.tables.get("ops_profile"):
        columns["energy"] = {row["executed_node"]: joules(row["energy_uj"]) for row in profile}
    if schedule := findings.tables.get("op_schedule"):
        columns["slack"] = {
            row["executed_node"]: "critical" if row["is_critical"] else duration(row["slack_us"]) for row in schedule
        }
    if (on_card := findings.on_card()) is not None:
        columns["plan"] = {name: "card" if name in on_card else "host" for name in findings.labels()}
    return columns


def path_table(findings: Findings, most_rows: int) -> str:
    path, labels, numbers = findings.tables["critical_path"], findings.labels(), findings.numbers()
    columns: Table[CriticalPathRow] = Table(
        TableColumn("", lambda row: str(row["position_index"])),
        TableColumn("node", lambda row: labels[row["executed_node"]]),
        TableColumn("operator", lambda row: row["op_type"]),
        TableColumn("time", lambda row: duration(row["node_latency_us"])),
        TableColumn("finishes at", lambda row: duration(row["cumulative_us"])),
        TableColumn("of span", lambda row: percent(row["span_share"])),
    )
    shown = path[:most_rows]
    about = [[numbers[row["executed_node"]]] for row in shown]
    return columns.html(shown, rows_left_out(shown, path, "critical_path.csv"), about)


def energy_table(findings: Findings, most_rows: int) -> str:
    """Return the nodes, and the gap, by the energy that they take."""
    profile, labels, numbers = findings.tables["ops_profile"], findings.labels(), findings.numbers()
    columns: Table[OpsProfileRow] = Table(
        TableColumn("node", lambda row: labels[row["executed_node"]]),
        TableColumn("operator", lambda row: row["op_type"]),
        TableColumn("energy", lambda row: joules(row["energy_uj"])),
        TableColumn("interval", lambda row: f"{joules(row['energy_low_uj'])} to {joules(row['energy_high_uj'])}"),
        TableColumn("of energy", lambda row: percent(row["energy_share"])),
        TableColumn("of latency", lambda row: percent(row["latency_share"])),
        TableColumn("compute", lambda row: joules(row["compute_energy_uj"])),
        TableColumn("movement", lambda row: joules(row["movement_energy_uj"])),
        TableColumn("static", lambda row: joules(row["static_energy_uj"])),
        TableColumn("source", lambda row: row["energy_source"]),
    )
    shown = sorted(profile, key=_energy_last_if_unknown)[:most_rows]
    about = [[numbers[row["executed_node"]]] for row in shown]
    return columns.html(shown, rows_left_out(shown, profile, "ops_profile.csv"), about)


def _energy_last_if_unknown(row: OpsProfileRow) -> tuple[bool, float]:
    energy_uj = row["energy_uj"]
    return energy_uj is None, -(energy_uj or 0.0)
