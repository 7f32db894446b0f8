"""From a quantized network to an engine on a board: which one, its planned times, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import onnx

from common.fpga.rtl.engine.arithmetic import tensors_of
from common.fpga.rtl.engine.cells import EngineCells
from common.fpga.rtl.engine.cycles import PlannedCycles, best_tilings, network_cycles
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.fabric import Fabric
from common.fpga.rtl.engine.network import LEAST, MOST, EngineNetwork
from common.fpga.rtl.engine.program import program_of
from common.fpga.rtl.engine.reading.layers import bound, layers_of
from common.fpga.rtl.engine.reading.whole_folds import on_whole_folds
from common.fpga.rtl.engine.simulate import CAUSES, EngineSimulator, Spent
from common.fpga.rtl.engine.tiling import Tiling
from common.fpga.rtl.open_device import LogicCells
from common.fpga.rtl.routing import RoutedDesign
from common.messages.errors import PipelineError
from common.table_rows import EngineCallsRow, EngineCellsRow, EngineSummaryDocument

ROWS, COLS, SIMD = (4, 8, 16), (4, 8, 16), (1, 2, 4)
WEIGHT_DEPTHS, CHANNEL_DEPTH = (4096, 16384), 256
MOST_OFF = 0.10
MOST_CYCLES = 500_000_000  # of a simulation


@dataclass(frozen=True, slots=True)
class EnginePlan:
    network: EngineNetwork  # whose parts are whole folds of the engine
    design: EngineDesign
    cells: LogicCells  # that it is planned to take
    tilings: tuple[Tiling, ...]  # how each layer is divided at the clock that is expected
    planned: tuple[PlannedCycles, ...]  # cycles of each layer at that clock
    clock_mhz: float  # that is expected

    @property
    def seconds(self) -> float:
        return sum(each.total for each in self.planned) / (self.clock_mhz * 1e6)


def designs(network: EngineNetwork, rows: int | None, cols: int | None, simd: int | None) -> Iterator[EngineDesign]:
    """Yield the engines that are compared, with the units that the network needs.

    Words have 8 bytes, or 4 where there are 4 columns.
    """
    has_row_work = any(layer.rows for layer in network.layers)
    has_products = any(layer.residual and layer.residual.is_factor for layer in network.layers)
    sides = (known if given is None else (given,) for known, given in ((ROWS, rows), (COLS, cols), (SIMD, simd)))
    for r, c, s, depth in product(*sides, WEIGHT_DEPTHS):
        sizes = {"word_bytes": min(8, c), "weight_depth": depth, "channel_depth": CHANNEL_DEPTH}
        yield EngineDesign(r, c, s, **sizes, has_row_work=has_row_work, has_products=has_products)


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
    plans, refused = [], []
    for design in fitting:
        try:
            plans.append(plan_on(network, design, fabric, known, known.clock_of(design).likely))
        except PipelineError as problem:
            refused.append(problem)
    if not plans:
        raise refused[-1]
    return min(plans, key=lambda plan: (plan.seconds, plan.cells.lut))


def plan_on(
    network: EngineNetwork, design: EngineDesign, fabric: Fabric, known: EngineCells, clock_mhz: float
) -> EnginePlan:
    """Return the plan on one engine at a clock, with the divisions that are best there.

    Raises:
        PipelineError: a layer does not fit the engine's buffers.
    """
    timing, folded = fabric.timing(design.word_bytes, clock_mhz), on_whole_folds(network, design.cols)
    divided = tuple(best_tilings(folded, design, timing))
    planned = tuple(network_cycles(folded, divided, timing))
    return EnginePlan(folded, design, known.planned(design), divided, planned, clock_mhz)


def network_in(path: Path, dimensions: Mapping[str, int]) -> EngineNetwork:
    """Return the layers of a quantized model, whose symbolic dimensions have the given sizes.

    Raises:
        PipelineError: the engine does not compute it, or it has no layer.
    """
    try:
        network = layers_of(bound(onnx.load(path), dimensions))
    except PipelineError as problem:
        raise PipelineError(path, f"the engine does not compute it ({problem})") from problem
    if not network.layers:
        raise PipelineError(path, "has no layer for the engine", "give a quantized model (QDQ)")
    return network


@dataclass(frozen=True, slots=True)
class SimulatedPlan:
    """What Verilator counted."""

    calls: tuple[Spent, ...]  # cycles of each layer, and how they were spent
    is_equal: bool  # whether every tensor has the integers of numpy


def simulated_network(plan: EnginePlan, fabric: Fabric, seed: int) -> SimulatedPlan:
    """Run the network on the Verilog of its engine, on random inputs, with the memory of the board.

    Raises:
        PipelineError: Verilator is missing, or failed.
    """
    random, network = np.random.default_rng(seed), plan.network
    shapes = {each.name: (each.channels, each.height, each.width) for each in network.inputs}
    inputs = {name: random.integers(LEAST, MOST, shape, np.int8, endpoint=True) for name, shape in shapes.items()}
    program = program_of(network, plan.tilings, plan.design)
    with EngineSimulator(plan.design) as simulator:
        run = simulator.run(program, inputs, fabric.timing(plan.design.word_bytes, plan.clock_mhz), MOST_CYCLES)
    expected = tensors_of(network, {name: values[None] for name, values in inputs.items()})
    is_equal = all(np.array_equal(values, expected[name][0]) for name, values in run.tensors.items())
    return SimulatedPlan(run.calls, is_equal)


# --- tables -----------------------------------------------------------------------------------------------------------


def call_rows(plan: EnginePlan, simulated: Sequence[Spent] | None) -> Iterable[EngineCallsRow]:
    """Yield a row for each layer: its planned cycles, and those that were simulated, by their cause."""
    names = [tiling.layer.node for tiling in plan.tilings]
    for place, (name, planned) in enumerate(zip(names, plan.planned, strict=True)):
        spent = simulated[place] if simulated else None
        yield {
            "call_index": place,
            "source_node": name,
            "planned_cycles": planned.total,
            "planned_us": planned.total / plan.clock_mhz,
            "simulated_call_cycles": spent.cycles if spent else None,
            "simulated_us": spent.cycles / plan.clock_mhz if spent else None,
            "cycles_by_cause": {cause: spent.by_cause[cause] for cause in CAUSES} if spent else {},
        }


def cell_rows(plan: EnginePlan, found: RoutedDesign | None, fabric: Fabric) -> Iterable[EngineCellsRow]:
    """Yield a row for each kind of cells of the device."""
    routed = found.cells.by_name if found else {}
    for name, planned in plan.cells.by_name.items():
        yield {
            "cell_kind": name,
            "planned_count": planned,
            "routed_count": routed.get(name),
            "budget_count": fabric.device.closure.by_name[name] * fabric.device.cells.by_name[name],
            "total_count": fabric.device.cells.by_name[name],
        }


def summary_of(
    plan: EnginePlan, again: EnginePlan | None, found: RoutedDesign | None, fabric: Fabric, known: EngineCells
) -> EngineSummaryDocument:
    """Return what became of the plan; ``again`` is the plan at the clock that closed."""
    clock = known.clock_of(plan.design)
    return {
        "board": fabric.name,
        "part": fabric.device.part,
        "engine_design": plan.design.name,
        "expected_clock_pessimistic_mhz": clock.pessimistic,
        "expected_clock_likely_mhz": clock.likely,
        "expected_clock_optimistic_mhz": clock.optimistic,
        "closed_clock_mhz": found.clock_mhz if found else None,
        "planned_us": 1e6 * plan.seconds,
        "replanned_us": 1e6 * again.seconds if again else None,
    }


def is_as_planned(plan: EnginePlan, found: RoutedDesign, known: EngineCells) -> bool:
    """Whether the clock is inside its interval, and no kind of cells is more than a tenth off."""
    pairs = zip(plan.cells.by_name.values(), found.cells.by_name.values(), strict=True)
    is_near = all(abs(planned - routed) <= MOST_OFF * routed for planned, routed in pairs)
    clock, closed = known.clock_of(plan.design), found.clock_mhz or 0.0
    return is_near and clock.pessimistic <= closed <= clock.optimistic
