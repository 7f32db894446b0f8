"""The offload plan in the closing summary: kernels, end-to-end speedup, and what would change the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from common.view.plan.fpga_text import (
    CASES,
    INTERVAL_ON_CARD,
    LABELS,
    ON_CARD,
    ON_HOST,
    Terms,
    amount,
    is_host_alone,
    is_not_judged,
    judgement,
    operators,
    value_text,
)
from common.view.tables import Table, TableColumn
from common.view.text import percent, significant

if TYPE_CHECKING:
    from common.table_rows import OffloadPlanRow, OffloadVerdictRow, Tables

OBJECTIVES = ("latency", "energy")
COSTS = ("transfer", "conversion", "launch", "host_idle", "card_static")
HIDDEN = "overlap"


VERDICTS: Table[OffloadVerdictRow] = Table(
    TableColumn("end to end", lambda row: row["objective"]),
    TableColumn(CASES[0], lambda row: value_text(row["pessimistic"], "ratio")),
    TableColumn(CASES[1], lambda row: value_text(row["likely"], "ratio")),
    TableColumn(CASES[2], lambda row: value_text(row["optimistic"], "ratio")),
    TableColumn("verdict", lambda row: judgement(row).partition(":")[0], is_left=True),
)


def offload_lines(tables: Tables) -> list[str]:
    """Return the chosen kernels and the end-to-end speedup in its three cases."""
    verdicts, plan = tables.get("offload_verdict"), tables.get("offload_plan")
    if verdicts is None:
        return []
    lines = _kernels(plan) if plan else []
    if is_host_alone(verdicts):
        return [*lines, "  everything stays on the host: no plan with the card ends sooner"]
    basis = [] if is_not_judged(verdicts) else [text for row in verdicts if (text := row["weaker_side"])]
    return [*lines, "", *_indent(VERDICTS.text(verdicts, width=78)), *(f"  energy: {text}" for text in basis)]


def is_planned(terms: Terms) -> bool:
    row = terms.get(("latency", "kernel_speedup"))
    return row is not None and row["likely"] is not None


def _kernels(plan: Sequence[OffloadPlanRow]) -> list[str]:
    columns: Table[OffloadPlanRow] = Table(
        TableColumn(f"on {plan[0]['board']}, {plan[0]['precision']}", lambda row: f"{row['kernel']} {operators(row)}"),
        TableColumn("latency", lambda row: percent(row["host_latency_share"])),
        *(ON_HOST, ON_CARD, INTERVAL_ON_CARD),
    )
    return _indent(columns.text(plan, width=78))


def _indent(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def outlook_lines(tables: Tables) -> list[str]:
    """Return for each objective the break-even kernel speedup, the best possible speedup, and the largest cost.

    All of them rest on the host's times: nothing is said where these decide nothing.
    """
    terms = Terms.of(tables.get("speedup", ()))
    if not is_planned(terms) or is_not_judged(tables.get("offload_verdict")):
        return []
    return [line for objective in OBJECTIVES for line in _outlook(terms, objective)]


def _outlook(terms: Terms, objective: str) -> list[str]:
    rows = terms.likely(objective)
    total = rows["host_total"]
    if math.isnan(total) or math.isnan(rows["kernel_speedup"]):
        return [f"  {objective:<8}unknown; give <static_power_w>"]
    needed, expected = rows["break_even_kernel_speedup"], rows["kernel_speedup"]
    pays = f"above {significant(needed)}x" if not math.isnan(needed) else "at no kernel speedup"
    added = sum(rows[name] for name in COSTS if name in rows) - rows.get(HIDDEN, 0.0)
    stays = total * (1 - rows["accelerated_fraction"])
    least = max(stays + added, stays)  # without kernels less can be hidden; what stays on the host takes its time
    cost = {name: rows[name] for name in COSTS if name in rows}
    cost["kernels"] = total * rows["accelerated_fraction"] / expected
    cost["what stays on the host"] = stays
    most = max(cost, key=cost.__getitem__)
    name = LABELS.get(most, most).removeprefix("+ ")
    parts = f"{amount(cost[most], objective)} of {amount(rows['new_total'], objective)}"
    return [
        f"  {objective:<8}pays {pays} for the kernels (likely {significant(expected)}x);",
        f"          at most {significant(total / least if least else math.inf)}x with infinitely fast kernels;",
        f"          largest part of the plan: {name}, {parts}",
    ]
