"""Compare the newest record of a history with the level of the records before it, and name the commits of each change.

Reads   a history (--history FILE), to which 17_record_run.py adds.
Writes  run_history.csv (every figure of the newest record in all records), history_trends.csv (a row per figure: did
        the newest record leave the level?), run_history.md for a pull request, and run_history.html. 06 draws them.

Records of one model, host and settings are one history. A change of a level names the commits between which it
happened, as `git log` accepts them, and what else changed. docs/HISTORY.md has the tests.

The exit code is 4 if a figure of the whole model became worse by more than --fail-above.

EXAMPLE of output (history_trends.csv, some columns):

    compared_kind,compared_figure,comparison_verdict,level_value,figure_value,difference_share,level_run_count
    end_to_end,p50_us,regressed,1009.2,1103.7,0.0936,6

    python 16_run_history.py --history runs.sqlite --last 20
    python 16_run_history.py --history runs.sqlite --fail-above 5% --quiet
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence

from common import cli
from common.cli.flags.comparison_flags import fail_flag, history_flags
from common.comparison.difference_rows import DEFAULT_MARGIN_SHARE
from common.history.record import Record
from common.history.store import RecordFile
from common.history.trends import history_failures, history_rows
from common.messages.errors import CommandLineError
from common.view.comparison.history_tables import history_markdown, history_page, history_report


def arguments() -> cli.Parser:
    parser = cli.Parser("16_run_history.py", __doc__ or "")
    history_flags(parser)
    fail_flag(parser)
    return parser


def newest_records(settings: cli.Settings) -> list[Record]:
    """Return the newest records of the history that the newest one belongs to, in the file that must be named."""
    if not settings.history:
        raise CommandLineError("<history>", "is missing", "give the file to which `make record` adds")
    return RecordFile(settings.history).newest(settings.last, is_across_models=settings.across_models)


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        records = newest_records(settings)
        stage.set_model(records[-1].model_id, records[-1].model_path, records[-1].dimensions)
        values, trends = history_rows(records, settings.fail_above or DEFAULT_MARGIN_SHARE)
        name = str(settings.history)
        with stage.writing() as transaction:
            transaction.add_rows("run_history", values)
            transaction.add_rows("history_trends", trends)
            transaction.add_page("history_text", history_markdown(values, trends, name))
            transaction.add_page("history_page", history_page(values, trends, name))
        stage.show(history_report(values, trends, name))
    return cli.BROKE_THRESHOLD if settings.fail_above and history_failures(values, trends, settings.fail_above) else 0


if __name__ == "__main__":
    cli.run(main)
