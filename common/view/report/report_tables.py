"""Tables of the report on the host, and on executed nodes, whose rows light up with them in pictures and graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from common.table_rows import CriticalPathRow, HostCeilingsDocument, OpRooflineRow, OpsProfileRow
from common.view.executed_nodes import OperatorTypeTotals, by_op_type
from common.view.findings import Findings, StageRecord
from common.view.tables import Table, TableColumn, rows_left_out, table_of_cells
from common.view.text import MISSING, duration, joules, percent, quantity, significant

OPERATORS: Table[OperatorTypeTotals] = Table(
    TableColumn("operator", lambda group: group.name),
    TableColumn("nodes", lambda group: str(group.node_count)),
    TableColumn("time", lambda group: duration(group.latency_us)),
    TableColumn("of latency", lambda group: percent(group.latency_share)),
    TableColumn("work", lambda group: quantity(group.flops, "FLOP")),
    TableColumn("attained", lambda group: quantity(group.attained_flop_per_s, "FLOP/s")),
    TableColumn("of roof", lambda group: percent(group.roof_share, 0)),
    TableColumn("bound", lambda group: group.bound),
)
CEILINGS = table_of_cells("", "at all threads", "at one")
STAGES: Table[StageRecord] = Table(
    TableColumn("command", lambda stage: stage.command),
    TableColumn("model id", lambda stage: stage.model_id[:12] or MISSING),
    TableColumn("model", lambda stage: stage.model_path or MISSING),
    TableColumn("host", lambda stage: ", ".join(f"{key} {value}" for key, value in stage.host.items())),
    TableColumn("tools", lambda stage: ", ".join(f"{key} {value}" for key, value in stage.tools.items())),
)
SETTINGS = table_of_cells("stage", "setting", "value", "from")


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
        TableColumn("FLOP/byte", lambda row: significant(row["arithmetic_intensity_flop_per_byte"])),
        TableColumn("attained", lambda row: quantity(row["attained_flop_per_s"], "FLOP/s")),
        TableColumn("of roof", lambda row: percent(row["roof_share"], 0) + " above" * row["is_above_roof"]),
        TableColumn("bound", lambda row: row["bound"]),
        *(TableColumn(header, partial(_looked_up, texts)) for header, texts in _of_other_tables(findings).items()),
        TableColumn("executed as", lambda row: row["executed_node"]),
    )
    starred = "* dominated by the profiler's correction. " * any(row["is_correction_dominated"] for row in nodes)
    about = [[numbers[row["executed_node"]]] for row in nodes]
    return columns.html(nodes, starred + rows_left_out(nodes, every, "op_roofline.csv"), about)


def _looked_up(texts: Mapping[str, str], row: OpRooflineRow) -> str:
    return texts.get(row["executed_node"], MISSING)


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
    # Unknown energies come last.
    shown = sorted(profile, key=lambda row: (row["energy_uj"] is None, -(row["energy_uj"] or 0.0)))[:most_rows]
    about = [[numbers[row["executed_node"]]] for row in shown]
    return columns.html(shown, rows_left_out(shown, profile, "ops_profile.csv"), about)


def operator_table(roofline: Sequence[OpRooflineRow]) -> str:
    gaps = [
        ["gap between nodes", MISSING, duration(row["node_latency_us"]), percent(row["latency_share"])]
        for row in roofline
        if row["row_kind"] == "gap"
    ]
    return OPERATORS.html(by_op_type(roofline), last=[[*gap, MISSING, MISSING, MISSING, ""] for gap in gaps])


def ceiling_table(ceilings: HostCeilingsDocument | None) -> str:
    if ceilings is None:
        return ""
    rates = (
        ("fp32 peak", ceilings["peak_flop_per_s"], ceilings["one_thread_peak_flop_per_s"], "FLOP/s"),
        ("int8 peak", ceilings["int8_op_per_s"], ceilings["one_thread_int8_op_per_s"], "OP/s"),
        ("memory", ceilings["memory_bytes_per_s"], ceilings["one_thread_memory_bytes_per_s"], "B/s"),
        ("cache", ceilings["cache_bytes_per_s"], ceilings["one_thread_cache_bytes_per_s"], "B/s"),
    )
    rows = [
        *([name, quantity(all_threads, unit), quantity(one, unit)] for name, all_threads, one, unit in rates),
        ["threads", str(ceilings["threads"]), "1"],
        ["reached by", str(ceilings["peak_operator"]), ""],
        ["processor", str(ceilings["cpu_model"]), ""],
        ["stable", "yes" if ceilings["stable"] else "no", ""],
    ]
    return CEILINGS.html(rows)


def provenance_tables(stages: Sequence[StageRecord]) -> str:
    """Return the command, model, host and tools of every stage, and each setting with its origin."""
    settings = [
        [stage.script, name, str(entry.get("value")), str(entry.get("from"))]
        for stage in stages
        for name, entry in stage.settings.items()
    ]
    return STAGES.html(stages) + SETTINGS.html(settings)
