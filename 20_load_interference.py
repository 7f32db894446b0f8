"""Load two models alone and together on this host, and say how much they slow each other down.

Reads   both model files; with --images a folder of images for the first model.
Writes  load_interference.csv (a row per model, alone and together); load_requests.csv, load_batches.csv and
        load_summary.json of the last load of the first model together with the other.

The three loads take turns in eight rounds. A service gets the same arrivals alone and together.

EXAMPLE of input (two models) and output (load_interference.csv), some columns:

    tiny-cnn.onnx, tiny-mlp.onnx

    model_role,load_state,served_model,sent_count,answered_requests_per_s,answered_rate_factor
    main,alone,tiny-cnn.onnx,321,40.6564,
    main,together,tiny-cnn.onnx,321,40.6561,0.999995

    python 20_load_interference.py --with bert.onnx --rate 5 --duration 60s
    python 20_load_interference.py --with bert.onnx --with-dim seq=128 --with-rate 2
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
from common.load.generator.harness import Harness
from common.load.interference import broken_by, interference_figures, load_alone_and_together
from common.load.requests.demand import KINDS
from common.load.results.load_tables import load_tables
from common.load.service.concurrency import SHARING
from common.load.settings import LoadSettings, checked
from common.load.telemetry import telemetry_to
from common.measurements import meters
from common.messages.errors import CommandLineError
from common.runtime.inputs.images import NORMALIZATIONS
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import OPTIMIZATIONS
from common.view.load.load_text import interference_report, load_report


def arguments() -> cli.Parser:
    parser = cli.Parser("20_load_interference.py", __doc__ or "")
    parser.shared(*cli.MODEL)
    parser.setting("--with-model", "--with", metavar="FILE", help="the other model")
    text = "size of a dynamic dimension of the other model; repeatable"
    parser.setting("--with-dim", type=cli.binding, action="append", default=[], metavar="NAME=N", help=text)
    text = "requests per second to the other model (default: as --rate)"
    parser.setting("--with-rate", type=cli.positive_float, metavar="HZ", help=text)
    load_flags.schedule_flags(parser, KINDS)
    load_flags.payload_flags(parser, tuple(NORMALIZATIONS))
    load_flags.batching_flags(parser)
    load_flags.session_flags(parser, tuple(OPTIMIZATIONS), SHARING)
    load_flags.telemetry_flags(parser)
    return parser


def interfere(stage: cli.StageRun, transaction: Transaction, harness: Harness, other: Harness) -> list[str]:
    """Load both services alone and together, and write the tables; return which thresholds are broken."""
    transaction.reserve(load_stage.ROWS_RESERVED * harness.expected_count)
    with meters.link_meter(harness.shape.device) as link:
        interference = load_alone_and_together(harness, other)
        setup = {**harness.figures, **link(), "interference": interference_figures(interference.rows)}
    transaction.release()  # the disk may have filled meanwhile
    tables = load_tables(interference.last, setup, meters.process_figures())
    transaction.add_rows("load_interference", interference.rows)
    transaction.mark_incomplete(interference.lacks, "load_interference")
    stage.note(*interference.lacks, *tables.lacks)
    stage.show(stage.plain(interference_report(interference.rows)))
    load_stage.add_load(transaction, tables)
    stage.show(load_report(tables.summary))
    return broken_by(interference.rows, harness.thresholds)


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given = stage.settings
        if given.with_model is None:
            raise CommandLineError("--with", "names no model", "give FILE")
        settings = LoadSettings.of(checked(given.values, given.given))
        path = cli.model_path(given.model)
        model_load = settings.on(path, cli.configured_bindings(given.config, path))
        path_of_other = cli.model_path(given.with_model, "--with")
        configured = cli.configured_bindings(given.config, path_of_other)
        other = settings.beside(path_of_other, dict(given.with_dim), configured, given.with_rate)
        stage.set_model(model_load.model.bound.model_id, path.name, model_load.model.bound.dimensions)
        telemetry = telemetry_to(*load_stage.post_of(given), path.name, stage.note)
        with stage.writing() as transaction, limited_runs(given.run_timeout), telemetry as listener:
            harness = model_load.harness(listener)
            code = load_stage.exit_code(stage, interfere(stage, transaction, harness, other.harness()))
    return code


if __name__ == "__main__":
    cli.run(main)
