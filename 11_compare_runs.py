"""Compare a measurement with a baseline: what became slower or faster, and whether that is more than chance.

Reads   run_latency.csv and latency_summary.json of both folders; where they are, the other tables of 01,
        op_metrics.csv, op_edges.csv, node_map.csv, op_roofline.csv, host_ceilings.json, energy_summary.json,
        offload_comparison.csv and load_summary.json.
Writes  comparison.csv (a row per figure and per group of executed nodes), comparison.md for a pull request, and
        comparison.html.

A difference is real if three things hold. A rank test on medians of blocks of runs says so, corrected for all nodes
(Holm). The bootstrap interval leaves 0 out. And the difference is above the noise floor: what a repeat on this machine
scatters anyway, judged by how far quarters of the runs lie apart. What is surely smaller than --fail-above is
unchanged; the rest is undecided, with the number of runs that would decide it. Where a host was busy or its times
moved, no time is judged. Several baselines (repeat --baseline) show what sessions scatter, too.

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
from common.onnx_graph.naming import traced_bodies
from common.profiling.node_runs import node_runs
from common.view.comparison_html import comparison_page
from common.view.comparison_text import comparison_markdown, comparison_report
from common.view.node_labels import label_nodes

SCRIPT = "11_compare_runs.py"
FOUND_REGRESSION = 4  # exit code
DOCUMENTS = ("latency_summary", "host_ceilings", "energy_summary", "load_summary", "hardware_counters")
CONDITIONS = ("provider", "graph_optimization", "threads", "steady_state")
CEILINGS = ("peak_flop_per_s", "memory_bytes_per_s")
SETTINGS = ("runs", "duration", "warmup", "dim", "input", "seed")
Row = dict[str, Any]


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


def failures(rows: Sequence[Row], limit: float) -> list[Row]:
    """Return the regressions above the limit: of the whole, or of a node that adds as much to the latency."""
    return [
        row
        for row in rows
        if row["comparison_verdict"] == "regressed"
        and abs(row["latency_change_share" if row["compared_kind"] == "node" else "difference_share"] or 0.0) > limit
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        if not settings.baseline:
            raise CommandLineError("<baseline>", "is missing", "give the folder of an earlier measurement")
        folders = [opened(stage, path) for path in (*settings.baseline, *(settings.candidate or [settings.out]))]
        sides = [measured(folder) for folder in folders]
        baselines, candidates = sides[: len(settings.baseline)], sides[len(settings.baseline) :]
        limit = settings.fail_above or 0.05
        question = Question(limit, is_across_models=settings.across_models)
        parts = [
            (comparison_rows(baselines, side, question), [*doubts(baselines, side), *differences(baselines[0], side)])
            for side in candidates
        ]
        labels, name = labels_of(baselines[0]), ", ".join(side.name for side in baselines)
        stage.enter_reads(folders)
        stage.note(*(text for _, texts in parts for text in texts))
        rows = [row for of_folder, _ in parts for row in of_folder]
        with stage.writing() as transaction:
            transaction.add_rows("comparison", rows)
            transaction.add_page(
                "comparison_text", "\n".join(comparison_markdown(*part, labels, name) for part in parts)
            )
            transaction.add_page("comparison_page", comparison_page(parts, labels, name))
        stage.show("\n\n".join(comparison_report(*part, labels, name) for part in parts))
    return FOUND_REGRESSION if settings.fail_above and failures(rows, limit) else 0


if __name__ == "__main__":
    cli.run(main)
