"""Write one timeline of the runs that 01 measured; or profile a model on Qualcomm's NPU, or read such a profile.

Reads   run_latency.csv, latency_summary.json, op_latency.csv, ort_trace.json, executed_graph.onnx; where they are, the
        other tables of 01, and op_metrics.csv, op_roofline.csv, executed_edges.csv, critical_path.csv, ops_profile.csv,
        fpga_candidates.csv, offload_schedule.csv, npu_runs.csv and npu_nodes.csv; load_requests.csv, load_batches.csv
        and load_summary.json, which are enough by themselves.
Writes  trace.json and plan_trace.json (the plan of 07) for Perfetto or chrome://tracing, flamegraph.folded (node times
        by module path) for speedscope or flamegraph.pl, annotated.onnx (the model's graph without weights) for Netron,
        bottlenecks.csv (a row per finding).

With --model or --qnn-csv nothing is read from out/. Then it writes npu_summary.json and npu_summary.html, npu_nodes.csv
(a row per node of the profile), npu_runs.csv (a row per run), bottlenecks.csv; of several chips (--soc 57,69)
npu_chips.csv and npu_chip_nodes.csv; of a device npu_trace.json (for Perfetto); of a model also what QNN wrote:
qnn_profile.csv, qnn_schematic.bin, qnn_op_trace.json.

The timeline shows every run, and the nodes of three profiled runs: the first, the median and the slowest one after the
warm-up. A node is named by the operator that does most of its work, and opens with its full name, source nodes, work,
bound, share of the roof and energy. Arrows follow the critical path.
A load test is shown on a clock of its own: its requests, how many wait, how batches form, and what sessions do.

bottlenecks.csv holds what the rules of configs/bottlenecks.yaml find, with the figures that say so, the hazard and the
remedy. A gain is the most that mending could take from an inference: the critical path is evaluated again with the
times that the nodes would keep at best.

A profile of the emulator has no valid times. Its runs and cycles stand in the tables with is_emulated, and no speed,
share or order follows from them. Traffic, use of VTCM, operator counts, what was fused into what, and the difference
from the CPU's results are valid there too. What no file tells is null in the summary, with the reason.

EXAMPLE of input (profile.csv, its last column is optional) and output (npu_nodes.csv), some columns:

    Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier,ONNX Source Ops
    0,NODE,0,CYCLES,BACKEND,SUB-EVENT,conv1:OpId_23 (cycles),conv1
    0,NODE,107305,CYCLES,BACKEND,SUB-EVENT,relu1:OpId_26 (cycles),relu1

    npu_op_id,npu_node,source_nodes,fused_into,hmx_op_count,dram_read_bytes,is_emulated
    23,conv1,"[""conv1""]","[""relu1""]",0,0,True
    26,relu1,"[""relu1""]",[],4,8192,True

    python 09_trace_report.py                                               # out/trace.json; --runs all shows all nodes
    python 09_trace_report.py --model resnet50-fp32.onnx --out out/npu      # `make npu` sets up what this needs
    python 09_trace_report.py --qnn-csv device.csv --schematic graph_schematic.bin --qhas qhas.json
    python 09_trace_report.py --qnn-csv device.csv --baseline out/npu       # what changed since an earlier summary
"""

from __future__ import annotations

if __name__ == "__main__":
    from common import interrupts

    interrupts.end_at_once()  # first of all: the imports below take most of a second

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import cli
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.columns import COLUMNS
from common.artifacts.folder import absence_notes, is_there
from common.artifacts.frames import frame_of, records
from common.artifacts.stages import STAGES, WRITER
from common.bottlenecks.judge import finding_rows, findings
from common.bottlenecks.rules import read_rules
from common.bottlenecks.subjects import measured
from common.configuration import Section
from common.errors import CommandLineError, PipelineError, UpstreamError
from common.host_doubts import host_doubts
from common.npu.baseline import read_baseline
from common.npu.report import Session, report_of
from common.npu.sources import FILES
from common.onnx_graph.load import load_model
from common.onnx_graph.reading.naming import traced_bodies
from common.onnx_graph.reading.outline import Outline, annotated, outline
from common.profiling.run_spans import spans_of_runs
from common.runtime.inputs.given import given_arrays, make_feeds
from common.runtime.qnn import LEVELS, PERFORMANCE_MODES, QnnSettings, level_gap, record, require_onnx
from common.timeline.annotations import model_texts, node_texts
from common.timeline.chosen_runs import choose_runs
from common.timeline.chrome_trace import ChromeTrace, trace_json
from common.timeline.flamegraph import folded_stacks
from common.timeline.from_tables import Tables, counts_of, shown_rows, timeline
from common.timeline.load_tracks import LoadTimeline, load_timeline
from common.timeline.npu_trace import npu_process
from common.timeline.plan_trace import plan_trace
from common.timeline.shown import Shown
from common.view.bottleneck_text import bottleneck_report
from common.view.node_labels import labels_of
from common.view.npu_html import npu_page
from common.view.npu_text import npu_report
from common.view.timeline_text import timeline_report

SCRIPT = "09_trace_report.py"
NEEDED = ("run_latency", "op_latency")
MEASURING = ("model", "dim", "input", "runs", "soc", "level", "performance", "seed")
LOAD_TABLES = ("load_requests", "load_batches", "load_summary")
NPU_TABLES = ("npu_nodes", "npu_runs", "npu_chips", "npu_chip_nodes")
RECORDED = {"qnn_csv": "qnn_profile", "schematic": "qnn_schematic", "op_trace": "qnn_op_trace"}


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    file: dict[str, Any] = {"type": cli.path, "metavar": "FILE"}
    parser.model_settings()
    parser.setting(
        "--runs",
        type=cli.count_or_all,
        default=3,
        metavar="N",
        help="inferences on the NPU; all: nodes of all runs of 01",
    )
    parser.setting(
        "--rules", default=cli.ROOT / "configs/bottlenecks.yaml", help="rules by which bottlenecks are found", **file
    )
    parser.setting(
        "--soc", type=cli.positive_ints, default=[57], metavar="N,…", help="Qualcomm's numbers of chips to compare"
    )
    parser.setting("--level", choices=[*LEVELS], default="optrace", help="profiling level; optrace tells of traffic")
    parser.setting("--performance", choices=PERFORMANCE_MODES, default="default", help="clocks of a device")
    parser.setting("--seed", type=cli.non_negative_int, default=0, metavar="N", help="seed of the random inputs")
    parser.setting("--qnn-csv", help="instead of a model: profile that QNN wrote as CSV", **file)
    parser.setting("--schematic", help="the compiler's schematic of the same session (*_schematic.bin)", **file)
    parser.setting("--qhas", help="QNN HTP analysis summary of qnn-profile-viewer, as JSON", **file)
    parser.setting("--op-trace", help="qnn_op_trace.json of the same session: which nodes QNN fused", **file)
    parser.setting(
        "--graph", type=cli.non_negative_int, metavar="N", help="which graph of a profile that holds several"
    )
    parser.setting(
        "--baseline", type=cli.path, metavar="DIR", help="folder of an earlier npu_summary.json: print what changed"
    )
    return parser


def recorded_sessions(stage: cli.StageRun, folder: Path) -> tuple[list[Session], dict[str, Any]]:
    """Profile the model with QNN, once for each chip; return what QNN wrote, and facts on the recording."""
    settings = stage.settings
    path, files = cli.model_path(settings.model), {name: Path(file) for name, file in settings.input}
    require_onnx(path)
    bindings, values = cli.configured_bindings(settings, path), given_arrays(files)
    model = load_model(path, dict(settings.dim), bindings, values=values)
    stage.set_model(model.model_id, path.name, model.dimensions)
    feeds = make_feeds(model.graph, files, settings.seed)
    if settings.runs is None:
        raise CommandLineError("<runs>", "all is for the timeline", "give the number of inferences")
    gap = level_gap(settings.level)
    stage.note(*filter(None, [gap]))
    sessions = []
    for soc in settings.soc:
        (of_chip := folder / str(soc)).mkdir()
        options = QnnSettings(settings.runs, soc, settings.level, settings.performance)
        recording = record(path, feeds, model.dimensions, options, of_chip)
        found = {"qnn_csv": recording.profile, "schematic": recording.schematic, "op_trace": recording.op_trace}
        sessions.append(Session(with_given(stage, found), recording.errors, soc, recording.no_errors))
    level = {"asked": settings.level, "recorded": LEVELS[settings.level], "unavailable": gap}
    return sessions, {"model": path.name, "profiling_level": level}


def with_given(stage: cli.StageRun, found: Mapping[str, Path | None]) -> dict[str, Path | None]:
    """Add files of the command line to those that a session wrote, as the schematic of a model compiled before."""
    return {name: found.get(name) or stage.settings.values[name] for name in FILES}


def given_session(stage: cli.StageRun) -> tuple[list[Session], dict[str, Any]]:
    """Return the files that are given on the command line.

    Raises:
        CommandLineError: there is a model as well.
    """
    if stage.settings.origins["model"] == "flag":
        raise CommandLineError("<model>", "does not go with <qnn_csv>: nothing is run", "leave one of them out")
    files = with_given(stage, {})
    stage.set_imported({name: file.name for name, file in files.items() if file}, MEASURING)
    return [Session(files)], {"model": None, "profiling_level": None}


def report_npu(stage: cli.StageRun) -> None:
    """Profile a model on the NPU, or read a profile, and write its tables."""
    settings = stage.settings
    is_recorded = settings.qnn_csv is None and settings.origins["model"] != "default"
    before = read_baseline(settings.baseline) if settings.baseline else None
    with stage.writing() as transaction, transaction.scratch() as folder:
        sessions, facts = recorded_sessions(stage, folder) if is_recorded else given_session(stage)
        report = report_of(sessions, settings.graph, facts, before)
        text = stage.plain(json.dumps(report.document, indent=2, ensure_ascii=False, allow_nan=False))
        document = json.loads(text)
        found = found_bottlenecks(stage, report.tables, npu_summary=document)
        transaction.add_rows("bottlenecks", found)
        transaction.add_text("npu_summary", text + "\n")
        transaction.add_page("npu_page", npu_page(document, report.tables))
        process = npu_process(report.tables["npu_runs"], report.tables["npu_nodes"])
        traces = {"npu_trace": trace_json(ChromeTrace([process]), {"model": facts["model"]})} if process else {}
        transaction.add_or_remove(traces, "npu_trace")
        for name in NPU_TABLES:
            if name in report.tables:
                transaction.add_rows(name, report.tables[name])
            else:
                transaction.remove(name)
        for key, name in RECORDED.items():
            if is_recorded and (file := sessions[0].files[key]) and file.is_relative_to(folder):
                transaction.add_copy(name, file)
            else:
                transaction.remove(name)  # of another session
    stage.show(f"{npu_report(document, report.tables)}\n\n{bottleneck_report(found)}")


def found_bottlenecks(stage: cli.StageRun, tables: Tables, **summaries: Any) -> list[dict[str, Any]]:
    """Return the rows of bottlenecks that the rules find in the rows of other tables."""
    rules = read_rules(Section.of_file(stage.settings.rules), COLUMNS)
    return list(finding_rows(findings(rules, measured(tables, **summaries))))


def doubts_of(tables: Tables, summary: Mapping[str, Any], notes: Sequence[str]) -> Sequence[str]:
    """Return why no gain can be relied on."""
    gap_us = sum(row["node_latency_us"] for row in tables.get("op_roofline", ()) if row["row_kind"] == "gap")
    return host_doubts(summary, gap_us, sum(row["events_per_run_count"] or 0 for row in tables["op_latency"]), notes)


def present_tables(stage: cli.StageRun) -> Tables:
    """Return the rows of the tables that are there; notes say which are not."""
    names = [name for name in STAGES[SCRIPT].reads if ARTIFACTS[name].form == "table" and name not in LOAD_TABLES]
    present = [name for name in names if name in NEEDED or is_there(stage.tables.path(name))]
    stage.note(*absence_notes(name for name in names if name not in present))
    return {name: records(stage.tables.table(name)) for name in present}


def npu_tables(stage: cli.StageRun) -> Tables:
    """Return the rows of an NPU's profile that stands in the folder; none, with a note, where it cannot be used."""
    names = ("npu_runs", "npu_nodes")
    if not all(is_there(stage.tables.path(name)) for name in names):
        return {}
    try:
        return {name: records(stage.tables.table(name)) for name in names}
    except UpstreamError as error:
        stage.note(f"the NPU is left out: {error}")
        return {}


def load_is_there(stage: cli.StageRun) -> bool:
    """Whether a load test stands in the folder."""
    return all(is_there(stage.tables.path(name)) for name in LOAD_TABLES)


def load_shown(stage: cli.StageRun) -> LoadTimeline:
    """Return the timeline of the load test that stands in the folder."""
    requests, batches = (records(stage.tables.table(name)) for name in LOAD_TABLES[:2])
    replica_count = stage.tables.document("load_summary")["replica_count"]
    made = load_timeline(requests, batches, replica_count, is_bounded=stage.settings.runs is not None)
    stage.note(*made.notes)
    return made


def load_beside(stage: cli.StageRun) -> LoadTimeline | None:
    """Return the timeline of the load test beside the runs of 01; None, with a note, where it cannot be used."""
    try:
        return load_shown(stage) if load_is_there(stage) else None
    except UpstreamError as error:
        stage.note(f"the load test is left out: {error}")
        return None


def shown_runs(stage: cli.StageRun, runs: Sequence[Mapping[str, Any]]) -> list[Shown]:
    """Return the profiled runs whose nodes the timeline shows: none without a trace of ONNX Runtime."""
    if not is_there(stage.tables.path("ort_trace")):
        stage.note("the timeline shows no nodes: the profile has no trace of ONNX Runtime")
        return []
    profiled = [row for row in runs if row["is_profiled"]]
    latencies_us, warmup_count = [row["latency_us"] for row in profiled], sum(row["is_warmup"] for row in profiled)
    roles = choose_runs(latencies_us, warmup_count, every=stage.settings.runs is None)
    clocks = [(1e-6 * row["start_us"], row["latency_us"]) for row in profiled]
    bodies = stage.tables.foreign("executed_graph", traced_bodies)
    spans = stage.tables.foreign("ort_trace", lambda file: spans_of_runs(file, clocks, roles, bodies))
    return [Shown(index, roles[index], of_run) for index, of_run in spans.items()]


def source_outline(stage: cli.StageRun, tables: Tables) -> Outline | None:
    """Return the graph of the model that was counted; None, with a note, where its file is no longer there."""
    if "op_metrics" not in tables:
        return None
    record = stage.tables.provenance("op_metrics")
    try:
        found = outline(cli.model_path(str(record.settings.get("model", {}).get("value"))))
    except PipelineError as error:
        stage.note(f"no annotated graph: {error}")
        return None
    if found.model_id == record.model_id:
        return found
    stage.note("no annotated graph: the model has changed since <op_metrics> read it")
    return None


def files_of_nodes(tables: Tables, graph: Outline | None, model: str) -> dict[str, str | bytes]:
    """Return what shows the times of nodes in other viewers, by artifact."""
    metrics, roofline = tables.get("op_metrics", ()), tables.get("op_roofline", ())
    if not roofline:
        return {}
    stacks = folded_stacks(roofline, metrics, graph.scopes if graph else {}, model)
    if graph is None:
        return {"flamegraph": stacks}
    texts = node_texts(roofline, metrics, tables.get("ops_profile", ()))
    return {"flamegraph": stacks, "annotated": annotated(graph, texts, model_texts(roofline))}


def report_runs(stage: cli.StageRun) -> None:
    """Write the timelines of the runs that 01 measured and of the plan, and the times of nodes for other viewers."""
    tables = present_tables(stage)
    labels = labels_of(frame_of(tables["op_roofline"])) if "op_roofline" in tables else {}
    shown, is_bounded = shown_runs(stage, tables["run_latency"]), stage.settings.runs is not None
    made = timeline(tables, shown, labels, is_bounded=is_bounded)
    stage.note(*made.notes)
    summary, model = stage.tables.document("latency_summary"), stage.record.model_path
    files = files_of_nodes(tables, source_outline(stage, tables), model)
    of_npu = npu_tables(stage)
    process = npu_process(of_npu["npu_runs"], of_npu["npu_nodes"]) if of_npu else None
    with stage.tables.apart() as load_lacks:
        load = load_beside(stage)
    trace = made.trace(*([process] if process else []), *(load.processes if load else ()))
    files["trace"] = trace_json(trace, {"model": model, "clock": "run_latency.csv"})
    if schedule := tables.get("offload_schedule"):
        plan = plan_trace(schedule, tables.get("fpga_candidates", ()))
        files["plan_trace"] = trace_json(plan, {"model": model, "case": "likely"})
    found = found_bottlenecks(stage, {**tables, **of_npu}, summary=summary)
    with stage.writing() as transaction:
        transaction.add_rows("bottlenecks", found)
        transaction.add_or_remove(files, "trace", "plan_trace", "flamegraph", "annotated")
        transaction.mark_incomplete(load_lacks, "trace")  # nothing else is made from the load test
    text = timeline_report(shown_rows(made), {**counts_of(made), **(load.counts if load else {})}, files)
    doubts = doubts_of(tables, summary, stage.tables.provenance("latency_summary").notes)
    stage.show(f"{text}\n\n{bottleneck_report(found, summary['p50_us'], labels, doubts)}")


def report_load(stage: cli.StageRun) -> None:
    """Write the timeline of a load test alone."""
    made = load_shown(stage)
    about = {"model": stage.record.model_path, "clock": "load_requests.csv"}
    files = {"trace": trace_json(ChromeTrace(made.processes), about)}
    with stage.writing() as transaction:
        transaction.add_or_remove(files, "trace", "plan_trace", "flamegraph", "annotated")
    stage.note(f"no runs of {WRITER['run_latency']} stand in this folder: the timeline shows the load test alone")
    stage.show(timeline_report([], made.counts, files))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    with cli.stage(arguments(), argv) as stage:
        given = (stage.settings.values[name] for name in FILES)
        if stage.settings.origins["model"] == "default" and not any(given):
            if stage.settings.baseline:
                raise CommandLineError("<baseline>", "compares profiles of NPUs", "give <model> or <qnn_csv> as well")
            is_load_alone = load_is_there(stage) and not is_there(stage.tables.path("run_latency"))
            (report_load if is_load_alone else report_runs)(stage)
        else:
            report_npu(stage)
    return 0


if __name__ == "__main__":
    cli.run(main)
