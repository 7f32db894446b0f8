"""Reader of ONNX Runtime's trace: which node took how long in which run.

A node event of the sequential executor is named ``<node>_kernel_time``; a ``model_run`` event closes each run. Events
of a subgraph's body nest in time inside the event of the node that owns the subgraph. A node's time is its own: the
duration of its events less what is nested directly in them, so that every microsecond is counted once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import PipelineError

KERNEL_SUFFIX = "_kernel_time"
CPP_NAMES = {"float": "float32", "double": "float64"}  # the trace has the C++ names
TAIL_BYTES = 4096  # the runtime says at the end of a trace that it cut it
Event = Mapping[str, Any]
Bodies = Mapping[str, Sequence[Mapping[str, str]]]


@dataclass(slots=True)
class NodeTrace:
    """All events of one node; ``run_us`` and ``run_events`` hold its own time and its events in each run, in run order.

    ``owner`` is the control-flow node whose event its events are nested in; empty at the top level.
    """

    name: str
    op_type: str
    provider: str
    execution_index: int
    input_shapes: list[Any]
    output_shapes: list[Any]
    output_dtypes: list[str]
    owner: str = ""
    run_us: list[float] = field(default_factory=list)
    run_events: list[int] = field(default_factory=list)
    uses_thread_pool: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """The nodes in the order in which they first started, and the number of complete runs.

    ``run_span_us`` is the time from the start of the first node to the end of the last, in each run; ``event_count``
    are the events of nodes, ``recorded_count`` those of all kinds.
    """

    nodes: Mapping[str, NodeTrace]
    run_count: int
    event_count: int
    run_span_us: tuple[float, ...] = ()
    recorded_count: int = 0


def read_trace(path: Path, bodies: Bodies | None = None) -> Trace:
    """Read a trace.

    Args:
        path: the trace.
        bodies: where two graphs of the model have nodes of one name: by the name of an owner (empty for the main
            graph), for each of its bodies the name of a node in the trace and its own name.

    Raises:
        PipelineError: the file is no complete trace, or the runtime cut it.
    """
    try:
        _refuse_cut(path)
        events = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        remedy = "profile fewer runs (--runs), or free disk space"
        raise PipelineError(path, f"is no complete trace ({error})", remedy) from error
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise PipelineError(path, "is no trace of ONNX Runtime (a list of events)")
    return collect(events, bodies)


def _refuse_cut(path: Path) -> None:
    """Refuse a trace that lacks events, before a million of them are parsed."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        if b'"profile_truncated"' not in file.read():
            return
        file.seek(0)
        runs = sum(b'"model_run"' in line for line in file)
    remedy = "profile no more runs than that, warm-up included (--runs, --warmup)"
    if not runs:
        remedy = "one run has too many: shorten its loops by smaller inputs (--dim, --input)"
    raise PipelineError(path, f"the runtime cut the trace at 1,000,000 events (complete runs: {runs})", remedy)


def collect(events: Sequence[Event], bodies: Bodies | None = None) -> Trace:
    """Sum the own times of each node by run; events after the last complete run are dropped."""
    nodes: dict[str, NodeTrace] = {}
    pending: list[Event] = []
    spans_us: list[float] = []
    event_count = 0
    for event in events:
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith(KERNEL_SUFFIX):
            pending.append(event)
        elif event.get("name") == "model_run":
            spans = nest(pending, bodies)
            _add_run(nodes, spans, run=len(spans_us))
            spans_us.append(_end_us(pending[-1]) - spans[0].event["ts"] if spans else 0.0)
            event_count += len(pending)
            pending = []
    for node in nodes.values():
        _extend(node, len(spans_us))
    return Trace(nodes, len(spans_us), event_count, tuple(spans_us), len(events))


def _extend(node: NodeTrace, runs: int) -> None:
    """Add the runs in which a node had no event."""
    missing = runs - len(node.run_us)
    node.run_us += [0.0] * missing
    node.run_events += [0] * missing


# --- nesting --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Span:
    """An event of node ``name``, the events directly inside it, and the node that it is itself inside of.

    ``position`` is its place in the trace, where events stand as they ended; ``first`` that of the first one inside it.
    """

    name: str
    event: Event
    position: int
    first: int
    owner: str = ""
    inside: list[Span] = field(default_factory=list)

    @property
    def own_us(self) -> float:
        """The duration without what is nested in it."""
        return float(self.event["dur"] - sum(inner.event["dur"] for inner in self.inside))


def nest(events: Iterable[Event], bodies: Bodies | None = None) -> list[Span]:
    """The events of one run in the order in which they started, each with its owner.

    The runtime records an event when it ends, so an owner comes right after the last event of its body. The events
    inside an owner neither overlap nor outlast it and each duration is cut to whole microseconds, so that their sum
    never exceeds the owner's duration: the sum is at most the owner's exact time, and whole.
    """
    spans = []
    ended: dict[Any, list[Span]] = {}  # by thread: what no owner has been found for
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
    """Name the events directly inside an owner's, and what is inside of those.

    All nodes of a body run when it runs, so the body is the smallest one that has all their names.
    """
    traced = {span.name for span in spans}
    names = min((body for body in bodies.get(owner, ()) if traced <= body.keys()), key=len, default={})
    for span in spans:
        span.owner, span.name = owner, names.get(span.name, span.name)
        if span.inside:
            _name(span.inside, span.name, bodies)


def _is_inside(event: Event, later: Event) -> bool:
    """Whether an event is nested in one of the same thread that was recorded later.

    Start and duration are cut to whole microseconds each, so an event inside may seem to end one later than its owner.
    One of no duration that starts together with a later one counts as before it: no time is lost by that.
    """
    after_start = event["ts"] > later["ts"] or (event["ts"] == later["ts"] and event["dur"] > 0)
    return bool(after_start and _end_us(event) <= _end_us(later) + 1)


def _end_us(event: Event) -> float:
    return float(event["ts"] + event["dur"])


# --- nodes ----------------------------------------------------------------------------------------------------------


def _add_run(nodes: dict[str, NodeTrace], spans: Iterable[Span], run: int) -> None:
    for span in spans:
        args = span.event["args"]
        node = nodes.get(span.name)
        if node is None:
            node = nodes[span.name] = _first_event(span, len(nodes))
        _extend(node, run + 1)
        node.run_us[run] += span.own_us
        node.run_events[run] += 1
        node.uses_thread_pool = node.uses_thread_pool or _used_pool(args)


def _first_event(span: Span, position: int) -> NodeTrace:
    args = span.event["args"]
    shapes = (_shapes(args.get("input_type_shape")), _shapes(args.get("output_type_shape")))
    dtypes = [CPP_NAMES.get(name, name) for entry in args.get("output_type_shape") or [] for name in entry]
    kind = (str(args.get("op_name", "")), str(args.get("provider", "")))
    return NodeTrace(span.name, *kind, position, *shapes, dtypes, span.owner)


def _shapes(described: Any) -> list[Any]:
    """``[{"float": [1, 3]}]`` to ``[[1, 3]]``."""
    return [shape for entry in described or [] for shape in entry.values()]


def _used_pool(args: Mapping[str, Any]) -> bool:
    statistics = args.get("thread_scheduling_stats")
    main = statistics.get("main_thread", {}) if isinstance(statistics, dict) else {}
    return bool(main.get("block_size"))
