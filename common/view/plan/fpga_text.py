"""The offload plan as text: kernels, engines, Amdahl's terms, verdict, break-even points, and comparison."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import cast

from common.messages.host_doubts import OTHER_HOST, remedy
from common.table_rows import (
    OffloadComparisonRow,
    OffloadFrontRow,
    OffloadPlanRow,
    OffloadUncertaintyRow,
    OffloadVerdictRow,
    SpeedupRow,
    Tables,
)
from common.view.plan.answer.cases import (
    ASSUMED,
    CASES,
    RESTS_ON_HOST,
    SAME_KERNEL,
    SAME_PLAN,
    Case,
    Terms,
    cases_of,
    explained,
    interval,
    is_host_alone,
    is_not_judged,
    is_per_phase,
    judgement,
    number,
    per_phase_last,
    value_text,
)
from common.view.plan.answer.headline import headline, operator_counts
from common.view.plan.answer.uncertainty_text import deciding_lines, variance_line
from common.view.plan.replicas_text import replica_report
from common.view.tables import Table, TableColumn, table_of_cells
from common.view.text import MISSING, ROUNDING_US, WIDTH, duration, joules, percent, significant

COMMENT_WIDTH, OPERATORS_WIDTH = 24, 20
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
INDENT = " " * 10  # of the lines below a verdict
UNPROVEN = " †"
AMDAHL = table_of_cells("", *CASES.values())


def operators(row: OffloadPlanRow) -> str:
    """Return how many groups each operator is the head of, as in ``52 Conv, 1 Gemm``."""
    return _clip(", ".join(f"{count} {name}" for name, count in operator_counts(row).items()), OPERATORS_WIDTH)


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _short(value: float) -> str:
    if value < 1e4:
        return f"{value:.0f}" if value % 1 == 0 else f"{value:.1f}"
    return f"{value / 1e3:.0f}k"


def _calls(row: OffloadPlanRow) -> str:
    return f"{row['kernel']}, {row['call_count']} call{'s' if row['call_count'] != 1 else ''}"


def _power(row: OffloadPlanRow) -> str:
    likely, least, most = (
        row["kernel_power_likely_w"],
        row["kernel_power_optimistic_w"],
        row["kernel_power_pessimistic_w"],
    )
    return MISSING if likely is None else f"{likely:.0f} W ({least:.0f} to {most:.0f})"


def _cases_us(row: OffloadPlanRow | OffloadComparisonRow, name: str) -> Case:
    times_us = cast("Mapping[str, float | None]", row)
    least, likely, most = (times_us[f"{name}_latency_{case}_us"] for case in CASES)
    return least, likely, most


KERNELS: Table[OffloadPlanRow] = Table(
    TableColumn("Kernel", lambda row: row["kernel"]),
    TableColumn("Ops", operators, is_left=True),
    TableColumn("% Latency", lambda row: percent(row["host_latency_share"])),
    TableColumn("% Energy", lambda row: percent(row["host_energy_share"])),
    TableColumn("Bound", lambda row: row["board_bound"] or MISSING, is_left=True),
    TableColumn("Comment", lambda row: _clip(row["comment"].partition(";")[0], COMMENT_WIDTH), is_left=True),
)
ENGINES: Table[OffloadPlanRow] = Table(
    TableColumn("Engine", lambda row: f"{row['kernel']} {row['engine']}"),
    TableColumn("region", lambda row: row["region"], is_left=True),
    TableColumn("LUT", lambda row: _short(row["lut_count"])),
    TableColumn("FF", lambda row: _short(row["ff_count"])),
    TableColumn("BRAM", lambda row: _short(row["bram36_count"])),
    TableColumn("URAM", lambda row: _short(row["uram_count"])),
    TableColumn("DSP", lambda row: _short(row["dsp_count"])),
    TableColumn("chan.", lambda row: _short(row["memory_channel_count"])),
    TableColumn("MHz", lambda row: f"{row['clock_mhz']:.0f}"),
)
ON_HOST: TableColumn[OffloadPlanRow] = TableColumn("on host", lambda row: duration(row["host_latency_us"]))
ON_CARD: TableColumn[OffloadPlanRow] = TableColumn("on card", lambda row: duration(row["kernel_latency_likely_us"]))
INTERVAL_ON_CARD: TableColumn[OffloadPlanRow] = TableColumn("interval", lambda row: interval(_cases_us(row, "kernel")))
TIMES: Table[OffloadPlanRow] = Table(
    TableColumn("", _calls),
    *(ON_HOST, ON_CARD, INTERVAL_ON_CARD),
    TableColumn("launches", lambda row: duration(row["launch_us"])),
    TableColumn("card power", _power),
)


def front_label(row: OffloadFrontRow) -> str:
    """Return what a plan is best for, its batch, and whether it needs no card: ``throughput, stream, batch 4``."""
    return f"{_aim(row)}, batch {row['inference_count']}{'' if row['engines'] else ', host alone'}"


def _aim(row: OffloadFrontRow) -> str:
    return f"{row['objective']}{', stream' * (row['operation'] == 'streaming')}"


FRONT: Table[OffloadFrontRow] = Table(
    TableColumn("best for (* front)", lambda row: _aim(row) + " *" * row["is_on_front"]),
    TableColumn("batch", lambda row: str(row["inference_count"])),
    TableColumn("in flight", lambda row: str(row["in_flight_count"])),
    TableColumn("latency", lambda row: duration(row["batch_latency_likely_us"])),
    TableColumn("rate", lambda row: f"{significant(row['likely_inferences_per_s'])}/s"),
    TableColumn("energy of one", lambda row: joules(row["inference_energy_likely_uj"])),
    TableColumn("engines", lambda row: str(len(row["engines"]))),
)


def term_name(row: SpeedupRow) -> str:
    of_objective = INTERVAL if row["objective"] == "throughput" else {}
    return {**LABELS, **of_objective}.get(row["term"], row["term"])


def amdahl_table(speedup: Sequence[SpeedupRow], *, is_judged: bool = True) -> str:
    """Return the terms of each objective in the three cases, without those that are zero or unknown in all of them.

    Where the plan is not judged, terms that divide by the host's times are left out: they would be read as speedups.
    """
    rows: list[list[str]] = []
    for row in speedup:
        is_nothing = all(value is None or abs(value) < ROUNDING_US for value in cases_of(row))
        if is_nothing or (not is_judged and row["term"] in RESTS_ON_HOST):
            continue
        head = f"{row['objective']}: " if row["term"] == "host_total" else "  "
        rows += [[""] * 4] if rows and row["term"] == "host_total" else []
        rows.append([f"{head}{term_name(row)}", *(value_text(value, row["term_unit"]) for value in cases_of(row))])
    return AMDAHL.text(rows)


def verdict_lines(
    verdicts: Sequence[OffloadVerdictRow], terms: Terms, uncertainty: Sequence[OffloadUncertaintyRow] = ()
) -> list[str]:
    """Return whether the plan pays in each objective, what is uncertain, and where it trades energy for time."""
    if is_host_alone(verdicts):
        return ["verdict   everything stays on the host: no plan with the card ends sooner"]
    lines = []
    for row in verdicts:
        lines += textwrap.wrap(f"verdict   {row['objective']} {judgement(row)}", WIDTH, subsequent_indent=INDENT)
        for text in (variance_line(uncertainty, row), row["weaker_side"]):
            lines += textwrap.wrap(text, initial_indent=INDENT, subsequent_indent=INDENT, width=WIDTH)
    latency, energy = (number(terms[objective, "total_speedup"]["likely"]) for objective in ("latency", "energy"))
    if latency > 1 > energy:
        of_energy = terms.likely("energy")
        cost = of_energy["new_total"] - of_energy["host_total"]
        lines.append(f"{INDENT}the plan trades energy for time: {joules(cost)} more for each inference")
    return lines


def reasons(verdicts: Sequence[OffloadVerdictRow]) -> list[str]:
    """Return every reason why a plan is not judged, and the remedies."""
    if not is_not_judged(verdicts):
        return []
    doubts = verdicts[0]["doubts"]
    are_of_host = [doubt.startswith(OTHER_HOST) for doubt in doubts]
    remedies = ["give <host_tables> or <host_scale>"] if any(are_of_host) else []
    return [*doubts, *remedies, *([] if doubts and all(are_of_host) else [remedy(doubts)])]


def break_even(terms: Terms) -> list[str]:
    """Return kernel speedup, launch cost and batch at which latency breaks even, and the payback of loading weights."""
    likely = terms.likely("latency")
    needed, expected = likely["break_even_kernel_speedup"], likely["kernel_speedup"]
    if math.isnan(expected):
        return []
    lines = [f"breaks even at kernels {significant(needed)}x the host; {significant(expected)}x is likely"]
    if math.isnan(needed):
        lines = ["transfers and launches alone cost at least as much as kernels could save"]
    if not math.isnan(launch_us := likely.get("break_even_launch", math.nan)):
        lines.append(f"breaks even at {duration(launch_us)} for each launch")
    if (batch := likely.get("break_even_batch", math.nan)) > 1:
        lines.append(f"breaks even at a batch of {batch:.0f}, launched once")
    if not math.isnan(runs := likely.get("payback_runs", math.nan)) and likely.get("weight_load"):
        load = duration(likely["weight_load"])
        lines.append(f"weights are loaded once in {load}, repaid after {runs:.0f} inference{'s' if runs != 1 else ''}")
    return lines


def comparison_table(compared: Sequence[OffloadComparisonRow], *, is_judged: bool = True) -> str:
    """Return the plan, then its baselines and the what-if plans, in the likely case; those per phase come last.

    Where the plan is not judged, nothing is compared with the host.
    """
    plan_us = next(row for row in compared if row["alternative"] == "plan")["plan_latency_likely_us"]
    gains: list[TableColumn[OffloadComparisonRow]] = [
        TableColumn("vs plan", lambda row: _difference(row["plan_latency_likely_us"], plan_us)),
        *(LATENCY_GAIN, ENERGY_GAIN),
    ]
    columns: Table[OffloadComparisonRow] = Table(
        TableColumn("one inference", lambda row: _named(row) + UNPROVEN * (row["plan_status"] == "feasible")),
        TableColumn("likely", lambda row: duration(row["plan_latency_likely_us"])),
        PLAN_INTERVAL,
        *(gains if is_judged else ()),
    )
    is_open = any(row["plan_status"] == "feasible" for row in compared)
    text = explained(columns.text(per_phase_last(compared)), SAME_PLAN)
    text += f"\n{textwrap.fill(ASSUMED, WIDTH, subsequent_indent='  ')}" if any(map(is_per_phase, compared)) else ""
    return text + (f"\n{UNPROVEN.strip()} not proved optimal" if is_open else "")


PLAN_INTERVAL: TableColumn[OffloadComparisonRow] = TableColumn("interval", lambda row: interval(_cases_us(row, "plan")))
LATENCY_GAIN: TableColumn[OffloadComparisonRow] = TableColumn(
    "latency", lambda row: value_text(row["latency_speedup_factor"], "ratio")
)
ENERGY_GAIN: TableColumn[OffloadComparisonRow] = TableColumn(
    "energy", lambda row: value_text(row["energy_speedup_factor"], "ratio")
)


def _named(row: OffloadComparisonRow) -> str:
    """Return the name of an alternative; the plan with its way to launch: the other way has a row too."""
    name = row["alternative"].replace("launch-per=", "per ")
    return f"plan, per {row['launch_per']}" if name == "plan" else name


def _difference(value: float | None, reference: float | None) -> str:
    if value is None or not reference:
        return MISSING
    difference = f"{100 * (value / reference - 1):+.1f} %"
    return "" if difference in ("+0.0 %", "-0.0 %") else difference


def offload_report(tables: Tables, plain: Callable[[str], str] = str) -> str:
    """Return the answer, then its basis: kernels, engines, times, terms of the speedup, and other plans.

    The tables offload_plan, speedup and offload_verdict must be there; ``plain`` spells out names in angle brackets.
    """
    plan, speedup, verdicts = tables["offload_plan"], tables["speedup"], tables["offload_verdict"]
    terms, is_judged = Terms.of(speedup), not is_not_judged(verdicts)
    answer = textwrap.wrap(plain(headline(tables)), WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    others = [f"  - {plain(reason)}" for reason in reasons(verdicts)[1:]]  # the answer has the first one
    texts = ["\n".join([*answer, *others])]
    if plans := tables.get("replica_plans"):  # the throughput was asked for, so only a doubt comes before it
        texts.insert(0 if is_judged else 1, replica_report(plans, tables["replica_rates"]))
    texts += [KERNELS.text(plan), ENGINES.text(plan), explained(TIMES.text(plan), SAME_KERNEL)] if plan else []
    texts.append(amdahl_table(speedup, is_judged=is_judged))
    if is_judged:
        of_verdict = verdict_lines(verdicts, terms, tables.get("offload_uncertainty", ()))
        deciding = (textwrap.wrap(text, WIDTH, subsequent_indent="  ") for text in deciding_lines(tables))
        texts.append("\n".join([*of_verdict, *chain(*deciding), *break_even(terms)]))
    texts += [comparison_table(compared, is_judged=is_judged)] if (compared := tables.get("offload_comparison")) else []
    texts += [FRONT.text(tables["offload_front"])] if "offload_front" in tables else []
    return "\n\n".join(texts)
