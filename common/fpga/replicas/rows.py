"""Streams over replicas as rows: the plans, the rates of their resources, and the first frames of the best one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from common.fpga.planning.board_rows import WHOLE_BOARD
from common.fpga.planning.problem_builder import LaunchPer
from common.fpga.replicas.search import BestStreams
from common.fpga.replicas.stream import ReplicaStream, per_s
from common.table_rows import ReplicaPlansRow, ReplicaRatesRow, ReplicaScheduleRow

ROUNDS = 3  # calls of each chain that are shown: the second waits for the first, and the third shows the interval


def plan_rows(found: BestStreams, launch_per: LaunchPer, *, is_judged: bool) -> list[ReplicaPlansRow]:
    """Return a row for each way to divide the frames, the quickest first."""
    streams = sorted(found.streams, key=lambda each: (each is not found.best, -each.rate_per_s.likely))
    return [_plan_row(each, found, launch_per, is_judged=is_judged) for each in streams]


def _plan_row(each: ReplicaStream, found: BestStreams, launch_per: LaunchPer, *, is_judged: bool) -> ReplicaPlansRow:
    replica = each.stages[0].replica
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
        "pessimistic_inferences_per_s": each.rate_per_s.pessimistic,
        "likely_inferences_per_s": each.rate_per_s.likely,
        "optimistic_inferences_per_s": each.rate_per_s.optimistic,
        "card_pessimistic_inferences_per_s": each.card_rate_per_s.pessimistic,
        "card_likely_inferences_per_s": each.card_rate_per_s.likely,
        "card_optimistic_inferences_per_s": each.card_rate_per_s.optimistic,
        "bound_inferences_per_s": found.bound_per_s,
        "stream_bottleneck": each.bottleneck,
        "batch_latency_pessimistic_us": each.latency_us.pessimistic,
        "batch_latency_likely_us": each.latency_us.likely,
        "batch_latency_optimistic_us": each.latency_us.optimistic,
        "clock_pessimistic_mhz": replica.main.clock_cases_mhz.pessimistic,
        "clock_likely_mhz": replica.main.clock_cases_mhz.likely,
        "clock_optimistic_mhz": replica.main.clock_cases_mhz.optimistic,
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


def tables(
    found: BestStreams | None, launch_per: LaunchPer, *, is_judged: bool
) -> Mapping[str, list[Mapping[str, object]]]:
    """Return the rows of all tables of replicas by name; without a stream they are empty."""
    return {
        "replica_plans": [*plan_rows(found, launch_per, is_judged=is_judged)] if found else [],
        "replica_rates": [*rate_rows(found)] if found else [],
        "replica_schedule": [*schedule_rows(found.best)] if found else [],
    }


# --- the first frames -------------------------------------------------------------------------------------------------


def units(stream: ReplicaStream) -> list[str]:
    """Return the replicas by name: the region, and a number in it."""
    named = [f"{region}.{number}" for region, count in stream.counts.items() for number in range(1, count + 1)]
    return named or [WHOLE_BOARD]


def schedule_rows(stream: ReplicaStream) -> list[ReplicaScheduleRow]:
    """Return the first calls of a stream on one clock in the likely case: host, link, converters and replicas."""
    free: dict[str, float] = {}
    calls = (row for call in range(ROUNDS * stream.chains) for row in _call(stream, call, free))
    shown = (row for row in calls if row["interval_finish_us"] > row["interval_start_us"])
    return [{**row, "interval_index": index} for index, row in enumerate(shown)]


def _call(stream: ReplicaStream, call: int, free: dict[str, float]) -> Iterator[ReplicaScheduleRow]:
    """Yield all calls of some frames on the engines of one kind as one, because they follow each other by the µs.

    Frames begin when they are on the card, or when the stage before is done with them. A conversion waits for no other.
    ``free`` is when each lane is free.
    """
    whole, chain, count = stream.frames, call % stream.chains, len(stream.stages)
    shared = {name: us.likely * whole for name, us in stream.busy_us.items()}
    convert_in_us, convert_out_us = (us.likely * whole for us in stream.convert_us)
    lanes = ["all replicas"] if stream.division == "heads" else units(stream)[chain * count : (chain + 1) * count]
    works = zip(lanes, stream.works, strict=True)
    steps = [
        ("h2d", "transfer", shared.get("link to the card", 0.0)),
        ("convert-in", "conversion", convert_in_us),
        *((f"{lane} {unit}", "kernel", us.likely) for lane, work in works for unit, us in work.busy_us.items()),
        ("convert-out", "conversion", convert_out_us),
        ("d2h", "transfer", shared.get("link to the host", 0.0)),
        ("host", "host", shared.get("host", 0.0)),
    ]
    first, ready_us = call * whole + 1, 0.0
    for lane, activity, every_us in steps:
        start_us = ready_us if activity == "conversion" else max(ready_us, free.get(lane, 0.0))
        ready_us = free[lane] = start_us + every_us
        yield {
            "interval_index": 0,  # not known yet
            "lane": lane,
            "activity": activity,
            "call_frames": f"{first}" + (f" to {first + whole - 1}" if whole > 1 else ""),
            "interval_start_us": start_us,
            "interval_finish_us": ready_us,
        }
