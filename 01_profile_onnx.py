"""Profile an ONNX model with ONNX Runtime: latency of runs and of executed nodes, power, and causes of slow runs.

Reads   the model file.
Writes  latency_summary.json, run_latency.csv, op_latency.csv (every executed node), executed_graph.onnx (no weights),
        ort_trace.json (raw), provider_layers.csv, power_samples.csv, host_samples.csv, hardware_counters.json,
        os_events.csv, run_disturbances.csv (every slow run: which node was hit, who ran instead).

Unprofiled and profiled runs alternate; the latency is that of the unprofiled runs in the steady part of the series. The
time that the profiler adds to each node is estimated with chains of operators and subtracted, down to zero at most.
Nodes that take less than four times the correction are flagged. If a run fails, the results so far are kept in
out/incomplete.

EXAMPLE of input (a model) and output (op_latency.csv), some columns:

    resnet50-fp32.onnx: 175 nodes, input float32 [N,3,224,224]

    executed_node,op_type,sample_count,raw_median_us,corrected_median_us,correction_us,is_correction_dominated
    /relu/Relu_output_0_nchwc,Conv,50,1031.0,1028.3,2.7,False

    python 01_profile_onnx.py --model bert.onnx --dim batch=1 --dim seq=128 --duration 30s --threads 1
    python 01_profile_onnx.py --model bert.onnx --from-trace trace.json --executed-graph optimized.onnx --threads 4
"""

from __future__ import annotations

if __name__ == "__main__":
    from common import interrupts

    interrupts.end_at_once()  # first of all: the imports below take most of a second

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pandas as pd

from common import cli
from common.artifacts.transaction import Transaction
from common.attribution.ownership import computed_sources
from common.errors import CommandLineError, PipelineError
from common.foreign_traces.latency_rows import known_threads, latency_rows, limits, run_rows, summary_figures, warm_up
from common.foreign_traces.layer_graph import layer_graph
from common.foreign_traces.layers import Layer, LayerProfile
from common.foreign_traces.owners import owners
from common.foreign_traces.programs import Format, read_profile, recognised
from common.graph import Graph
from common.observer import Observer
from common.onnx_graph.executed import graph_bytes, load_executed_graph, without_weights
from common.onnx_graph.load import LoadedModel, load_model
from common.onnx_graph.reading.naming import named_model, naming_notes, rename_saved
from common.onnx_graph.reading.side_files import require_unchanged
from common.profiling.correction import NodeLatency, correct
from common.profiling.figures import latency_figures, node_figures, run_columns
from common.profiling.latency_notes import latency_notes
from common.profiling.measurement import Measurement, conclude
from common.profiling.nesting import Bodies
from common.profiling.observed import observed_runs
from common.profiling.provider_layers import provider_layers
from common.profiling.recording import (
    conclude_recording,
    read_recorded_trace,
    recorded_latencies,
    recorded_runs,
    recording_figures,
    require_dimensions_of,
    require_graph_of,
    require_model_of,
)
from common.profiling.runs import Budget, interleave, prepare
from common.profiling.trace import Trace
from common.profiling.traced_names import model_names
from common.runtime.inputs.given import given_arrays, make_feeds
from common.runtime.provider_table import resolve_provider
from common.runtime.session import OPTIMIZATIONS, SessionSettings
from common.runtime.threads import usable_threads
from common.sensors.hardware_counters import HardwareCounts
from common.sensors.sample_rows import counter_figures
from common.view.node_labels import label_nodes, with_labels
from common.view.profile.latency_text import NodeLatencyRow, imported_report, latency_report
from common.view.profile.provider_text import layer_report

SCRIPT = "01_profile_onnx.py"
DEFAULT_RUNS = 100
MEASURING = ("runs", "duration", "provider", "optimization", "seed", "sensor_rate_hz", "idle", "powercap_root")


def arguments() -> cli.Parser:
    parser = cli.Parser(SCRIPT, __doc__ or "")
    parser.model_settings()
    parser.setting("--runs", type=cli.at_least(5), metavar="N", help=f"unprofiled runs (default: {DEFAULT_RUNS})")
    parser.setting(
        "--duration", type=cli.duration, metavar="T", help="measuring time instead of a run count: 30s, 10m, 500ms"
    )
    parser.setting("--warmup", type=cli.positive_int, default=10, metavar="N", help="minimum number of warm-up runs")
    parser.setting(
        "--threads",
        type=cli.positive_int,
        metavar="N",
        help="intra-op threads (default: all that this process may use)",
    )
    parser.setting(
        "--provider", default="cpu", metavar="NAME", help="execution provider; python -m common.runtime lists them"
    )
    parser.setting("--optimization", choices=tuple(OPTIMIZATIONS), default="all", help="graph optimization level")
    parser.setting("--seed", type=cli.non_negative_int, default=0, metavar="N", help="seed of the random inputs")
    parser.setting(
        "--sensor-rate-hz",
        type=cli.positive_float,
        default=10.0,
        metavar="HZ",
        help="readings per second of each sensor",
    )
    parser.setting(
        "--idle", type=cli.duration, default=2.0, metavar="T", help="idle-power sampling time before the runs"
    )
    parser.setting(
        "--powercap-root", type=cli.path, metavar="FOLDER", help="folder of the RAPL counters, if not the system's"
    )
    parser.setting(
        "--from-trace", type=cli.path, metavar="FILE", help="import a profile recorded elsewhere (ONNX Runtime, …)"
    )
    parser.setting("--executed-graph", type=cli.path, metavar="FILE", help="graph that the recorded session saved")
    return parser


def op_latency(latencies: Sequence[NodeLatency], graph: Graph, warmup: int) -> pd.DataFrame:
    """Return op_latency, with one row per executed node."""
    domains = {node.name: node.domain for node in graph.nodes}
    rows = [{"domain": domains[latency.node.name], **node_figures(latency, warmup)} for latency in latencies]
    return pd.DataFrame(rows)


def operand_counts(graph: Graph) -> dict[str, int]:
    return {node.name: sum(map(bool, node.inputs)) for node in graph.nodes}


def add_nodes(
    transaction: Transaction, measurement: Measurement, dims: Mapping[str, int]
) -> tuple[Measurement, list[NodeLatency]]:
    """Stage executed_graph and op_latency.

    Returns:
        The measurement, with unique names of the nodes or with a failure, and the latencies of the nodes.
    """
    if not measurement.trace.nodes:
        return measurement, []  # the trace was lost
    folder = measurement.trace_file.parent
    traced = [(node.name, node.op_type) for node in measurement.trace.nodes.values()]
    try:
        executed, bodies = rename_saved(without_weights(folder / "executed.onnx", traced))
        transaction.add_bytes("executed_graph", executed)
        measurement = measurement.renamed(bodies)
        graph = load_executed_graph(transaction.temporary("executed_graph.onnx"), dims)
        latencies = correct(measurement, operand_counts(graph), folder)
        transaction.add_table("op_latency", op_latency(latencies, graph, measurement.profiled_warmup))
    except PipelineError as error:
        return measurement.failed(error), []
    transaction.mark_incomplete(measurement.lacks, "op_latency", "ort_trace")
    return measurement, latencies


def add_runs(transaction: Transaction, measurement: Measurement, observer: Observer) -> list[str]:
    """Stage the raw trace and every table with times, on the clock of run_latency; return the slow runs in words."""
    transaction.add_table("run_latency", pd.DataFrame(run_columns(measurement)))
    for name, rows, holes in observer.tables(measurement.start_s):
        transaction.add_rows_by_name(name, rows)
        transaction.mark_incomplete(holes, name)
    transaction.add_document("hardware_counters", observer.counters(measurement.run_count))
    disturbed, worst = observer.disturbances(observed_runs(measurement))
    transaction.add_rows("run_disturbances", disturbed)
    transaction.add_file("ort_trace", measurement.trace_file.replace(transaction.temporary("ort_trace.json")))
    return worst


def labelled_nodes(
    stage: cli.StageRun, latencies: Sequence[NodeLatency], source: Graph, executed: Path
) -> list[NodeLatencyRow]:
    """Return the figures of the executed nodes under labels, which the printed notes use as well."""
    if not latencies:
        return []
    labels = label_nodes(computed_sources(source, load_executed_graph(executed, stage.record.dimensions)))
    stage.print_notes_as(partial(with_labels, labels=labels))
    rows = [node_figures(latency, 0) | {"executed_node": labels[latency.node.name]} for latency in latencies]
    return cast("list[NodeLatencyRow]", rows)  # their statistics have names that are put together


def flagged(settings: cli.Settings, name: str) -> Any:
    """Return a setting that is given on the command line, or None."""
    return settings.values[name] if settings.origins[name] == "flag" else None


def require_import(settings: cli.Settings) -> None:
    """Refuse an executed graph without its profile, and an import that has settings of a measurement.

    Raises:
        CommandLineError: one of these is the case; the error names the flag.
    """
    if not settings.from_trace:
        raise CommandLineError("<executed_graph>", "needs <from_trace>", "give the profile of the same session")
    for name in MEASURING:
        if flagged(settings, name) is not None:
            raise CommandLineError(f"<{name}>", "does not go with <from_trace>: nothing is measured", "leave it out")


def import_profile(stage: cli.StageRun) -> None:
    """Write the tables of a profile that was recorded elsewhere."""
    settings = stage.settings
    require_import(settings)
    program = recognised(settings.from_trace)
    path = cli.model_path(settings.model)
    values = given_arrays({name: Path(file) for name, file in settings.input})
    model = load_model(path, dict(settings.dim), cli.configured_bindings(settings.config, path), values=values)
    stage.set_model(model.model_id, path.name, model.dimensions)
    if program == "ONNX Runtime":
        import_trace(stage, model)
    else:
        import_layers(stage, model, program)


def traced_graph(stage: cli.StageRun, model: LoadedModel, trace: Trace) -> tuple[bytes, Bodies]:
    """Return the executed graph of a trace, without weights, and how nodes of its bodies are told apart.

    Where the recorded session saved none, it is the model's graph, cut as the names in the trace tell.
    """
    path = stage.settings.from_trace
    if stage.settings.executed_graph:
        traced = [(node.name, node.op_type) for node in trace.nodes.values()]
        return rename_saved(without_weights(stage.settings.executed_graph, traced))
    layers = tuple(Layer(node.name, node.op_type, model_names(node.name)) for node in trace.nodes.values())
    profile = LayerProfile("ONNX Runtime", "onnxruntime", layers, trace.run_count)
    owner, notes = owners(path, model.graph, profile)
    stage.note("without <executed_graph>, what a node computes is read from its name", *notes)
    return graph_bytes(layer_graph(path, model.graph, layers, owner, profile.domain)), {}


def import_trace(stage: cli.StageRun, model: LoadedModel) -> None:
    """Write the tables of a trace of ONNX Runtime, from it and its executed graph."""
    settings = stage.settings
    path, trace = settings.from_trace, read_recorded_trace(settings.from_trace)
    content, bodies = traced_graph(stage, model, trace)
    trace = read_recorded_trace(path, bodies) if bodies else trace
    recording = conclude_recording(path, trace, flagged(settings, "threads"), flagged(settings, "warmup"))
    stage.set_imported(imported_files(settings) | recording.facts, MEASURING)
    with stage.writing() as transaction:
        transaction.add_bytes("executed_graph", content)
        executed = load_executed_graph(transaction.temporary("executed_graph.onnx"), model.dimensions)
        require_graph_of(path, executed, recording.trace)
        if settings.executed_graph:
            require_model_of(settings.executed_graph, executed, model.graph)
        require_dimensions_of(path, model.graph, executed, recording.trace)
        latencies = recorded_latencies(recording, operand_counts(executed))
        transaction.add_table("op_latency", op_latency(latencies, executed, recording.warmup))
        transaction.add_rows("run_latency", recorded_runs(recording))
        transaction.add_document("latency_summary", summary := recording_figures(recording, latencies))
        transaction.add_copy("ort_trace", path)
        add_unmeasured(transaction)
        transaction.mark_incomplete(recording.lacks, "op_latency", "run_latency", "ort_trace")
        stage.note(*recording.notes, *recording.lacks)
    nodes = labelled_nodes(stage, latencies, model.graph, transaction.path("executed_graph"))
    stage.show(imported_report(summary, nodes))


def import_layers(stage: cli.StageRun, model: LoadedModel, program: Format) -> None:
    """Write the tables of a profile of another program, and the graph of its layers."""
    settings = stage.settings
    path, file = settings.from_trace, settings.executed_graph
    profile = read_profile(program, path, file, model.graph)
    threads, warmup = (
        known_threads(profile, flagged(settings, "threads")),
        warm_up(profile, flagged(settings, "warmup")),
    )
    owner, notes = owners(path, model.graph, profile)
    graph = layer_graph(path, model.graph, profile.layers, owner, profile.domain)
    facts = {"program": program, "run_count": profile.run_count, "threads": threads, "warmup": warmup}
    stage.set_imported(imported_files(settings) | facts, MEASURING)
    with stage.writing() as transaction:
        transaction.add_bytes("executed_graph", graph_bytes(graph))
        transaction.add_rows("op_latency", rows := [*latency_rows(profile, graph, warmup)])
        transaction.add_rows("run_latency", run_rows(profile, warmup))
        transaction.add_document("latency_summary", summary := summary_figures(profile, threads, warmup))
        transaction.remove("ort_trace")
        add_unmeasured(transaction)
        stage.note(*profile.notes, *notes, *limits(profile, warmup))
    labels = label_nodes(computed_sources(model.graph, graph))
    stage.print_notes_as(partial(with_labels, labels=labels))
    for row in rows:
        row["executed_node"] = labels[row["executed_node"]]
    stage.show(imported_report(summary, rows))


def imported_files(settings: cli.Settings) -> dict[str, Any]:
    files = {"trace": settings.from_trace, "executed_graph": settings.executed_graph}
    return {name: path.name for name, path in files.items() if path}


def add_unmeasured(transaction: Transaction) -> None:
    """Stage the tables that no profile from elsewhere tells of."""
    transaction.add_document("hardware_counters", counter_figures(HardwareCounts(0.0), 0))
    for name in ("provider_layers", "power_samples", "host_samples", "os_events", "run_disturbances"):
        transaction.add_rows_by_name(name, [])


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        if settings.from_trace or settings.executed_graph:
            import_profile(stage)
            return 0
        path, provider = cli.model_path(settings.model), resolve_provider(settings.provider)
        is_timed = settings.one_of("runs", "duration") == "duration"
        budget = Budget(settings.warmup, settings.runs or DEFAULT_RUNS, settings.duration if is_timed else None)
        files = {name: Path(file) for name, file in settings.input}
        bindings, values = cli.configured_bindings(settings.config, path), given_arrays(files)
        model, named = load_model(path, dict(settings.dim), bindings, values=values), named_model(path)
        feeds = make_feeds(model.graph, files, settings.seed)
        options = SessionSettings(usable_threads(settings.threads), provider, settings.optimization)
        stage.set_model(model.model_id, path.name, model.dimensions)
        observer = Observer(settings.powercap_root, settings.sensor_rate_hz)
        bar = stage.progress_bar("seconds" if is_timed else "runs")
        with stage.writing() as transaction, transaction.scratch() as folder:
            with observer.recording(settings.idle):
                sessions = prepare(path, feeds, options, folder, named.content if named else None)
                require_unchanged(model.files)
                transaction.reserve(2 * budget.expected_runs(sessions.cold.first_run_us))
                with observer:
                    runs = interleave(sessions, budget, bar, observer.drain_events)
            measurement = conclude(sessions, runs)
            transaction.release()
            measurement, latencies = add_nodes(transaction, measurement, model.dimensions)
            if measurement.failure:
                transaction.set_aside(measurement.failure)
            summary = latency_figures(measurement, latencies)
            busy = observer.busy_notes(options.threads)
            stage.note(
                *busy, *measurement.lacks, *latency_notes(summary, latencies), *naming_notes(named), *observer.notes
            )
            transaction.add_document("latency_summary", summary)
            layers = provider_layers(folder, feeds, options, model.graph)
            transaction.add_rows("provider_layers", layers.rows)
            stage.note(*layers.notes, *add_runs(transaction, measurement, observer))
        executed = transaction.path("executed_graph")
        nodes = labelled_nodes(stage, latencies, model.graph, executed)
        stage.show("".join(f"{note}\n" for note in busy) + latency_report(summary, nodes) + layer_report(layers.rows))
    if measurement.failure:
        remedy = f"what was measured is in {transaction.targets}, marked incomplete"
        raise PipelineError(path, stage.plain(measurement.failure), remedy)
    return 0


if __name__ == "__main__":
    cli.run(main)
