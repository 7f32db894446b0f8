"""Let MLPerf LoadGen send the requests of one of its scenarios to a service, and judge it by LoadGen's rules.

Reads   the model file; with --images a folder of images.
Writes  loadgen_summary.txt (LoadGen's own summary, as it wrote it); load_requests.csv, load_batches.csv and
        load_summary.json of the same load. The last one has LoadGen's results, too.

EXAMPLE of input (a model) and output (load_summary.json), some fields:

    tiny-cnn.onnx: input float32 [batch,3,13,17]

    {"arrivals": "LoadGen server", "sent_count": 190, "answered_requests_per_s": 37.544,
     "loadgen_results": {"result_validity": "INVALID", "result_99.00_percentile_latency_ns": 3478958, ...}, ...}

    python 21_loadgen_scenario.py --scenario server --rate 40 --p99-bound 500ms
    python 21_loadgen_scenario.py --scenario offline --batch-max 8
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
from common.load.generator.loadgen import SCENARIOS, SUMMARY, load_by_scenario, require_loadgen
from common.load.results.load_tables import load_tables
from common.load.service.concurrency import SHARING
from common.load.settings import LoadSettings, checked
from common.load.telemetry import telemetry_to
from common.measurements import meters
from common.runtime.inputs.images import NORMALIZATIONS
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import OPTIMIZATIONS
from common.table_rows import LoadSummaryDocument
from common.view.load.load_text import load_report


def arguments() -> cli.Parser:
    parser = cli.Parser("21_loadgen_scenario.py", __doc__ or "")
    parser.shared(*cli.MODEL)
    parser.setting("--scenario", choices=tuple(SCENARIOS), default="server", help="scenario of MLPerf LoadGen")
    text = "server: requests per second, mean"
    parser.setting("--rate", type=cli.positive_float, default=10.0, metavar="HZ", help=text)
    text = "server: highest 99th percentile of the latency"
    parser.setting("--p99-bound", type=cli.duration, default=0.05, metavar="T", help=text)
    load_flags.duration_flags(parser)
    load_flags.payload_flags(parser, tuple(NORMALIZATIONS))
    load_flags.batching_flags(parser)
    load_flags.goodput_flags(parser, has_bound=True)
    load_flags.session_flags(parser, tuple(OPTIMIZATIONS), SHARING)
    load_flags.telemetry_flags(parser)
    return parser


def load(stage: cli.StageRun, transaction: Transaction, harness: Harness) -> LoadSummaryDocument:
    """Load the service, keep LoadGen's summary, and write the tables."""
    scenario, bound_s = stage.settings.scenario, stage.settings.p99_bound
    transaction.reserve(load_stage.ROWS_RESERVED * harness.expected_count)
    with meters.link_meter(harness.shape.device) as link, transaction.scratch() as folder:
        test, results = load_by_scenario(harness, scenario, bound_s, folder)
        if results:  # LoadGen has none where a signal ended the load
            transaction.add_copy("loadgen_summary", folder / SUMMARY)
        setup = {**harness.figures, **link(), "arrivals": f"LoadGen {scenario}", "loadgen_results": results}
    transaction.release()  # the disk may have filled meanwhile
    tables = load_tables(test, setup, meters.process_figures())
    stage.note(*tables.lacks)
    load_stage.add_load(transaction, tables)
    stage.show(load_report(tables.summary))
    return tables.summary


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given = stage.settings
        settings = LoadSettings.of(checked(given.values, given.given))
        require_loadgen()  # before the sessions are created
        path = cli.model_path(given.model)
        model_load = settings.on(path, cli.configured_bindings(given.config, path))
        stage.set_model(model_load.model.bound.model_id, path.name, model_load.model.bound.dimensions)
        telemetry = telemetry_to(*load_stage.post_of(given), path.name, stage.note)
        with stage.writing() as transaction, limited_runs(given.run_timeout), telemetry as listener:
            harness = model_load.harness(listener)
            summary = load(stage, transaction, harness)
            code = load_stage.exit_code(stage, settings.thresholds.broken(summary))
    return code


if __name__ == "__main__":
    cli.run(main)
