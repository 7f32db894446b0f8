"""Plan again with another clock, link, number format or board, one change at a time, and say how the latency changes.

Reads   ops_profile.csv, op_schedule.csv, op_latency.csv, op_metrics.csv, op_edges.csv, node_map.csv,
        energy_summary.json, latency_summary.json; with --mixed-with, precision_mixtures.csv; the board files.
Writes  what_if_plans.csv (a row for the plan, and one for each change).

24 plans each change as 07 does. The changes are half, three quarters and five quarters of the clock, a quarter to
four times the rate of the link, every number format, and every board of configs/boards; with --mixed-with also every
mixture of layers that 28 judged. 06 draws the rows as a tornado, and speed against agreement.

EXAMPLE of output (what_if_plans.csv), some columns:

    what_if_subject,what_if_setting,plan_latency_likely_us,latency_speedup_factor,latency_pays_probability
    plan,"u280, int8",3712.0,7.84,1.0
    clock,150 MHz,5120.4,5.69,1.0

    python 24_what_if.py --board u50 --precision int8
    python 24_what_if.py --board u280 --precision int8 --mixed-with bf16   # after 28 --mixed
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence
from dataclasses import replace

from common import cli
from common.cli.flags.plan_flags import board_flags, search_flags
from common.cli.plan_stage import CONFIGS, mixtures, work_of_host
from common.files.configuration import Section
from common.fpga.coefficients import load_models
from common.fpga.device.board import DEFAULT_PRECISION, PLAN_PRECISIONS
from common.fpga.device.board_files import boards_in
from common.fpga.plan_results import workload_from_rows
from common.fpga.planning.host_basis import host_basis
from common.fpga.planning.plan_notes import obstacles
from common.fpga.planning.problem_builder import LAUNCH_PER
from common.fpga.planning.request import Request, plan_requests, read_assumptions
from common.fpga.what_if import questions, what_if_rows
from common.view.plan.what_if_text import what_if_report
from common.workload.formats import WiderLayers, layers_of

DEFAULTED = ("launch_per", "time_limit", "effort")


def arguments() -> cli.Parser:
    parser = cli.Parser("24_what_if.py", __doc__ or "")
    board_flags(parser, PLAN_PRECISIONS, DEFAULT_PRECISION, LAUNCH_PER)
    search_flags(parser)
    return parser


def mixtures_of(stage: cli.StageRun, request: Request) -> dict[int, WiderLayers]:
    """Return the layers that each mixture of 28 leaves in float, by its index; nothing without --mixed-with."""
    wider = stage.settings.mixed_with
    rows = mixtures(stage.tables) if wider else []
    return {row["mixture_index"]: layers_of(row, wider) for row in rows if row["number_format"] == request.precision}


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        path = stage.settings.fpga_config
        defaults = read_assumptions(Section.of_file(path))
        settings = stage.take_defaults({name: defaults[name] for name in DEFAULTED}, path.name)
        watch, absent = cli.SearchWatch(settings, settings.time_limit), list[str]()
        request = plan_requests({**defaults, **settings.values}, CONFIGS, watch).request
        stage.end_of_checks()
        work, processor = work_of_host(stage.tables, workload_from_rows)
        request = replace(request, host=host_basis(processor, None, may_be_of_board=False))
        mixed, boards = mixtures_of(stage, request), boards_in(CONFIGS / "boards")
        variants, models = questions(request, boards, absent, mixed), load_models(CONFIGS)
        with stage.writing() as transaction:
            with watch:
                rows = list(what_if_rows(work, variants, models))
            stage.note(*obstacles(work, request), *watch.notes, *absent)
            transaction.add_rows("what_if_plans", rows)
        stage.show(what_if_report(rows))
    return 0


if __name__ == "__main__":
    cli.run(main)
