"""Profile a model on Qualcomm's NPU or on its emulator, or read the files that QNN wrote about such a profile.

Reads   the model file; with --qnn-csv the files of QNN that are given. Nothing is read from --out.
Writes  npu_summary.json and npu_summary.html, npu_nodes.csv (a row per node of the profile), npu_runs.csv (a row per
        run), npu_bottlenecks.csv (a row per finding); of several chips (--soc 57,69) npu_chips.csv and
        npu_chip_nodes.csv; of a device npu_trace.json (for Perfetto); of a model also the files that QNN wrote:
        qnn_profile.csv, qnn_schematic.bin, qnn_op_trace.json.

A profile of the emulator has no valid times. Its runs and cycles are in the tables, marked is_emulated, and give no
speed, share or order. Its traffic, use of VTCM, operator counts, fusions and differences from the CPU's results are
valid. A figure that no file states is null in the summary, with the reason.

EXAMPLE of input (profile.csv, its last column is optional) and output (npu_nodes.csv), some columns:

    Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier,ONNX Source Ops
    0,NODE,0,CYCLES,BACKEND,SUB-EVENT,conv1:OpId_23 (cycles),conv1
    0,NODE,107305,CYCLES,BACKEND,SUB-EVENT,relu1:OpId_26 (cycles),relu1

    npu_op_id,npu_node,source_nodes,fused_into,hmx_op_count,dram_read_bytes,is_emulated
    23,conv1,"[""conv1""]","[""relu1""]",0,0,True
    26,relu1,"[""relu1""]",[],4,8192,True

    python 13_npu_profile.py --model resnet50-fp32.onnx --out out/npu    # `make npu` sets up what this needs
    python 13_npu_profile.py --qnn-csv device.csv --schematic graph_schematic.bin --qhas qhas.json
    python 13_npu_profile.py --qnn-csv device.csv --baseline out/npu     # what changed since an earlier summary
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from common import cli
from common.artifacts.columns import COLUMNS
from common.artifacts.transaction import Transaction
from common.bottlenecks.judge import bottleneck_rows
from common.bottlenecks.rules import read_rules
from common.bottlenecks.subjects import measured
from common.cli.flags.profile_flags import qnn_file_flags
from common.files.configuration import Section
from common.messages.errors import CommandLineError
from common.npu.nodes import FILES
from common.npu.report import NpuReport, ResultError, Session, read_baseline, report_of
from common.onnx_graph.load import load_model
from common.runtime.inputs.given import given_arrays, make_feeds
from common.runtime.qnn import LEVELS, PERFORMANCE_MODES, QnnSettings, level_gap, record, require_onnx
from common.timeline.chrome_trace import ChromeTrace, trace_json
from common.timeline.npu_trace import npu_process
from common.view.trace.bottleneck_tables import bottleneck_report
from common.view.trace.npu_tables import npu_page, npu_report

MEASURING = ("model", "dim", "input", "runs", "soc", "level", "performance", "run_timeout", "seed")
RECORDED = {"qnn_csv": "qnn_profile", "schematic": "qnn_schematic", "op_trace": "qnn_op_trace"}
OF_SOME_SESSIONS = ("npu_trace", "npu_operators", "npu_chips", "npu_chip_nodes", *RECORDED.values())


def arguments() -> cli.Parser:
    parser = cli.Parser("13_npu_profile.py", __doc__ or "")
    parser.shared(*cli.MODEL)
    parser.setting("--runs", type=cli.positive_int, default=3, metavar="N", help="inferences on the NPU")
    parser.shared("--rules")
    text = "chips to compare, by Qualcomm's numbers"
    parser.setting("--soc", type=cli.positive_ints, default=[57], metavar="N,…", help=text)
    parser.setting("--level", choices=[*LEVELS], default="optrace", help="profiling level; only optrace has traffic")
    text = f"clocks of a device: {', '.join(PERFORMANCE_MODES)}"
    parser.setting("--performance", choices=PERFORMANCE_MODES, default="default", metavar="MODE", help=text)
    parser.shared("--run-timeout", help="end a compilation or a run that takes longer, with an error")
    parser.shared("--seed")
    qnn_file_flags(parser)
    text = "folder of an earlier npu_summary.json: print what changed"
    parser.setting("--baseline", type=cli.path, metavar="DIR", help=text)
    return parser


def recorded_sessions(stage: cli.StageRun, folder: Path) -> tuple[list[Session], dict[str, object]]:
    """Profile the model with QNN, once for each chip; return the files that QNN wrote, and facts on the recording."""
    settings = stage.settings
    given = cli.given_model(settings)
    require_onnx(path := given.path)
    model = load_model(path, given.sizes, given.configured, values=given_arrays(given.files))
    stage.set_model(model.model_id, path.name, model.dimensions)
    feeds, gap = make_feeds(model.graph, given.files, settings.seed), level_gap(settings.level)
    stage.note(*filter(None, [gap]))
    sessions = []
    for soc in settings.soc:
        (of_chip := folder / str(soc)).mkdir()
        options = QnnSettings(settings.runs, soc, settings.level, settings.performance, settings.run_timeout)
        recording = record(path, feeds, model.dimensions, options, of_chip)
        written = {"qnn_csv": recording.profile, "schematic": recording.schematic, "op_trace": recording.op_trace}
        errors = cast(list[ResultError], recording.errors)
        sessions.append(Session(with_given(stage, written), errors, soc, recording.no_errors))
    level = {"asked": settings.level, "recorded": LEVELS[settings.level], "unavailable": gap}
    return sessions, {"model": path.name, "profiling_level": level}


def with_given(stage: cli.StageRun, written: Mapping[str, Path | None]) -> dict[str, Path | None]:
    """Add files of the command line to those that a session wrote, as the schematic of a model compiled before."""
    return {name: written.get(name) or stage.settings.values[name] for name in FILES}


def given_session(stage: cli.StageRun) -> tuple[list[Session], dict[str, object]]:
    """Return the files that are given on the command line, which must not name a model as well."""
    if stage.settings.origins["model"] == "flag":
        raise CommandLineError("<model>", "does not go with <qnn_csv>: nothing is run", "leave one of them out")
    files = with_given(stage, {})
    stage.set_imported({name: file.name for name, file in files.items() if file}, MEASURING)
    return [Session(files)], {"model": None, "profiling_level": None}


def add_report(transaction: Transaction, report: NpuReport, document: dict[str, object], model: object) -> None:
    """Stage the summary and the tables, for a device also a trace."""
    transaction.add_text("npu_summary", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    transaction.add_page("npu_page", npu_page(document, report.tables))
    if process := npu_process(report.tables):
        transaction.add_text("npu_trace", trace_json(ChromeTrace([process]), {"model": model}))
    transaction.add_tables(report.tables)


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        is_recorded = settings.qnn_csv is None and settings.origins["model"] != "default"
        before = read_baseline(settings.baseline) if settings.baseline else None
        rules = read_rules(Section.of_file(settings.rules), COLUMNS)
        with stage.writing() as transaction, transaction.scratch() as folder:
            sessions, facts = recorded_sessions(stage, folder) if is_recorded else given_session(stage)
            report = report_of(sessions, settings.graph, facts, before, is_partial=settings.accept_partial)
            document = json.loads(stage.plain(json.dumps(report.document, ensure_ascii=False, allow_nan=False)))
            bottlenecks = bottleneck_rows(rules, measured(report.tables, npu_summary=document))
            transaction.add_rows("npu_bottlenecks", bottlenecks)
            add_report(transaction, report, document, facts["model"])
            for key, name in RECORDED.items():
                if is_recorded and (file := sessions[0].files[key]) and file.is_relative_to(folder):
                    transaction.add_copy(name, file)
            transaction.remove_others(OF_SOME_SESSIONS)
        advice = bottleneck_report(bottlenecks, file="npu_bottlenecks.csv")
        stage.show(f"{npu_report(document, report.tables)}\n\n{advice}")
    return 0


if __name__ == "__main__":
    cli.run(main)
