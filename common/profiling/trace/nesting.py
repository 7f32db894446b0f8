"""Nesting of a trace's events: those of a subgraph's body are within the event of the node that owns the body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KERNEL_SUFFIX = "_kernel_time"
Event = Mapping[str, Any]
Bodies = Mapping[str, Sequence[Mapping[str, str]]]


@dataclass(slots=True)
class Span:
    """An event of a node."""

    name: str  # of the node
    event: Event
    position: int  # its place in the trace, which lists events as they end
    first: int  # position of the first event inside it
    owner: str = ""  # the node that owns it
    inside: list[Span] = field(default_factory=list)  # the events directly inside it

    @property
    def own_us(self) -> float:
        """Duration without the nested events."""
        return float(self.event["dur"] - sum(inner.event["dur"] for inner in self.inside))


def is_node_event(event: Event) -> bool:
    return event.get("cat") == "Node" and str(event.get("name", "")).endswith(KERNEL_SUFFIX)


def is_orderly(events: Iterable[Event]) -> bool:
    """Whether the clock ran forward during one run: no duration is negative, and no event ends before an earlier one.

    The runtime records an event when it ends and cuts its start and its duration to whole microseconds. So the end of a
    later event of the same thread may appear to be one microsecond earlier, but no more.
    """
    last_end: dict[Any, float] = {}
    for event in events:
        end, thread = end_us(event), event["tid"]
        if event["dur"] < 0 or end < last_end.get(thread, end) - 1:
            return False
        last_end[thread] = end
    return True


def nest(events: Iterable[Event], bodies: Bodies | None = None) -> list[Span]:
    """Return the events of one run in the order in which they started, each with its owner.

    The runtime records an event when it ends, so an owner comes right after the last event of its body. Events inside
    an owner neither overlap nor outlast it, and each duration is cut to whole microseconds. So their sum never exceeds
    the owner's duration.
    """
    spans = []
    ended: dict[Any, list[Span]] = {}  # by thread: events without an owner so far
    for position, event in enumerate(events):
        span = Span(event["name"].removesuffix(KERNEL_SUFFIX), event, position, position)
        siblings = ended.setdefault(event["tid"], [])
        while siblings and _is_inside(siblings[-1].event, event):
            inner = siblings.pop()
            span.first = inner.first
            span.inside.append(inner)
        siblings.append(span)
        spans.append(span)
    for outer in ended.values():
        _name(outer, "", bodies or {})
    return sorted(spans, key=lambda span: (span.first, -span.position))  # an owner before what started inside it


def _name(spans: Iterable[Span], owner: str, bodies: Bodies) -> None:
    """Name the events inside an owner's, at all depths.

    All nodes of a body run when it runs, so the body is the smallest one that has all their names.
    """
    traced = {span.name for span in spans}
    names = min((body for body in bodies.get(owner, ()) if traced <= body.keys()), key=len, default={})
    for span in spans:
        span.owner, span.name = owner, names.get(span.name, span.name)
        if span.inside:
            _name(span.inside, span.name, bodies)


def _is_inside(event: Event, later: Event) -> bool:
    """Whether an event is nested in a later-recorded event of the same thread.

    Start and duration are cut to whole microseconds, so a nested event may appear to end one microsecond after its
    owner. An event of no duration that starts together with the later one counts as before it; that loses no time.
    """
    after_start = event["ts"] > later["ts"] or (event["ts"] == later["ts"] and event["dur"] > 0)
    return bool(after_start and end_us(event) <= end_us(later) + 1)


def end_us(event: Event) -> float:
    """Return the time at which an event ended, in µs on the trace's clock."""
    return float(event["ts"] + event["dur"])
