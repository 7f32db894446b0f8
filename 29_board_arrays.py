"""Find the arrays that fit a board and are best for a model: the front of latency, energy and share of the board.

Reads   op_metrics.csv, op_edges.csv; a board file.
Writes  design_engines.csv (the front, which 07 --designs reads),
        design_simulation.csv (the fastest array in simulation; no rows without --simulate).

29 tries all arrays of a set: rows, columns, products of an element, tiles, ports to memory, and one region of the board
or all. The resources and the clock of an array are those of a plan (07). Its cycles and energy are those that 08
computes for a mapping. docs/DESIGN_SPACE.md has the set and each printed column.

EXAMPLE of input (op_metrics.csv) and output (design_engines.csv), some columns:

    source_node,op_type,macs,m_count
    /layer4/layer4.1/conv2/Conv,Conv,115605504,49

    array_design,dsp_count,board_share,clock_mhz,modelled_latency_us
    12x64x16-t8x8x32-p32-all,6336,1.0,236.0,1630.0

    python 29_board_arrays.py --board u280 --precision int8 --board-budget dsp=2000
    python 29_board_arrays.py --board kv260 --simulate              # the Verilog of the fastest one (Verilator)
    python 07_fpga_candidates.py --board u280 --designs out         # a plan with them, compared with its own
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Sequence

from common import cli
from common.board_designs.board_search import engine_rows, front_of
from common.board_designs.model import BoardModel, read_budget
from common.board_designs.simulation import require_simulator, simulated_rows
from common.cli.plan_stage import CONFIGS, source_graph
from common.fpga.coefficients import load_models
from common.fpga.device.board import DEFAULT_PRECISION, PLAN_PRECISIONS, Board
from common.fpga.device.board_files import load_board
from common.fpga.device.resources import Resources
from common.view.design.board_text import board_report


def arguments() -> cli.Parser:
    parser = cli.Parser("29_board_arrays.py", __doc__ or "")
    parser.shared("--board", default="u280")
    parser.setting("--precision", choices=PLAN_PRECISIONS, default=DEFAULT_PRECISION, help="number format of the array")
    text = "most that an array may take of the board: lut, ff, bram36, uram, dsp, memory_channels, or regions"
    parser.setting("--board-budget", default="", metavar="NAME=N,…", help=text)
    parser.setting("--simulate", action="store_true", help="simulate the Verilog of the fastest array (Verilator)")
    return parser


def board_model(stage: cli.StageRun, board: Board, limits: Resources) -> BoardModel:
    """Return the model of the tables on a board, of which an array may take so much."""
    metrics, graph = source_graph(stage.tables)
    models = load_models(CONFIGS)
    with stage.tables.content():
        return BoardModel.of(metrics, graph, board, stage.settings.precision, models, limits)


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        settings = stage.settings
        board, limits = read_budget(settings.board_budget, load_board(settings.board, CONFIGS / "boards"))
        if settings.simulate:
            require_simulator(settings.precision)
        stage.end_of_checks()
        model = board_model(stage, board, limits)
        front = front_of(model, progress=stage.progress_bar("sizes"))
        engines, simulated = engine_rows(front.designs, model.builder), simulated_rows(model, front, settings.simulate)
        with stage.writing() as transaction:
            transaction.add_rows("design_engines", engines)
            transaction.add_rows("design_simulation", simulated)
        stage.show(board_report(engines, simulated, front.tried_count, front.fitting_count))
    return 0


if __name__ == "__main__":
    cli.run(main)
