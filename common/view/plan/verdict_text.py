"""The offload plan in the closing summary: kernels, end-to-end speedup, and what would change the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from common.view.plan.fpga_text import (
    CASES,
    LABELS,
    Terms,
    amount,
    is_host_alone,
    is_not_judged,
    judgement,
    operators,
    terms_of,
)
from common.view.text import duration, percent, significant, table

OBJECTIVES = ("latency", "energy")
COSTS = ("transfer", "conversion", "launch", "host_idle", "card_static")
HIDDEN = "overlap"


def offload_lines(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the chosen kernels and the end-to-end speedup in its three cases."""
    verdicts, plan = tables.get("offload_verdict"), tables.get("offload_plan")
    if verdicts is None:
        return []
    lines = [] if plan is None or not len(plan) else _kernels(plan)
    if is_host_alone(verdicts):
        return [*lines, "  everything stays on the host: no plan with the card ends sooner"]
    rows = []
    for row in verdicts.to_dict("records"):
        cells = ["–" if pd.isna(row[case]) else f"{significant(row[case])}x" for case in CASES]
        rows.append([row["objective"], *cells, judgement(row).partition(":")[0]])
    header = ("end to end", "pessimistic", "likely", "optimistic", "verdict")
    basis = [] if is_not_judged(verdicts) else [text for text in verdicts["weaker_side"] if text]
    return [*lines, "", *_indent(table(header, rows, left=(0, 4), width=78)), *(f"  energy: {text}" for text in basis)]


def is_planned(terms: Terms) -> bool:
    """Return whether any kernel was chosen."""
    row = terms.get(("latency", "kernel_speedup"))
    return row is not None and not pd.isna(row["likely"])


def _kernels(plan: pd.DataFrame) -> list[str]:
    rows = [
        [
            f"{row['kernel']} {operators(row)}",
            percent(row["host_latency_share"]),
            duration(row["host_latency_us"]),
            duration(row["kernel_latency_likely_us"]),
            f"{duration(row['kernel_latency_optimistic_us'])} to {duration(row['kernel_latency_pessimistic_us'])}",
        ]
        for row in plan.to_dict("records")
    ]
    header = (
        f"on {plan['board'].iloc[0]}, {plan['precision'].iloc[0]}",
        "latency",
        "on host",
        "on card",
        "interval",
    )
    return _indent(table(header, rows, width=78))


def _indent(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def outlook_lines(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return for each objective the break-even kernel speedup, the best possible speedup, and the largest cost.

    All of them rest on the host's times: nothing is said where these decide nothing.
    """
    terms = terms_of(tables["speedup"]) if "speedup" in tables else {}
    if not is_planned(terms) or is_not_judged(tables.get("offload_verdict")):
        return []
    return [line for objective in OBJECTIVES for line in _outlook(terms, objective)]


def _outlook(terms: Terms, objective: str) -> list[str]:
    rows = {term: row["likely"] for (name, term), row in terms.items() if name == objective}
    total = rows["host_total"]
    if pd.isna(total) or pd.isna(rows["kernel_speedup"]):
        return [f"  {objective:<8}unknown; give <static_power_w>"]
    needed, expected = rows["break_even_kernel_speedup"], rows["kernel_speedup"]
    pays = f"above {significant(needed)}x" if pd.notna(needed) else "at no kernel speedup"
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
