"""Profile an ONNX model with ONNX Runtime: latency of runs and of executed nodes, power, and causes of slow runs.

Reads   the model file.
Writes  latency_summary.json, run_latency.csv, op_latency.csv (every executed node), executed_graph.onnx (no weights),
        ort_trace.json (raw), provider_layers.csv, power_samples.csv, host_samples.csv, hardware_counters.json,
        os_events.csv, run_disturbances.csv (every slow run: which node was hit, which process ran instead),
        session_latency.csv (with --sessions).

Unprofiled and profiled runs alternate; the latency is that of the unprofiled runs in the steady part of the series. Of
a large model (over 1 GB of weights, or too large for two sessions in memory), the profiled runs come after all others.
The time that the profiler adds to each node is estimated with chains of operators and subtracted, down to zero. Nodes
that take less than four times the correction are flagged. If a run fails, the results so far are in out/incomplete.

EXAMPLE of input (a model) and output (op_latency.csv), some columns:

    resnet50-fp32.onnx: 175 nodes, input float32 [N,3,224,224]

    executed_node,op_type,sample_count,raw_median_us,corrected_median_us,correction_us,is_correction_dominated
    /relu/Relu_output_0_nchwc,Conv,50,1031.0,1028.3,2.7,False

    python 01_profile_onnx.py --model bert.onnx --dim batch=1 --dim seq=128 --duration 30s --threads 1
    python 01_profile_onnx.py --model bert.onnx --from-trace trace.json --executed-graph optimized.onnx --threads 4
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence
from functools import partial

import pandas as pd

from common import cli
from common.artifacts.transaction import Transaction
from common.attribution.ownership import computed_sources
from common.cli.flags.profile_flags import import_flags, run_flags, sensor_flags
from common.foreign_traces.programs import recognised
from common.graphs.graph import Graph
from common.measurements.imported_profile import MEASURING, ImportedProfile, imported_profile, recorded_session
from common.measurements.measured_profile import MeasuredProfile, ProfileSetup, measured_profile
from common.measurements.observer import Observer
from common.messages.errors import PipelineError
from common.onnx_graph.load import LoadedModel, load_model
from common.onnx_graph.reading.naming import named_model, naming_notes
from common.profiling.figures import run_columns
from common.profiling.runs.loop import Budget, SessionPlan
from common.profiling.runs.one_session import is_large
from common.runtime.inputs.given import given_arrays, make_feeds
from common.runtime.memory import require_memory
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import OPTIMIZATIONS, given_settings, with_execution
from common.runtime.sessions.thread_pools import EXECUTIONS
from common.table_rows import OpLatencyRow
from common.view.node_labels import label_nodes, with_labels
from common.view.profile.latency_text import imported_report, latency_report
from common.view.profile.provider_text import layer_report

DEFAULT_RUNS = 100


def arguments() -> cli.Parser:
    parser = cli.Parser("01_profile_onnx.py", __doc__ or "")
    run_flags(parser, DEFAULT_RUNS, tuple(OPTIMIZATIONS), EXECUTIONS)
    sensor_flags(parser)
    import_flags(parser)
    return parser


def loaded(stage: cli.StageRun, given: cli.GivenModel) -> LoadedModel:
    """Load the model, and enter it into the sidecars."""
    model = load_model(given.path, given.sizes, given.configured, values=given_arrays(given.files))
    stage.set_model(model.model_id, given.path.name, model.dimensions)
    return model


def labelled(stage: cli.StageRun, rows: Sequence[OpLatencyRow], source: Graph, executed: Graph) -> list[OpLatencyRow]:
    """Return the rows of the executed nodes under labels, which the printed notes use as well."""
    labels = label_nodes(computed_sources(source, executed))
    stage.print_notes_as(partial(with_labels, labels=labels))
    return [{**row, "executed_node": labels[row["executed_node"]]} for row in rows]


def add_profile(transaction: Transaction, profile: MeasuredProfile | ImportedProfile) -> None:
    """Stage what a profile of either origin has."""
    if profile.executed_graph:
        transaction.add_bytes("executed_graph", profile.executed_graph)
    for name, rows, lacks in profile.tables():
        transaction.add_rows_by_name(name, rows)
        transaction.mark_incomplete(lacks, name)
    transaction.add_document("latency_summary", profile.latency_summary)
    transaction.add_document("hardware_counters", profile.hardware_counters)
    transaction.mark_incomplete(profile.lacks, "ort_trace")


def import_profile(stage: cli.StageRun) -> None:
    """Write the tables of a profile that was recorded elsewhere."""
    session = recorded_session(stage.settings.values, stage.settings.given)
    program, model = recognised(session.profile), loaded(stage, cli.given_model(stage.settings))
    # Read before the writing begins, where `--check` ends: so a profile is refused before the ceilings are measured.
    profile = imported_profile(session, program, model)
    with stage.writing() as transaction:
        stage.set_imported({**session.file_names, **profile.facts}, MEASURING)
        stage.note(*profile.notes)
        add_profile(transaction, profile)
        if profile.trace:
            transaction.add_copy("ort_trace", profile.trace)
        transaction.remove_others(["ort_trace"])
    nodes = labelled(stage, profile.op_latency, model.graph, profile.executed)
    stage.show(imported_report(profile.latency_summary, nodes))


def add_measured(transaction: Transaction, profile: MeasuredProfile) -> None:
    """Stage what was measured; the tables of a measurement that failed are set aside."""
    if profile.measurement.failure:
        transaction.set_aside(profile.measurement.failure)
    add_profile(transaction, profile)
    transaction.add_table("run_latency", pd.DataFrame(run_columns(profile.measurement)))
    trace = profile.measurement.trace_file
    transaction.add_file("ort_trace", trace.replace(transaction.temporary("ort_trace.json")))


def profile_model(stage: cli.StageRun) -> PipelineError | None:
    """Measure the model, and write the tables; return why the measurement ended early if it did."""
    settings, given = stage.settings, cli.given_model(stage.settings)
    options = with_execution(given_settings(settings.values), settings.execution, settings.inter_threads)
    is_timed = settings.one_of("runs", "duration") == "duration"
    budget = Budget(settings.warmup, settings.runs or DEFAULT_RUNS, settings.duration if is_timed else None)
    model, named = loaded(stage, given), named_model(given.path)
    require_memory(given.path, model.graph)
    feeds = make_feeds(model.graph, given.files, settings.seed)
    plan = SessionPlan(given.path, feeds, options, named.content if named else None, is_large(model.graph))
    observer = Observer(settings.powercap_root, settings.sensor_rate_hz)
    setup = ProfileSetup(plan, model, budget, observer, settings.idle, settings.sessions)
    with stage.writing() as transaction, transaction.scratch() as folder, limited_runs(settings.run_timeout):
        profile = measured_profile(setup, folder, stage.progress_bar, transaction.reserve, transaction.release)
        stage.note(*profile.notes, *naming_notes(named))
        add_measured(transaction, profile)
    executed, failure = profile.executed, profile.measurement.failure
    nodes = labelled(stage, profile.op_latency, model.graph, executed.graph) if executed else []
    stage.show(latency_report(profile.latency_summary, nodes, profile.busy) + layer_report(profile.layers.rows))
    remedy = f"what was measured is in {transaction.targets}, marked incomplete"
    return PipelineError(given.path, stage.plain(failure), remedy) if failure else None


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        settings, failure = stage.settings, None
        if settings.from_trace or settings.executed_graph or settings.accept_partial:
            import_profile(stage)
        else:
            failure = profile_model(stage)
    if failure:
        raise failure
    return 0


if __name__ == "__main__":
    cli.run(main)
