"""Tables of the report on the host and on how the figures were made: operator types, ceilings, provenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from common.view.findings import StageRecord
from common.view.groups import by_op_type
from common.view.html import html_table
from common.view.text import MISSING, duration, percent, quantity

ROOF = ("attained", "of roof", "bound")


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
