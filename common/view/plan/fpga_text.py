"""The offload plan as text: kernels, engines, Amdahl's terms, verdict, break-even points, and comparison."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from common.errors import UpstreamError
from common.names import shown
from common.operators import CONTRACTIONS
from common.view.plan.front_text import front_table
from common.view.tables import Table, TableColumn, table_of_cells
from common.view.text import MISSING, ROUNDING_US, WIDTH, duration, joules, percent, significant

if TYPE_CHECKING:
    from common.table_rows import OffloadComparisonRow, OffloadPlanRow, OffloadVerdictRow, SpeedupRow, Tables

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
INDENT = " " * 10  # of the lines below a verdict
UNPROVEN = " †"
NOT_JUDGED = "not judged: rerun <op_latency> on an idle host"
AMDAHL = table_of_cells("", *CASES)


def number(value: float | None) -> float:
    """Return a value to compute with; an unknown is NaN, which is in no order with any value."""
    return math.nan if value is None else value


def cases_of(row: SpeedupRow | OffloadVerdictRow) -> tuple[float | None, float | None, float | None]:
    """Return the values in the order of ``CASES``."""
    return row["pessimistic"], row["likely"], row["optimistic"]


class Terms(dict[tuple[str, str], "SpeedupRow"]):
    """Rows of the speedup table by objective and term. A row that is missed was there when the table was written."""

    @classmethod
    def of(cls, speedup: Iterable[SpeedupRow]) -> Terms:
        return cls({(row["objective"], row["term"]): row for row in speedup})

    def __missing__(self, key: tuple[str, str]) -> SpeedupRow:
        raise UpstreamError("speedup.csv", f"corrupt (no row {' '.join(map(shown, key))})", "rerun <speedup>")

    def likely(self, objective: str) -> dict[str, float]:
        """Return the likely values of an objective by term; an unknown is NaN."""
        return {term: number(row["likely"]) for (name, term), row in self.items() if name == objective}


def operators(row: OffloadPlanRow) -> str:
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


def _short(value: float) -> str:
    if value < 1e4:
        return f"{value:.0f}" if value % 1 == 0 else f"{value:.1f}"
    return f"{value / 1e3:.0f}k"


def _calls(row: OffloadPlanRow) -> str:
    return f"{row['kernel']}, {row['call_count']} call{'s' if row['call_count'] != 1 else ''}"


def kernel_interval(row: OffloadPlanRow) -> str:
    return f"{duration(row['kernel_latency_optimistic_us'])} to {duration(row['kernel_latency_pessimistic_us'])}"


def _power(row: OffloadPlanRow) -> str:
    most, likely, least = (
        row["kernel_power_pessimistic_w"],
        row["kernel_power_likely_w"],
        row["kernel_power_optimistic_w"],
    )
    return MISSING if likely is None else f"{likely:.0f} W ({least:.0f} to {most:.0f})"


KERNELS: Table[OffloadPlanRow] = Table(
    TableColumn("Kernel", lambda row: row["kernel"]),
    TableColumn("Ops", operators, is_left=True),
    TableColumn("Latency", lambda row: percent(row["host_latency_share"])),
    TableColumn("Energy", lambda row: percent(row["host_energy_share"])),
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
    TableColumn("MHz", lambda row: f"{row['clock_mhz']:g}"),
)
ON_HOST: TableColumn[OffloadPlanRow] = TableColumn("on host", lambda row: duration(row["host_latency_us"]))
ON_CARD: TableColumn[OffloadPlanRow] = TableColumn("on card", lambda row: duration(row["kernel_latency_likely_us"]))
INTERVAL_ON_CARD: TableColumn[OffloadPlanRow] = TableColumn("interval", kernel_interval)
TIMES: Table[OffloadPlanRow] = Table(
    TableColumn("", _calls),
    *(ON_HOST, ON_CARD, INTERVAL_ON_CARD),
    TableColumn("launches", lambda row: duration(row["launch_us"])),
    TableColumn("card power", _power),
)


def term_name(row: SpeedupRow) -> str:
    of_objective = INTERVAL if row["objective"] == "throughput" else {}
    return {**LABELS, **of_objective}.get(row["term"], row["term"])


def amdahl_table(speedup: Sequence[SpeedupRow]) -> str:
    """Return the terms of each objective in the three cases, without those that are zero or unknown in all of them."""
    rows: list[list[str]] = []
    for row in speedup:
        if all(value is None or abs(value) < ROUNDING_US for value in cases_of(row)):
            continue
        head = f"{row['objective']}: " if row["term"] == "host_total" else "  "
        rows += [[""] * 4] if rows and row["term"] == "host_total" else []
        rows.append([f"{head}{term_name(row)}", *(value_text(value, row["term_unit"]) for value in cases_of(row))])
    return AMDAHL.text(rows)


def value_text(value: float | None, unit: str) -> str:
    """Write a value of the speedup table, in the unit that reads best."""
    if value is None or math.isnan(value):
        return MISSING
    if unit in ("share", "ratio"):
        return percent(value) if unit == "share" else f"{significant(value)}x"
    if unit in ("count", "per_s"):
        return f"{value:.0f}" if unit == "count" else f"{significant(value)}/s"
    return duration(value) if unit == "us" else joules(value)


def amount(value: float, objective: str) -> str:
    """Write a latency in µs or an energy in µJ, in the unit that reads best."""
    return duration(value) if objective == "latency" else joules(value)


def verdict_lines(verdicts: Sequence[OffloadVerdictRow], terms: Terms) -> list[str]:
    """Return whether the plan pays in each objective, and where it trades energy for time."""
    if is_host_alone(verdicts):
        return ["verdict   everything stays on the host: no plan with the card ends sooner"]
    if is_not_judged(verdicts):
        return [f"verdict   {NOT_JUDGED}", *(f"{INDENT}{doubt}" for doubt in verdicts[0]["doubts"])]
    lines = []
    for row in verdicts:
        lines.append(f"verdict   {row['objective']} {judgement(row)}")
        lines += textwrap.wrap(row["weaker_side"], initial_indent=INDENT, subsequent_indent=INDENT, width=WIDTH)
    latency, energy = (number(terms[objective, "total_speedup"]["likely"]) for objective in ("latency", "energy"))
    if latency > 1 > energy:
        of_energy = terms.likely("energy")
        cost = of_energy["new_total"] - of_energy["host_total"]
        lines.append(f"{INDENT}the plan trades energy for time: {joules(cost)} more for each inference")
    return lines


def is_host_alone(verdicts: Sequence[OffloadVerdictRow]) -> bool:
    """Return whether the plan moves nothing to the card."""
    return any(row["verdict"] == "host alone" for row in verdicts)


def is_not_judged(verdicts: Sequence[OffloadVerdictRow] | None) -> bool:
    """Return whether the host's times decide nothing."""
    return any(row["verdict"] == "not judged" for row in verdicts or ())


def judgement(row: OffloadVerdictRow) -> str:
    """Write a verdict with its figures: ``likely pays, undecided: 1.61x, 0.83x to 2.87x``."""
    word, (low, likely, high) = row["verdict"], map(number, cases_of(row))
    if word == "not judged":
        return NOT_JUDGED
    if math.isnan(likely):
        return "unknown"
    mark = ", undecided" if word.startswith("likely") else ""
    return f"{word}{mark}: {significant(likely)}x, {significant(low)}x to {significant(high)}x"


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


def comparison_table(compared: Sequence[OffloadComparisonRow]) -> str:
    """Return the plan in the first row, then its baselines and the what-if plans, in the likely case."""
    plan_us = compared[0]["plan_latency_likely_us"]
    columns: Table[OffloadComparisonRow] = Table(
        TableColumn("one inference", lambda row: _named(row) + UNPROVEN * (row["plan_status"] == "feasible")),
        TableColumn("likely", lambda row: duration(row["plan_latency_likely_us"])),
        TableColumn("interval", _plan_interval),
        TableColumn("vs plan", lambda row: _difference(row["plan_latency_likely_us"], plan_us)),
        *(LATENCY_GAIN, ENERGY_GAIN),
    )
    is_open = any(row["plan_status"] == "feasible" for row in compared)
    return columns.text(compared) + (f"\n{UNPROVEN.strip()} not proved optimal" if is_open else "")


LATENCY_GAIN: TableColumn[OffloadComparisonRow] = TableColumn(
    "latency", lambda row: value_text(row["latency_speedup_factor"], "ratio")
)
ENERGY_GAIN: TableColumn[OffloadComparisonRow] = TableColumn(
    "energy", lambda row: value_text(row["energy_speedup_factor"], "ratio")
)


def _plan_interval(row: OffloadComparisonRow) -> str:
    cases_us = [
        row["plan_latency_pessimistic_us"],
        row["plan_latency_likely_us"],
        row["plan_latency_optimistic_us"],
    ]
    known_us = [case_us for case_us in cases_us if case_us is not None]
    return f"{duration(min(known_us))} to {duration(max(known_us))}" if len(known_us) == len(cases_us) else ""


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
    """Return the text of the plan: kernels, engines, times, speedup, verdict and comparison.

    Args:
        tables: offload_plan, speedup, offload_verdict and, if there are any, offload_comparison and offload_front.
        plain: spells out the names in angle brackets.
    """
    plan, speedup, verdicts = tables["offload_plan"], tables["speedup"], tables["offload_verdict"]
    terms = Terms.of(speedup)
    judged = list(map(plain, verdict_lines(verdicts, terms)))
    texts = ["\n".join(judged)] if is_not_judged(verdicts) else []
    texts += [KERNELS.text(plan), ENGINES.text(plan), TIMES.text(plan)] if plan else []
    texts.append(amdahl_table(speedup))
    texts += [] if is_not_judged(verdicts) else ["\n".join([*judged, *break_even(terms)])]
    texts += [comparison_table(compared)] if (compared := tables.get("offload_comparison")) else []
    texts += [front_table(tables["offload_front"])] if "offload_front" in tables else []
    return "\n\n".join(texts)
