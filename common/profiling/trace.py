"""Reader of ONNX Runtime's trace: which node took how long in which run.

A node event of the sequential executor is named ``<node>_kernel_time``; a ``model_run`` event closes each run. Events
of a subgraph's body nest in time inside the event of the node that owns the subgraph, so their time is already counted
there. Durations are truncated to whole microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import PipelineError

KERNEL_SUFFIX = "_kernel_time"
CPP_NAMES = {"float": "float32", "double": "float64"}  # the trace has the C++ names
SUBGRAPH_OWNERS = frozenset({"If", "Loop", "Scan"})


@dataclass(slots=True)
class NodeTrace:
    """All events of one node. ``run_us`` holds its time in each run, in run order."""

    name: str
    op_type: str
    provider: str
    execution_index: int
    input_shapes: list[Any]
    output_shapes: list[Any]
    output_dtypes: list[str]
    run_us: list[float] = field(default_factory=list)
    event_count: int = 0
    uses_thread_pool: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """The nodes in the order in which they first ran, and the number of complete runs."""

    nodes: Mapping[str, NodeTrace]
    run_count: int
    event_count: int


def read_trace(path: Path) -> Trace:
    """Read a trace.

    Raises:
        PipelineError: the file is no complete trace, or the runtime cut it.
    """
    remedy = "profile fewer runs (--runs), or free disk space"
    try:
        events = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PipelineError(path, f"is no complete trace ({error})", remedy) from error
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise PipelineError(path, "is no trace of ONNX Runtime (a list of events)")
    if any(event.get("name") == "profile_truncated" for event in events):
        raise PipelineError(path, "the runtime cut the trace at 1,000,000 events", remedy)
    return collect(events)


def collect(events: Iterable[Mapping[str, Any]]) -> Trace:
    """Sum the events of each node by run; events after the last complete run are dropped."""
    nodes: dict[str, NodeTrace] = {}
    pending: list[Mapping[str, Any]] = []
    runs = event_count = 0
    for event in events:
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith(KERNEL_SUFFIX):
            pending.append(event)
        elif event.get("name") == "model_run":
            outer = top_level(pending)
            event_count += len(pending)
            _add_run(nodes, outer, runs)
            pending, runs = [], runs + 1
    for node in nodes.values():
        node.run_us += [0.0] * (runs - len(node.run_us))
    return Trace(nodes, runs, event_count)


def _add_run(nodes: dict[str, NodeTrace], events: list[Mapping[str, Any]], run: int) -> None:
    for event in events:
        name = event["name"].removesuffix(KERNEL_SUFFIX)
        node = nodes.get(name)
        if node is None:
            node = nodes[name] = _first_event(name, event["args"], len(nodes))
        node.run_us += [0.0] * (run + 1 - len(node.run_us))
        node.run_us[run] += event["dur"]
        node.event_count += 1
        node.uses_thread_pool = node.uses_thread_pool or _used_pool(event["args"])


def _first_event(name: str, args: Mapping[str, Any], position: int) -> NodeTrace:
    shapes = (_shapes(args.get("input_type_shape")), _shapes(args.get("output_type_shape")))
    dtypes = [CPP_NAMES.get(name, name) for entry in args.get("output_type_shape") or [] for name in entry]
    return NodeTrace(name, str(args.get("op_name", "")), str(args.get("provider", "")), position, *shapes, dtypes)


def _shapes(described: Any) -> list[Any]:
    """``[{"float": [1, 3]}]`` to ``[[1, 3]]``."""
    return [shape for entry in described or [] for shape in entry.values()]


def _used_pool(args: Mapping[str, Any]) -> bool:
    statistics = args.get("thread_scheduling_stats")
    main = statistics.get("main_thread", {}) if isinstance(statistics, dict) else {}
    return bool(main.get("block_size"))


def top_level(events: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Drop what ran inside a subgraph: its time is part of its owner's event.

    The runtime records an event when it ends, so an owner comes after its body.
    """
    spans = [
        (event["tid"], event["ts"], event["ts"] + event["dur"], position)
        for position, event in enumerate(events)
        if event["args"].get("op_name") in SUBGRAPH_OWNERS
    ]
    if not spans:
        return events

    def inside(position: int, event: Mapping[str, Any]) -> bool:
        return any(
            position < owner and event["tid"] == thread and start <= event["ts"] and event["ts"] + event["dur"] <= end
            for thread, start, end, owner in spans
        )

    return [event for position, event in enumerate(events) if not inside(position, event)]
