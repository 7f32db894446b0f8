"""Tables of the report on the offload: candidates, plan, baselines, front and speedup."""

from __future__ import annotations

from collections.abc import Sequence

from common.table_rows import (
    FpgaCandidatesRow,
    OffloadComparisonRow,
    OffloadFrontRow,
    OffloadPlanRow,
    SpeedupRow,
    Tables,
)
from common.view.html import bullet_list
from common.view.marks import Marks
from common.view.plan.answer.cases import (
    ASSUMED,
    CASES,
    RESTS_ON_HOST,
    SAME,
    SAME_KERNEL,
    doubts_of,
    is_not_judged,
    is_per_phase,
    per_phase_last,
    value_text,
)
from common.view.plan.answer.uncertainty_text import UNCERTAINTY, noticed
from common.view.plan.fpga_text import ENERGY_GAIN, INTERVAL_ON_CARD, LATENCY_GAIN, ON_CARD, ON_HOST, term_name
from common.view.plan.verdict_text import verdict_columns
from common.view.tables import Table, TableColumn, rows_left_out
from common.view.text import MISSING, duration, joules, percent, quantity

MOST_ROWS = 200
STACKED = f"{CASES['pessimistic']} and {CASES['optimistic']}: every assumption at its worse, or better, end at once"
CANDIDATES: Table[FpgaCandidatesRow] = Table(
    TableColumn("", lambda row: row["candidate"]),
    TableColumn("kernel", lambda row: row["kernel"] or MISSING),
    TableColumn("class", lambda row: row["kernel_class"]),
    TableColumn("pattern", lambda row: row["pattern"]),
    TableColumn("host time", lambda row: duration(row["host_latency_us"])),
    TableColumn("of latency", lambda row: percent(row["host_latency_share"])),
    TableColumn("of energy", lambda row: percent(row["host_energy_share"])),
    TableColumn("work", lambda row: quantity(row["flops"], "FLOP")),
    TableColumn("why", lambda row: row["reason"]),
)
PLAN: Table[OffloadPlanRow] = Table(
    TableColumn("kernel", lambda row: row["kernel"]),
    TableColumn("engine", lambda row: row["engine"]),
    TableColumn("board", lambda row: f"{row['board']} {row['region']}, {row['precision']}"),
    TableColumn("groups", lambda row: f"{row['group_count']} in {row['call_count']} calls"),
    TableColumn("of latency", lambda row: percent(row["host_latency_share"])),
    TableColumn("of energy", lambda row: percent(row["host_energy_share"])),
    TableColumn("bound", lambda row: row["board_bound"] or MISSING),
    *(ON_HOST, ON_CARD, INTERVAL_ON_CARD),
    TableColumn("launch", lambda row: duration(row["launch_us"])),
    TableColumn("LUT", lambda row: f"{row['lut_count']:,.0f}"),
    TableColumn("FF", lambda row: f"{row['ff_count']:,.0f}"),
    TableColumn("BRAM", lambda row: f"{row['bram36_count']:,.0f}"),
    TableColumn("URAM", lambda row: f"{row['uram_count']:,.0f}"),
    TableColumn("DSP", lambda row: f"{row['dsp_count']:,.0f}"),
    TableColumn("channels", lambda row: f"{row['memory_channel_count']:,.0f}"),
)
PLANS: Table[OffloadComparisonRow] = Table(
    TableColumn("", lambda row: row["alternative"]),
    TableColumn("on", lambda row: f"{row['board']}, {row['precision']}, {row['clock_mhz']:g} MHz"),
    TableColumn("status", lambda row: row["plan_status"] or MISSING),
    TableColumn(CASES["pessimistic"], lambda row: duration(row["plan_latency_pessimistic_us"])),
    TableColumn(CASES["likely"], lambda row: duration(row["plan_latency_likely_us"])),
    TableColumn(CASES["optimistic"], lambda row: duration(row["plan_latency_optimistic_us"])),
)
PLANS_AND_GAINS: Table[OffloadComparisonRow] = Table(*PLANS.columns, LATENCY_GAIN, ENERGY_GAIN)
FRONT: Table[OffloadFrontRow] = Table(
    TableColumn("best for", lambda row: row["objective"]),
    TableColumn("operation", lambda row: row["operation"]),
    TableColumn("batch", lambda row: str(row["inference_count"])),
    TableColumn("in flight", lambda row: str(row["in_flight_count"])),
    TableColumn(f"latency, {CASES['pessimistic']}", lambda row: duration(row["batch_latency_pessimistic_us"])),
    TableColumn(f"latency, {CASES['likely']}", lambda row: duration(row["batch_latency_likely_us"])),
    TableColumn(f"latency, {CASES['optimistic']}", lambda row: duration(row["batch_latency_optimistic_us"])),
    TableColumn(f"rate, {CASES['pessimistic']}", lambda row: value_text(row["pessimistic_inferences_per_s"], "per_s")),
    TableColumn(f"rate, {CASES['likely']}", lambda row: value_text(row["likely_inferences_per_s"], "per_s")),
    TableColumn(f"rate, {CASES['optimistic']}", lambda row: value_text(row["optimistic_inferences_per_s"], "per_s")),
    TableColumn(f"energy of one, {CASES['pessimistic']}", lambda row: joules(row["inference_energy_pessimistic_uj"])),
    TableColumn(f"energy of one, {CASES['likely']}", lambda row: joules(row["inference_energy_likely_uj"])),
    TableColumn(f"energy of one, {CASES['optimistic']}", lambda row: joules(row["inference_energy_optimistic_uj"])),
    TableColumn("engines", lambda row: ", ".join(row["engines"]) or MISSING),
    TableColumn("on the front", lambda row: "yes" if row["is_on_front"] else ""),
)
SPEEDUP: Table[SpeedupRow] = Table(
    TableColumn("", lambda row: row["objective"]),
    TableColumn("term", term_name),
    TableColumn(CASES["pessimistic"], lambda row: value_text(row["pessimistic"], row["term_unit"])),
    TableColumn(CASES["likely"], lambda row: value_text(row["likely"], row["term_unit"])),
    TableColumn(CASES["optimistic"], lambda row: value_text(row["optimistic"], row["term_unit"])),
)


def plan_table(plan: Sequence[OffloadPlanRow], *, is_judged: bool) -> str:
    """Return the kernels; those of a plan that is not judged have no speedup, not even in their comments."""

    def comment(row: OffloadPlanRow) -> str:
        """Return the comment on a kernel, of which one part compares it with the host: ``kernel 18.7x (likely)``."""
        return "; ".join(part for part in row["comment"].split("; ") if is_judged or not part.startswith("kernel "))

    is_marked = any(SAME in INTERVAL_ON_CARD.cell(row) for row in plan)
    columns: Table[OffloadPlanRow] = Table(*PLAN.columns, TableColumn("comment", comment))
    return columns.html(plan, SAME_KERNEL if is_marked else "")


def comparison_table(compared: Sequence[OffloadComparisonRow], *, is_judged: bool) -> str:
    """Return the plan, its baselines and the what-if plans, those per phase last; without a verdict, no speedup."""
    assumed = ASSUMED if any(map(is_per_phase, compared)) else ""
    return (PLANS_AND_GAINS if is_judged else PLANS).html(per_phase_last(compared), assumed)


def speedup_table(speedup: Sequence[SpeedupRow], *, is_judged: bool) -> str:
    """Return every term; a plan that is not judged has none that divides by the host's times."""
    return SPEEDUP.html(row for row in speedup if is_judged or row["term"] not in RESTS_ON_HOST)


def verdict_table(tables: Tables) -> str:
    """Return the verdict by objective: with its odds and what makes it uncertain, or with every doubt."""
    verdicts = tables.get("offload_verdict", ())
    if is_not_judged(verdicts):
        return verdict_columns(verdicts).html(verdicts) + bullet_list(doubts_of(verdicts))
    uncertain = noticed(tables.get("offload_uncertainty", ()))
    return verdict_columns(verdicts).html(verdicts, STACKED) + UNCERTAINTY.html(uncertain)


def candidate_table(marks: Marks, candidates: Sequence[FpgaCandidatesRow]) -> str:
    """Return every group of nodes, chosen or not, and why."""
    shown = candidates[:MOST_ROWS]
    nodes = [marks.of([row["candidate"]]) for row in shown]
    return CANDIDATES.html(shown, rows_left_out(shown, candidates, "fpga_candidates.csv"), nodes)
