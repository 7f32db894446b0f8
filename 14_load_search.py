"""Find the configuration of a service that sustains the highest rate of requests within a bound of its p99.

Reads   the model file; with --images a folder of images.
Writes  load_search.csv (every trial of the search; the curve of the best configuration with the predicted queue),
        load_batch_times.csv (times of full batches), load_best.json (the best configuration by rate, by energy and by
        cost, with the runner-up).

14 searches batch, wait, sessions and threads. It also compares all given values of the flags that say how sessions
share the host. It ends with the command that loads the best configuration.

EXAMPLE of input (a model) and output (load_best.json), some fields:

    tiny-cnn.onnx: input float32 [batch,3,13,17]

    {"bound_us": 50000.0, "is_bound_met": true, "best_by": {"rate": {"batch_max_count": 2, "batch_wait_us": 0,
     "session_count": 1, "threads": 1, "sustained_requests_per_s": 7924.37, ...}}, ...}

    python 14_load_search.py --p99-bound 50ms
    python 14_load_search.py --pool own,shared --spinning always,never --usd-per-hour 0.5
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
from common.load.best_configuration import find_best
from common.load.search.optimum import Optimum
from common.load.search.search_tables import batch_rows, best_document, trial_rows
from common.load.service.concurrency import SHARING
from common.load.settings import RequestContent, checked, search_settings
from common.load.telemetry import telemetry_to
from common.measurements import meters
from common.runtime.inputs.images import NORMALIZATIONS
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import OPTIMIZATIONS
from common.view.load.compared_loads_text import search_report

TABLES = ("load_search", "load_batch_times", "load_best")
PASSED_ON = ("model", "dim", "input", "provider", "optimization", "images", "normalize", "top_k", "replicate", "out")


def arguments() -> cli.Parser:
    parser = cli.Parser("14_load_search.py", __doc__ or "")
    parser.shared(*cli.MODEL)
    load_flags.bound_flags(parser)
    load_flags.error_flag(parser)
    parser.shared("--usd-per-hour", "--avg-power-w")
    parser.setting("--batch-max", type=cli.positive_int, metavar="N", help="largest batch to try (default: 16)")
    threads = "intra-op threads of all sessions together (default: all processors)"
    load_flags.sharing_flags(parser, tuple(OPTIMIZATIONS), SHARING, threads, "; several are compared")
    load_flags.payload_flags(parser, tuple(NORMALIZATIONS))
    load_flags.seed_flag(parser)
    load_flags.telemetry_flags(parser)
    return parser


def write(transaction: Transaction, optimum: Optimum) -> None:
    transaction.add_rows("load_search", trial_rows(optimum))
    transaction.add_rows("load_batch_times", batch_rows(optimum))
    transaction.add_document("load_best", best_document(optimum))
    transaction.mark_incomplete(["a signal ended the search"] if optimum.is_interrupted else [], *TABLES)


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given = stage.settings
        values = checked(given.values, given.given)
        settings, content = search_settings(values), RequestContent.of(values)
        path = cli.model_path(given.model)
        model = content.model(path, cli.configured_bindings(given.config, path))
        stage.set_model(model.bound.model_id, path.name, model.bound.dimensions)
        with stage.writing() as transaction, limited_runs(given.run_timeout):
            telemetry = telemetry_to(*load_stage.post_of(given), path.name, stage.note)
            with telemetry as listener, meters.power_meter(given.avg_power_w) as power_w:
                optimum, notes = find_best(model, settings, power_w, listener)
            write(transaction, optimum)
            stage.note(*notes, *(["a signal ended the search"] if optimum.is_interrupted else []))
        stage.show(search_report(best_document(optimum), batch_rows(optimum)))
        stage.show(" ".join(["next: python 10_load_test.py --best", *cli.given_flags(given, PASSED_ON)]))
    return 0


if __name__ == "__main__":
    cli.run(main)
