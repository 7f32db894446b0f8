"""The offload plan as text: the kernels, Amdahl's terms, whether it pays, and what would change that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from common.view.text import MISSING, duration, percent, quantity, significant, table

COMMENT_WIDTH = 26
LABELS = {
    "host_total": "on the host alone",
    "accelerated_fraction": "f, part that moves",
    "kernel_speedup": "S_k, of the kernels",
    "transfer": "+ transfer over PCIe",
    "launch": "+ kernel launches",
    "idle_card": "+ card while the host works",
    "new_total": "with the card",
    "total_speedup": "S_total",
    "break_even_kernel_speedup": "S_k to break even",
}
Terms = Mapping[tuple[str, str], Mapping[str, Any]]


def terms_of(speedup: pd.DataFrame) -> Terms:
    """The rows of the speedup table by objective and term."""
    return {(row["objective"], row["term"]): row for row in speedup.to_dict("records")}  # type: ignore[misc]


def kernel_table(plan: pd.DataFrame) -> str:
    """Section 8 of the brief: kernel, operators, shares of the host, which ceiling of the board binds, comment."""
    rows = [
        [
            row["kernel"],
            f"{row['group_count']} {row['kernel_class']}",
            percent(row["host_latency_share"]),
            percent(row["host_energy_share"]),
            row["board_bound"] or "given",
            _clip(row["comment"].partition(";")[0], COMMENT_WIDTH),
        ]
        for row in plan.to_dict("records")
    ]
    return table(("Kernel", "Ops", "Latency", "Energy", "Bound", "Comment"), rows, left=(0, 1, 4, 5))


def _clip(words: str, width: int) -> str:
    return words if len(words) <= width else f"{words[: width - 1]}…"


def amdahl_table(speedup: pd.DataFrame) -> str:
    """Each term of Amdahl's law for latency and for energy: pessimistic, likely, optimistic."""
    rows = []
    for row in speedup.to_dict("records"):
        cells = [_value(row[case], row["term_unit"]) for case in ("low", "likely", "high")]
        if row["term"] == "host_total":
            rows.append([f"{row['objective']}: {LABELS['host_total']}", *cells])
        else:
            rows.append([f"  {LABELS[row['term']]}", *cells])
    return table(("", "pessimistic", "likely", "optimistic"), rows)


def _value(value: float | None, unit: str) -> str:
    if value is None or pd.isna(value):
        return MISSING
    if unit == "share":
        return percent(value)
    if unit == "ratio":
        return f"{significant(value)}x"
    return duration(value) if unit == "us" else quantity(value * 1e-6, "J")


def verdict(terms: Terms) -> list[str]:
    """Whether the plan pays end to end, in latency and in energy."""
    if pd.isna(terms["latency", "kernel_speedup"]["likely"]):
        return ["verdict   everything stays on the host: no kernel meets the thresholds"]
    return [f"verdict   {objective} {judgement(terms, objective)}" for objective in ("latency", "energy")]


def judgement(terms: Terms, objective: str) -> str:
    """``likely pays: 1.61x, 0.83x to 2.87x``; a whole interval above 1 pays, one below 1 does not."""
    row = terms[objective, "total_speedup"]
    low, likely, high = row["low"], row["likely"], row["high"]
    if pd.isna(likely):
        return "unknown"
    word = "pays" if likely > 1 else "does not pay"
    sure = low > 1 or high < 1
    span = f"{significant(likely)}x, {significant(low)}x to {significant(high)}x"
    return f"{word if sure else f'likely {word}, undecided'}: {span}"


def break_even(terms: Terms) -> str:
    """The kernel speedup at which the latency stays as it is, beside the expected one."""
    needed, expected = (terms["latency", term]["likely"] for term in ("break_even_kernel_speedup", "kernel_speedup"))
    if pd.isna(expected):
        return ""
    if pd.isna(needed):
        return "transfer and launch alone cost what the kernels could save"
    return f"breaks even at kernels {significant(needed)}x the host; {significant(expected)}x is likely"


def alternatives(others: Mapping[str, pd.DataFrame]) -> str:
    """The total speedup, likely and its interval, if one thing were otherwise."""
    rows = []
    for name, speedup in others.items():
        terms = terms_of(speedup)
        cells = []
        for objective in ("latency", "energy"):
            row = terms[objective, "total_speedup"]
            known = not pd.isna(row["likely"])
            cells += [
                _value(row["likely"], "ratio"),
                f"{_value(row['low'], 'ratio')} to {_value(row['high'], 'ratio')}",
            ]
            cells[-1] = cells[-1] if known else ""
        rows.append([name, *cells])
    return table(("if instead", "latency", "", "energy", ""), rows)


def offload_report(plan: pd.DataFrame, speedup: pd.DataFrame, others: Mapping[str, pd.DataFrame]) -> str:
    """What stage 07 shows."""
    terms = terms_of(speedup)
    parts = [kernel_table(plan), ""] if len(plan) else []
    parts += [amdahl_table(speedup), "", *verdict(terms), *filter(None, [break_even(terms)])]
    return "\n".join([*parts, "", alternatives(others)])
