"""Which fused groups to put on an FPGA board, as which kernels, and what that gains end to end.

Reads   ops_profile.csv, op_schedule.csv, op_metrics.csv, op_edges.csv, node_map.csv, energy_summary.json; a board.
Writes  fpga_candidates.csv (every group, taken or not and why), offload_plan.csv (the kernels), offload_schedule.csv,
        offload_comparison.csv, board_resources.csv, speedup.csv (Amdahl, term by term). --whole-model reads 02's tables
        alone and writes overlay_layers.csv, overlay_summary.json.

Kernel models say what each group, and each chain of groups, would take on engines that fit the board; a program decides
which engines stand there and what they compute. An estimate, with an interval, of what nobody has measured.

EXAMPLE of what comes in (ops_profile.csv) and what goes out (offload_plan.csv), some columns:

    executed_node,row_kind,node_latency_us,energy_uj
    /conv1/Conv_nchwc,node,1830.2,98130.1

    kernel,engine,region,call_count,host_latency_share,kernel_latency_likely_us,dsp_count,comment
    K1,systolic-32x24x4-int8,SLR1,53,0.93,3410.2,1536,fuse BN/Relu/Add; kernel 4.9x (likely)

    python 07_fpga_candidates.py --board u280 --precision int8 --kernel-speedup K1=3.2 --what-if board=u50,clock-mhz=200
    python 07_fpga_candidates.py --whole-model --board zcu104 --engine dpu-b4096
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from common import cli
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.frames import records
from common.configuration import Section
from common.errors import CommandLineError
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import PLAN_PRECISIONS, Board, load_board
from common.fpga.kernels.overlay import OverlayEngine
from common.fpga.kernels.overlay_config import load_engine
from common.fpga.offload.rule import Thresholds
from common.fpga.offload.solver import Effort
from common.fpga.planning.assumptions import read_assumptions, require_speedup
from common.fpga.planning.plan import Request
from common.fpga.planning.problem_builder import LAUNCH_PER
from common.fpga.planning.results import Results, overlay_results, plan_results, workload_from_rows
from common.view.fpga_text import offload_report
from common.view.overlay_text import overlay_report

SCRIPT = "07_fpga_candidates.py"
CONFIGS = cli.ROOT / "configs"
TABLES = ("op_metrics", "op_edges", "node_map", "ops_profile", "op_schedule")


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    parser.setting("--board", default="u280", metavar="NAME", help="a file of configs/boards, or the path of one")
    parser.setting("--precision", default="fp32", choices=PLAN_PRECISIONS, help="number format of the kernels")
    parser.setting("--launch-per", choices=LAUNCH_PER, help="launch each fused group, or each phase on the card")
    parser.setting("--kernel-speedup", type=kernel_speedup, action="append", metavar="K1=3.2", help="a vendor tool's")
    parser.setting("--what-if", action="append", metavar="KEY=VALUE,…", help="also another board, precision, clock …")
    for limit in ("share", "intensity-flop-per-byte", "fused-share"):
        parser.setting(f"--min-{limit}", type=cli.positive_float, metavar="X", help="a threshold of the rule of thumb")
    parser.setting("--effort", type=cli.positive_float, metavar="X", help="how long to search for a better plan")
    parser.setting("--fpga-config", type=Path, default=CONFIGS / "fpga.yaml", metavar="FILE", help="thresholds, effort")
    parser.setting("--whole-model", action="store_true", help="no plan, but the whole model on an overlay engine")
    parser.setting("--engine", metavar="NAME", help="an overlay of configs/engines, in the plan or alone")
    return parser


def kernel_speedup(text: str) -> tuple[str, float]:
    """``K1=3.2``."""
    name, value = cli.assignment(text)
    return name.strip().upper(), require_speedup(cli.positive_float(value))


def board(name: str) -> Board:
    """A board by its name or path."""
    return load_board(name, CONFIGS / "boards")


def request(settings: cli.Settings) -> Request:
    """What is asked for; what no flag gives comes from the FPGA configuration."""
    path = settings.fpga_config
    assumed = read_assumptions(Section.of_file(path))
    for name in assumed.keys() - {name for name, value in settings.values.items() if value is not None}:
        settings.values[name], settings.origins[name] = assumed[name], path.name
    given, where = settings.kernel_speedup or [], board(settings.board)
    return Request(
        where,
        settings.precision,
        settings.launch_per,
        Thresholds(settings.min_share, settings.min_intensity_flop_per_byte, settings.min_fused_share),
        dict(given if isinstance(given, list) else [given]),  # a configuration gives one
        Effort(settings.effort),
        overlay(settings, where),
    )


def plan(stage: cli.Stage) -> Callable[[], Results]:
    """The plan and what it is held against, yet to be found."""
    settings, tables = stage.settings, stage.tables
    asked = request(settings)
    work = workload_from_rows({n: records(tables.table(n)) for n in TABLES}, tables.document("energy_summary"))
    models = load_models(CONFIGS)
    stage.say(f"planning {len(work.steps)} steps of the host (--effort {settings.effort:g} bounds the search)")
    instead = [settings.what_if] if isinstance(settings.what_if, str) else settings.what_if or []
    return partial(plan_results, work, asked, models, instead, board, partial(overlay, settings))


def overlay(settings: cli.Settings, where: Board) -> OverlayEngine | None:
    """The engine that is asked for, as it stands on a board."""
    if settings.engine is None:
        return None
    return load_engine(settings.engine, CONFIGS / "engines", where)


def whole_model(stage: cli.Stage) -> Callable[[], Results]:
    """The whole model on one overlay engine, yet to be timed."""
    settings, tables = stage.settings, stage.tables
    if settings.what_if or settings.kernel_speedup:
        raise CommandLineError("--whole-model", "plans nothing", "leave out --what-if and --kernel-speedup")
    if (engine := overlay(settings, board(settings.board))) is None:
        raise CommandLineError("--whole-model", "needs an engine", "add for example --engine dpu-b4096")
    return partial(overlay_results, records(tables.table("op_metrics")), records(tables.table("op_edges")), engine)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    with cli.stage(arguments(), argv) as stage:
        solve = (whole_model if stage.settings.whole_model else plan)(stage)
        with stage.writing() as transaction:  # a folder that cannot be written fails before the search, not after it
            results = solve()
            stage.record.settings = stage.settings.record()
            stage.note(*results.notes)
            is_document = {name: ARTIFACTS[name].form == "document" for name in results.rows}
            documents = {name: dict(rows[0]) for name, rows in results.rows.items() if is_document[name]}
            for name, document in documents.items():
                transaction.add_document(name, document)
            written = {n: transaction.add_rows(n, rows) for n, rows in results.rows.items() if not is_document[n]}
        if documents:
            stage.show(overlay_report(documents["overlay_summary"], written["overlay_layers"]))
        else:
            stage.show(offload_report(*(written[n] for n in ("offload_plan", "speedup", "offload_comparison"))))
    return 0


if __name__ == "__main__":
    cli.run(main)
