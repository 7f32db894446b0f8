"""Summarize the profile of an NPU (Qualcomm's HTP) from the files that QNN wrote, each figure with its source.

Reads   nothing from out/: a profile as CSV, and where given the compiler's schematic, a QHAS summary and an op trace.
Writes  npu_summary.json, npu_nodes.csv (a row per node of the profile), npu_runs.csv (a row per run).

A profile of the emulator has no valid times. Its runs and cycles stand in the tables with is_emulated, and no speed,
share or order follows from them. Traffic, use of VTCM, operator counts and what was fused into what are valid there
too: the compiler decided them. What no file tells is null in the summary, with the reason.

EXAMPLE of input (profile.csv, its last column is optional) and output (npu_nodes.csv), some columns:

    Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier,ONNX Source Ops
    0,NODE,0,CYCLES,BACKEND,SUB-EVENT,conv1:OpId_23 (cycles),conv1
    0,NODE,107305,CYCLES,BACKEND,SUB-EVENT,relu1:OpId_26 (cycles),relu1

    npu_op_id,npu_node,source_nodes,fused_into,hmx_op_count,dram_read_bytes,is_emulated
    23,conv1,"[""conv1""]","[""relu1""]",0,0,True
    26,relu1,"[""relu1""]",[],4,8192,True

    python 09_trace_report.py --qnn-csv device.csv --schematic graph_schematic.bin --qhas qhas.json
"""

from __future__ import annotations

if __name__ == "__main__":
    from common import interrupts

    interrupts.end_at_once()  # first of all: the imports below take most of a second

import json
from collections.abc import Sequence
from typing import Any

from common import cli
from common.artifacts.frames import records
from common.errors import CommandLineError
from common.npu.figures import as_document, execution_summary, resource_utilization
from common.npu.nodes import node_row, npu_nodes, require_one_graph
from common.npu.op_trace import read_op_trace
from common.npu.qhas import read_qhas
from common.npu.qnn_csv import QnnProfile, read_qnn_csv, run_row
from common.npu.schematic import read_schematic
from common.view.npu_text import npu_report

SCRIPT = "09_trace_report.py"


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    file: dict[str, Any] = {"type": cli.path, "metavar": "FILE"}
    parser.setting("--qnn-csv", help="profile that QNN wrote as CSV, on a device or the emulator", **file)
    parser.setting("--schematic", help="the compiler's schematic of the same session (*_schematic.bin)", **file)
    parser.setting("--qhas", help="QNN HTP analysis summary of qnn-profile-viewer, as JSON", **file)
    parser.setting("--op-trace", help="qnn_op_trace.json of the same session: which nodes QNN fused", **file)
    return parser


def facts(profile: QnnProfile, socs: Sequence[int]) -> dict[str, Any]:
    """Return what the summary says of the profile besides its figures."""
    return {"is_emulated": profile.is_emulated, "run_count": len(profile.runs), "soc_models": list(socs)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        if settings.qnn_csv is None:
            raise CommandLineError("<qnn_csv>", "is missing", "give the profile that QNN wrote as CSV")
        profile = read_qnn_csv(settings.qnn_csv)
        schematic = read_schematic(settings.schematic) if settings.schematic else None
        if schematic:
            require_one_graph(profile, schematic, settings.schematic)
        qhas = read_qhas(settings.qhas) if settings.qhas else None
        trace = read_op_trace(settings.op_trace) if settings.op_trace else None
        nodes = npu_nodes(profile, schematic, trace)
        document = as_document(
            {
                "execution_summary": execution_summary(profile),
                "resource_utilization": resource_utilization(profile, nodes, schematic, qhas),
            },
            **facts(profile, trace.soc_models if trace else ()),
        )
        given = {name: settings.values[name] for name in ("qnn_csv", "schematic", "qhas", "op_trace")}
        stage.set_imported({name: file.name for name, file in given.items() if file}, ())
        with stage.writing() as transaction:
            rows = transaction.add_rows(
                "npu_nodes", (node_row(node, is_emulated=profile.is_emulated) for node in nodes)
            )
            transaction.add_rows("npu_runs", (run_row(profile, index) for index in range(len(profile.runs))))
            text = stage.plain(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
            transaction.add_text("npu_summary", text + "\n")
        stage.show(npu_report(json.loads(text), records(rows)))
    return 0


if __name__ == "__main__":
    cli.run(main)
