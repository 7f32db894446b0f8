"""Load many models, one after another or each on a worker of a cluster, and say what each host delivers.

Reads   the files of the models.
Writes  load_fleet.csv (a row per model: the host that measured it, its set-up, what it delivers).

All models get the same load. With --search, 18 searches the highest rate of each model within --p99-bound. Each host
measures one model at a time.

EXAMPLE of input (two models) and output (load_fleet.csv), some columns:

    tiny-cnn.onnx, tiny-mlp.onnx

    model_file,hostname,session_count,threads,validity,answered_requests_per_s,request_p99_us
    tiny-cnn.onnx,vm,1,1,valid,39.2055,5680.13
    tiny-mlp.onnx,vm,1,1,valid,39.2051,4609.93

    python 18_load_fleet.py --models resnet50.onnx,bert.onnx --rate 10
    python 18_load_fleet.py --models resnet50.onnx,bert.onnx --search --cluster dask --cluster-address HOST:8786
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence
from pathlib import Path

from common import cli
from common.artifacts.transaction import Transaction
from common.cli import load_stage
from common.cli.flags import load_flags
from common.load.fleet import ModelTask, broken_by, fleet_rows, tasks_of
from common.load.requests.demand import KINDS
from common.load.service.concurrency import SHARING
from common.load.settings import checked, fleet_task, thresholds
from common.messages.errors import CommandLineError
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import OPTIMIZATIONS
from common.view.load.compared_loads_text import FLEET
from common.workers import CLUSTERS, Workers


def arguments() -> cli.Parser:
    parser = cli.Parser("18_load_fleet.py", __doc__ or "")
    parser.setting("--models", type=cli.paths, default=(), metavar="FILE,…", help="ONNX files, or names in models/")
    parser.shared("--dim")
    load_flags.schedule_flags(parser, KINDS)
    load_flags.batching_flags(parser)
    load_flags.goodput_flags(parser)
    load_flags.session_flags(parser, tuple(OPTIMIZATIONS), SHARING)
    text = "search the best configuration of each model first"
    parser.setting("--search", action="store_true", default=False, help=text)
    load_flags.bound_flags(parser)
    parser.shared("--cluster", choices=CLUSTERS)
    parser.shared("--cluster-address")
    return parser


def tasks(given: cli.Settings, task: ModelTask) -> list[ModelTask]:
    paths = [cli.model_path(str(name), "--models") for name in given.models]
    configured = [cli.configured_bindings(given.config, path) for path in paths]
    return tasks_of(paths, configured, task, is_sent=bool(given.cluster))


def measure(stage: cli.StageRun, transaction: Transaction, models: Sequence[ModelTask]) -> list[str]:
    """Measure all models, and write their table; return which thresholds which of them breaks."""
    given, paths = stage.settings, list[Path](task.path for task in models)
    workers = Workers(1, given.cluster or "", given.cluster_address)
    results = workers.results([task.measured for task in models])
    rows, lacks = fleet_rows(paths, results, stage.progress_bar("models"))
    transaction.add_rows("load_fleet", rows)
    transaction.mark_incomplete(lacks, "load_fleet")
    stage.note(*lacks)
    stage.show(FLEET.text(rows))
    return broken_by(rows, thresholds(given.values))


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given = stage.settings
        if not given.models:
            raise CommandLineError("--models", "names no model", "give FILE,…")
        models = tasks(given, fleet_task(checked(given.values, given.given)))
        if given.check:  # otherwise a model that cannot be served is a row with the reason, and the others are measured
            for task in models:
                task.served(task.path)
        with stage.writing() as transaction, limited_runs(given.run_timeout):
            code = load_stage.exit_code(stage, measure(stage, transaction, models))
    return code


if __name__ == "__main__":
    cli.run(main)
