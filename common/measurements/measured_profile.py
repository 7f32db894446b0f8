"""A profile that is measured on this host, as the tables of 01: its runs, their nodes, sensors and events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.measurements.observer import Observer
from common.messages.errors import PipelineError
from common.onnx_graph.executed import SavedGraph, saved_graph
from common.onnx_graph.load import LoadedModel
from common.onnx_graph.reading.side_files import require_unchanged
from common.profiling.correction import NodeLatency, correct, operand_counts
from common.profiling.figures import latency_figures, latency_notes, node_rows
from common.profiling.provider_layers import ProviderLayers, provider_layers
from common.profiling.runs.loop import Budget, ColdStart, Progress, SessionPlan
from common.profiling.runs.measurement import Measurement, conclude, observed_runs
from common.profiling.runs.more_sessions import session_rows, with_more_sessions
from common.profiling.runs.one_session import timed_runs
from common.sensors.other_work import OtherWork
from common.table_rows import HardwareCountersDocument, LatencySummaryDocument, OpLatencyRow, RunDisturbancesRow


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """A measurement as the tables of 01."""

    measurement: Measurement  # the runs, with unique names of the nodes, or with a failure
    executed: SavedGraph | None  # the graph that ran; None where the trace was lost or the graph cannot be used
    latencies: Sequence[NodeLatency]  # of each node; there are none after a failure
    layers: ProviderLayers  # the layers that a compiling provider ran inside one node
    observer: Observer
    latency_summary: LatencySummaryDocument
    hardware_counters: HardwareCountersDocument
    busy: Sequence[str]  # a note if other work on the host disturbed the runs
    disturbed: Sequence[RunDisturbancesRow]  # a row per slow run
    worst: Sequence[str]  # the worst disturbance, in words

    @property
    def op_latency(self) -> list[OpLatencyRow]:
        if self.executed is None:
            return []
        return node_rows(self.latencies, self.executed.graph, self.measurement.profiled_warmup)

    @property
    def lacks(self) -> Sequence[str]:
        return self.measurement.lacks

    @property
    def executed_graph(self) -> bytes | None:
        """The file of the graph that ran; None where it is lost."""
        return self.executed.content if self.executed else None

    @property
    def notes(self) -> list[str]:
        """Notes on what limits the figures: the host first, and causes of single slow runs last."""
        of_latency = latency_notes(self.latency_summary, self.latencies, self.measurement.more)
        return [*self.busy, *self.lacks, *of_latency, *self.observer.notes, *self.layers.notes, *self.worst]

    def tables(self) -> Iterator[tuple[str, Iterable[Mapping[str, object]], Sequence[str]]]:
        """Yield each table of rows but run_latency, on its clock: the name, the rows, and what the rows lack."""
        if rows := self.op_latency:
            yield "op_latency", rows, self.lacks
        yield "session_latency", session_rows(self.measurement), ()
        yield "provider_layers", self.layers.rows, ()
        yield from self.observer.tables(self.measurement.start_s)
        yield "run_disturbances", self.disturbed, ()


@dataclass(frozen=True, slots=True)
class ProfileSetup:
    """How a model is measured; before the runs, the idle host is sampled for ``idle_s``."""

    plan: SessionPlan
    model: LoadedModel
    budget: Budget
    observer: Observer
    idle_s: float
    session_count: int


def measured_profile(
    setup: ProfileSetup,
    folder: Path,
    new_bar: Callable[[str], Progress],
    reserve: Callable[[float], None],
    release: Callable[[], None],
) -> MeasuredProfile:
    """Measure a model while sensors, counters and the system's events are recorded.

    An error about its nodes becomes the failure of the measurement.

    Args:
        folder: where the sessions leave their traces.
        reserve: reserves space for a number of rows, which is known after the first run; ``release`` gives it back.

    Raises:
        PipelineError: the runtime refuses or fails, or a file of the model has changed since it was read.
    """
    plan, model, budget, observer = setup.plan, setup.model, setup.budget, setup.observer

    def opened(cold: ColdStart) -> None:
        require_unchanged(model.files)
        reserve(2 * budget.expected_runs(cold.first_run_us))

    with observer.recording(setup.idle_s), OtherWork() as whole:
        bar = new_bar(budget.unit)
        ended, runs = timed_runs(plan, folder, budget, bar, opened, observer, observer.events.drain_if_due)
    with ended.nameless:  # the file of the executed graph
        measurement = conclude(ended, runs)
        measurement = with_more_sessions(measurement, plan, budget, setup.session_count, new_bar)
        release()
        measurement, executed, latencies = _profiled_nodes(measurement, model.dimensions)
    threads = measurement.settings.threads
    disturbed, worst = observer.disturbances(observed_runs(measurement))
    return MeasuredProfile(
        measurement,
        executed,
        latencies,
        provider_layers(measurement.trace_file.parent, plan.feeds, measurement.settings, model.graph),
        observer,
        latency_figures(measurement, latencies),
        observer.counters(measurement.observed_count),
        observer.other_work.notes(threads) or (whole.notes(threads) if plan.is_alone else []),
        disturbed,
        worst,
    )


def _profiled_nodes(
    measurement: Measurement, dimensions: Mapping[str, int]
) -> tuple[Measurement, SavedGraph | None, Sequence[NodeLatency]]:
    """Return the executed graph and its nodes; an error about them is the measurement's failure, and its runs stay."""
    executed, trace = None, measurement.trace
    if not trace.nodes:
        return measurement, None, ()  # the trace was lost
    folder = measurement.trace_file.parent
    try:
        executed = saved_graph(folder / "executed.onnx", trace.op_types, dimensions)
        measurement = measurement.renamed(executed.bodies)
        return measurement, executed, correct(measurement, operand_counts(executed.graph), folder)
    except PipelineError as error:
        return measurement.failed(error), executed, ()
