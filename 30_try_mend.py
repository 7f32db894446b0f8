"""Mend a model by what 09 found, and measure what that gains.

Reads   bottlenecks.csv, node_map.csv, latency_summary.json, and the model file that was measured.
Writes  mend_trials.csv (a row per rule: predicted and measured gain, with intervals), mended.onnx (the model with the
        rewrite that gained most; every other stage takes it).

A rule of 09 may have rewrites: programs that change the model's graph as the remedy says. A rewrite is left out where
another node or a caller would notice it. The mended model must return what the model returns, on three random inputs,
within what its number format explains. Then both run in turn, run by run, as 15_paired_runs.py measures. All findings
of a rule are mended together, and the predicted gain is that of all of them.

EXAMPLE of output (mend_trials.csv, some columns):

    finding,mend_outcome,mends,gain_us,measured_gain_us,measured_gain_low_us,measured_gain_high_us
    unfused_conv,gains,"[""freeze_weights"",""fold_batch_normalization""]",310.0,287.0,262.0,301.0

    python 30_try_mend.py --model net.onnx                       # the first findings that have a rewrite
    python 30_try_mend.py --model net.onnx --rule unfused_conv   # the findings of one rule
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from common import cli
from common.comparison.difference_rows import DEFAULT_MARGIN_SHARE, ComparisonSettings, comparison_rows
from common.measurements.paired_measurement import measured_pair
from common.mending.agreement import Agreement, MendSubject, agreement
from common.mending.findings import found_by, nodes_of, predicted, rules_to_try
from common.mending.registry import tried
from common.mending.rewrite import Case, Model
from common.mending.trial_rows import MeasuredGain, measured_gain, trial_row
from common.mending.view import mendable_model
from common.messages.errors import UpstreamError
from common.onnx_graph.load import load_model
from common.profiling.runs.loop import Budget, SessionPlan
from common.runtime.inputs.given import given_arrays, make_feeds
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import given_settings
from common.table_rows import MendTrialsRow
from common.view.trace.bottleneck_tables import mend_report

CHECKED_INPUTS = 3  # on which outputs are compared
GAINS = "gains"


def arguments() -> cli.Parser:
    parser = cli.Parser("30_try_mend.py", __doc__ or "")
    parser.shared(*cli.MODEL)
    text = "rule whose findings are mended; repeatable (default: the first three that have a rewrite)"
    parser.setting("--rule", action="append", default=[], metavar="RULE", help=text)
    parser.setting("--runs", type=cli.at_least(5), default=200, metavar="N", help="unprofiled runs of each model")
    parser.shared("--warmup", "--seed", "--threads", "--provider", "--optimization", "--run-timeout")
    return parser


def subject(given: cli.Settings) -> MendSubject:
    side = cli.given_model(given)
    loaded = load_model(side.path, side.sizes, side.configured, values=given_arrays(side.files))
    feeds = [make_feeds(loaded.graph, side.files, given.seed + place) for place in range(CHECKED_INPUTS)]
    return MendSubject(side.path, loaded, mendable_model(side.path), feeds, given_settings(given.values))


def require_measured(stage: cli.StageRun, about: MendSubject) -> None:
    """Refuse findings about another model, or about other sizes of its dimensions."""
    record = stage.record
    if (record.model_id, record.dimensions) != (about.loaded.model_id, dict(about.loaded.dimensions)):
        problem = f"was made for {record.model_path} with other nodes or sizes than {about.path.name} has now"
        raise UpstreamError(stage.tables.path("bottlenecks"), problem, "run <latency_summary> to <bottlenecks> again")


def measure(stage: cli.StageRun, about: MendSubject, mended: Model, folder: Path) -> MeasuredGain | None:
    """Run a model and the mended one in turn, and return what mending gained."""
    files = [folder / "given.onnx", folder / "mended.onnx"]
    for file, proto in zip(files, (about.proto, mended), strict=True):
        file.write_bytes(proto.SerializeToString())
    models = [load_model(file, {}, about.loaded.dimensions, values=about.feeds[0]) for file in files]
    taken = [{value.name for value in proto.graph.input} for proto in (about.proto, mended)]
    feeds = [{name: array for name, array in about.feeds[0].items() if name in names} for names in taken]
    plans = [SessionPlan(file, feed, about.options) for file, feed in zip(files, feeds, strict=True)]
    budget = Budget(stage.settings.warmup, stage.settings.runs)
    first, second = measured_pair(plans, models, budget, folder, partial(stage.progress_bar, "pairs"), stage.note)
    stage.note(*first.doubts)
    settings = ComparisonSettings(DEFAULT_MARGIN_SHARE, is_paired=True, is_across_models=True)
    return measured_gain(comparison_rows([first], second, settings))


def try_rule(stage: cli.StageRun, rule: str, about: MendSubject, folder: Path) -> tuple[MendTrialsRow, Model | None]:
    """Mend the findings of a rule, compare the outputs and measure; return the row and the mended model."""
    tables = stage.tables
    found = [row for row in tables.rows("bottlenecks") if rule in found_by(row)]
    nodes = nodes_of(found, tables.rows("node_map"), [node.name for node in about.proto.graph.node])
    prediction = predicted(found, tables.document("latency_summary")["p50_us"])
    trial = tried(rule, Case(about.proto, nodes, about.loaded.dimensions))
    agreed: Agreement | None = None
    measured: MeasuredGain | None = None
    if trial.model is not None:
        agreed = agreement(about.proto, trial.model, about.feeds, about.options)
        if agreed.holds:
            (own := folder / rule).mkdir()
            measured = measure(stage, about, trial.model, own)
    return trial_row(rule, trial, agreed, prediction, measured), trial.model


def best(trials: Sequence[tuple[MendTrialsRow, Model | None]]) -> bytes | None:
    """Return the mended model that gained most, as a file; None where none gained."""
    gained = [(row["measured_gain_us"] or 0.0, model) for row, model in trials if row["mend_outcome"] == GAINS]
    model = max(gained, key=lambda trial: trial[0])[1] if gained else None
    return None if model is None else model.SerializeToString()


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given = stage.settings
        rules = rules_to_try(stage.tables.rows("bottlenecks"), given.rule)
        about = subject(given)
        require_measured(stage, about)
        with stage.writing() as transaction, transaction.scratch() as folder, limited_runs(given.run_timeout):
            trials = [try_rule(stage, rule, about, folder) for rule in rules]
            rows = [row for row, _ in trials]
            transaction.add_rows("mend_trials", rows)
            written = best(trials)
            transaction.add_or_remove({} if written is None else {"mended_model": written}, "mended_model")
        stage.show(mend_report(rows))
    return 0


if __name__ == "__main__":
    cli.run(main)
