"""Streams over replicas as rows: the plans, the rates of their resources, and the first frames of the best one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from common.fpga.planning.board_rows import WHOLE_BOARD
from common.fpga.planning.problem_builder import LaunchPer
from common.fpga.replicas.search import BestStreams
from common.fpga.replicas.stream import ReplicaStream, per_s
from common.fpga.replicas.timeline import first_calls
from common.table_rows import ReplicaPlansRow, ReplicaRatesRow, ReplicaScheduleRow


def plan_rows(found: BestStreams, launch_per: LaunchPer, *, is_judged: bool) -> list[ReplicaPlansRow]:
    """Return a row for each way to divide the frames, the quickest first."""
    streams = sorted(found.streams, key=lambda each: (each is not found.best, -each.rate_per_s.likely))
    return [_plan_row(each, found, launch_per, is_judged=is_judged) for each in streams]


def _plan_row(each: ReplicaStream, found: BestStreams, launch_per: LaunchPer, *, is_judged: bool) -> ReplicaPlansRow:
    replica, clock = each.stages[0].replica, each.stages[0].replica.main.clock_cases_mhz
    rate, card, latency = each.rate_per_s, each.card_rate_per_s, each.latency_us
    return {
        "division": each.division,
        "is_quickest": each is found.best,
        "engine": replica.name,
        "engines": [engine.name for engine in replica.engines],
        "accelerator_count": each.replica_count,
        "region_replicas": dict(each.counts) or {WHOLE_BOARD: 1},
        "stage_count": len(each.stages),
        "call_frame_count": each.frames,
        "in_flight_count": each.in_flight,
        "pessimistic_inferences_per_s": rate.pessimistic,
        "likely_inferences_per_s": rate.likely,
        "optimistic_inferences_per_s": rate.optimistic,
        "card_pessimistic_inferences_per_s": card.pessimistic,
        "card_likely_inferences_per_s": card.likely,
        "card_optimistic_inferences_per_s": card.optimistic,
        "bound_inferences_per_s": found.bound_per_s,
        "stream_bottleneck": each.bottleneck,
        "batch_latency_pessimistic_us": latency.pessimistic,
        "batch_latency_likely_us": latency.likely,
        "batch_latency_optimistic_us": latency.optimistic,
        "clock_pessimistic_mhz": clock.pessimistic,
        "clock_likely_mhz": clock.likely,
        "clock_optimistic_mhz": clock.optimistic,
        "resident_weight_bytes": sum(stage.weight_bytes for stage in each.stages),
        "resident_tensors": [tensor.name for stage in each.stages for tensor in stage.kept],
        "resident_activation_bytes": max(stage.map_bytes for stage in each.stages),
        "frame_memory_bytes": round(sum(work.moved_bytes for work in each.works) / each.frames),
        "accelerator_resources": {
            name: amount for name, amount in asdict(each.largest_fabric).items() if name != "memory_channels"
        },
        "stream_memory_bytes": each.memory_bytes,
        "launch_per": launch_per,
        "is_judged": is_judged,
    }


def rate_rows(found: BestStreams) -> Iterator[ReplicaRatesRow]:
    """Yield the time that each resource gives to a frame of each plan, the slowest resource first."""
    for stream in found.streams:
        for resource, us in sorted(stream.busy_us.items(), key=lambda item: -item[1].likely):
            yield {
                "division": stream.division,
                "stream_resource": resource,
                "frame_busy_pessimistic_us": us.pessimistic,
                "frame_busy_likely_us": us.likely,
                "frame_busy_optimistic_us": us.optimistic,
                "pessimistic_resource_inferences_per_s": per_s(us.pessimistic) if us.pessimistic else None,
                "likely_resource_inferences_per_s": per_s(us.likely) if us.likely else None,
                "optimistic_resource_inferences_per_s": per_s(us.optimistic) if us.optimistic else None,
                "is_bottleneck": resource == stream.bottleneck,
            }


def schedule_rows(found: BestStreams) -> list[ReplicaScheduleRow]:
    """Return the first calls of the best stream in the likely case, lane by lane."""
    return [
        {
            "interval_index": index,
            "lane": bar.lane,
            "activity": bar.activity,
            "call_frames": f"{bar.first_frame} to {bar.last_frame}"
            if bar.last_frame > bar.first_frame
            else f"{bar.first_frame}",
            "interval_start_us": bar.start_us,
            "interval_finish_us": bar.finish_us,
        }
        for index, bar in enumerate(first_calls(found.best))
    ]


def tables(
    found: BestStreams | None, launch_per: LaunchPer, *, is_judged: bool
) -> Mapping[str, list[Mapping[str, object]]]:
    """Return the rows of all tables of replicas by name; without a stream they are empty."""
    if found is None:
        return {"replica_plans": [], "replica_rates": [], "replica_schedule": []}
    return {
        "replica_plans": [*plan_rows(found, launch_per, is_judged=is_judged)],
        "replica_rates": [*rate_rows(found)],
        "replica_schedule": [*schedule_rows(found)],
    }
