"""Load a service for an hour or more, part by part, and say whether its memory grows and whether it slows down.

Reads   the model file; with --images a folder of images.
Writes  endurance.csv (a row per part: rates and latency, memory of the process), endurance_summary.json (growth of
        memory per inference, levels of the time of a call, latency over all valid parts); load_requests.csv,
        load_batches.csv and load_summary.json of the last part, as 10_load_test.py writes them.

Between two parts the queue runs empty. 19 computes the figures of a part and then drops its records, except those of
the last part, so an hour needs no more memory than a minute.

EXAMPLE of input (a model) and output (endurance.csv), some columns:

    tiny-cnn.onnx: input float32 [batch,3,13,17]

    part_index,sent_count,completed_count,validity,request_p50_us,call_us,resident_bytes
    0,189,189,valid,497.184,220.612,134647808
    1,218,218,valid,530.362,220.141,136122368

    python 19_endurance_test.py --rate 20 --duration 1h
    python 19_endurance_test.py --rate 20 --duration 10m --part 30s --post http://127.0.0.1:8765
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence

from common import cli
from common.artifacts.transaction import Transaction
from common.cli import load_stage
from common.cli.flags import load_flags
from common.load.endurance.parts import load_by_parts
from common.load.generator.harness import Harness
from common.load.requests.demand import KINDS
from common.load.results.load_tables import load_tables
from common.load.service.concurrency import SHARING
from common.load.settings import LoadSettings, checked
from common.load.telemetry import telemetry_to
from common.measurements import meters
from common.runtime.inputs.images import NORMALIZATIONS
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import OPTIMIZATIONS
from common.view.load.load_text import endurance_report, load_report


def arguments() -> cli.Parser:
    parser = cli.Parser("19_endurance_test.py", __doc__ or "")
    parser.shared(*cli.MODEL)
    load_flags.schedule_flags(parser, KINDS, duration_s=3600.0)
    parser.setting("--part", type=cli.duration, default=60.0, metavar="T", help="length of one part")
    load_flags.user_flags(parser)
    load_flags.length_flags(parser)
    load_flags.payload_flags(parser, tuple(NORMALIZATIONS))
    load_flags.batching_flags(parser)
    load_flags.session_flags(parser, tuple(OPTIMIZATIONS), SHARING)
    load_flags.telemetry_flags(parser)
    return parser


def endure(stage: cli.StageRun, transaction: Transaction, harness: Harness) -> list[str]:
    """Load the service part by part, and write the tables; return which thresholds are broken."""
    transaction.reserve(load_stage.ROWS_RESERVED * harness.expected_count)
    with meters.link_meter(harness.shape.device) as link:
        endurance = load_by_parts(harness, stage.settings.part, meters.process_watch)
        setup = {**harness.figures, **link()}
    transaction.release()  # the disk may have filled meanwhile
    tables = load_tables(endurance.last, setup, meters.process_figures())
    transaction.add_rows("endurance", endurance.rows)
    transaction.add_document("endurance_summary", endurance.summary)
    transaction.mark_incomplete(endurance.lacks, "endurance", "endurance_summary")
    stage.note(*endurance.notes, *endurance.lacks, *tables.lacks)
    stage.show(endurance_report(endurance.summary))
    load_stage.add_load(transaction, tables)
    stage.show(load_report(tables.summary))
    return harness.thresholds.broken({"error_share": endurance.error_share})


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given = stage.settings
        settings = LoadSettings.of(checked(given.values, given.given))
        path = cli.model_path(given.model)
        model_load = settings.on(path, cli.configured_bindings(given.config, path))
        stage.set_model(model_load.model.bound.model_id, path.name, model_load.model.bound.dimensions)
        telemetry = telemetry_to(*load_stage.post_of(given), path.name, stage.note)
        with stage.writing() as transaction, limited_runs(given.run_timeout), telemetry as listener:
            harness = model_load.harness(listener)
            code = load_stage.exit_code(stage, endure(stage, transaction, harness))
    return code


if __name__ == "__main__":
    cli.run(main)
