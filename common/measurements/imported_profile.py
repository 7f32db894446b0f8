"""A profile that was recorded elsewhere, as the tables of a measurement; facts that it lacks are empty."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.attribution.ownership import owners as attributed
from common.foreign_traces.latency_rows import known_threads, latency_rows, limits, summary_figures, warm_up
from common.foreign_traces.layer_graph import layer_graph
from common.foreign_traces.layers import Layer, LayerProfile
from common.foreign_traces.matching import Matched, contraction_share, time_share
from common.foreign_traces.owners import owners
from common.foreign_traces.programs import Format, read_profile
from common.graphs.graph import Graph
from common.graphs.operators import ATTENTION, INSERTED
from common.latency.profiled_runs import profiled_run_rows
from common.messages.errors import UnusableValueError
from common.onnx_graph.executed import SavedGraph, graph_bytes, saved_graph
from common.onnx_graph.load import LoadedModel
from common.profiling.correction import operand_counts
from common.profiling.figures import node_rows
from common.profiling.recording import (
    conclude_recording,
    model_names,
    read_recorded_trace,
    recorded_latencies,
    recording_figures,
    require_dimensions_of,
    require_graph_of,
    require_model_of,
    require_sizes_of,
)
from common.profiling.trace.reader import Trace
from common.sensors.hardware_counters import HardwareCounts
from common.sensors.sample_rows import counter_figures
from common.table_rows import HardwareCountersDocument, LatencySummaryDocument, OpLatencyRow, RunLatencyRow

UNMEASURED = ("provider_layers", "power_samples", "host_samples", "os_events", "run_disturbances", "session_latency")
FILLED = ("fill_upstream", "fill_downstream")  # rules that go by the place of a node alone
MEASURING = (  # settings of a measurement, of which an import has none
    *("runs", "duration", "sessions", "run_timeout", "provider", "optimization", "seed"),
    *("sensor_rate_hz", "idle", "powercap_root"),
)
GRAPH_FROM_NAMES = "without <executed_graph>, the name of an executed node says what it computes"


@dataclass(frozen=True, slots=True)
class ImportedProfile:
    """A profile as the tables of 01, and the file of the executed graph."""

    executed: Graph
    executed_graph: bytes
    op_latency: list[OpLatencyRow]
    run_latency: list[RunLatencyRow]
    latency_summary: LatencySummaryDocument
    facts: Mapping[str, object]  # what the profile states of the recorded session, for the sidecars
    notes: list[str]
    lacks: tuple[str, ...] = ()  # why the tables are incomplete
    trace: Path | None = None  # the profile itself, where it is a trace of ONNX Runtime

    @property
    def hardware_counters(self) -> HardwareCountersDocument:
        """The counters of a window without runs: no profile has any."""
        return counter_figures(HardwareCounts(0.0), 0)

    def tables(self) -> Iterator[tuple[str, Sequence[Mapping[str, object]], Sequence[str]]]:
        """Yield each table: its name, its rows (none where no profile gives any), and what the rows lack."""
        yield "op_latency", self.op_latency, self.lacks
        yield "run_latency", self.run_latency, self.lacks
        for name in UNMEASURED:
            yield name, (), ()


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """The files of a session that was recorded elsewhere, and what the user knows of it."""

    profile: Path
    executed: Path | None  # the graph that it executed, None where it saved none
    threads: int | None  # intra-op threads; None: as the profile states them
    warmup: int | None  # runs to leave out at the start; None: those that the profile shows
    is_partial: bool = False  # whether a profile that matches little of the model is accepted

    @property
    def file_names(self) -> dict[str, str]:
        """Names of the files, for the sidecars."""
        executed = {"executed_graph": self.executed.name} if self.executed else {}
        return {"trace": self.profile.name, **executed}


def recorded_session(values: Mapping[str, Any], given: Collection[str]) -> RecordedSession:
    """Return what is given of a session that was recorded elsewhere.

    A setting of a measurement that the command line gives is an UnusableValueError, and so is a missing profile.
    """
    if not values["from_trace"]:
        alone = "executed_graph" if values["executed_graph"] else "accept_partial"
        raise UnusableValueError(alone, "needs <from_trace>", "give the profile of the same session")
    if needless := [name for name in MEASURING if name in given]:
        raise UnusableValueError(needless[0], "does not go with <from_trace>: nothing is measured", "leave it out")
    threads, warmup = (values[name] if name in given else None for name in ("threads", "warmup"))
    return RecordedSession(
        values["from_trace"], values["executed_graph"], threads, warmup, is_partial=values["accept_partial"]
    )


def imported_profile(session: RecordedSession, program: Format, model: LoadedModel) -> ImportedProfile:
    """Read the profile of a program; errors are those of :func:`imported_trace` and :func:`imported_layers`."""
    if program == "ONNX Runtime":
        return imported_trace(session, model.graph, model.dimensions)
    return imported_layers(session, program, model.graph)


def imported_layers(session: RecordedSession, program: Format, model: Graph) -> ImportedProfile:
    """Read a profile of another program than ONNX Runtime.

    Raises:
        PipelineError: the file is no such profile, is cut short, or is of another model.
        UnusableValueError: the threads are unknown, or the warm-up leaves no run.
    """
    profile = read_profile(program, session.profile, session.executed, model)
    threads, warmup = known_threads(profile, session.threads), warm_up(profile, session.warmup)
    ownership = owners(session.profile, model, profile)
    if not session.is_partial:
        ownership.matched.require(session.profile)
    executed = layer_graph(session.profile, model, profile.layers, ownership, profile.domain)
    return ImportedProfile(
        executed,
        graph_bytes(executed),
        latency_rows(profile, executed, warmup),
        profiled_run_rows(profile.run_start_us, profile.run_us, warmup),
        summary_figures(profile, ownership.matched, threads, warmup),
        {
            "program": program,
            "run_count": profile.run_count,
            "threads": threads,
            "warmup": warmup,
            "is_of_device": profile.is_of_device,
        },
        [*profile.notes, *ownership.notes, *limits(profile, warmup)],
    )


def imported_trace(session: RecordedSession, model: Graph, dimensions: Mapping[str, int]) -> ImportedProfile:
    """Read a trace of ONNX Runtime and the graph that it executed; ``dimensions`` are those that the model has bound.

    Raises:
        PipelineError: a file is damaged, or they are not of one session of this model.
        UnusableValueError: the threads are unknown, or the warm-up leaves no run.
    """
    path, trace = session.profile, read_recorded_trace(session.profile)
    saved, named, notes = _traced_graph(session, model, trace, dimensions)
    trace = read_recorded_trace(path, saved.bodies) if saved.bodies else trace
    recording = conclude_recording(path, trace, session.threads, session.warmup)
    executed = saved.graph
    require_graph_of(path, executed, recording.trace)
    if session.executed:
        require_model_of(session.executed, executed, model)
    matched = named or _matched(model, executed, recording.trace)
    if not session.is_partial:
        matched.require(path)
    require_dimensions_of(path, model, executed, recording.trace)
    if not session.is_partial:
        require_sizes_of(path, model, executed, recording.trace)
    latencies = recorded_latencies(recording, operand_counts(executed))
    return ImportedProfile(
        executed,
        saved.content,
        node_rows(latencies, executed, recording.warmup),
        profiled_run_rows(trace.run_start_us, trace.run_duration_us, recording.warmup),
        {**recording_figures(recording, latencies), **matched.figures},
        recording.facts,
        [*notes, *recording.notes, *recording.lacks],
        recording.lacks,
        path,
    )


def _traced_graph(
    session: RecordedSession, model: Graph, trace: Trace, dimensions: Mapping[str, int]
) -> tuple[SavedGraph, Matched | None, list[str]]:
    """Return the executed graph of a trace, and notes.

    If the recorded session saved none, it is the model's graph, divided by the names in the trace. These names then
    also say how much of the model is matched.
    """
    if session.executed:
        return saved_graph(session.executed, trace.op_types, dimensions), None, []
    layers = _layers(trace)
    profile = LayerProfile("ONNX Runtime", "onnxruntime", layers, trace.run_count)
    ownership = owners(session.profile, model, profile)
    graph = layer_graph(session.profile, model, layers, ownership, profile.domain)
    return SavedGraph(graph_bytes(graph), graph, {}), ownership.matched, [GRAPH_FROM_NAMES, *ownership.notes]


def _layers(trace: Trace) -> tuple[Layer, ...]:
    return tuple(
        Layer(node.name, node.op_type, (model_names(node.name),), run_us=tuple(node.run_us))
        for node in trace.nodes.values()
    )


def _matched(model: Graph, executed: Graph, trace: Trace) -> Matched:
    """Return the share of a saved graph and of a model that matches by names; a position between matches is no match.

    Attention that the runtime fused computes several contractions; any other executed node computes one.
    """
    attribution = attributed(model, executed)
    owner = {match.source_node: match.executed_node for match in attribution.matches if match.executed_node}
    op_types = {node.name: node.op_type for node in executed.nodes}
    named = {
        match.source_node: match.executed_node
        for match in attribution.matches
        if match.executed_node and (match.rule not in FILLED or op_types[match.executed_node] in ATTENTION)
    }
    inserted = {name: of for name, of in attribution.layout_of.items() if op_types[name] in INSERTED}
    time = time_share(_layers(trace), {*named.values()}, inserted)
    return Matched(time, contraction_share(model, named, owner))
