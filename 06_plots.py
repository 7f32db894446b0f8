"""Draw the pictures of the tables in a folder, and write the report and the summary, which open with the answer.

Reads   all tables that are present, and their sidecars; notes name the tables of `make run` that are absent.
Writes  plots/*.svg and plots/*.png, report.html (self-contained), summary.txt.

A picture is drawn if the tables that it needs are present. A stale table, or a table of another model, is drawn with a
note; a corrupt one is left out with a note. A node has the same number and label in every picture; the label names the
operator that does most of its work, as in layer4.1/conv2.

EXAMPLE of input (op_roofline.csv, some columns) and output (summary.txt):

    executed_node,op_type,node_latency_us,latency_share,roof_share,bound
    /relu/Relu_output_0_nchwc,Conv,4211.0,0.0587,0.234,compute

    Offload 53 Conv to a U280 in int8: 5.9x faster, 90 % within 2.5 to 8.3, pays with probability over 0.99

    WHAT MATTERS
      operator        time   share      attained  of roof  bound
      Conv x53     68.4 ms  95.3 %   118 GFLOP/s     52 %  compute

    python 06_plots.py                                 # the tables in out/
    python 06_plots.py --out out/vit --ceilings out/host_ceilings.json
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from common import cli
from common.artifacts import provenance
from common.artifacts.catalogue import ARTIFACTS, PICTURES
from common.artifacts.folder import Folder, absence_notes, is_there
from common.artifacts.stages import STAGES, WRITER
from common.messages.errors import UpstreamError
from common.table_rows import Documents, Tables
from common.view.findings import Findings, StageRecord
from common.view.report.gallery import draw_all
from common.view.report.page import report_html
from common.view.report.summary_text import closing_summary
from common.view.style import render

SCRIPT = "06_plots.py"
FIRST = "01_profile_onnx.py"


def arguments() -> cli.Parser:
    parser = cli.Parser(SCRIPT, __doc__ or "")
    parser.shared("--ceilings")
    return parser


def ceilings_path(settings: cli.Settings) -> Path:
    """Return the path of the ceilings, which need not exist unless they are given."""
    if settings.ceilings and not is_there(settings.ceilings):
        remedy = f"run {WRITER['host_ceilings']} first, or leave --ceilings out"
        raise UpstreamError(settings.ceilings, "not found", remedy)
    return cli.ceilings_path(settings)


def gather(folder: Folder, ceilings: Path) -> Findings:
    """Read the tables that are present; UpstreamError if there are none."""
    tables: dict[str, Any] = {}
    documents: dict[str, Any] = {}
    absent: list[str] = []
    refused: dict[str, str] = {}
    for name in STAGES[SCRIPT].reads:
        path = ceilings if name == "host_ceilings" else folder.path(name)
        if not is_there(path):
            absent.append(name)
            continue
        try:
            if ARTIFACTS[name].form == "table":
                tables[name] = folder.rows_by_name(name, path)
            else:
                documents[name] = folder.document_by_name(name, path)
        except UpstreamError as error:
            refused[name] = f"left out: {error}"
    # The ceilings may be of another folder, and are no table of this one.
    if not tables and documents.keys() | refused.keys() <= {"host_ceilings"} and not folder.record.notes:
        raise UpstreamError(folder.root, "no tables to draw", f"run {FIRST} first")
    notes = dict.fromkeys([*folder.record.notes, *refused.values(), *absence_notes(absent)])
    records = tuple(stage_records(folder, ceilings))
    return Findings(cast("Tables", tables), cast("Documents", documents), records, tuple(notes))


def stage_records(folder: Folder, ceilings: Path) -> list[StageRecord]:
    """Return a record of each stage, in the order of the stages, from the first sidecar that it wrote."""
    records = []
    for stage in STAGES.values():
        paths = (ceilings if name == "host_ceilings" else folder.path(name) for name in stage.writes)
        path = next((path for path in paths if is_there(provenance.sidecar(path))), None)
        if path is None or stage.script == SCRIPT:
            continue
        try:
            sidecar = provenance.load(path, f"run {stage.script}")
        except UpstreamError:
            continue  # a note on its tables says so
        if sidecar.stage != stage.script and sidecar.stage in STAGES:
            continue  # another stage wrote its tables
        kept = sidecar.command, sidecar.model_id, sidecar.model_path, sidecar.host, sidecar.tools, sidecar.settings
        records.append(StageRecord(stage.script, stage.writes, *kept, tuple(sidecar.notes)))
    return records


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv, lenient=True) as stage:
        findings = gather(stage.tables, ceilings_path(stage.settings))
        stage.note(*findings.notes)
        marks = findings.marks()
        pictures = {name: render(figure, marks) for name, figure in draw_all(findings, stage.plain).items()}
        summary = closing_summary(findings, stage.plain)
        with stage.writing() as transaction:
            for name in PICTURES:
                transaction.add_picture(f"{name}_plot", pictures.get(name, {}))
            vectors = {name: drawn[".svg"] for name, drawn in pictures.items()}
            transaction.add_text("report", report_html(findings, summary, vectors, PICTURES, stage.plain))
            transaction.add_text("summary", summary + "\n")
        stage.show(summary)
    return 0


if __name__ == "__main__":
    cli.run(main)
