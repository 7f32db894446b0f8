"""The offload plan as text: kernels, engines, Amdahl's terms, verdict, break-even points, and comparison."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from common.errors import UpstreamError
from common.names import shown
from common.operators import CONTRACTIONS
from common.view.plan.front_text import front_table
from common.view.text import MISSING, ROUNDING_US, WIDTH, duration, joules, percent, significant, table

COMMENT_WIDTH, OPERATORS_WIDTH = 24, 20
OBJECTIVES = ("latency", "energy", "throughput")
CASES = ("pessimistic", "likely", "optimistic")
LABELS = {
    "host_total": "on the host alone",
    "accelerated_fraction": "f, part that moves",
    "kernel_speedup": "S_k, of the kernels",
    "card_compute": "  kernels: arithmetic",
    "card_memory": "  kernels: the card's memory",
    "card_on_chip": "  kernels: buffers",
    "transfer": "+ transfer over the link",
    "conversion": "+ conversion of numbers",
    "launch": "+ kernel launches",
    "overlap": "- hidden by overlap",
    "host_idle": "+ host waiting",
    "card_static": "+ card static, other times",
    "busy_host": "host busy",
    "busy_engine": "busiest engine",
    "busy_h2d": "link to the card busy",
    "busy_d2h": "link to the host busy",
    "new_total": "with the card",
    "host_rate": "rate on the host alone",
    "new_rate": "rate with the card",
    "total_speedup": "S_total",
    "break_even_kernel_speedup": "S_k to break even",
    "break_even_launch": "launch to break even",
    "break_even_batch": "batch to break even",
    "weight_load": "weights, loaded once",
    "payback_runs": "inferences that repay it",
}
INTERVAL = {"host_total": "one after the other", "new_total": "pipelined, interval"}  # of throughput
INDENT = " " * 10  # of what stands below a verdict
UNPROVEN = " †"
NOT_JUDGED = "not judged: rerun <op_latency> on an idle host"
Terms = Mapping[tuple[str, str], Mapping[str, Any]]


def terms_of(speedup: pd.DataFrame) -> Terms:
    """Return the rows of the speedup table by objective and term."""
    return _Terms({(row["objective"], row["term"]): row for row in speedup.to_dict("records")})


class _Terms(dict[tuple[str, str], Mapping[str, Any]]):
    """Rows of the speedup table. A row that is missed was there when the table was written."""

    def __missing__(self, key: tuple[str, str]) -> Mapping[str, Any]:
        raise UpstreamError("speedup.csv", f"corrupt (no row {' '.join(map(shown, key))})", "rerun <speedup>")


def kernel_table(plan: pd.DataFrame) -> str:
    """Return for each kernel its operators, shares of the host, bound and comment."""
    rows = [
        [
            row["kernel"],
            operators(row),
            percent(row["host_latency_share"]),
            percent(row["host_energy_share"]),
            row["board_bound"] or MISSING,
            _clip(row["comment"].partition(";")[0], COMMENT_WIDTH),
        ]
        for row in plan.to_dict("records")
    ]
    return table(("Kernel", "Ops", "Latency", "Energy", "Bound", "Comment"), rows, left=(0, 1, 4, 5))


def operators(row: Mapping[Any, Any]) -> str:
    """Return the number of groups and the head of each pattern, as in ``53 Conv, Gemm``."""
    heads = dict.fromkeys(_head(pattern) for pattern in row["pattern_counts"])
    return _clip(f"{row['group_count']} {', '.join(heads)}", OPERATORS_WIDTH)


def _head(pattern: str) -> str:
    """Return the contraction that a pattern is named after, or its first operator."""
    parts = pattern.split("+")
    if "Softmax" in parts and parts.count("MatMul") > 1:
        return "attention"
    return next((op_type for op_type in parts if op_type in CONTRACTIONS), parts[0])


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def engine_table(plan: pd.DataFrame) -> str:
    """Return for each engine its region and resources."""
    kinds = ("lut", "ff", "bram36", "uram", "dsp", "memory_channel")
    rows = [
        [
            f"{row['kernel']} {row['engine']}",
            row["region"],
            *(_short(row[f"{kind}_count"]) for kind in kinds),
            f"{row['clock_mhz']:g}",
        ]
        for row in plan.to_dict("records")
    ]
    return table(("Engine", "region", "LUT", "FF", "BRAM", "URAM", "DSP", "chan.", "MHz"), rows, left=(0, 1))


def time_table(plan: pd.DataFrame) -> str:
    """Return for each kernel its calls, its times on host and card, and the power of the card."""
    rows = [
        [
            f"{row['kernel']}, {row['call_count']} call{'s' if row['call_count'] != 1 else ''}",
            duration(row["host_latency_us"]),
            duration(row["kernel_latency_likely_us"]),
            f"{duration(row['kernel_latency_optimistic_us'])} to {duration(row['kernel_latency_pessimistic_us'])}",
            duration(row["launch_us"]),
            _power(row),
        ]
        for row in plan.to_dict("records")
    ]
    return table(("", "on host", "on card", "interval", "launches", "card power"), rows)


def _power(row: Mapping[Any, Any]) -> str:
    if pd.isna(row["kernel_power_likely_w"]):
        return MISSING
    most, likely, least = (f"{row[f'kernel_power_{case}_w']:.0f}" for case in CASES)
    return f"{likely} W ({least} to {most})"


def _short(value: float) -> str:
    if value < 1e4:
        return f"{value:.0f}" if value % 1 == 0 else f"{value:.1f}"
    return f"{value / 1e3:.0f}k"


def amdahl_table(speedup: pd.DataFrame) -> str:
    """Return the terms of each objective in the three cases, without those that are zero or unknown in all of them."""
    rows: list[list[str]] = []
    for row in speedup.to_dict("records"):
        values = [row[case] for case in CASES]
        if all(pd.isna(value) or abs(value) < ROUNDING_US for value in values):
            continue
        own = INTERVAL if row["objective"] == "throughput" else {}
        name = {**LABELS, **own}.get(row["term"], row["term"])
        head = f"{row['objective']}: " if row["term"] == "host_total" else "  "
        rows += [[""] * 4] if rows and row["term"] == "host_total" else []
        rows.append([f"{head}{name}", *(value_text(value, row["term_unit"]) for value in values)])
    return table(("", "pessimistic", "likely", "optimistic"), rows)


def value_text(value: float | None, unit: str) -> str:
    """Write a value of the speedup table, in the unit that reads best."""
    if value is None or pd.isna(value):
        return MISSING
    if unit in ("share", "ratio"):
        return percent(value) if unit == "share" else f"{significant(value)}x"
    if unit in ("count", "per_s"):
        return f"{value:.0f}" if unit == "count" else f"{significant(value)}/s"
    return duration(value) if unit == "us" else joules(value)


def amount(value: float, objective: str) -> str:
    """Write a latency in µs or an energy in µJ, in the unit that reads best."""
    return duration(value) if objective == "latency" else joules(value)


def verdict_lines(verdicts: pd.DataFrame, terms: Terms) -> list[str]:
    """Return whether the plan pays in each objective, and where it trades energy for time."""
    rows = verdicts.to_dict("records")
    if is_host_alone(verdicts):
        return ["verdict   everything stays on the host: no plan with the card ends sooner"]
    if is_not_judged(verdicts):
        return [f"verdict   {NOT_JUDGED}", *(f"{INDENT}{doubt}" for doubt in rows[0]["doubts"])]
    lines = []
    for row in rows:
        lines.append(f"verdict   {row['objective']} {judgement(row)}")
        lines += textwrap.wrap(row["weaker_side"], initial_indent=INDENT, subsequent_indent=INDENT, width=WIDTH)
    latency, energy = (terms[objective, "total_speedup"]["likely"] for objective in ("latency", "energy"))
    if pd.notna(energy) and latency > 1 > energy:
        cost = terms["energy", "new_total"]["likely"] - terms["energy", "host_total"]["likely"]
        lines.append(f"{INDENT}the plan trades energy for time: {joules(cost)} more for each inference")
    return lines


def is_host_alone(verdicts: pd.DataFrame) -> bool:
    """Return whether the plan moves nothing to the card."""
    return bool((verdicts["verdict"] == "host alone").any())


def is_not_judged(verdicts: pd.DataFrame | None) -> bool:
    """Return whether the host's times decide nothing."""
    return verdicts is not None and bool((verdicts["verdict"] == "not judged").any())


def judgement(row: Mapping[Any, Any]) -> str:
    """Write a verdict with its figures: ``likely pays, undecided: 1.61x, 0.83x to 2.87x``."""
    word, low, likely, high = row["verdict"], *(row[case] for case in CASES)
    if word == "not judged":
        return NOT_JUDGED
    if pd.isna(likely):
        return "unknown"
    mark = ", undecided" if word.startswith("likely") else ""
    return f"{word}{mark}: {significant(likely)}x, {significant(low)}x to {significant(high)}x"


def break_even(terms: Terms) -> list[str]:
    """Return kernel speedup, launch cost and batch at which latency breaks even, and the payback of loading weights."""
    likely = {term: row["likely"] for (objective, term), row in terms.items() if objective == "latency"}
    needed, expected = likely["break_even_kernel_speedup"], likely["kernel_speedup"]
    if pd.isna(expected):
        return []
    lines = [f"breaks even at kernels {significant(needed)}x the host; {significant(expected)}x is likely"]
    if pd.isna(needed):
        lines = ["transfers and launches alone cost at least as much as kernels could save"]
    if pd.notna(launch := likely.get("break_even_launch")):
        lines.append(f"breaks even at {duration(launch)} for each launch")
    if pd.notna(batch := likely.get("break_even_batch")) and batch > 1:
        lines.append(f"breaks even at a batch of {batch:.0f}, launched once")
    if pd.notna(runs := likely.get("payback_runs")) and likely.get("weight_load"):
        load = duration(likely["weight_load"])
        lines.append(f"weights are loaded once in {load}, repaid after {runs:.0f} inference{'s' if runs != 1 else ''}")
    return lines


def comparison_table(compared: pd.DataFrame) -> str:
    """Return the plan in the first row, then its baselines and the what-if plans, in the likely case.

    Args:
        compared: offload_comparison.
    """
    rows = []
    plan_us = compared["plan_latency_likely_us"].iloc[0]
    for row in compared.to_dict("records"):
        cases_us = [row[f"plan_latency_{case}_us"] for case in CASES]
        finish_us, is_known = row["plan_latency_likely_us"], all(map(pd.notna, cases_us))
        rows.append(
            [
                _named(row) + UNPROVEN * (row["plan_status"] == "feasible"),
                duration(finish_us),
                f"{duration(min(cases_us))} to {duration(max(cases_us))}" if is_known else "",
                _difference(finish_us, plan_us),
                value_text(row["latency_speedup_factor"], "ratio"),
                value_text(row["energy_speedup_factor"], "ratio"),
            ]
        )
    text = table(("one inference", "likely", "interval", "vs plan", "latency", "energy"), rows)
    is_open = (compared["plan_status"] == "feasible").any()
    return f"{text}\n{UNPROVEN.strip()} not proved optimal" if is_open else text


def _named(row: Mapping[Any, Any]) -> str:
    """Return the name of an alternative; the plan with its way to launch: the other way has a row too."""
    name = str(row["alternative"]).replace("launch-per=", "per ")
    return f"plan, per {row['launch_per']}" if name == "plan" else name


def _difference(value: float, reference: float) -> str:
    if pd.isna(value) or pd.isna(reference) or not reference:
        return MISSING
    difference = f"{100 * (value / reference - 1):+.1f} %"
    return "" if difference in ("+0.0 %", "-0.0 %") else difference


def offload_report(tables: Mapping[str, pd.DataFrame], plain: Callable[[str], str] = str) -> str:
    """Return the text of the plan: kernels, engines, times, speedup, verdict and comparison.

    Args:
        tables: offload_plan, speedup, offload_verdict and, if there are any, offload_comparison and offload_front.
        plain: spells out the names in angle brackets.
    """
    plan, speedup, verdicts = (tables[name] for name in ("offload_plan", "speedup", "offload_verdict"))
    terms, compared = terms_of(speedup), tables.get("offload_comparison")
    judged = list(map(plain, verdict_lines(verdicts, terms)))
    texts = ["\n".join(judged)] if is_not_judged(verdicts) else []
    texts += [kernel_table(plan), engine_table(plan), time_table(plan)] if len(plan) else []
    texts.append(amdahl_table(speedup))
    texts += [] if is_not_judged(verdicts) else ["\n".join([*judged, *break_even(terms)])]
    texts += [comparison_table(compared)] if compared is not None and len(compared) else []
    texts += [front_table(tables["offload_front"])] if "offload_front" in tables else []
    return "\n\n".join(texts)
