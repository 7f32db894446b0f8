"""A trace that Perfetto and chrome://tracing open: the "Trace Event Format" (JSON) of Chrome.

All times are µs on one clock. A track is a thread of a process. Events of one track are either disjoint or contained in
one another: that is how viewers nest them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypedDict

Place = tuple[int, int]  # process and thread


class Event(TypedDict, total=False):
    """An event as JSON: its phase, what it is and where, and in µs when and for how long."""

    ph: str
    name: str
    cat: str
    pid: int
    tid: int
    ts: float
    dur: float
    id: int
    bp: str
    args: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that took time on a track; ``facts`` are shown when it is opened."""

    name: str
    track: str
    start_us: float
    duration_us: float
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CounterValue:
    """A value of a counter; it holds until the next one."""

    counter: str
    time_us: float
    value: float


@dataclass(frozen=True, slots=True)
class Process:
    """A group of tracks under one title."""

    title: str
    slices: Sequence[Slice]
    samples: Sequence[CounterValue] = ()


@dataclass(frozen=True, slots=True)
class ChromeTrace:
    processes: Sequence[Process]
    chain: Sequence[Slice] = ()
    chain_name: str = ""


def known_facts(row: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    """Return those of the named columns of a row that are known, whatever its table."""
    return {name: row[name] for name in names if row.get(name) is not None}


def trace_json(trace: ChromeTrace, about: Mapping[str, object]) -> str:
    """Return the trace as strict JSON, an event per line; ``about`` says what it is of.

    Perfetto drops events before time 0. Where there are any, all are moved by ``time_zero_us``, which ``about`` gets.
    """
    zero_us = time_zero_us(trace)
    lines = (json.dumps(_moved(event, zero_us), ensure_ascii=False, allow_nan=False) for event in events(trace))
    about_json = json.dumps({**about, "time_zero_us": zero_us}, ensure_ascii=False, allow_nan=False)
    head = f'{{"displayTimeUnit": "ms", "otherData": {about_json}, "traceEvents": ['
    return f"{head}\n" + ",\n".join(lines) + "\n]}\n"


def time_zero_us(trace: ChromeTrace) -> int:
    """Return where time 0 is in the file, so that nothing comes before its start."""
    starts = (part.start_us for process in trace.processes for part in process.slices)
    samples = (sample.time_us for process in trace.processes for sample in process.samples)
    return math.ceil(max(0.0, -min((*starts, *samples), default=0.0)))


def _moved(event: Event, zero_us: int) -> Event:
    return {**event, "ts": _to_ns(event["ts"] + zero_us)} if zero_us and "ts" in event else event


def events(trace: ChromeTrace) -> Iterator[Event]:
    """Yield the events of a trace; the names of a process and of its tracks come first."""
    places: dict[int, Place] = {}
    for number, process in enumerate(trace.processes, start=1):
        tracks = dict.fromkeys(part.track for part in process.slices)
        threads = {track: thread for thread, track in enumerate(tracks, start=1)}
        yield from _named("process", (number, 0), process.title)
        for track, thread in threads.items():
            yield from _named("thread", (number, thread), track)
        for part in process.slices:
            places[id(part)] = place = (number, threads[part.track])
            yield _complete(part, process.title, place)
        for sample in process.samples:
            time_us, facts = _to_ns(sample.time_us), {"value": sample.value}
            yield {"ph": "C", "name": sample.counter, "pid": number, "tid": 0, "ts": time_us, "args": facts}
    yield from _arrows(trace, places)


def _named(kind: str, place: Place, name: str) -> Iterator[Event]:
    """Yield the name of a process or a thread, and its order: that of its number."""
    process, thread = place
    at: Event = {"pid": process, "tid": thread}
    number = thread if kind == "thread" else process
    yield {"ph": "M", "name": f"{kind}_name", **at, "args": {"name": name}}
    yield {"ph": "M", "name": f"{kind}_sort_index", **at, "args": {"sort_index": number}}


def _complete(part: Slice, category: str, place: Place) -> Event:
    """Return the event of a slice, from and to a whole ns: a viewer that rounds drops what then overlaps by one."""
    start_us, end_us = _to_ns(part.start_us), _to_ns(part.start_us + part.duration_us)
    return {
        **{"ph": "X", "name": part.name, "cat": category, "pid": place[0], "tid": place[1]},
        **{"ts": start_us, "dur": _to_ns(end_us - start_us), "args": dict(part.facts)},
    }


def _to_ns(time_us: float) -> float:
    return round(time_us, 3)


def _arrows(trace: ChromeTrace, places: Mapping[int, Place]) -> Iterator[Event]:
    """Yield an arrow between each two slices of the chain that follow one another, from middle to middle."""
    for number, (before, after) in enumerate(pairwise(trace.chain), start=1):
        yield {"ph": "s", **_arrow_end(trace.chain_name, number, places[id(before)], before)}
        yield {"ph": "f", "bp": "e", **_arrow_end(trace.chain_name, number, places[id(after)], after)}


def _arrow_end(name: str, number: int, place: Place, part: Slice) -> Event:
    """Return an end of an arrow in the middle of a slice: viewers join the slices around its ends."""
    middle_us = _to_ns(part.start_us + part.duration_us / 2)
    return {"name": name, "cat": name, "id": number, "pid": place[0], "tid": place[1], "ts": middle_us}
