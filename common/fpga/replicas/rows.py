"""Streams over replicas as rows: the plans, the rates of their resources, and the first frames of the best one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from common.fpga.planning.board_rows import WHOLE_BOARD
from common.fpga.planning.problem_builder import LaunchPer
from common.fpga.replicas.search import BestStreams
from common.fpga.replicas.stream import ReplicaStream, per_s
from common.intervals import ThreePoint
from common.table_rows import ReplicaPlansRow, ReplicaRatesRow, ReplicaScheduleRow

Activity = Literal["host", "kernel", "transfer", "conversion"]
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


def schedule_rows(found: BestStreams) -> list[ReplicaScheduleRow]:
    """Return the first calls of the best stream in the likely case, lane by lane."""
    return [
        {
            "interval_index": index,
            "lane": bar.lane,
            "activity": bar.activity,
            "call_frames": f"{bar.first_frame}" + (f" to {bar.last_frame}" if bar.last_frame > bar.first_frame else ""),
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


# --- the first frames -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FrameBar:
    """All calls of some frames on the engines of one kind, because a replica's calls follow each other by the µs.

    Its frames begin when they are on the card, or when the stage before is done with them. ``activity`` is what a lane
    of the offload's schedule does.
    """

    lane: str
    activity: Activity
    first_frame: int
    last_frame: int
    start_us: float
    finish_us: float


def units(stream: ReplicaStream) -> list[str]:
    """Return the replicas by name: the region, and a number in it."""
    named = [f"{region}.{number}" for region, count in stream.counts.items() for number in range(1, count + 1)]
    return named or [WHOLE_BOARD]


def first_calls(stream: ReplicaStream) -> list[FrameBar]:
    """Return the first frames of a stream on one clock in the likely case: host, link, converters and replicas."""
    free: dict[str, float] = {}
    return [
        bar
        for call in range(ROUNDS * stream.chains)
        for bar in _call(stream, call, free)
        if bar.finish_us > bar.start_us
    ]


def _call(stream: ReplicaStream, call: int, free: dict[str, float]) -> Iterator[FrameBar]:
    first, chain = call * stream.frames + 1, call % stream.chains
    last, ready = first + stream.frames - 1, 0.0

    def taken(lane: str, activity: Activity, every_us: float, after_us: float) -> FrameBar:
        start = max(after_us, free.get(lane, 0.0))
        free[lane] = start + every_us
        return FrameBar(lane, activity, first, last, start, start + every_us)

    def converted(lane: str, us: ThreePoint, after_us: float) -> FrameBar:
        return FrameBar(lane, "conversion", first, last, after_us, after_us + us.likely * whole)  # waits for nothing

    whole = stream.frames
    shared = {name: us.likely * whole for name, us in stream.busy_us.items()}
    bar = taken("h2d", "transfer", shared.get("link to the card", 0.0), ready)
    yield bar
    bar = converted("convert-in", stream.convert_us[0], bar.finish_us)
    yield bar
    count = len(stream.stages)
    lanes = units(stream)[chain * count : (chain + 1) * count]
    for lane, work in zip(["all replicas"] if stream.division == "heads" else lanes, stream.works, strict=True):
        for unit, us in work.busy_us.items():
            bar = taken(f"{lane} {unit}", "kernel", us.likely, bar.finish_us)
            yield bar
    bar = converted("convert-out", stream.convert_us[1], bar.finish_us)
    yield bar
    bar = taken("d2h", "transfer", shared.get("link to the host", 0.0), bar.finish_us)
    yield bar
    yield taken("host", "host", shared.get("host", 0.0), bar.finish_us)
