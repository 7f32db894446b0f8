"""Measure two models, or one model under two settings, run by run in turn, and compare the runs pair by pair.

Reads   two model files.
Writes  paired_comparison.csv (a row per figure and per group of executed nodes), paired_comparison.md for a pull
        request, paired_comparison.html, and paired_stacks.folded, for a differential flame graph by flamegraph.pl.
        06 draws the differences.

Drift of the host changes both runs of a pair and cancels. Each twentieth of the runs has new sessions. The memory
addresses of a session change the time of a node by some percent, so the noise floor includes that scatter. A busy host
gives a note, and the pairs are judged all the same. The tests and the verdicts are those of 11_compare_runs.py.

The exit code is 4 if a figure of the whole model regressed by more than --fail-above, or if a node added more than that
to the latency.

EXAMPLE of output (paired_comparison.csv, some columns):

    compared_kind,compared_subject,comparison_verdict,baseline_value,candidate_value,difference_share,noise_floor_share
    end_to_end,,regressed,5210.0,5490.0,0.0537,0.0121
    node,/fire2/Relu_output_0_nchwc,unchanged,411.0,412.0,0.0024,0.0188

    python 15_paired_runs.py --ab before.onnx after.onnx
    python 15_paired_runs.py --ab model.onnx model.onnx --b-with threads=1
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from common import cli
from common.cli.flags.comparison_flags import fail_flag, pair_flags
from common.comparison import difference_rows
from common.comparison.measured import MeasuredSide
from common.comparison.recorded import differences
from common.measurements.paired_measurement import measured_pair
from common.messages.errors import CommandLineError
from common.onnx_graph.load import load_model
from common.onnx_graph.reading.naming import named_model, naming_notes
from common.profiling.runs.loop import Budget, SessionPlan
from common.runtime.inputs.given import given_arrays, make_feeds
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import given_settings
from common.timeline.flamegraph import differential_stacks
from common.view.comparison.comparison_tables import comparison_markdown, comparison_page, comparison_report
from common.view.node_labels import source_labels


def arguments() -> cli.Parser:
    parser = cli.Parser("15_paired_runs.py", __doc__ or "")
    pair_flags(parser)
    fail_flag(parser)
    return parser


def measured_sides(stage: cli.StageRun, folder: Path) -> tuple[MeasuredSide, MeasuredSide]:
    """Measure the given two models, or two settings of one, run by run in turn."""
    settings = stage.settings
    if not settings.ab:
        raise CommandLineError("<ab>", "is missing", "give two models, or one model twice and <b_with>")
    options = [given_settings(settings.values, changes, "b_with") for changes in ({}, dict(settings.b_with))]
    given = [cli.given_model(settings, text, "--ab") for text in settings.ab]
    models = [load_model(side.path, side.sizes, side.configured, values=given_arrays(side.files)) for side in given]
    named, paths = [named_model(side.path) for side in given], [side.path for side in given]
    feeds = [make_feeds(model.graph, side.files, settings.seed) for side, model in zip(given, models, strict=True)]
    contents = [renamed.content if renamed else None for renamed in named]
    stage.set_model(models[1].model_id, paths[1].name, models[1].dimensions)
    plans = [SessionPlan(*parts) for parts in zip(paths, feeds, options, contents, strict=True)]
    budget = Budget(settings.warmup, settings.runs)
    sides = measured_pair(plans, models, budget, folder, partial(stage.progress_bar, "pairs"), stage.note)
    stage.note(*sides[0].doubts, *(note for renamed in named for note in naming_notes(renamed)))
    return sides


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        limits = limited_runs(settings.run_timeout)
        with stage.writing() as transaction, transaction.scratch() as folder, limits:
            first, second = measured_sides(stage, folder)
            margin_share = settings.fail_above or difference_rows.DEFAULT_MARGIN_SHARE
            chosen = difference_rows.ComparisonSettings(margin_share, is_paired=True, is_across_models=True)
            rows = difference_rows.comparison_rows([first], second, chosen)
            remarks = [*second.doubts, *differences(first, second), *difference_rows.why_no_nodes(first, second, rows)]
            labels = source_labels(first.executed.sources, first.metrics)
            stage.note(*remarks)
            transaction.add_rows("paired_comparison", rows)
            transaction.add_page("paired_text", comparison_markdown(rows, remarks, labels, first.name))
            stacks = differential_stacks(difference_rows.node_times_us(rows, labels), first.name)
            transaction.add_or_remove({"paired_stacks": stacks} if stacks else {}, "paired_stacks")
            transaction.add_page("paired_page", comparison_page([(rows, remarks)], labels, first.name))
        stage.show(comparison_report(rows, remarks, labels, first.name))
    return cli.BROKE_THRESHOLD if settings.fail_above and difference_rows.failures(rows, settings.fail_above) else 0


if __name__ == "__main__":
    cli.run(main)
