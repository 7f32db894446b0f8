"""The engine of a plan: the array that 07 chooses for a board, and the calls that the plan has it compute.

The plan chooses among arrays that the Verilog engine can be. Host times are those of a slow core, as in
benchmarks/plans/cosim.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import onnx

from benchmarks.kernels.engine_runs import array_on
from benchmarks.plans.cosim import ArrayCall, array_calls, plan_of, workload_of
from common.fpga.array_designs import ArrayDesign, DesignSet
from common.fpga.device.board import Board
from common.fpga.engine_catalogue import ARRAY_SIDES, ARRAY_SIMD
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.rtl.engine.design import LEAST_WORD_BYTES, EngineDesign
from common.fpga.rtl.engine.fabric import Fabric
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.engine.network import EngineNetwork
from common.intervals import ThreePoint, summed
from common.messages.errors import PipelineError
from common.workload.task_candidates import task_candidates

HOST_MACS_PER_S = 2e8


@dataclass(frozen=True, slots=True)
class PlannedEngine:
    """An engine, and the calls of its plan in their order."""

    array: SystolicArray
    design: EngineDesign
    calls: tuple[ArrayCall, ...]

    def timing(self, memory: MemoryTiming) -> MemoryTiming:
        """Return a memory with the rate of the ports of the array, as the plan counts it at best."""
        ports = self.array.ports
        cycles = self.design.word_bytes / (ports.count * ports.port_bits / 8)
        rate = ports.channel_count * ports.channel_bytes_per_s / (ports.clock_mhz * 1e6)
        return replace(memory, word_cycles=max(1.0, cycles, self.design.word_bytes / rate))

    def cycles(self, call: ArrayCall) -> ThreePoint:
        """Return the cycles that the plan counts for a call, with its interval."""
        estimate = self.array.estimate(call.call.task)
        assert estimate is not None
        return estimate.cycles


def planned_engine(model: onnx.ModelProto, board: Board, most_multipliers: int) -> PlannedEngine:
    """Plan a network for a board with the arrays that the engine can be, and return the one that the plan takes.

    Raises:
        PipelineError: the plan has no array.
    """
    designs = tuple(_designs(board, most_multipliers))
    calls = array_calls(plan_of(model, board.name, HOST_MACS_PER_S, designs))
    if not calls:
        raise PipelineError(board.name, "the plan has no array", "give a larger number of multipliers")
    (array, *others) = {call.array.name: call.array for call in calls}.values()
    if others:
        raise PipelineError(board.name, f"the plan has {1 + len(others)} arrays, and an engine has one")
    return PlannedEngine(array, EngineDesign.of(array), tuple(calls))


def modelled_cycles(model: onnx.ModelProto, design: EngineDesign, fabric: Fabric) -> ThreePoint:
    """Return the cycles of a network that 07's model has for an array of the size of an engine.

    They are the sum of the products and convolutions, one call each. The interval is of families of arrays,
    and the engine is one of them: benchmarks/kernels/array_coverage.py judges it by the others.
    """
    workload = workload_of(model, HOST_MACS_PER_S)
    array = array_on((design.rows, design.cols, design.simd), design.word_bytes, fabric)
    candidates = task_candidates(workload.graph, workload.groups, workload.layers, "int8", longest_chain=1)
    estimates = (array.estimate(each.task) for each in candidates if each.task is not None and each.task.macs)
    return summed(each.cycles for each in estimates if each is not None)


def _designs(board: Board, most: int) -> Iterator[ArrayDesign]:
    sizes = [
        (rows, cols, simd)
        for rows, cols, simd in product(ARRAY_SIDES, ARRAY_SIDES, ARRAY_SIMD)
        if rows * cols * simd <= most and cols & (cols - 1) == 0 and simd <= cols and cols >= LEAST_WORD_BYTES
    ]
    for size in (size for size in sizes if 2 * size[0] * size[1] * size[2] > most):
        yield from (each for each in DesignSet(sizes, (4, 16)).of_size(size, board) if each.port_count == 1)


def simulated_cycles(engine: PlannedEngine, network: EngineNetwork, spent: Mapping[str, int]) -> list[int]:
    """Return the cycles of the layers of each call, in the plan's order.

    Raises:
        PipelineError: the engine computes the layers in another order.
    """
    places = {layer.node: place for place, layer in enumerate(network.layers)}
    firsts = [min(places[node] for node in call.nodes) for call in engine.calls]
    if firsts != sorted(firsts):
        raise PipelineError(engine.array.name, "the plan's calls are in another order than the layers of the network")
    return [sum(spent[node] for node in call.nodes) for call in engine.calls]
