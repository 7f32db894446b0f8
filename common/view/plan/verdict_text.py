"""The offload plan in the closing summary: kernels, end-to-end speedup, and what would change the verdict."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from common.table_rows import OffloadComparisonRow, OffloadPlanRow, OffloadVerdictRow, Tables
from common.view.plan.answer.cases import (
    CASES,
    HARDWARE,
    SAME_KERNEL,
    Terms,
    amount,
    explained,
    is_host_alone,
    is_not_judged,
    is_per_phase,
    judgement,
    probability,
    value_text,
    within,
)
from common.view.plan.answer.uncertainty_text import OBJECTIVES, deciding_lines
from common.view.plan.fpga_text import INTERVAL_ON_CARD, LABELS, ON_CARD, ON_HOST, operators, reasons
from common.view.tables import Table, TableColumn
from common.view.text import duration, percent, significant

COSTED = ("latency", "energy")  # objectives whose parts can be added
COSTS = ("transfer", "conversion", "launch", "host_idle", "card_static")
HIDDEN = "overlap"
BASELINES = ("plan", "host alone", "greedy", "rule of thumb", "proven bound")  # the other alternatives are what-ifs
NOTICED_GAIN = 1.05  # of another plan over this one


OBJECTIVE: TableColumn[OffloadVerdictRow] = TableColumn("end to end", lambda row: row["objective"])
WORD: TableColumn[OffloadVerdictRow] = TableColumn(
    "verdict", lambda row: judgement(row).partition(":")[0], is_left=True
)
WORDS: Table[OffloadVerdictRow] = Table(OBJECTIVE, WORD)
VERDICTS: Table[OffloadVerdictRow] = Table(
    OBJECTIVE,
    TableColumn(CASES["likely"], lambda row: value_text(row["likely"], "ratio")),
    TableColumn("90 % within", within),
    TableColumn("pays", lambda row: probability(row["pays_probability"]).replace("over ", ">").replace("below ", "<")),
    TableColumn(CASES["pessimistic"], lambda row: value_text(row["pessimistic"], "ratio")),
    TableColumn(CASES["optimistic"], lambda row: value_text(row["optimistic"], "ratio")),
    WORD,
)


def verdict_columns(verdicts: Sequence[OffloadVerdictRow]) -> Table[OffloadVerdictRow]:
    """Return the columns of a table of verdicts; where nothing is judged, there is no figure to show."""
    return WORDS if is_not_judged(verdicts) else VERDICTS


def offload_lines(tables: Tables) -> list[str]:
    """Return the chosen kernels, and the end-to-end speedup with its distribution and its two extreme cases."""
    verdicts, plan = tables.get("offload_verdict"), tables.get("offload_plan")
    if verdicts is None:
        return []
    lines = _kernels(plan) if plan else []
    if is_host_alone(verdicts):
        return [*lines, "  everything stays on the host: no plan with the card ends sooner"]
    basis = [] if is_not_judged(verdicts) else [text for row in verdicts if (text := row["weaker_side"])]
    lines += [""] if lines else []
    lines += indented(verdict_columns(verdicts).text(verdicts, width=78))
    return [*lines, *(f"  energy     {text}" for text in basis)]


def _kernels(plan: Sequence[OffloadPlanRow]) -> list[str]:
    columns: Table[OffloadPlanRow] = Table(
        TableColumn(f"on {plan[0]['board']}, {plan[0]['precision']}", lambda row: f"{row['kernel']} {operators(row)}"),
        TableColumn("of latency", lambda row: percent(row["host_latency_share"])),
        *(ON_HOST, ON_CARD, INTERVAL_ON_CARD),
    )
    return indented(explained(columns.text(plan, width=78), SAME_KERNEL))


def indented(text: str) -> list[str]:
    """Indent each line by two columns."""
    return textwrap.indent(text, "  ").splitlines()


def outlook_title(tables: Tables) -> str:
    """Return what :func:`outlook` tells, as a title."""
    is_judged = not is_not_judged(tables.get("offload_verdict", ()))
    return "What would change the answer" if is_judged else "Why nothing is judged, and what to do"


def outlook(tables: Tables) -> list[str]:
    """Return what would change the answer: the reasons for none, or other plans, break-even points and large costs."""
    terms, verdicts = Terms.of(tables.get("speedup", ())), tables.get("offload_verdict", ())
    if is_not_judged(verdicts):
        return reasons(verdicts)
    speedup, of_plan_itself = terms.get(("latency", "kernel_speedup")), list[str]()
    is_planned = speedup is not None and speedup["likely"] is not None
    for objective in OBJECTIVES:
        of_plan_itself += deciding_lines(tables, [objective])
        of_plan_itself += _outlook(terms, objective) if is_planned and objective in COSTED else []
    compared = tables.get("offload_comparison", ())
    others, phased = ([row for row in compared if is_per_phase(row) == phase] for phase in (False, True))
    of_plan = [row for row in compared if row["alternative"] == "plan"]
    assumed = [f"{line}, only on {HARDWARE}" for line in _other_plans([*of_plan, *phased])]
    return [*_other_plans([*of_plan, *others]), *of_plan_itself, *_stream(tables), *assumed]


def _other_plans(compared: Sequence[OffloadComparisonRow]) -> list[str]:
    """Return the what-if plans that gain more than the plan in the likely case, the best first."""
    gains = {row["alternative"]: row["latency_speedup_factor"] or 0.0 for row in compared}
    least = NOTICED_GAIN * (gains.get("plan") or math.inf)
    ranked = sorted(gains.items(), key=lambda entry: -entry[1])
    better = {name: gain for name, gain in ranked if name not in BASELINES and gain > least}
    return [f"with {name}: {significant(gain)}x is likely" for name, gain in better.items()]


def _stream(tables: Tables) -> list[str]:
    """Return the gain of the best stream of inferences, if one inference alone gains nothing."""
    terms, front = Terms.of(tables.get("speedup", ())), tables.get("offload_front", ())
    host = terms.get(("throughput", "host_rate"))
    if not is_host_alone(tables.get("offload_verdict", ())) or host is None or not host["likely"] or not front:
        return []
    best = max(front, key=lambda row: row["likely_inferences_per_s"])
    gain = best["likely_inferences_per_s"] / host["likely"]
    if not best["engines"] or gain < NOTICED_GAIN:
        return []
    latency = duration(best["batch_latency_likely_us"])
    return [f"in a stream: {significant(gain)}x as many inferences per second are likely, each in {latency}"]


def _outlook(terms: Terms, objective: str) -> list[str]:
    rows = terms.likely(objective)
    total = rows["host_total"]
    if math.isnan(total) or math.isnan(rows["kernel_speedup"]):
        return [f"{objective}: unknown; give <cpu> or <avg_power_w>"]
    needed, expected = rows["break_even_kernel_speedup"], rows["kernel_speedup"]
    pays = f"above {significant(needed)}x" if not math.isnan(needed) else "at no kernel speedup"
    cost = {name: rows[name] for name in COSTS if name in rows}
    added = sum(cost.values()) - rows.get(HIDDEN, 0.0)
    stays = total * (1 - rows["accelerated_fraction"])
    least = max(stays + added, stays)  # without kernels less can be hidden; what stays on the host takes its time
    cost["kernels"] = total * rows["accelerated_fraction"] / expected
    cost["what stays on the host"] = stays
    most = max(cost, key=cost.__getitem__)
    name = LABELS.get(most, most).removeprefix("+ ")
    parts = f"{amount(cost[most], objective)} of {amount(rows['new_total'], objective)}"
    best = significant(total / least if least else math.inf)
    return [
        f"{objective}: pays {pays} for the kernels (likely {significant(expected)}x), and gains at most {best}x with "
        "infinitely fast ones",
        f"{objective}: the largest part of the plan is {name}, {parts}",
    ]
