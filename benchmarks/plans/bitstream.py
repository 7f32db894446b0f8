"""Plan an engine for a quantized network, place and route it with open tools, and plan again with its clock.

    python -m benchmarks.plans.bitstream --model MODEL.onnx --board ulx3s [--tools FOLDER] [--build FOLDER]

Of the engines whose planned cells fit the device, it takes the one on which the network takes the least planned time,
or the sizes that you give. Yosys and nextpnr synthesise, place and route its Verilog with three pins around it. Printed
are planned and routed cells, the clock that was expected and the one that closed, and the time of the network planned
at both. Exit code 1: cells are more than 10 % off, or the clock is outside its interval.

The model is a quantized one (QDQ, batch 1) without row-wise work, or the name of one: resnet8, mobilenet, resnet18.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.plans.engine_networks import FABRICS, NETWORKS, network_in, network_of, read_model
from benchmarks.process import ROOT
from common.files.configuration import Section
from common.fpga.rtl.engine.cells import EngineCells, cells_of_family, read_engine_cells
from common.fpga.rtl.engine.cycles import best_tilings, planned_cycles
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.fabric import Fabric, load_fabric
from common.fpga.rtl.engine.network import EngineNetwork
from common.fpga.rtl.open_device import LogicCells
from common.fpga.rtl.routing import OpenTools, RoutedDesign, route
from common.messages.errors import PipelineError
from common.view.text import text_table

ROWS, COLS, SIMD = (4, 8, 16), (8, 16), (1, 2, 4)
WEIGHT_DEPTHS, CHANNEL_DEPTH = (4096, 16384), 256
MOST_OFF = 0.10


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """An engine for a network on a board.

    Attributes:
        seconds: planned time of the network at the clock that is expected.
    """

    design: EngineDesign
    cells: LogicCells
    seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet8", help="a quantized model, or one of ours (default: resnet8)")
    parser.add_argument("--board", default="ulx3s", help="a board of configs/fabrics (default: ulx3s)")
    parser.add_argument("--tools", type=Path, help="folder of YoWASP's commands (default: the system's tools)")
    parser.add_argument("--build", type=Path, help="folder for the netlist, the log and the routed design")
    for name in ("rows", "cols", "simd"):
        parser.add_argument(f"--{name}", type=int, help="of the array (default: that of the quickest plan)")
    parser.add_argument("--seed", type=int, default=1, help="of the placement (default: 1)")
    given = parser.parse_args(argv)
    try:
        fabric = load_fabric(given.board, FABRICS)
        families = read_engine_cells(Section.of_file(ROOT / "configs" / "engine_cells.yaml"))
        known = cells_of_family(families, fabric.device.family)
        network = _network(given.model)
        plan = best_plan(network, fabric, known, list(designs(given.rows, given.cols, given.simd)))
        print(f"placing {plan.design.name} on {fabric.device.part}", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="bitstream-") as name:
            folder = given.build or Path(name)
            folder.mkdir(parents=True, exist_ok=True)
            design = plan.design
            target = known.clock_mhz.optimistic
            found = route(
                design.verilog(),
                design.name,
                fabric.device,
                OpenTools(given.tools),
                folder,
                target_mhz=target,
                seed=given.seed,
            )
        return shown(plan, found, network, fabric, known)
    except PipelineError as problem:
        print(f"bitstream: error: {problem}", file=sys.stderr)
        return problem.exit_code
    except OSError as problem:
        print(f"bitstream: error: {problem.filename}: {problem.strerror}", file=sys.stderr)
        return 1


def _network(name: str) -> EngineNetwork:
    """Return a network for an engine without the unit for row-wise work: no engine with it was measured.

    Raises:
        PipelineError: the network has such work, or the engine does not compute it.
    """
    network = network_in(name, network_of(name, 0) if name in NETWORKS else read_model(Path(name)))
    if any(layer.rows for layer in network.layers):
        raise PipelineError(name, "has row-wise work, whose unit is not planned", "give a network without it")
    return network


def designs(rows: int | None, cols: int | None, simd: int | None) -> Iterator[EngineDesign]:
    """Yield the engines that are compared, with words of 8 bytes, or of 4 where there are 4 columns."""
    for r in ROWS if rows is None else [rows]:
        for c in COLS if cols is None else [cols]:
            for s in SIMD if simd is None else [simd]:
                for depth in WEIGHT_DEPTHS:
                    sizes = {"word_bytes": min(8, c), "weight_depth": depth, "channel_depth": CHANNEL_DEPTH}
                    yield EngineDesign(r, c, s, **sizes, has_row_work=False)


def best_plan(
    network: EngineNetwork, fabric: Fabric, known: EngineCells, candidates: Sequence[EngineDesign]
) -> EnginePlan:
    """Return the engine that fits the device and takes the least planned time; of equal ones, the smaller one.

    Raises:
        PipelineError: none fits, or no engine that fits has room for the network's layers.
    """
    budget = fabric.device.cells.scaled(fabric.device.closure)
    fitting = [design for design in candidates if known.planned(design).fits(budget)]
    if not fitting:
        raise PipelineError(fabric.name, "no engine fits its device", "give fewer rows, columns or products")
    plans, refused = [], None
    for design in fitting:
        try:
            seconds = planned_seconds(network, design, fabric, known.clock_mhz.likely)
            plans.append(EnginePlan(design, known.planned(design), seconds))
        except PipelineError as problem:
            refused = problem
    if not plans:
        assert refused is not None
        raise refused
    return min(plans, key=lambda plan: (plan.seconds, plan.cells.lut))


def planned_seconds(network: EngineNetwork, design: EngineDesign, fabric: Fabric, clock_mhz: float) -> float:
    """Return the planned time of the network, with the divisions that are best at that clock.

    Raises:
        PipelineError: a layer does not fit the engine's buffers.
    """
    timing = fabric.timing(design.word_bytes, clock_mhz)
    return sum(planned_cycles(each, timing).total for each in best_tilings(network, design, timing)) / (clock_mhz * 1e6)


def shown(plan: EnginePlan, found: RoutedDesign, network: EngineNetwork, fabric: Fabric, known: EngineCells) -> int:
    """Print plan and routed design, and return the exit code."""
    device, errors = fabric.device.cells.by_name, {}
    rows = []
    for name, planned in plan.cells.by_name.items():
        routed = found.cells.by_name[name]
        errors[name] = planned / routed - 1 if routed else 0.0
        share = f"{routed / device[name]:.0%}"
        rows.append([name, f"{planned:,.0f}", f"{routed:,.0f}", f"{errors[name]:+.1%}", f"{device[name]:,.0f}", share])
    print(f"{plan.design.name} on {fabric.name} ({fabric.device.part}), with its pins")
    print(text_table(["cells", "planned", "routed", "error", "device", "used"], rows))
    clock, closed = known.clock_mhz, found.clock_mhz
    assert closed is not None
    expected = f"{clock.pessimistic:g} to {clock.optimistic:g} MHz expected, {clock.likely:g} likely"
    print(f"clock: {expected}; {closed:g} MHz closed")
    if found.slowest is not None:
        print("slowest path: from {} to {}".format(*found.slowest))
    again = planned_seconds(network, plan.design, fabric, closed)
    print(
        f"network: {1e3 * plan.seconds:.2f} ms planned at {clock.likely:g} MHz, {1e3 * again:.2f} ms at {closed:g} MHz"
    )
    is_inside = clock.pessimistic <= closed <= clock.optimistic
    return int(not (is_inside and all(abs(error) <= MOST_OFF for error in errors.values())))


if __name__ == "__main__":
    sys.exit(main())
