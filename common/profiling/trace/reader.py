"""Reader of ONNX Runtime's trace: which node took how long in which run.

A node event of the sequential executor is named ``<node>_kernel_time``; a ``model_run`` event closes each run. Events
of a subgraph's body nest in time inside the event of the node that owns the subgraph. A node's time is its own: the
duration of its events less what is nested directly in them, so that every microsecond is counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any

from common.graphs.number_formats import element_type_name
from common.messages.errors import PipelineError
from common.profiling.trace.events import RUN, RUNTIME_CUT, TraceCutError, count_runs, read_events, was_cut_by_runtime
from common.profiling.trace.nesting import Bodies, Event, Span, end_us, is_node_event, is_orderly, nest
from common.profiling.trace.usage import MemoryUse, PoolUse, UsageReader

MOST_VARIANTS = 4096  # a node may run with other shapes each time; events with further ones are not counted


@dataclass(slots=True)
class ShapeVariant:
    """Operands and outputs as the trace describes them, and the events that ran with them."""

    described: tuple[Any, Any]
    event_count: int = 0


@dataclass(slots=True)
class TracedShapes:
    """Every combination of shapes that a node ran with."""

    variants: dict[str, ShapeVariant] = field(default_factory=dict)
    latest: ShapeVariant | None = None

    def add(self, args: Mapping[str, Any]) -> None:
        described = args.get("input_type_shape"), args.get("output_type_shape")
        if self.latest is None or described != self.latest.described:
            key = repr(described)
            if key not in self.variants and len(self.variants) == MOST_VARIANTS:
                return
            self.latest = self.variants.setdefault(key, ShapeVariant(described))
        self.latest.event_count += 1

    def rows(self) -> list[list[Any]]:
        """Return shapes of operands, shapes of outputs and events of each combination; none where there is only one."""
        if len(self.variants) < 2:
            return []
        return [[*map(shapes, variant.described), variant.event_count] for variant in self.variants.values()]


def shapes(described: Any) -> list[Any]:
    """Turn ``[{"float": [1, 3]}]`` into ``[[1, 3]]``."""
    return [shape for entry in described or [] for shape in entry.values()]


@dataclass(slots=True)
class NodeTrace:
    """All events of one node."""

    name: str
    op_type: str
    provider: str
    execution_index: int
    input_shapes: list[Any]
    output_shapes: list[Any]
    output_dtypes: list[str]
    owner: str = ""  # the control-flow node whose event its events are nested in; empty at the top level
    shapes: TracedShapes = field(default_factory=TracedShapes)
    run_us: list[float] = field(default_factory=list)  # its own time in each run
    run_events: list[int] = field(default_factory=list)  # its events in each run
    uses_thread_pool: bool = False
    pool: PoolUse | None = None
    memory: MemoryUse | None = None

    def extend(self, runs: int) -> None:
        """Add the runs in which it had no event."""
        missing = runs - len(self.run_us)
        self.run_us += [0.0] * missing
        self.run_events += [0] * missing
        if self.pool:
            self.pool.extend(runs)


@dataclass(frozen=True, slots=True)
class Trace:
    """The nodes in the order in which they first started, and figures of the complete runs."""

    nodes: Mapping[str, NodeTrace]
    run_count: int
    event_count: int  # of nodes
    run_span_us: tuple[float, ...] = ()  # from the start of the first node to the end of the last, in each run
    recorded_count: int = 0  # events of all kinds
    run_start_us: tuple[float, ...] = ()  # of its ``model_run`` event, as the duration
    run_duration_us: tuple[float, ...] = ()
    run_is_orderly: tuple[bool, ...] = ()  # in any other run the clock was set back, and its nodes have no times
    cut: str = ""  # why the trace ends early; empty if it is whole
    peak_memory_bytes: int | None = None  # the maximum, as of the arena
    arena_bytes: int | None = None

    @property
    def op_types(self) -> list[tuple[str, str]]:
        """Name and operator type of each node, in the order of execution."""
        return [(node.name, node.op_type) for node in self.nodes.values()]


def read_trace(path: Path, bodies: Bodies | None = None, *, partial: bool = False) -> Trace:
    """Read a trace; memory grows with the number of nodes and runs, not with the file.

    ``bodies`` are needed where two graphs of the model have nodes of one name: for each owner (empty for the main
    graph) and each of its bodies, they map a node's name in the trace to its unique name. ``partial`` accepts the
    complete runs of a trace that ends early, and says so in ``cut``. PipelineError: the trace is not complete, or with
    ``partial`` has no complete run.
    """
    try:
        if not partial and was_cut_by_runtime(path):
            raise _cut_by_runtime(path)
        trace = collect(read_events(path), bodies)
    except OSError as error:
        raise _incomplete(path, str(error)) from error
    if not trace.cut or (partial and trace.run_count):
        return trace
    raise _cut_by_runtime(path) if was_cut_by_runtime(path) else _incomplete(path, trace.cut)


def _incomplete(path: Path, reason: str) -> PipelineError:
    return PipelineError(path, f"is no complete trace ({reason})", "lower <runs>, or free disk space")


def _cut_by_runtime(path: Path) -> PipelineError:
    runs = count_runs(path)
    remedy = "give <runs> and <warmup> that add up to no more than that"
    if not runs:
        remedy = "one run has too many: shorten its loops with smaller inputs (<dim>, <input>)"
    return PipelineError(path, f"{RUNTIME_CUT} (complete runs: {runs})", remedy)


def collect(events: Iterable[Event], bodies: Bodies | None = None) -> Trace:
    """Collect the complete runs of a trace from its events; there may be none, and ``cut`` says why they end early.

    ``bodies`` are as in :func:`read_trace`. Events after the last complete run are dropped.
    """
    reader, cut = _Reader(bodies), ""
    try:
        for event in events:
            reader.add(event)
    except TraceCutError as error:
        cut = str(error)
    return replace(reader.trace(), cut=cut)


class _Reader:
    """Collects a trace from its events, one by one; it holds the events of one run at a time."""

    def __init__(self, bodies: Bodies | None) -> None:
        self._bodies = bodies
        self._nodes: dict[str, NodeTrace] = {}
        self._usage = UsageReader()
        self._pending: list[Event] = []
        self._runs: list[tuple[float, float, float, bool]] = []  # span, start, duration, orderly
        self._event_count = self._recorded_count = 0

    def add(self, event: Event) -> None:
        self._recorded_count += 1
        if is_node_event(event):
            self._pending.append(event)
        elif event.get("name") == RUN:
            self._close_run(event)

    def _close_run(self, closing: Event) -> None:
        orderly = is_orderly(self._pending) and closing["dur"] >= 0
        spans = nest(self._pending, self._bodies) if orderly else []
        self._add_nodes(spans, len(self._runs))
        span_us = end_us(self._pending[-1]) - spans[0].event["ts"] if spans else 0.0
        self._runs.append((span_us, float(closing["ts"]), float(closing["dur"]), orderly))
        self._event_count += len(self._pending)
        self._pending = []

    def _add_nodes(self, spans: Sequence[Span], run: int) -> None:
        for span in spans:
            if (node := self._nodes.get(span.name)) is None:
                node = self._nodes[span.name] = _first_event(span, len(self._nodes))
            node.extend(run + 1)
            node.shapes.add(span.event["args"])
            node.run_us[run] += span.own_us
            node.run_events[run] += 1
        for span in sorted(spans, key=lambda span: span.position):  # running totals: as they were recorded
            node, args = self._nodes[span.name], span.event["args"]
            node.pool = self._usage.add_pool(node.pool, args, run)
            node.memory = self._usage.add_memory(node.memory, args, run)
            node.uses_thread_pool = node.pool is not None

    def trace(self) -> Trace:
        for node in self._nodes.values():
            node.extend(len(self._runs))
        spans, starts, durations, orderly = zip(*self._runs, strict=True) if self._runs else ((),) * 4
        return Trace(
            self._nodes,
            len(self._runs),
            self._event_count,
            run_span_us=spans,
            recorded_count=self._recorded_count,
            run_start_us=starts,
            run_duration_us=durations,
            run_is_orderly=orderly,
            peak_memory_bytes=self._usage.peak_memory_bytes,
            arena_bytes=self._usage.arena_bytes,
        )


def keep_runs(trace: Trace, kept: Sequence[bool]) -> Trace:
    """Keep some runs of a trace, and the nodes that ran in them."""
    nodes: dict[str, NodeTrace] = {}
    for node in trace.nodes.values():
        run_events = [*compress(node.run_events, kept)]
        if any(run_events):
            run_us, pool = [*compress(node.run_us, kept)], node.pool and node.pool.kept(kept)
            nodes[node.name] = replace(
                node, execution_index=len(nodes), run_us=run_us, run_events=run_events, pool=pool
            )
    return replace(
        trace,
        nodes=nodes,
        run_count=sum(kept),
        event_count=sum(sum(node.run_events) for node in nodes.values()),
        run_span_us=tuple(compress(trace.run_span_us, kept)),
        run_start_us=tuple(compress(trace.run_start_us, kept)),
        run_duration_us=tuple(compress(trace.run_duration_us, kept)),
        run_is_orderly=tuple(compress(trace.run_is_orderly, kept)),
    )


def _first_event(span: Span, position: int) -> NodeTrace:
    args = span.event["args"]
    traced = (shapes(args.get("input_type_shape")), shapes(args.get("output_type_shape")))
    dtypes = [element_type_name(name) for entry in args.get("output_type_shape") or [] for name in entry]
    kind = (str(args.get("op_name", "")), str(args.get("provider", "")))
    return NodeTrace(span.name, *kind, position, *traced, dtypes, span.owner)
