"""A plan with its speedup as rows by table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from common.fpga.coefficients import Models
from common.fpga.plan_odds import plan_odds
from common.fpga.planning.board_rows import timeline
from common.fpga.planning.front import front_rows
from common.fpga.planning.plan import Plan, make_plan, plan_speedup, relaunched
from common.fpga.planning.plan_notes import plan_notes
from common.fpga.planning.plan_rows import candidate_rows, kernel_rows, resource_rows
from common.fpga.planning.problem_builder import LAUNCH_PER
from common.fpga.planning.request import Requests
from common.fpga.replicas.rows import tables as replica_tables
from common.fpga.replicas.search import BestStreams, streams_of
from common.fpga.speedup.odds import Odds
from common.fpga.speedup.verdict import JudgedHost, uncertainty_rows, verdicts
from common.fusion.groups import fuse
from common.graphs.source_graph import from_rows, with_resident_caches
from common.messages.host_doubts import recorded_doubts
from common.table_rows import (
    Documents,
    OffloadComparisonRow,
    OffloadVerdictRow,
    OpLatencyRow,
    OpScheduleRow,
    OpsProfileRow,
    SpeedupRow,
    Tables,
)
from common.workload.host_cost import ExecutedCost, HostTotals, SourceWork, run_energy, run_latency, surplus_us
from common.workload.layer_rows import layers_by_node
from common.workload.workload import Workload, make_workload

OWN_ARRAYS, DESIGNS_ALONE = "own arrays", "given designs"
MOST_STEPS = 100  # of a plan that is searched again for the other way to launch


@dataclass(frozen=True, slots=True)
class Results:
    rows: Mapping[str, Sequence[Mapping[str, object]]]
    notes: tuple[str, ...]
    plan: Plan
    streams: BestStreams | None = None


def workload_from_rows(tables: Tables, documents: Documents, notes: Iterable[str] = ()) -> Workload:
    """Return the groups of the source graph and their cost on the host.

    The latencies of ops_profile add up to the unprofiled median, the gap included.
    """
    metrics, profile = tables["op_metrics"], tables["ops_profile"]
    graph = with_resident_caches(from_rows(metrics, tables["op_edges"]))
    sources: dict[str, list[str]] = {}
    for row in tables["node_map"]:
        sources.setdefault(row["executed_node"], []).append(row["source_node"])
    return make_workload(
        graph,
        fuse(graph),
        layers_by_node(metrics, graph),
        {row["source_node"]: SourceWork(row["macs"], row["flops"]) for row in metrics},
        frozenset(row["source_node"] for row in metrics if row["body"]),
        _executed(profile, tables["op_schedule"], tables["op_latency"]),
        sources,
        _host_totals(profile, tables["op_latency"], documents, notes),
    )


def _host_totals(
    profile: Sequence[OpsProfileRow], nodes: Iterable[OpLatencyRow], documents: Documents, notes: Iterable[str]
) -> HostTotals:
    summary, energy = documents["latency_summary"], documents["energy_summary"]
    doubts = recorded_doubts(summary, profile, nodes, notes)
    latency = run_latency(sum(row["node_latency_us"] for row in profile), summary)
    energy_uj, static_w = run_energy(energy, latency), energy["static_power_w"]
    return HostTotals(latency, energy_uj, static_w, doubts, energy["energy_source"], energy["energy_boundary"] or "")


def _executed(
    profile: Iterable[OpsProfileRow], schedule: Iterable[OpScheduleRow], latencies: Iterable[OpLatencyRow]
) -> list[ExecutedCost]:
    """Return every executed node in the order of execution, without the gap; nodes without a place in it come last."""
    scheduled = {
        row["executed_node"]: (index, row["is_critical"])
        for row in schedule
        if (index := row["execution_index"]) is not None
    }
    corrections = {row["executed_node"]: row for row in latencies}
    nodes = [row for row in profile if row["row_kind"] != "gap"]
    placed = [(row, *scheduled.get(row["executed_node"], (len(nodes), False))) for row in nodes]
    return [
        ExecutedCost(
            row["executed_node"],
            row["node_latency_us"],
            row["energy_uj"],
            is_critical,
            surplus_us(row["node_latency_us"], corrections.get(row["executed_node"])),
        )
        for row, _, is_critical in sorted(placed, key=lambda place: place[1])
    ]


def plan_results(
    workload: Workload, requests: Requests, models: Models, most_batch: int = 1, *, is_accuracy_judged: bool = False
) -> Results:
    """Return the tables of the plan, with its baselines, the what-if plans by question, and the front.

    ``is_accuracy_judged``: whether samples of the user judged the number format.

    Raises:
        UnusableValueError: a kernel that a speedup is given for is not in the plan.
    """
    request = requests.request
    plan = make_plan(workload, request, models)
    speedup, odds = plan_speedup(plan, models.energy), plan_odds(plan, models.energy)
    rows = [alternative("plan", plan, speedup, odds), *baselines(plan), *_with_other_arrays(plan, models)]
    otherwise = _launched_otherwise(plan, models)
    rows += [otherwise] if otherwise is not None and otherwise["alternative"] not in requests.what_if else []
    for text, changed in requests.what_if.items():
        rows.append(planned_alternative(text, make_plan(workload, changed, models), models))
    tables: dict[str, Sequence[Mapping[str, object]]] = {
        "fpga_candidates": candidate_rows(plan),
        "offload_plan": kernel_rows(plan),
        "offload_schedule": timeline(plan.problem.items, plan.likely),
        "offload_comparison": rows,
        "board_resources": resource_rows(plan),
        "speedup": speedup,
        "offload_verdict": verdict_rows(plan, speedup, odds),
        "offload_uncertainty": uncertainty_rows(speedup, odds, is_judged=plan.is_judged),
        "offload_front": front_rows(plan, models, most_batch),
    }
    found = streams_of(plan, models) if request.objective == "throughput" else None
    tables |= replica_tables(found, request.launch_per, is_judged=plan.is_judged)
    notes = plan_notes(plan, speedup, is_accuracy_judged=is_accuracy_judged)
    return Results(tables, (*_design_notes(rows), *notes), plan, found)


def verdict_rows(plan: Plan, speedup: Sequence[SpeedupRow], odds: Mapping[str, Odds]) -> list[OffloadVerdictRow]:
    host, board, totals = plan.request.host, plan.request.board, plan.workload.host
    judged = JudgedHost(host.kind, host.of_plan(board), totals.doubts, host.mismatch(board))
    return verdicts(speedup, odds, judged, totals.energy_source, totals.energy_boundary)


def alternative(name: str, plan: Plan, rows: Sequence[SpeedupRow], odds: Mapping[str, Odds]) -> OffloadComparisonRow:
    likely = {row["objective"]: row["likely"] for row in rows if row["term"] == "total_speedup"}
    finish_us = [schedule.finish_us for schedule in plan.schedules]
    latency = odds["latency"] if plan.is_judged else None
    return _row(name, plan, plan.status or "", finish_us, likely["latency"], likely["energy"], latency)


def planned_alternative(name: str, plan: Plan, models: Models) -> OffloadComparisonRow:
    return alternative(name, plan, plan_speedup(plan, models.energy), plan_odds(plan, models.energy))


def baselines(plan: Plan) -> list[OffloadComparisonRow]:
    """Return the baselines of a plan in the likely case: the host alone, two simpler plans, and the proven bound.

    If kernel speedups are given, only the calls of the plan have them, so the host is the only baseline.
    """
    host_us = plan.workload.host.latency_us
    finishes = {"host alone": host_us}
    if plan.status is not None:
        finishes |= {"greedy": plan.greedy_us, "rule of thumb": plan.rule_us, "proven bound": plan.solution.bound_us}
    return [_row(name, plan, "", (None, us, None), host_us / us, None) for name, us in finishes.items()]


def _row(
    name: str,
    plan: Plan,
    status: str,
    finish_us: Sequence[float | None],
    latency_speedup: float | None,
    energy_speedup: float | None,
    latency: Odds | None = None,
) -> OffloadComparisonRow:
    request, (pessimistic_us, likely_us, optimistic_us) = plan.request, finish_us
    return {
        "alternative": name,
        "board": request.board.name,
        "precision": request.precision,
        "wider_precision": request.wider.precision if request.wider else "",
        "clock_mhz": request.board.clock_mhz,
        "launch_per": request.launch_per,
        "plan_status": status,
        "plan_latency_pessimistic_us": pessimistic_us,
        "plan_latency_likely_us": likely_us,
        "plan_latency_optimistic_us": optimistic_us,
        "latency_speedup_factor": latency_speedup,
        "latency_speedup_p5_factor": latency.quantiles[0] if latency else None,
        "latency_speedup_p95_factor": latency.quantiles[-1] if latency else None,
        "latency_pays_probability": latency.pays_probability if latency else None,
        "energy_speedup_factor": energy_speedup,
        "is_judged": plan.is_judged,
    }


def _with_other_arrays(plan: Plan, models: Models) -> list[OffloadComparisonRow]:
    """Return the plans with the catalogue's arrays alone and with the given designs alone, where there are any."""
    if not plan.request.designs:
        return []
    request = replace(plan.request, given_speedups={})
    plans = {
        OWN_ARRAYS: make_plan(plan.workload, replace(request, designs=()), models),
        DESIGNS_ALONE: make_plan(plan.workload, replace(request, has_own_arrays=False), models),
    }
    return [planned_alternative(name, other, models) for name, other in plans.items()]


def _design_notes(rows: Sequence[OffloadComparisonRow]) -> list[str]:
    """Return which arrays finish earlier: those of the catalogue, or the designs."""
    by_name = {row["alternative"]: row for row in rows if row["alternative"] in (OWN_ARRAYS, DESIGNS_ALONE)}
    if not by_name:
        return []
    own, designed = (by_name[name] for name in (OWN_ARRAYS, DESIGNS_ALONE))
    times = [own["plan_latency_likely_us"] or 0.0, designed["plan_latency_likely_us"] or 0.0]
    winner = (
        "the designs win" if times[1] < times[0] else "its own arrays win" if times[0] < times[1] else "both are equal"
    )
    return [f"with the designs alone a plan takes {_spoken(designed)}, with its own arrays {_spoken(own)}: {winner}"]


def _spoken(row: OffloadComparisonRow) -> str:
    least, most = row["plan_latency_optimistic_us"], row["plan_latency_pessimistic_us"]
    return f"{row['plan_latency_likely_us']:,.0f} us ({least:,.0f} to {most:,.0f})"


def _launched_otherwise(plan: Plan, models: Models) -> OffloadComparisonRow | None:
    """Return the plan with the other way to launch, made for that way, or on a long network with the same calls.

    Given speedups are valid for the kernels of one plan, so there is none with them.
    """
    request = plan.request
    if request.given_speedups:
        return None
    launch_per = next(name for name in LAUNCH_PER if name != request.launch_per)
    name, changed = f"launch-per={launch_per}", replace(request, launch_per=launch_per)
    if len(plan.problem.items) <= MOST_STEPS:
        return planned_alternative(name, make_plan(plan.workload, changed, models), models)
    return {**planned_alternative(f"{name}, same calls", relaunched(plan, changed), models), "plan_status": ""}
