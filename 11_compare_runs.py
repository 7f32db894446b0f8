"""Compare a measurement with a baseline: what became slower or faster, and whether that is more than chance.

Reads   run_latency.csv and latency_summary.json of both folders; where they are, the other tables of 01,
        op_metrics.csv, op_edges.csv, node_map.csv, op_roofline.csv, host_ceilings.json, energy_summary.json
        and load_summary.json.
Writes  comparison.csv (a row per figure and per group of executed nodes), comparison.md for a pull request, and
        comparison.html; of the first folder compared comparison_stacks.folded, for a differential flame graph by
        flamegraph.pl. 06 draws the differences.

A difference is real if three things hold. A rank test on medians of blocks of runs says so, corrected for all nodes
(Holm). The bootstrap interval leaves 0 out. And the difference is above the noise floor: what a repeat on this machine
scatters anyway, judged by how far quarters of the runs lie apart. What is surely smaller than --fail-above is
unchanged; the rest is undecided, with the number of runs that would decide it. Where a host was busy or its times
moved, no time is judged. Several baselines (repeat --baseline) show what sessions scatter, too.

With --ab nothing is read: two models, or one under two settings, run in turn, and each run is compared with the one
beside it. So drift of the host cancels.

Nodes are compared where they compute the same source nodes, whatever the runtime fused, renamed or inserted. Models
that differ in names only are one model. Other models need --across-models.

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
"""

from __future__ import annotations

if __name__ == "__main__":
    from common import interrupts

    interrupts.end_at_once()  # first of all: the imports below take most of a second

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common import cli
from common.artifacts.folder import Folder, is_there
from common.artifacts.frames import records
from common.artifacts.provenance import Provenance
from common.comparison.alignment import Executed
from common.comparison.measured import MeasuredSide, changed_conditions
from common.comparison.rows import Question, comparison_rows
from common.errors import CommandLineError
from common.host_doubts import BUSY, instabilities
from common.names import quoted
from common.onnx_graph.naming import traced_bodies
from common.profiling.node_runs import node_runs
from common.timeline.flamegraph import differential_stacks
from common.view.comparison_html import comparison_page
from common.view.comparison_text import comparison_markdown, comparison_report
from common.view.node_labels import label_nodes

SCRIPT = "11_compare_runs.py"
FOUND_REGRESSION = 4  # exit code
DOCUMENTS = ("latency_summary", "host_ceilings", "energy_summary", "load_summary", "hardware_counters")
CONDITIONS = ("provider", "graph_optimization", "threads", "steady_state")
CEILINGS = ("peak_flop_per_s", "memory_bytes_per_s")
SETTINGS = ("runs", "duration", "warmup", "dim", "input", "seed")
DEFAULT_MARGIN = 0.05
Row = dict[str, Any]
Compared = tuple[
    list[tuple[list[Row], list[str]]], dict[str, str], str
]  # rows and what to read first; labels; baseline


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    folders: dict[str, Any] = {"type": cli.path, "action": "append", "default": [], "metavar": "FOLDER"}
    parser.setting(
        "--baseline", help="folder of the tables to compare with; repeatable: repeats of one measurement", **folders
    )
    parser.setting("--candidate", help="folder that is compared, instead of the one in --out; repeatable", **folders)
    parser.setting(
        "--across-models", action="store_true", default=False, help="compare different models, by operator type"
    )
    parser.setting(
        "--fail-above",
        type=cli.percentage,
        metavar="SHARE",
        help="exit with 4 above this slowdown, such as 5%; what is surely below is unchanged (else: above 5%)",
    )
    parser.setting(
        "--ab", nargs=2, metavar=("A.onnx", "B.onnx"), help="measure two models, or one twice, run by run in turn"
    )
    parser.setting(
        "--b-with",
        type=cli.assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of B alone: threads=1, optimization=basic, provider=cpu; repeatable",
    )
    parser.setting("--runs", type=cli.at_least(5), default=200, metavar="N", help="unprofiled runs of each model")
    parser.setting("--warmup", type=cli.positive_int, default=10, metavar="N", help="runs that are not counted")
    parser.setting(
        "--dim", type=cli.binding, action="append", default=[], metavar="NAME=N", help="size of a dynamic dimension"
    )
    parser.setting(
        "--input", type=cli.assignment, action="append", default=[], metavar="NAME=FILE", help="an input of both"
    )
    parser.setting("--seed", type=cli.non_negative_int, default=0, metavar="N", help="seed of the random inputs")
    parser.setting("--threads", type=cli.positive_int, metavar="N", help="intra-op threads (default: all)")
    parser.setting("--provider", default="cpu", metavar="NAME", help="execution provider")
    parser.setting("--optimization", default="all", metavar="LEVEL", help="graph optimization level")
    return parser


def opened(stage: cli.StageRun, path: Path) -> Folder:
    """Return a folder of tables; those in --out are what the stage itself reads."""
    if path.resolve() == stage.settings.out.resolve():
        return stage.tables
    return Folder(path, Provenance(SCRIPT, stage.record.command))


def measured(folder: Folder) -> MeasuredSide:
    """Return what a folder tells of one measurement."""
    documents = {name: folder.document(name) for name in DOCUMENTS if is_there(folder.path(name))}
    tables = {
        name: records(folder.table(name))
        for name in ("run_latency", "op_latency", "op_metrics", "op_edges", "node_map", "op_roofline", "host_samples")
        if name == "run_latency" or is_there(folder.path(name))
    }
    runs, summary = tables["run_latency"], documents.get("latency_summary", {})
    steady = summary.get("steady_start_index") or 0
    plain = [row["latency_us"] for row in runs if not row["is_profiled"] and not row["is_warmup"]]
    record = folder.provenance("run_latency")
    busy = [note.partition(";")[0] for note in record.notes if note.startswith(BUSY)]
    unsettled = instabilities(summary) if summary.get("p50_us") else ()
    return MeasuredSide(
        str(folder.root),
        record.model_id,
        record.dimensions,
        np.array(plain[steady:] if len(plain) - steady >= len(plain) // 4 else plain),
        times_of_nodes(folder, tables),
        executed(tables),
        {row["executed_node"]: row["op_type"] for row in tables.get("op_latency", ())},
        tables.get("op_metrics", ()),
        tables.get("op_edges", ()),
        documents,
        conditions(record, documents, tables.get("host_samples", ())),
        (*busy, *unsettled),
    )


def times_of_nodes(folder: Folder, tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Return the time of each node in each profiled run; none where the profile has no trace of ONNX Runtime."""
    needed = ("ort_trace", "executed_graph", "op_latency")
    if not all(is_there(folder.path(name)) for name in needed):
        return {}
    profiled = [row for row in tables["run_latency"] if row["is_profiled"]]
    clocks = [(1e-6 * row["start_us"], row["latency_us"]) for row in profiled]
    warmup = sum(row["is_warmup"] for row in profiled)
    corrections = {row["executed_node"]: row["correction_us"] or 0.0 for row in tables["op_latency"]}
    bodies = folder.foreign("executed_graph", traced_bodies)
    return folder.foreign("ort_trace", lambda file: node_runs(file, clocks, warmup, bodies, corrections))


def executed(tables: Mapping[str, Sequence[Row]]) -> Executed:
    """Return which source nodes each executed node computes; without node_map each node stands for itself."""
    sources: dict[str, list[str]] = {row["executed_node"]: [] for row in tables.get("op_latency", ())}
    if "node_map" not in tables:
        return Executed({name: [name] for name in sources})
    for row in tables["node_map"]:
        if row["executed_node"] in sources:
            sources[row["executed_node"]] += [row["source_node"]]
    return Executed(sources, {row["executed_node"]: row["layout_of"] for row in tables.get("op_roofline", ())})


def conditions(record: Provenance, documents: Mapping[str, Row], samples: Sequence[Row]) -> dict[str, Any]:
    """Return what a measurement depends on besides the model: host, clock, ceilings, settings and versions."""
    clocks = [row["value"] for row in samples if row["quantity"] == "cpu_frequency_mhz" and row["phase"] == "run"]
    summary, ceilings = documents.get("latency_summary", {}), documents.get("host_ceilings", {})
    return {
        **record.host,
        "clock_mhz": float(np.mean(clocks)) if clocks else None,
        **{name: summary.get(name) for name in CONDITIONS},
        **{name: ceilings[name] for name in CEILINGS if name in ceilings},
        **{name: str(record.settings[name]["value"]) for name in SETTINGS if name in record.settings},
        **{f"{name}_version": version for name, version in record.tools.items()},
        **{f"imported_{name}": str(value) for name, value in record.imported.items()},
    }


def differences(baseline: MeasuredSide, candidate: MeasuredSide) -> list[str]:
    """Return what differs besides the figures."""
    return [f"differs: {text}" for text in changed_conditions(baseline.conditions, candidate.conditions)]


def doubts(baselines: Sequence[MeasuredSide], candidate: MeasuredSide) -> list[str]:
    """Return why times decide nothing, by folder."""
    return [f"not judged: {side.name}: {doubt}" for side in (*baselines, candidate) for doubt in side.doubts]


def labels_of(side: MeasuredSide) -> dict[str, str]:
    """Return the labels of executed nodes."""
    kinds = {row["source_node"]: row["op_type"] for row in side.metrics}
    return label_nodes(
        {name: [(source, kinds.get(source, "")) for source in of] for name, of in side.executed.sources.items()}
    )


def times_by_label(rows: Sequence[Row], labels: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Return the time of each group of nodes on both sides."""
    return {
        labels.get(row["compared_subject"], row["compared_subject"]): (row["baseline_value"], row["candidate_value"])
        for row in rows
        if row["compared_kind"] == "node"
    }


def failures(rows: Sequence[Row], limit: float) -> list[Row]:
    """Return the regressions above the limit: of the whole, or of a node that adds as much to the latency."""
    return [
        row
        for row in rows
        if row["comparison_verdict"] == "regressed"
        and abs(row["latency_change_share" if row["compared_kind"] == "node" else "difference_share"] or 0.0) > limit
    ]


def session_settings(stage: cli.StageRun, overriding: Mapping[str, str]) -> Any:
    """Return the settings of a session; those of B may differ.

    Raises:
        CommandLineError: a setting is unknown, or does not take its value.
    """
    from common.runtime.provider_table import resolve_provider
    from common.runtime.session import OPTIMIZATIONS, SessionSettings
    from common.runtime.threads import usable_threads

    known = {name: stage.settings.values[name] for name in ("threads", "provider", "optimization")}
    if unknown := [name for name in overriding if name not in known]:
        raise CommandLineError("<b_with>", f"{quoted(unknown[0])} is no setting", f"it takes {', '.join(known)}")
    known |= overriding
    if known["optimization"] not in OPTIMIZATIONS:
        problem = f"{quoted(known['optimization'])} is no level"
        raise CommandLineError("<optimization>", problem, f"it takes {', '.join(OPTIMIZATIONS)}")
    try:
        threads = usable_threads(None if known["threads"] is None else int(known["threads"]))
    except ValueError:
        raise CommandLineError("<b_with>", f"threads={known['threads']} is no whole number", "give one") from None
    return SessionSettings(threads, resolve_provider(known["provider"]), known["optimization"])


def measured_pair(stage: cli.StageRun, folder: Path) -> list[MeasuredSide]:
    """Measure two models, or two settings of one, run by run in turn."""
    from common.onnx_graph.load import load_model
    from common.profiling.measurement import conclude
    from common.profiling.pairs import paired_node_runs, paired_runs
    from common.profiling.runs import Budget, prepare, take_turns
    from common.runtime.inputs import given_arrays, make_feeds

    settings = stage.settings
    files = {name: Path(file) for name, file in settings.input}
    options = [session_settings(stage, {}), session_settings(stage, dict(settings.b_with))]
    paths = [cli.model_path(text) for text in settings.ab]
    models, sessions = [], []
    for side, (path, chosen) in enumerate(zip(paths, options, strict=True)):
        bindings = cli.configured_bindings(settings, path)
        model = load_model(path, dict(settings.dim), bindings, values=given_arrays(files))
        (own := folder / "ab"[side]).mkdir()
        sessions.append(prepare(path, make_feeds(model.graph, files, settings.seed), chosen, own, named_content(path)))
        models.append(model)
    stage.set_model(models[1].model_id, paths[1].name, models[1].dimensions)
    runs = take_turns(sessions, Budget(settings.warmup, settings.runs), stage.progress_bar("pairs"))
    found = [conclude(one, of_one) for one, of_one in zip(sessions, runs, strict=True)]
    stage.note(*dict.fromkeys(one.failure for one in found if one.failure))
    graphs = [executed_pair(one, model) for one, model in zip(found, models, strict=True)]
    found = [one.renamed(bodies) for one, (_, bodies, _) in zip(found, graphs, strict=True)]
    latencies, nodes = paired_runs(*found), paired_node_runs(*found)
    return [
        MeasuredSide(
            f"{'AB'[side]} ({paths[side].name})",
            models[side].model_id,
            models[side].dimensions,
            latencies[side],
            nodes[side],
            graphs[side][0],
            graphs[side][2],
            conditions={name: getattr(options[side], name) for name in ("threads", "provider", "optimization")},
        )
        for side in range(2)
    ]


def named_content(path: Path) -> bytes | None:
    """Return the model with names for its nodes, where some have none."""
    from common.onnx_graph.naming import named_model

    named = named_model(path)
    return named.content if named else None


def executed_pair(measurement: Any, model: Any) -> tuple[Executed, Any, dict[str, str]]:
    """Return what a session executed, how nodes of its bodies are told apart, and the operator of each node."""
    from common.attribution.from_graphs import owners
    from common.onnx_graph.executed import load_executed_graph, without_weights
    from common.onnx_graph.naming import rename_saved

    folder = measurement.trace_file.parent
    traced = [(node.name, node.op_type) for node in measurement.trace.nodes.values()]
    content, bodies = rename_saved(without_weights(folder / "executed.onnx", traced))
    file = folder / "named.onnx"
    file.write_bytes(content)
    graph = load_executed_graph(file, model.dimensions)
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
    sides = [measured(folder) for folder in folders]
    baselines, candidates = sides[: len(settings.baseline)], sides[len(settings.baseline) :]
    question = Question(settings.fail_above or DEFAULT_MARGIN, is_across_models=settings.across_models)
    parts = [
        (comparison_rows(baselines, side, question), [*doubts(baselines, side), *differences(baselines[0], side)])
        for side in candidates
    ]
    stage.enter_reads(folders)
    return parts, labels_of(baselines[0]), ", ".join(side.name for side in baselines)


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
    return [(rows, differences(first, second))], labels_of(first), first.name


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
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
            stacks = differential_stacks(times_by_label(parts[0][0], labels), name)
            transaction.add_or_remove({"comparison_stacks": stacks} if stacks else {}, "comparison_stacks")
            transaction.add_page("comparison_page", comparison_page(parts, labels, name))
        stage.show("\n\n".join(comparison_report(*part, labels, name) for part in parts))
    return FOUND_REGRESSION if settings.fail_above and failures(rows, settings.fail_above) else 0


if __name__ == "__main__":
    cli.run(main)
