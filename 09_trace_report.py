"""Show the runs that 01 measured as one timeline, and find the bottlenecks of an inference.

Reads   run_latency.csv, latency_summary.json, op_latency.csv, ort_trace.json, executed_graph.onnx; the other tables of
        01 to 05, 07 and 13 if they exist; or only load_requests.csv, load_batches.csv and load_summary.json.
Writes  trace.json and plan_trace.json (the plan of 07) for Perfetto or chrome://tracing, flamegraph.folded (node times
        by module path) for speedscope or flamegraph.pl, annotated.onnx (the model's graph without weights) for Netron,
        bottlenecks.csv (a row per finding).

The timeline shows every run, and the nodes of three profiled runs: the first, the median and the slowest one after the
warm-up. Arrows follow the critical path. A load test has a clock of its own.

bottlenecks.csv has the findings of the rules in configs/bottlenecks.yaml. The least time that each node could take says
how much a remedy can save at most. The gain of a finding is the part of this that measured remedies reached. On a
disturbed host no gain is shown. Near misses fail a rule by little, and come last.

EXAMPLE of output (bottlenecks.csv of a tiny transformer, some columns):

    finding_index,finding,finding_subject,gain_us,gain_low_us,gain_high_us
    0,tiny_nodes,19 nodes from '/attention/key/Add',34.5,26.5,79.5
    1,below_memory_roof,/attention/scores/MatMul/MatMulScaleFusion/,7.56,5.56,11.70

    python 09_trace_report.py                  # the tables in out/
    python 09_trace_report.py --runs all       # the nodes of all runs
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence

from common import cli
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.columns import COLUMNS
from common.artifacts.folder import absence_notes
from common.artifacts.stages import STAGES, WRITER
from common.bottlenecks.judge import run_bottlenecks
from common.bottlenecks.rules import read_rules
from common.cli.texts.wording import mend_command
from common.files.configuration import Section
from common.mending.findings import rules_to_try
from common.messages.errors import PipelineError
from common.onnx_graph.reading.naming import traced_bodies
from common.onnx_graph.reading.outline import Outline, outline
from common.profiling.trace.timeline import spans_of_runs
from common.table_rows import BottlenecksRow, RunLatencyRow, Tables
from common.timeline.from_tables import ShownRun, chosen_runs, counts_of, shown_rows, timeline
from common.timeline.load_tracks import LoadTimeline, load_timeline
from common.timeline.viewer_files import load_file, node_files, plan_file, run_file
from common.view.node_labels import labels_of
from common.view.plan.answer.cases import said_of
from common.view.plan.answer.headline import headline
from common.view.profile.generation_text import phase_heading
from common.view.trace.bottleneck_tables import bottleneck_report
from common.view.trace.timeline_text import timeline_report

SCRIPT = "09_trace_report.py"
NEEDED = ("run_latency", "op_latency")
LOAD_TABLES = ("load_requests", "load_batches", "load_summary")
NPU_TABLES = ("npu_runs", "npu_nodes")
FOR_VIEWERS = ("trace", "plan_trace", "flamegraph", "annotated")
OF_OTHERS = (*LOAD_TABLES, *NPU_TABLES, "phase_work")  # read apart from the measurement


def arguments() -> cli.Parser:
    parser = cli.Parser(SCRIPT, __doc__ or "")
    text = "profiled runs that are shown with their nodes: three (first, median, slowest), or all"
    parser.setting("--runs", choices=("3", "all"), default="3", help=text)
    parser.shared("--rules")
    return parser


def present_tables(stage: cli.StageRun) -> Tables:
    """Return the rows of the tables that are there; notes say which are not."""
    names = [name for name in STAGES[SCRIPT].reads if ARTIFACTS[name].form == "table" and name not in OF_OTHERS]
    present = [name for name in names if name in NEEDED or stage.tables.has(name)]
    stage.note(*absence_notes(name for name in names if name not in present))
    return stage.tables.tables(present)


def load_shown(stage: cli.StageRun) -> LoadTimeline:
    requests, batches = stage.tables.rows("load_requests"), stage.tables.rows("load_batches")
    replica_count = stage.tables.document("load_summary")["replica_count"]
    load = load_timeline(requests, batches, replica_count, is_bounded=stage.settings.runs != "all")
    stage.note(*load.notes)
    return load


def shown_runs(stage: cli.StageRun, runs: Sequence[RunLatencyRow]) -> list[ShownRun]:
    """Return the profiled runs whose nodes the timeline shows: none without a trace of ONNX Runtime."""
    if not stage.tables.has("ort_trace"):
        stage.note("the timeline shows no nodes: the profile has no trace of ONNX Runtime")
        return []
    roles, clocks = chosen_runs(runs, every=stage.settings.runs == "all")
    bodies = stage.tables.foreign("executed_graph", traced_bodies)
    spans = stage.tables.foreign("ort_trace", lambda file: spans_of_runs(file, clocks, roles, bodies))
    return [ShownRun(index, roles[index], of_run) for index, of_run in spans.items()]


def source_outline(stage: cli.StageRun, tables: Tables) -> Outline | None:
    """Return the graph of the model that was counted; None, with a note, where its file is no longer there."""
    if "op_metrics" not in tables:
        return None
    record = stage.tables.provenance("op_metrics")
    try:
        return outline(cli.model_path(str(record.given("model"))), record.model_id)
    except PipelineError as error:
        stage.note(f"no annotated graph: {error}")
        return None


def trial_command(stage: cli.StageRun, found: Sequence[BottlenecksRow]) -> str:
    """Return the command that mends the first finding that has a mend; nothing where none has, or without a model."""
    rules, model = rules_to_try(found, ()), stage.tables.provenance("latency_summary").given("model")
    return mend_command(str(model), rules[0]) if rules and model is not None else ""


def report_runs(stage: cli.StageRun) -> None:
    """Write the timelines of the runs that 01 measured and of the plan, and the times of nodes for other viewers."""
    tables, summary = present_tables(stage), stage.tables.document("latency_summary")
    labels, model = labels_of(tables.get("op_roofline", ())), stage.record.model_path
    made = timeline(tables, shown_runs(stage, tables["run_latency"]), labels, is_bounded=stage.settings.runs != "all")
    stage.note(*made.notes)
    of_npu: Tables = stage.beside(NPU_TABLES, "the NPU", lambda: stage.tables.tables(NPU_TABLES)) or {}
    with stage.tables.apart() as load_lacks:
        load = stage.beside(LOAD_TABLES, "the load test", lambda: load_shown(stage))
    files = run_file(made, of_npu, load, model) | node_files(tables, source_outline(stage, tables), model)
    files |= plan_file(tables, model, stage.plain(headline(tables)), said_of(tables.get("offload_verdict", ())))
    rules = read_rules(Section.of_file(stage.settings.rules), COLUMNS)
    record = stage.tables.provenance("latency_summary")
    everything: Tables = {**tables, **of_npu}
    bottlenecks = run_bottlenecks(rules, everything, summary, record.notes, record.host.get("cpu_count"))
    with stage.writing() as transaction:
        transaction.add_rows("bottlenecks", bottlenecks)
        transaction.add_or_remove(files, *FOR_VIEWERS)
        transaction.mark_incomplete(load_lacks, "trace")  # nothing else is made from the load test
    found = bottleneck_report(bottlenecks, summary["p50_us"], labels, trial=trial_command(stage, bottlenecks))
    text = timeline_report(shown_rows(made), {**counts_of(made), **(load.counts if load else {})}, files)
    stage.show(f"{phase_heading(cli.phase_of(stage.tables))}{text}\n\n{found}")


def report_load(stage: cli.StageRun) -> None:
    """Write the timeline of a load test alone."""
    load = load_shown(stage)
    files = load_file(load, stage.record.model_path)
    with stage.writing() as transaction:
        transaction.add_or_remove(files, *FOR_VIEWERS)
    stage.note(f"no runs of {WRITER['run_latency']} are in this folder: the timeline shows the load test alone")
    stage.show(timeline_report([], load.counts, files))


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        is_load_alone = all(map(stage.tables.has, LOAD_TABLES)) and not stage.tables.has("run_latency")
        (report_load if is_load_alone else report_runs)(stage)
    return 0


if __name__ == "__main__":
    cli.run(main)
