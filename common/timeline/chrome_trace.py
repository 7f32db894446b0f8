"""One timeline as a trace that Perfetto and chrome://tracing open: the "Trace Event Format" (JSON) of Chrome.

All times are µs on the clock of the tables. A track is a thread of one of the processes below. Events of one track are
either disjoint or lie within one another: that is how viewers nest them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

RUNS, NODES, SYSTEM = 1, 2, 3  # processes: their order in a viewer
PROCESSES = {RUNS: "runs", NODES: "executed nodes", SYSTEM: "host"}
FLOW = "critical path"

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that took time on a track; ``facts`` are shown when it is opened."""

    name: str
    track: str
    start_us: float
    duration_us: float
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CounterValue:
    """A value of a counter; it holds until the next one."""

    counter: str
    time_us: float
    value: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the trace shows.

    Attributes:
        runs: the runs, by the series that they belong to.
        nodes: executed nodes of some runs, by provider.
        disturbances: what the operating system did meanwhile.
        samples: power, processors, memory, clocks.
        chain: slices of ``nodes`` to join by arrows, in their order.
    """

    runs: Sequence[Slice]
    nodes: Sequence[Slice]
    disturbances: Sequence[Slice] = ()
    samples: Sequence[CounterValue] = ()
    chain: Sequence[Slice] = ()


def trace_json(timeline: Timeline, about: Mapping[str, Any]) -> str:
    """Return the trace as strict JSON, an event per line; ``about`` says what it is of."""
    lines = (json.dumps(event, ensure_ascii=False, allow_nan=False) for event in events(timeline))
    other = json.dumps(dict(about), ensure_ascii=False, allow_nan=False)
    head = f'{{"displayTimeUnit": "ms", "otherData": {other}, "traceEvents": ['
    return f"{head}\n" + ",\n".join(lines) + "\n]}\n"


def events(timeline: Timeline) -> Iterator[Event]:
    """Yield the events of a timeline: names of processes and tracks first."""
    groups = {RUNS: timeline.runs, NODES: timeline.nodes, SYSTEM: timeline.disturbances}
    tracks = {process: _tracks(slices) for process, slices in groups.items()}
    for process, title in PROCESSES.items():
        yield _named("process_name", process, 0, title)
        for track, thread in tracks[process].items():
            yield _named("thread_name", process, thread, track)
    for process, slices in groups.items():
        yield from (_complete(process, tracks[process][part.track], part) for part in slices)
    for sample in timeline.samples:
        value = {"value": sample.value}
        yield {"ph": "C", "name": sample.counter, "pid": SYSTEM, "tid": 0, "ts": sample.time_us, "args": value}
    yield from _arrows(timeline.chain, tracks[NODES])


def _tracks(slices: Iterable[Slice]) -> dict[str, int]:
    """Return the thread of each track, from 1 on."""
    return {track: thread for thread, track in enumerate(dict.fromkeys(part.track for part in slices), start=1)}


def _named(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _complete(process: int, thread: int, part: Slice) -> Event:
    category = PROCESSES[process]
    event = {"ph": "X", "name": part.name, "cat": category, "pid": process, "tid": thread}
    return {**event, "ts": part.start_us, "dur": part.duration_us, "args": dict(part.facts)}


def _arrows(chain: Sequence[Slice], tracks: Mapping[str, int]) -> Iterator[Event]:
    """Yield an arrow between each two slices that follow one another; its ends lie within them."""
    for number, (before, after) in enumerate(pairwise(chain), start=1):
        common = {"name": FLOW, "cat": FLOW, "id": number, "pid": NODES}
        end_us = before.start_us + before.duration_us
        yield {**common, "ph": "s", "tid": tracks[before.track], "ts": end_us}
        yield {**common, "ph": "f", "bp": "e", "tid": tracks[after.track], "ts": max(after.start_us, end_us)}
