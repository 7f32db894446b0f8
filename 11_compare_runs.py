"""Compare a measurement with a baseline: what became slower or faster, and whether that is more than chance.

Reads   run_latency.csv and latency_summary.json of both folders; where they are, the other tables of 01,
        op_metrics.csv, op_edges.csv, node_map.csv, op_roofline.csv, host_ceilings.json, energy_summary.json,
        the plan of 07 (offload_verdict.csv, offload_comparison.csv, offload_plan.csv, board_resources.csv),
        load_summary.json and load_best.json. What is older than the times is left out with a note.
Writes  comparison.csv (a row per figure and per group of executed nodes), comparison.md for a pull request, and
        comparison.html; of the first folder compared comparison_stacks.folded, for a differential flame graph by
        flamegraph.pl. 06 draws the differences.

A difference is real if three things hold. A rank test on medians of blocks of runs says so, corrected for all nodes
(Holm). The bootstrap interval leaves 0 out. And the difference is above the noise floor: what a repeat on this machine
scatters anyway, judged by how far quarters of the runs lie apart. What is surely smaller than --fail-above is
unchanged; the rest is undecided, with the number of runs that would decide it. Where a host was busy or its times
moved, no time is judged. Several baselines (repeat --baseline) show what sessions scatter, too.

With --ab nothing is read: two models, or one under two settings, run in turn, and each run is compared with the one
beside it. So drift of the host cancels. New sessions for each twentieth of the runs make the noise floor hold what the
place of their memory moves. A busy host is named, and the pairs are judged all the same.

Nodes are compared where they compute the same source nodes, whatever the runtime fused, renamed or inserted. Models
that differ in names only are one model. Other models need --across-models.

With --append-to the figures of --out are added to a history, with the commit of the folder in which this runs, and are
exported as metrics.prom and metric_lines.jsonl. Recording a measurement again adds no second run. With --history the
newest run is compared with the level of the runs before it, and each change of a level names the commits that it lies
between: run_history.csv, history_trends.csv, run_history.md and .html. docs/HISTORY.md has the tests.

The exit code is 4 where a figure of the whole regressed by more than --fail-above, or a node added more than that to
the latency.

EXAMPLE of output (comparison.csv, some columns):

    compared_kind,compared_subject,comparison_verdict,baseline_value,candidate_value,difference_share,noise_floor_share
    end_to_end,,regressed,5210.0,5490.0,0.0537,0.0121
    node,/fire2/Relu_output_0_nchwc,unchanged,411.0,412.0,0.0024,0.0188

    python 11_compare_runs.py --baseline runs/main                          # out/ against runs/main
    python 11_compare_runs.py --baseline runs/main --fail-above 3% --quiet  # exit code 4 if slower by more than 3 %
    python 11_compare_runs.py --baseline runs/1 --baseline runs/2 --candidate runs/3 --candidate runs/4
    python 11_compare_runs.py --ab before.onnx after.onnx                   # measure both now, in pairs
    python 11_compare_runs.py --ab model.onnx model.onnx --b-with threads=1
    python 11_compare_runs.py --append-to runs.sqlite                       # what `make record` does
    python 11_compare_runs.py --history runs.sqlite --last 20               # what changed, and with which commit
"""

from __future__ import annotations

if __name__ == "__main__":
    from common import interrupts

    interrupts.end_at_once()  # first of all: the imports below take most of a second

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import cli
from common.artifacts.folder import Folder, is_there
from common.artifacts.frames import records
from common.artifacts.metrics import EXPORTED, exported_columns
from common.artifacts.provenance import Provenance
from common.cli.comparison_flags import folder_flags, history_flags, pair_flags
from common.comparison.alignment import Executed
from common.comparison.measured import MeasuredSide
from common.comparison.recorded import DOCUMENTS, NODE_TABLES, PLAN_TABLES, differences, doubts, recorded_side
from common.comparison.rows import Question, comparison_rows, failures, node_times_us
from common.errors import CommandLineError, UpstreamError
from common.history.export import ExportedFigure, json_lines, openmetrics
from common.history.recorded_run import run_of
from common.history.revision import Revision, revision_of
from common.history.store import RecordedRuns
from common.history.trends import history_failures, history_rows
from common.onnx_graph.naming import named_model, naming_notes, traced_bodies
from common.profiling.node_runs import recorded_node_runs
from common.timeline.flamegraph import differential_stacks
from common.view.comparison_html import comparison_page
from common.view.comparison_text import comparison_markdown, comparison_report
from common.view.history_html import history_page
from common.view.history_text import commit_name, history_markdown, history_report
from common.view.node_labels import source_labels

SCRIPT = "11_compare_runs.py"
FOUND_REGRESSION = 4  # exit code
DEFAULT_MARGIN = 0.05
TABLES = ("run_latency", *NODE_TABLES, "host_samples")  # what the times rest on; the others may be left out
Row = dict[str, Any]
Part = tuple[list[Row], list[str]]  # the rows of one folder, and what to read before them
Compared = tuple[list[Part], dict[str, str], str]  # with labels of the nodes, and the baseline's name


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    folder_flags(parser)
    pair_flags(parser)
    history_flags(parser)
    return parser


def opened(stage: cli.StageRun, path: Path) -> Folder:
    """Return a folder of tables; those in --out are what the stage itself reads."""
    if path.resolve() == stage.settings.out.resolve():
        return stage.tables
    return Folder(path, Provenance(SCRIPT, stage.record.command))


def measured(stage: cli.StageRun, folder: Folder) -> MeasuredSide:
    """Return what a folder tells of one measurement; what is older than its times is left out with a note."""
    tables = {
        name: records(folder.table(name)) for name in TABLES if name == "run_latency" or is_there(folder.path(name))
    }
    documents: dict[str, Row] = {}
    for name in (name for name in (*DOCUMENTS, *PLAN_TABLES) if is_there(folder.path(name))):
        try:
            if name in DOCUMENTS:
                documents[name] = folder.document(name)
            else:
                tables[name] = records(folder.table(name))
        except UpstreamError as error:
            if name == "latency_summary":
                raise
            stage.note(f"left out: {error}")
    record = folder.provenance("run_latency")
    return recorded_side(str(folder.root), asdict(record), documents, tables, times_of_nodes(folder, tables))


def times_of_nodes(folder: Folder, tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Return the time of each node in each profiled run; none where the profile has no trace of ONNX Runtime."""
    needed = ("ort_trace", "executed_graph", "op_latency")
    if not all(is_there(folder.path(name)) for name in needed):
        return {}
    bodies, runs, nodes = folder.foreign("executed_graph", traced_bodies), tables["run_latency"], tables["op_latency"]
    return folder.foreign("ort_trace", lambda file: recorded_node_runs(file, runs, nodes, bodies))


def measured_pair(stage: cli.StageRun, folder: Path) -> list[MeasuredSide]:
    """Measure two models, or two settings of one, run by run in turn."""
    from common.onnx_graph.load import load_model
    from common.profiling.pairs import Contender
    from common.runtime.given_settings import GIVEN, given_settings
    from common.runtime.inputs import given_arrays, make_feeds

    settings = stage.settings
    files = {name: Path(file) for name, file in settings.input}
    options = [given_settings(settings.values, changes, "b_with") for changes in ({}, dict(settings.b_with))]
    paths = [cli.model_path(text, "--ab") for text in settings.ab]
    bindings = [cli.configured_bindings(settings, path) for path in paths]
    models = [
        load_model(path, dict(settings.dim), bound, values=given_arrays(files))
        for path, bound in zip(paths, bindings, strict=True)
    ]
    named = [named_model(path) for path in paths]
    stage.set_model(models[1].model_id, paths[1].name, models[1].dimensions)
    contenders = [
        Contender(path, make_feeds(model.graph, files, settings.seed), chosen, renamed.content if renamed else None)
        for path, model, chosen, renamed in zip(paths, models, options, named, strict=True)
    ]
    latencies, nodes, graphs, busy = runs_in_turn(stage, folder, contenders, models)
    stage.note(*busy, *(text for one in named for text in naming_notes(one)))
    return [
        MeasuredSide(
            f"{'AB'[side]} ({paths[side].name})",
            models[side].model_id,
            models[side].dimensions,
            latencies[side],
            nodes[side],
            graphs[side][0],
            graphs[side][2],
            conditions={name: getattr(options[side], name) for name in GIVEN},
            doubts=busy,
        )
        for side in range(2)
    ]


def runs_in_turn(
    stage: cli.StageRun, folder: Path, contenders: Sequence[Any], models: Sequence[Any]
) -> tuple[Any, Any, list[Any], list[str]]:
    """Run both sides in turn, part by part in new sessions.

    Returns the runs of both sides, those of their nodes, what the last sessions executed, and a note if the host was
    busy.
    """
    from common.profiling.pairs import joined_pairs, measured_in_turn, paired_node_runs, paired_runs, shares_of_runs
    from common.profiling.runs import Budget
    from common.sensors.other_work import OtherWork

    settings, other_work, busy, parts = stage.settings, OtherWork(), list[str](), []
    for number, runs in enumerate(shares_of_runs(settings.runs)):
        (own := folder / f"part-{number}").mkdir()
        order = 1 - 2 * (number % 2)  # which session is created first moves its memory
        budget, progress = Budget(settings.warmup, runs), stage.progress_bar("pairs")
        with contextlib.ExitStack() as stack:
            with other_work:
                turns = measured_in_turn(contenders[::order], own, budget, progress)
                found = stack.enter_context(turns)[::order]
            graphs = [executed_pair(one, model) for one, model in zip(found, models, strict=True)]
        busy += other_work.notes(max(one.settings.threads for one in contenders))
        stage.note(*(one.failure for one in found if one.failure))
        found = [one.renamed(bodies) for one, (_, bodies, _) in zip(found, graphs, strict=True)]
        parts.append((paired_runs(*found), paired_node_runs(*found)))
    return *joined_pairs(parts), graphs, busy[:1]


def executed_pair(measurement: Any, model: Any) -> tuple[Executed, Any, dict[str, str]]:
    """Return what a session executed, how nodes of its bodies are told apart, and the operator of each node."""
    from common.attribution.from_graphs import owners
    from common.onnx_graph.executed import saved_graph

    traced = [(node.name, node.op_type) for node in measurement.trace.nodes.values()]
    graph, bodies = saved_graph(measurement.trace_file.parent / "executed.onnx", traced, model.dimensions)
    attribution = owners(model.graph, graph)
    sources = {node.name: attribution.sources.get(node.name, ()) for node in graph.nodes}
    return Executed(sources, attribution.layout_of), bodies, {node.name: node.op_type for node in graph.nodes}


def compare_folders(stage: cli.StageRun) -> Compared:
    """Compare folders of tables.

    Raises:
        CommandLineError: there is no baseline.
    """
    settings = stage.settings
    if not settings.baseline:
        raise CommandLineError("<baseline>", "is missing", "give the folder of an earlier measurement, or <ab>")
    folders = [opened(stage, path) for path in (*settings.baseline, *(settings.candidate or [settings.out]))]
    sides = [measured(stage, folder) for folder in folders]
    baselines, candidates = sides[: len(settings.baseline)], sides[len(settings.baseline) :]
    question = Question(settings.fail_above or DEFAULT_MARGIN, is_across_models=settings.across_models)
    parts = [
        (comparison_rows(baselines, side, question), [*doubts([*baselines, side]), *differences(baselines[0], side)])
        for side in candidates
    ]
    stage.enter_reads(folders)
    return (
        parts,
        source_labels(baselines[0].executed.sources, baselines[0].metrics),
        ", ".join(side.name for side in baselines),
    )


def compare_pair(stage: cli.StageRun, folder: Path) -> Compared:
    """Compare two models that are measured now.

    Raises:
        CommandLineError: folders are given, too.
    """
    settings = stage.settings
    if settings.baseline or settings.candidate:
        raise CommandLineError("<ab>", "does not go with <baseline> and <candidate>", "leave one of them out")
    first, second = measured_pair(stage, folder)
    question = Question(settings.fail_above or DEFAULT_MARGIN, is_paired=True, is_across_models=True)
    rows = comparison_rows([first], second, question)
    return (
        [(rows, [*second.doubts, *differences(first, second)])],
        source_labels(first.executed.sources, first.metrics),
        first.name,
    )


def exported_figures(folder: Folder) -> list[ExportedFigure]:
    """Return the figures that the documents of a folder state."""
    found = []
    for name in (name for name in EXPORTED if is_there(folder.path(name))):
        try:
            document = folder.document(name)
        except UpstreamError:
            continue  # a note says so
        for column in (one for one in exported_columns(name) if document.get(one.name) is not None):
            source = EXPORTED[name] or str(document["energy_source"])
            found.append(ExportedFigure(name, column.name, column.description, source, float(document[column.name])))
    return found


def record_run(stage: cli.StageRun) -> None:
    """Add the figures of --out to a history, and export them."""
    settings, folder = stage.settings, stage.tables
    side, figures = measured(stage, folder), exported_figures(folder)
    origin = folder.provenance("run_latency")
    revision = Revision(settings.commit) if settings.commit else revision_of(Path.cwd())
    digests = [folder.provenance(name).sha256 for name in ("run_latency", "op_latency") if is_there(folder.path(name))]
    run = run_of(side, revision, digests, origin.model_path)
    labels = {"model": Path(origin.model_path).name}
    with stage.writing() as transaction:
        transaction.add_text("metrics", openmetrics(figures, labels))
        transaction.add_text("metric_lines", json_lines(figures, labels))
    number, is_new = RecordedRuns(settings.append_to).record(run)
    state = "recorded" if is_new else "was recorded before; its figures are those of now"
    name = commit_name(revision.commit, is_dirty=revision.is_dirty is True)
    stage.show(f"run {number} with {len(run.figures)} figures at {name}: {state}")


def look_back(stage: cli.StageRun) -> bool:
    """Say what the newest run did, and which commits changed a level; return whether it fails the given limit."""
    settings = stage.settings
    runs = RecordedRuns(settings.history).last_runs(settings.last, is_across_models=settings.across_models)
    stage.set_model(runs[-1].model_id, runs[-1].model_path, runs[-1].dimensions)
    values, trends = history_rows(runs, settings.fail_above or DEFAULT_MARGIN)
    name = str(settings.history)
    with stage.writing() as transaction:
        transaction.add_rows("run_history", values)
        transaction.add_rows("history_trends", trends)
        transaction.add_page("history_text", history_markdown(values, trends, name))
        transaction.add_page("history_page", history_page(values, trends, name))
    stage.show(history_report(values, trends, name))
    return bool(settings.fail_above and history_failures(values, trends, settings.fail_above))


def require_one_mode(settings: Any) -> None:
    """Check that one question is asked.

    Raises:
        CommandLineError: flags of several questions are given.
    """
    asked = [name for name in ("append_to", "history", "ab", "baseline", "candidate") if getattr(settings, name)]
    for name in ("append_to", "history"):
        if name in asked and len(asked) > 1:
            others = " and ".join(f"<{other}>" for other in asked if other != name)
            raise CommandLineError(f"<{name}>", f"does not go with {others}", "leave one of them out")
    if settings.commit and not settings.append_to:
        raise CommandLineError("<commit>", "is what a history records", "give <append_to> as well")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        require_one_mode(settings)
        if settings.append_to:
            record_run(stage)
            return 0
        if settings.history:
            return FOUND_REGRESSION if look_back(stage) else 0
        with stage.writing() as transaction:
            if settings.ab:
                with transaction.scratch() as folder:
                    parts, labels, name = compare_pair(stage, folder)
            else:
                parts, labels, name = compare_folders(stage)
            rows = [row for of_folder, _ in parts for row in of_folder]
            stage.note(*(text for _, texts in parts for text in texts))
            texts = "\n".join(comparison_markdown(*part, labels, name) for part in parts)
            transaction.add_rows("comparison", rows)
            transaction.add_page("comparison_text", texts)
            times_us = {labels.get(node, node): pair for node, pair in node_times_us(parts[0][0]).items()}
            stacks = differential_stacks(times_us, name)
            transaction.add_or_remove({"comparison_stacks": stacks} if stacks else {}, "comparison_stacks")
            transaction.add_page("comparison_page", comparison_page(parts, labels, name))
        stage.show("\n\n".join(comparison_report(*part, labels, name) for part in parts))
    return FOUND_REGRESSION if settings.fail_above and failures(rows, settings.fail_above) else 0


if __name__ == "__main__":
    cli.run(main)
