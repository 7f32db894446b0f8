"""Plan an engine for a quantized network on a board with open tools, simulate it, and place and route it.

Reads   a quantized model (QDQ, batch 1), such as the one that 28 --for-engine writes; a board of configs/fabrics.
Writes  engine_calls.csv (planned and simulated cycles of each layer), engine_cells.csv (planned and routed cells),
        engine_summary.json (the engine, and the clock that closed).

Of the engines whose planned cells fit the device, 32 takes the one on which the network takes the least planned time,
or the sizes that you give. --simulate runs the network on its Verilog, cycle by cycle, with the memory of the board,
and compares every tensor with numpy's integers. --route synthesises, places and routes the engine, and plans again with
the clock that closed. Exit code 4: cells are more than 10 % off, the clock is outside its interval, or a tensor
differs. docs/BUILD.md describes the engine.

EXAMPLE of input (a board) and output (engine_cells.csv):

    python 32_build_engine.py --model quantized.onnx --board ulx3s --route

    cell_kind,planned_count,routed_count,budget_count,total_count
    lut,11866.0,11870,58548,83640

    python 32_build_engine.py --model quantized.onnx --simulate              # Verilator: make rtl-tools
    python 32_build_engine.py --model quantized.onnx --route --open-tools .venv-bitstream/bin
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

import tempfile
from collections.abc import Sequence
from pathlib import Path

from common import cli
from common.cli.plan_stage import CONFIGS
from common.files.configuration import Section
from common.fpga.rtl import building
from common.fpga.rtl.engine.cells import EngineCells, cells_of_family, read_engine_cells
from common.fpga.rtl.engine.fabric import Fabric, load_fabric
from common.fpga.rtl.programs import require
from common.fpga.rtl.routing import OpenTools, RoutedDesign, route
from common.onnx_graph.load import load_model
from common.view.plan.engine_text import engine_report


def arguments() -> cli.Parser:
    parser = cli.Parser("32_build_engine.py", __doc__ or "")
    parser.shared("--model", "--dim", "--seed")
    parser.setting("--board", default="ulx3s", metavar="NAME", help="a name in configs/fabrics, or a YAML file")
    names = {"rows": "rows of the array", "cols": "columns of the array", "simd": "products per element and cycle"}
    for name, what in names.items():
        text = f"{what} (default: that of the quickest plan)"
        parser.setting(f"--array-{name}", type=cli.positive_int, metavar="N", help=text)
    parser.setting("--simulate", action="store_true", help="run the network on the engine's Verilog (Verilator)")
    parser.setting("--route", action="store_true", help="synthesise, place and route the engine (Yosys, nextpnr)")
    text = "folder of YoWASP's commands (default: the system's Yosys and nextpnr)"
    parser.setting("--open-tools", type=cli.path, metavar="FOLDER", help=text)
    text = "folder that keeps the netlist, the log and the routed design (default: none)"
    parser.setting("--build", type=cli.path, metavar="FOLDER", help=text)
    return parser


def routed(stage: cli.StageRun, plan: building.EnginePlan, fabric: Fabric, known: EngineCells) -> RoutedDesign:
    given, design = stage.settings, plan.design
    with tempfile.TemporaryDirectory(prefix="engine-build-") as name:
        folder = given.build or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        target = known.clock_mhz.optimistic
        tools = OpenTools(given.open_tools)
        return route(design.verilog(), design.name, fabric.device, tools, folder, target_mhz=target, seed=given.seed)


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        given, path = stage.settings, cli.model_path(stage.settings.model)
        fabric = load_fabric(given.board, CONFIGS / "fabrics")
        families = read_engine_cells(Section.of_file(CONFIGS / "engine_cells.yaml"))
        known = cells_of_family(families, fabric.device.family)
        model = load_model(path, dict(given.dim), cli.configured_bindings(given.config, path))
        stage.set_model(model.model_id, path.name, model.dimensions)
        network = building.network_in(path, model.dimensions)
        if given.simulate:
            require("verilator")
        if given.route:
            OpenTools(given.open_tools).require(fabric.device)
        stage.end_of_checks()
        candidates = [*building.designs(network, given.array_rows, given.array_cols, given.array_simd)]
        plan = building.best_plan(network, fabric, known, candidates)
        with stage.writing() as transaction:
            simulated = building.simulated_network(plan, fabric, given.seed) if given.simulate else None
            found = routed(stage, plan, fabric, known) if given.route else None
            closed = found.clock_mhz if found else None
            again = building.plan_on(network, plan.design, fabric, known, closed) if closed else None
            calls = [*building.call_rows(plan, simulated.calls if simulated else None)]
            cells = [*building.cell_rows(plan, found, fabric)]
            summary = building.summary_of(plan, again, found, fabric, known)
            transaction.add_rows("engine_calls", calls)
            transaction.add_rows("engine_cells", cells)
            transaction.add_document("engine_summary", summary)
        stage.show(engine_report(calls, cells, summary))
    is_as_planned = found is None or building.is_as_planned(plan, found, known)
    return 0 if is_as_planned and (simulated is None or simulated.is_equal) else cli.BROKE_THRESHOLD


if __name__ == "__main__":
    cli.run(main)
