"""The first frames of a stream on one clock: host, link, converters, and each replica, in the likely case.

A bar holds all calls of some frames on the engines of one kind, because a replica's calls follow each other by the
microsecond. Its frames begin when they are on the card, or when the stage before is done with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from common.fpga.planning.board_rows import WHOLE_BOARD
from common.fpga.replicas.stream import ReplicaStream
from common.intervals import ThreePoint

Activity = Literal["host", "kernel", "transfer", "conversion"]
ROUNDS = 3  # calls of each chain that are shown: the second waits for the first, and the third shows the interval


@dataclass(frozen=True, slots=True)
class FrameBar:
    """Some frames on a lane. ``activity`` is what a lane of the offload's schedule does."""

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
    free: dict[str, float] = {}
    return [
        bar
        for call in range(ROUNDS * stream.chains)
        for bar in _call(stream, call, free)
        if bar.finish_us > bar.start_us
    ]


def lanes_of(stream: ReplicaStream, chain: int) -> list[str]:
    """Return the lane of each stage of a chain; where all replicas share every call, there is one lane of all."""
    names = units(stream)
    if stream.division == "heads":
        return ["all replicas"]
    count = len(stream.stages)
    return names[chain * count : (chain + 1) * count]


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
    for lane, work in zip(lanes_of(stream, chain), stream.works, strict=True):
        for unit, us in work.busy_us.items():
            bar = taken(f"{lane} {unit}", "kernel", us.likely, bar.finish_us)
            yield bar
    bar = converted("convert-out", stream.convert_us[1], bar.finish_us)
    yield bar
    bar = taken("d2h", "transfer", shared.get("link to the host", 0.0), bar.finish_us)
    yield bar
    yield taken("host", "host", shared.get("host", 0.0), bar.finish_us)
