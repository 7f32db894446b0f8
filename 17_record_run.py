"""Add the figures of a measurement to a history, with the commit that was measured, and export them as metrics.

Reads   what 11_compare_runs.py reads of one folder: the tables of 01, and those of later stages if they exist.
Writes  metrics.prom (OpenMetrics) and metric_lines.jsonl (JSON Lines), and adds a record to --append-to FILE.

The commit is that of the working tree around the current folder. A measurement that is recorded again updates its
record. 16_run_history.py compares the records.

EXAMPLE of output (metrics.prom, some lines):

    # TYPE onnx_p50_seconds gauge
    onnx_p50_seconds{model="resnet50-fp32.onnx",table="latency_summary",source="measured"} 0.0219
    # EOF

    python 17_record_run.py --append-to runs.sqlite                       # what `make record` does
    python 17_record_run.py --append-to runs.sqlite --commit "$CI_COMMIT_SHA"
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence
from pathlib import Path

from common import cli
from common.artifacts.folder import Folder
from common.artifacts.generated.metrics import EXPORTED, exported_columns
from common.cli.flags.comparison_flags import record_flags
from common.comparison.recorded import read_side
from common.history.export import ExportedFigure, json_lines, openmetrics
from common.history.record import Revision, record_of, revision_of
from common.history.store import RecordFile
from common.messages.errors import CommandLineError, UpstreamError
from common.onnx_graph.reading.naming import traced_bodies
from common.profiling.trace.timeline import recorded_node_runs
from common.view.comparison.history_tables import commit_name


def arguments() -> cli.Parser:
    parser = cli.Parser("17_record_run.py", __doc__ or "")
    record_flags(parser)
    return parser


def exported_figures(folder: Folder) -> list[ExportedFigure]:
    figures = []
    for name in (name for name in EXPORTED if folder.has(name)):
        try:
            document = folder.document_by_name(name)
        except UpstreamError:
            continue  # a note says so
        for column in exported_columns(name):
            if (value := document.get(column.name)) is not None:
                source = EXPORTED[name] or str(document["energy_source"])
                figures.append(ExportedFigure(name, column.name, column.description, source, float(value)))
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        settings, folder = stage.settings, stage.tables
        if not settings.append_to:
            raise CommandLineError("<append_to>", "is missing", "give the file of the history, which may be new")
        side, notes = read_side(folder, recorded_node_runs(folder, traced_bodies))
        stage.note(*notes)
        figures, origin = exported_figures(folder), folder.provenance("run_latency")
        revision = Revision(settings.commit) if settings.commit else revision_of(Path.cwd())
        digests = [folder.provenance(name).sha256 for name in ("run_latency", "op_latency") if folder.has(name)]
        record = record_of(side, revision, digests, origin.model_path)
        labels = {"model": Path(origin.model_path).name}
        stage.end_of_checks()
        with RecordFile(settings.append_to).entering(record) as entry, stage.writing() as transaction:
            transaction.add_text("metrics", openmetrics(figures, labels))
            transaction.add_text("metric_lines", json_lines(figures, labels))
            transaction.commit_elsewhere = entry.commit
        state = "recorded" if entry.is_new else "was recorded before; its figures are those of now"
        name = commit_name(revision.commit, is_dirty=revision.is_dirty is True)
        stage.show(f"record {entry.number} with {len(record.figures)} figures at {name}: {state}")
    return 0


if __name__ == "__main__":
    cli.run(main)
