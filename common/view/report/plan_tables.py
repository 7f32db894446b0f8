"""Tables of the report on the offload: candidates, plan, baselines, front and speedup."""

from __future__ import annotations

import pandas as pd

from common.view.html import html_table
from common.view.marks import Marks
from common.view.plan.fpga_text import CASES, INTERVAL, LABELS, value_text
from common.view.text import MISSING, duration, joules, percent, quantity

MOST_ROWS = 200


def candidate_table(candidates: pd.DataFrame, marks: Marks) -> str:
    """Return every group of nodes, chosen or not, and why."""
    shown = candidates.head(MOST_ROWS)
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
        for row in shown.to_dict("records")
    ]
    header = ("", "kernel", "class", "pattern", "host time", "latency", "energy", "work", "why")
    more = f"{len(rows)} of {len(candidates)} rows; all of them in fpga_candidates.csv"
    nodes = [marks.of([name]) for name in shown["candidate"]]
    return html_table(header, rows, more if len(candidates) > len(rows) else "", nodes)


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
