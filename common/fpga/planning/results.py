"""A plan with its speedup as rows by table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from common.fpga.coefficients import Models
from common.fpga.planning.comparison import Alternative, alternative, baselines
from common.fpga.planning.front import front_rows
from common.fpga.planning.plan import Plan, Request, make_plan, plan_speedup, relaunched
from common.fpga.planning.plan_notes import plan_notes
from common.fpga.planning.plan_rows import candidate_rows, kernel_rows, resource_rows, schedule_rows
from common.fpga.planning.problem_builder import LAUNCH_PER
from common.fpga.speedup.verdict import verdicts
from common.fusion.groups import fuse
from common.host_doubts import host_doubts
from common.source_graph import from_rows
from common.workload.host_cost import ExecutedCost, HostTotals, SourceWork, run_energy, run_latency, surplus_us
from common.workload.layer_rows import layers_by_node
from common.workload.workload import Workload, make_workload

if TYPE_CHECKING:
    from common.table_rows import Documents, OpLatencyRow, OpScheduleRow, OpsProfileRow, Tables

MOST_STEPS = 100  # of a plan that is searched again for the other way to launch


@dataclass(frozen=True, slots=True)
class Results:
    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    notes: tuple[str, ...]
    plan: Plan


def workload_from_rows(tables: Tables, documents: Documents, notes: Iterable[str] = ()) -> Workload:
    """Return the groups of the source graph and their cost on the host.

    Args:
        tables: rows of op_metrics, op_edges, node_map, op_latency, ops_profile (whose latencies add up to the
            unprofiled median, the gap included) and op_schedule.
        documents: latency_summary and energy_summary.
        notes: of the measurement.
    """
    metrics, profile = tables["op_metrics"], tables["ops_profile"]
    graph = from_rows(metrics, tables["op_edges"])
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
    gap_us = sum(row["node_latency_us"] for row in profile if row["row_kind"] == "gap")
    doubts = host_doubts(summary, gap_us, sum(row["events_per_run_count"] or 0 for row in nodes), notes)
    latency = run_latency(sum(row["node_latency_us"] for row in profile), summary)
    energy_uj, source = run_energy(energy, latency), energy["energy_source"]
    return HostTotals(latency, energy_uj, energy["static_power_w"], doubts, source)


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
    workload: Workload,
    request: Request,
    models: Models,
    what_if: Mapping[str, Request],
    most_batch: int = 1,
) -> Results:
    """Return the tables of the plan, with its baselines and the what-if plans.

    Args:
        workload: groups and their host cost.
        request: what to plan for.
        models: coefficients of the kernel models.
        what_if: what to plan for besides, by what-if question (:func:`what_if_request`).
        most_batch: largest batch of the front.

    Raises:
        UnusableValueError: a kernel that a speedup is given for is not in the plan.
    """
    plan = make_plan(workload, request, models)
    speedup = plan_speedup(plan, models.energy)
    judged = verdicts(speedup, workload.host.doubts, workload.host.energy_source)
    rows = [alternative("plan", plan, speedup), *baselines(plan)]
    otherwise = _launched_otherwise(plan, models)
    rows += [otherwise] if otherwise is not None and otherwise.alternative not in what_if else []
    for text, changed in what_if.items():
        other = make_plan(workload, changed, models)
        rows.append(alternative(text, other, plan_speedup(other, models.energy)))
    tables: dict[str, Sequence[Mapping[str, Any]]] = {
        "fpga_candidates": candidate_rows(plan),
        "offload_plan": kernel_rows(plan),
        "offload_schedule": schedule_rows(plan),
        "offload_comparison": list(map(asdict, rows)),
        "board_resources": list(map(asdict, resource_rows(plan))),
        "speedup": list(map(asdict, speedup)),
        "offload_verdict": list(map(asdict, judged)),
        "offload_front": front_rows(workload, request, models, plan, most_batch),
    }
    return Results(tables, tuple(plan_notes(plan, speedup)), plan)


def _launched_otherwise(plan: Plan, models: Models) -> Alternative | None:
    """Return the plan with the other way to launch, made for that way, or on a long network with the same calls.

    Given speedups hold for the kernels of one plan, so there is none with them.
    """
    request = plan.request
    other = next(name for name in LAUNCH_PER if name != request.launch_per)
    name, changed = f"launch-per={other}", replace(request, launch_per=other)
    if request.given_speedups:
        return None
    if len(plan.problem.items) <= MOST_STEPS:
        planned = make_plan(plan.workload, changed, models)
        return alternative(name, planned, plan_speedup(planned, models.energy))
    same = relaunched(plan, changed)
    row = alternative(f"{name}, same calls", same, plan_speedup(same, models.energy))
    return replace(row, plan_status=None)
