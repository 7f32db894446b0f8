"""Compare a measurement with a baseline: what became slower or faster, and whether that is more than chance.

Reads   run_latency.csv and latency_summary.json of both folders; where they are, the other tables of 01,
        op_metrics.csv, op_edges.csv, node_map.csv, op_roofline.csv, host_ceilings.json, energy_summary.json,
        the plan of 07 (offload_verdict.csv, offload_comparison.csv, offload_plan.csv, board_resources.csv),
        load_summary.json and load_best.json. Tables that are older than the times are left out, with a note.
Writes  comparison.csv (a row per figure and per group of executed nodes), comparison.md for a pull request, and
        comparison.html; for the first --candidate comparison_stacks.folded, for a differential flame graph by
        flamegraph.pl. 06 draws the differences.

A difference is real if three things hold. A rank test on medians of blocks of runs rejects chance, corrected for all
nodes (Holm). The interval of the difference excludes 0. The difference exceeds the noise floor: what a repeat on this
machine would show, estimated from quarters of the runs. The figures of the latency (median, percentiles, mean,
deviation) are one family: among equal pairs, at most 5 % have a figure that is called different. A difference that is
surely smaller than --fail-above is unchanged. Every other difference is undecided, with the number of runs that would
decide it. A figure from too few independent runs is not judged. No time of a busy or drifting host is judged.

One session on each side does not show how far sessions differ. For that, measure both sides with 01's --sessions 3,
or repeat --baseline.

Nodes are compared if they compute the same source nodes, whatever the runtime fused, renamed or inserted. Models that
differ only in names are one model. Other models need --across-models.

The exit code is 4 if a figure of the whole model regressed by more than --fail-above, or if a node added more than that
to the latency.

EXAMPLE of output (comparison.csv, some columns):

    compared_kind,compared_subject,comparison_verdict,baseline_value,candidate_value,difference_share,noise_floor_share
    end_to_end,,regressed,5210.0,5490.0,0.0537,0.0121
    node,/fire2/Relu_output_0_nchwc,unchanged,411.0,412.0,0.0024,0.0188

    python 11_compare_runs.py --baseline runs/main                          # out/ against runs/main
    python 11_compare_runs.py --baseline runs/main --fail-above 3% --quiet  # exit code 4 if slower by more than 3 %
    python 11_compare_runs.py --baseline runs/1 --baseline runs/2 --candidate runs/3 --candidate runs/4
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence

from common import cli
from common.cli.flags.comparison_flags import fail_flag, folder_flags
from common.cli.texts.wording import paired_command
from common.comparison import difference_rows
from common.comparison.latency_family import too_few_runs
from common.comparison.measured import MeasuredSide
from common.comparison.recorded import differences, doubts, read_side, unknown_sessions
from common.messages.errors import CommandLineError
from common.onnx_graph.reading.naming import traced_bodies
from common.profiling.trace.timeline import recorded_node_runs
from common.table_rows import ComparisonRow
from common.timeline.flamegraph import differential_stacks
from common.view.comparison.comparison_tables import comparison_markdown, comparison_page, comparison_report
from common.view.node_labels import source_labels


def arguments() -> cli.Parser:
    parser = cli.Parser("11_compare_runs.py", __doc__ or "")
    folder_flags(parser)
    fail_flag(parser)
    return parser


def measured_sides(stage: cli.StageRun) -> tuple[list[MeasuredSide], list[MeasuredSide]]:
    """Return the measurements of the baselines, of which one at least must be given, and of the candidates."""
    settings = stage.settings
    if not settings.baseline:
        raise CommandLineError("<baseline>", "is missing", "give the folder of an earlier measurement")
    folders = [stage.folder(path) for path in (*settings.baseline, *(settings.candidate or [settings.out]))]
    sides = []
    for folder in folders:
        side, notes = read_side(folder, recorded_node_runs(folder, traced_bodies))
        stage.note(*notes)
        sides.append(side)
    stage.enter_reads(folders)
    return sides[: len(settings.baseline)], sides[len(settings.baseline) :]


def compared(
    stage: cli.StageRun,
    baselines: Sequence[MeasuredSide],
    candidate: MeasuredSide,
    chosen: difference_rows.ComparisonSettings,
) -> tuple[list[ComparisonRow], list[str]]:
    """Return the rows of a comparison, and the notes that its reader needs first."""
    rows = difference_rows.comparison_rows(baselines, candidate, chosen)
    paired = paired_command(baselines[0].settings, candidate.settings)
    limits = [*difference_rows.why_no_nodes(baselines[0], candidate, rows), *too_few_runs(rows)]
    limits += unknown_sessions(baselines, candidate, paired)
    return rows, [*doubts([*baselines, candidate]), *differences(baselines[0], candidate), *map(stage.plain, limits)]


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        with stage.writing() as transaction:
            baselines, candidates = measured_sides(stage)
            margin_share = settings.fail_above or difference_rows.DEFAULT_MARGIN_SHARE
            chosen = difference_rows.ComparisonSettings(margin_share, is_across_models=settings.across_models)
            parts = [compared(stage, baselines, candidate, chosen) for candidate in candidates]
            labels = source_labels(baselines[0].executed.sources, baselines[0].metrics)
            name = ", ".join(side.name for side in baselines)
            rows = [row for rows, _ in parts for row in rows]
            stage.note(*(remark for _, remarks in parts for remark in remarks))
            transaction.add_rows("comparison", rows)
            markdown = (comparison_markdown(*part, labels, name) for part in parts)
            transaction.add_page("comparison_text", "\n".join(markdown))
            stacks = differential_stacks(difference_rows.node_times_us(parts[0][0], labels), name)
            transaction.add_or_remove({"comparison_stacks": stacks} if stacks else {}, "comparison_stacks")
            transaction.add_page("comparison_page", comparison_page(parts, labels, name))
        stage.show("\n\n".join(comparison_report(*part, labels, name) for part in parts))
    return cli.BROKE_THRESHOLD if settings.fail_above and difference_rows.failures(rows, settings.fail_above) else 0


if __name__ == "__main__":
    cli.run(main)
