"""Tables of the report on the host and on how the figures were made: operator types, ceilings, provenance."""

from __future__ import annotations

from collections.abc import Sequence

from common.table_rows import HostCeilingsDocument, OpRooflineRow
from common.view.findings import StageRecord
from common.view.groups import OperatorTypeTotals, by_op_type
from common.view.tables import Table, TableColumn, table_of_cells
from common.view.text import MISSING, duration, percent, quantity

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
