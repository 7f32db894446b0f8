"""Profile a model on Qualcomm's NPU (the HTP, or its emulator), or read a profile, and name the source of every figure.

Reads   nothing from out/: a model to profile with QNN, or the files that QNN wrote elsewhere.
Writes  npu_summary.json, npu_nodes.csv (a row per node of the profile), npu_runs.csv (a row per run); of a model also
        what QNN wrote: qnn_profile.csv, qnn_schematic.bin, qnn_op_trace.json.

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

    python 09_trace_report.py --model resnet50-fp32.onnx --out out/npu      # `make npu` sets up what this needs
    python 09_trace_report.py --qnn-csv device.csv --schematic graph_schematic.bin --qhas qhas.json
"""

from __future__ import annotations

if __name__ == "__main__":
    from common import interrupts

    interrupts.end_at_once()  # first of all: the imports below take most of a second

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import cli
from common.artifacts.frames import records
from common.errors import CommandLineError
from common.npu.figures import as_document, sections
from common.npu.nodes import node_row
from common.npu.qnn_csv import run_rows
from common.npu.sources import read_sources
from common.onnx_graph.load import load_model
from common.runtime.inputs import given_arrays, make_feeds
from common.runtime.qnn import LEVELS, PERFORMANCE_MODES, QnnSettings, record
from common.view.npu_text import npu_report

SCRIPT = "09_trace_report.py"


MEASURING = ("model", "dim", "input", "runs", "soc", "level", "performance", "seed")
GIVEN = ("qnn_csv", "schematic", "qhas", "op_trace")


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    file: dict[str, Any] = {"type": cli.path, "metavar": "FILE"}
    parser.model_settings()
    parser.setting("--runs", type=cli.positive_int, default=3, metavar="N", help="inferences to profile")
    parser.setting("--soc", type=cli.positive_int, default=57, metavar="N", help="Qualcomm's number of the chip model")
    parser.setting("--level", choices=LEVELS, default="optrace", help="profiling level; optrace tells of traffic")
    parser.setting("--performance", choices=PERFORMANCE_MODES, default="default", help="clocks of a device")
    parser.setting("--seed", type=cli.non_negative_int, default=0, metavar="N", help="seed of the random inputs")
    parser.setting("--qnn-csv", help="instead of a model: profile that QNN wrote as CSV", **file)
    parser.setting("--schematic", help="the compiler's schematic of the same session (*_schematic.bin)", **file)
    parser.setting("--qhas", help="QNN HTP analysis summary of qnn-profile-viewer, as JSON", **file)
    parser.setting("--op-trace", help="qnn_op_trace.json of the same session: which nodes QNN fused", **file)
    return parser


def recorded_files(stage: cli.StageRun, folder: Path) -> tuple[dict[str, Path | None], list[dict[str, Any]]]:
    """Profile the model with QNN; return the files that QNN wrote, and how far the results are from the CPU's."""
    settings = stage.settings
    path, files = cli.model_path(settings.model), {name: Path(file) for name, file in settings.input}
    bindings, values = cli.configured_bindings(settings, path), given_arrays(files)
    model = load_model(path, dict(settings.dim), bindings, values=values)
    stage.set_model(model.model_id, path.name, model.dimensions)
    feeds = make_feeds(model.graph, files, settings.seed)
    options = QnnSettings(settings.runs, settings.soc, settings.level, settings.performance)
    recording = record(path, feeds, model.dimensions, options, folder)
    paths = {"qnn_csv": recording.profile, "schematic": recording.schematic, "op_trace": recording.op_trace}
    return paths, [asdict(error) for error in recording.errors]


def given_files(stage: cli.StageRun) -> dict[str, Path | None]:
    """Return the files that are given on the command line.

    Raises:
        CommandLineError: there is neither a profile nor a model, or there are both.
    """
    values, origins = stage.settings.values, stage.settings.origins
    if values["qnn_csv"] is None:
        raise CommandLineError("<qnn_csv>", "is missing", "give the profile that QNN wrote as CSV, or <model>")
    if origins["model"] == "flag":
        raise CommandLineError("<model>", "does not go with <qnn_csv>: nothing is run", "leave one of them out")
    files: dict[str, Path | None] = {name: values[name] for name in GIVEN}
    stage.set_imported({name: file.name for name, file in files.items() if file}, MEASURING)
    return files


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        is_recorded = settings.qnn_csv is None and settings.origins["model"] != "default"
        with stage.writing() as transaction, transaction.scratch() as folder:
            files, errors = recorded_files(stage, folder) if is_recorded else (given_files(stage), [])
            sources = read_sources(*(files.get(name) or settings.values[name] for name in GIVEN))
            nodes, is_emulated = sources.nodes(), sources.profile.is_emulated
            rows = transaction.add_rows("npu_nodes", (node_row(node, is_emulated=is_emulated) for node in nodes))
            transaction.add_rows("npu_runs", run_rows(sources.profile))
            document = as_document(sections(sources, nodes), **sources.facts(), precision=errors)
            text = stage.plain(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
            transaction.add_text("npu_summary", text + "\n")
            for name, key in (("qnn_profile", "qnn_csv"), ("qnn_schematic", "schematic"), ("qnn_op_trace", "op_trace")):
                if is_recorded and (file := files[key]):
                    transaction.add_copy(name, file)
        stage.show(npu_report(json.loads(text), records(rows)))
    return 0


if __name__ == "__main__":
    cli.run(main)
