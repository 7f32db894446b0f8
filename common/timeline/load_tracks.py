"""A load test for a viewer, on the clock of its run: requests, how they queue, and the batches that sessions serve."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

from common.table_rows import LoadBatchesRow, LoadRequestsRow
from common.timeline.chrome_trace import CounterValue, Process, Slice, known_facts
from common.timeline.from_tables import left_out_notes

CLOCK = "clock of the load test"
MOST_REQUESTS = 3_000  # with their batches some 4 MB
MOST_LANES = 200  # tracks of requests that are in the service at the same time
MOST_DEPTHS = 4_000
REQUEST_FACTS = ("outcome", "load_batch_index", "queue_depth_count", "request_latency_us", "is_warmup_request")
BATCH_FACTS = (
    *("request_count", "padded_request_count", "padded_length", "formation_us", "generator_late_us", "padding_share"),
    "padding_flops_share",
)
STAGES = (
    *("decode_us", "resize_us", "normalize_us", "assemble_us", "host_to_device_us", "session_run_us"),
    *("device_to_host_us", "postprocess_us"),
)  # of a batch, in their order


@dataclass(frozen=True, slots=True)
class LoadTimeline:
    """The contents of a load test's timeline from top to bottom, their number, and those that it leaves out."""

    processes: Sequence[Process]
    counts: Mapping[str, int]
    notes: Sequence[str]


def load_timeline(
    requests: Sequence[LoadRequestsRow],
    batches: Sequence[LoadBatchesRow],
    replica_count: int,
    *,
    is_bounded: bool = True,
) -> LoadTimeline:
    """Return the timeline of a load test, of which ``replica_count`` workers share a session.

    With ``is_bounded``, only the requests around the slowest one are shown where there are too many for a viewer.
    """
    lanes = in_lanes(around_the_slowest(requests), MOST_LANES) if is_bounded else in_lanes(requests, len(requests))
    indices = {row["load_batch_index"] for row, _ in lanes}
    served = [row for row in batches if row["load_batch_index"] in indices]
    depths = waiting(requests)
    processes = [
        Process(f"requests ({CLOCK})", [*_request_slices(lanes)], few_depths(depths) if is_bounded else depths),
        Process(f"batches that form ({CLOCK})", [*_forming(served)]),
        Process(f"sessions ({CLOCK})", [*_session_slices(served, replica_count)]),
    ]
    counts = {"load requests": len(lanes), "load batches": len(served)}
    whole = {"load requests": len(requests), "load batches": len(batches)}
    return LoadTimeline(processes, counts, left_out_notes(whole, counts))


def around_the_slowest(requests: Sequence[LoadRequestsRow]) -> Sequence[LoadRequestsRow]:
    """Return at most ``MOST_REQUESTS`` requests that came one after the other, the slowest one in their middle."""
    slowest = max(range(len(requests)), key=lambda index: requests[index]["request_latency_us"] or 0.0, default=0)
    first = max(0, min(slowest - MOST_REQUESTS // 2, len(requests) - MOST_REQUESTS))
    return requests[first : first + MOST_REQUESTS]


def in_lanes(requests: Iterable[LoadRequestsRow], most: int) -> list[tuple[LoadRequestsRow, int]]:
    """Return the requests with a lane each, which no other one has at the time; at most so many lanes."""
    free: list[int] = []
    taken: list[tuple[float, int]] = []
    placed: list[tuple[LoadRequestsRow, int]] = []
    for row in requests:
        while taken and taken[0][0] <= row["intended_us"]:
            heapq.heappush(free, heapq.heappop(taken)[1])
        if not free and len(taken) >= most:
            continue
        lane = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (_end_us(row), lane))
        placed.append((row, lane))
    return placed


def _end_us(row: LoadRequestsRow) -> float:
    """Return when a request was answered or failed; its beginning where it was turned away or given up."""
    end_us = row["ended_us"]
    return float(row["intended_us"] if end_us is None else end_us)


def _request_slices(lanes: Sequence[tuple[LoadRequestsRow, int]]) -> Iterator[Slice]:
    for row, lane in sorted(lanes, key=lambda entry: entry[1]):
        name, track, start_us = f"request {row['request_index']}", f"requests {lane + 1}", row["intended_us"]
        if row["outcome"] != "completed":
            name += f" ({row['outcome']})"
        yield Slice(name, track, start_us, _end_us(row) - start_us, known_facts(row, REQUEST_FACTS))
        if row["started_us"] is not None and row["ended_us"] is not None:
            yield Slice("waits", track, start_us, row["started_us"] - start_us)


def waiting(requests: Iterable[LoadRequestsRow]) -> list[CounterValue]:
    """Return how many requests wait for their batch, at every time at which that changes."""
    changes: dict[float, int] = {}
    for row in requests:
        if row["batched_us"] is not None:
            changes[row["intended_us"]] = changes.get(row["intended_us"], 0) + 1
            changes[row["batched_us"]] = changes.get(row["batched_us"], 0) - 1
    times_us = sorted(changes)
    depths = accumulate(changes[time_us] for time_us in times_us)
    return [CounterValue("requests that wait", *pair) for pair in zip(times_us, depths, strict=True)]


def few_depths(depths: Sequence[CounterValue]) -> list[CounterValue]:
    """Return at most ``MOST_DEPTHS`` values: of each stretch of many its largest one."""
    stretch = max(1, -(-len(depths) // MOST_DEPTHS))
    parts = (depths[first : first + stretch] for first in range(0, len(depths), stretch))
    return [max(part, key=lambda depth: depth.value) for part in parts]


def _forming(batches: Iterable[LoadBatchesRow]) -> Iterator[Slice]:
    """Yield each batch from its oldest request until it was formed, on the track of its worker.

    Batches of one worker overlap where requests queue; there the later one begins where the earlier one was formed.
    """
    formed_us: dict[int, float] = {}
    formed = ((row["worker_index"], end_us, row) for row in batches if (end_us := row["batched_us"]) is not None)
    for worker, end_us, row in sorted(formed, key=lambda entry: entry[:2]):
        start_us = max(end_us - row["formation_us"], formed_us.get(worker, 0.0))
        formed_us[worker] = end_us
        facts = known_facts(row, BATCH_FACTS)
        yield Slice(_batch_name(row), f"for worker {worker}", start_us, end_us - start_us, facts)


def _session_slices(batches: Iterable[LoadBatchesRow], replica_count: int) -> Iterator[Slice]:
    served = (
        (row["worker_index"], start_us, end_us, row)
        for row in batches
        if (start_us := row["started_us"]) is not None and (end_us := row["ended_us"]) is not None
    )
    for worker, start_us, end_us, row in sorted(served, key=lambda entry: entry[:2]):
        session, replica = divmod(worker, replica_count)
        track = f"session {session}" + (f", replica {replica}" if replica_count > 1 else "")
        yield Slice(_batch_name(row), track, start_us, end_us - start_us, known_facts(row, BATCH_FACTS))
        stage_start_us = start_us
        for stage, stage_us in cast("dict[str, float]", known_facts(row, STAGES)).items():
            if stage_us:
                shown_us = min(stage_us, end_us - stage_start_us)
                yield Slice(stage.removesuffix("_us"), track, stage_start_us, shown_us)
                stage_start_us += shown_us


def _batch_name(row: LoadBatchesRow) -> str:
    count = row["request_count"]
    return f"batch {row['load_batch_index']}: {count} request" + ("s" if count > 1 else "")
