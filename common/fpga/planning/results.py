"""The answers of stage 07 as rows by table: a plan with what it gains, or a whole model on an overlay engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from common.fpga.coefficients import Models
from common.fpga.device.board import Board
from common.fpga.kernels.overlay import OverlayEngine
from common.fpga.planning.comparison import asked_instead, compared, yardsticks
from common.fpga.planning.plan import Request, gains, make_plan
from common.fpga.planning.plan_notes import caveats
from common.fpga.planning.plan_rows import candidate_rows, kernel_rows, resource_rows, schedule_rows
from common.fpga.planning.whole_model import LayerTime, WholeModel, whole_model
from common.fusion.groups import fuse
from common.source_graph import from_rows
from common.workload.host_cost import ExecutedCost, SourceWork
from common.workload.layer_rows import layers_by_node
from common.workload.workload import HostTotals, Workload, make_workload

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Results:
    """Rows by table, and what a reader must know."""

    rows: Mapping[str, Sequence[Row]]
    notes: tuple[str, ...]


def workload_from_rows(tables: Mapping[str, Sequence[Row]], energy: Row) -> Workload:
    """The groups of the source graph, and what each costs the host.

    Args:
        tables: rows of op_metrics, op_edges, node_map, ops_profile (whose gap row closes on the unprofiled median) and
            op_schedule.
        energy: energy_summary.
    """
    metrics, profile = tables["op_metrics"], tables["ops_profile"]
    graph = from_rows(metrics, tables["op_edges"])
    sources: dict[str, list[str]] = {}
    for row in tables["node_map"]:
        sources.setdefault(row["executed_node"], []).append(row["source_node"])
    total_us = sum(row["node_latency_us"] for row in profile)
    return make_workload(
        graph,
        fuse(graph),
        layers_by_node(metrics, graph),
        {row["source_node"]: SourceWork(row["macs"], row["flops"]) for row in metrics},
        frozenset(row["source_node"] for row in metrics if row["body"]),
        _executed(profile, tables["op_schedule"]),
        sources,
        HostTotals(total_us, energy["energy_uj"], energy["static_power_w"]),
    )


def _executed(profile: Iterable[Row], schedule: Iterable[Row]) -> list[ExecutedCost]:
    """Every executed node in the order of execution, without the gap; what the schedule lacks comes last."""
    planned = {row["executed_node"]: row for row in schedule}
    nodes = [row for row in profile if row["row_kind"] != "gap"]
    last = {"execution_index": len(nodes), "is_critical": False}
    found = [(row, planned.get(row["executed_node"], last)) for row in nodes]
    return [
        ExecutedCost(row["executed_node"], row["node_latency_us"], row["energy_uj"], bool(place["is_critical"]))
        for row, place in sorted(found, key=lambda pair: pair[1]["execution_index"])
    ]


def plan_results(
    workload: Workload,
    asked: Request,
    models: Models,
    instead: Sequence[str],
    board_of: Callable[[str], Board],
    overlay_of: Callable[[Board], OverlayEngine | None],
) -> Results:
    """The plan, and what it is held against.

    Args:
        workload: what is to be placed.
        asked: how.
        models: coefficients of the kernel models.
        instead: what else to plan, as words of the command line.
        board_of: the board of a name.
        overlay_of: the overlay engine that was asked for, as it stands on a board.

    Raises:
        CommandLineError: a kernel, a board or a word that is not there.
    """
    plan = make_plan(workload, asked, models)
    gained = gains(plan, models.energy)
    rows = [compared("plan", plan, gained), *yardsticks(plan)]
    for text in instead:
        other = make_plan(workload, asked_instead(asked, text, board_of, overlay_of), models)
        rows.append(compared(text, other, gains(other, models.energy)))
    return Results(
        {
            "fpga_candidates": candidate_rows(plan),
            "offload_plan": kernel_rows(plan),
            "offload_schedule": schedule_rows(plan),
            "offload_comparison": list(map(asdict, rows)),
            "board_resources": list(map(asdict, resource_rows(plan))),
            "speedup": list(map(asdict, gained)),
        },
        tuple(caveats(plan, gained)),
    )


def overlay_results(metrics: Sequence[Row], edges: Iterable[Row], engine: OverlayEngine) -> Results:
    """The whole model on one overlay engine.

    Raises:
        PipelineError: an extent is unknown, or the model holds a batch of its own.
    """
    graph = from_rows(metrics, edges)
    found = whole_model(graph, layers_by_node(metrics, graph), engine)
    rows = {
        "overlay_layers": [_layer_row(layer) for layer in found.layers],
        "overlay_summary": [_summary(found, engine)],
    }
    return Results(rows, found.notes)


def _layer_row(layer: LayerTime) -> dict[str, Any]:
    return {
        "engine_layer": layer.name,
        "op_types": list(layer.op_types),
        "unit": layer.unit,
        "macs": layer.macs,
        "weight_bytes": layer.weight_bytes,
        "moved_bytes": layer.moved_bytes,
        "engine_cycles": layer.cycles,
        "compute_us": layer.compute_us,
        "memory_us": layer.memory_us,
        "fixed_us": layer.fixed_us,
        "kernel_latency_likely_us": layer.time_us,
        "board_bound": layer.bound,
    }


def _summary(found: WholeModel, engine: OverlayEngine) -> dict[str, Any]:
    latency, rate = found.latency_us, found.frames_per_second
    return {
        "engine": found.engine,
        "board": found.board,
        "clock_mhz": engine.clock_mhz,
        "image_count": found.batch,
        "macs": found.macs,
        "batch_latency_pessimistic_us": latency.pessimistic,
        "batch_latency_likely_us": latency.likely,
        "batch_latency_optimistic_us": latency.optimistic,
        "engine_us": found.engine_us,
        "host_us": found.host_us,
        "pessimistic_frames_per_s": rate.pessimistic,
        "likely_frames_per_s": rate.likely,
        "optimistic_frames_per_s": rate.optimistic,
        "pipelined_frames_per_s": found.pipelined_frames_per_second.likely,
        "roof_us": found.roofline_us,
    }
