"""Published arrays as the model builds them: what each took, beside the cycles and the amounts of the equations.

Each design of ``published.yaml`` is estimated as ``python -m common.fpga estimate`` would: with the size, ports and
clock that were published, and the tile that the model chooses. Whole networks on a DPU are the sum of their products
and convolutions on an array of its shape; the parts of the host and of the window unit, as fitted for the overlay, are
taken off the published time. Networks with depthwise convolutions are left out, for which a DPU has another unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from typing import Literal

from benchmarks.kernels.engine_runs import NETWORKS as ENGINE_NETWORKS
from benchmarks.kernels.engine_runs import engine_runs
from benchmarks.kernels.overlay_fit import CONFIGS, Network, configured, network, predicted
from benchmarks.kernels.published import OPENED, Design, GenericFigures, designs, generic_figures, network_figures
from benchmarks.kernels.zoo_networks import NETWORKS
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import array_ports
from common.fpga.kernels.overlay.engine import OverlayEngine
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.systolic.array import ELEMENT_BYTES, SystolicArray, build_array
from common.fpga.kernels.systolic.array_models import PORT_BITS, FloatLogic, Serves
from common.fusion.groups import fuse
from common.graphs.number_formats import PRECISION_BITS
from common.intervals import ThreePoint
from common.workload.layers import Convolution, Matmul
from common.workload.task_candidates import task_candidates
from common.workload.tasks import Task

MODELS = load_models(CONFIGS)
NO_CLOCK_MHZ = 300.0  # for resources, which do not depend on the clock
DPU_PORTS = (2, 128)  # PG338, Port Descriptions
BRAM_OF_URAM = 8  # 288 Kb of an UltraRAM over 36 Kb
RESOURCES = ("lut", "ff", "bram36", "dsp")
LOGIC = ("lut", "ff")
KNOWN = ("sums", "multipliers", "bits", "bytes of buffers", "banks of operands", "ports")
FLOAT = "fp32"
Scope = Literal["array", "design", "apart"]
SECTIONS: Mapping[Scope, Sequence[str]] = {
    "array": ("arrays",),
    "design": ("arrays", "generic", "engines"),
    "apart": ("apart",),
}


@dataclass(frozen=True, slots=True)
class Rates:
    """Share of the cycles in which elements have operands, and cycles of a call."""

    share: float
    call: float


@dataclass(frozen=True, slots=True)
class Timed:
    """A published time, in cycles, and the cycles of the equations for each call: (equations, all elements busy).

    ``serves`` is what the array computes: one product that it was tuned for, or a network of many.
    """

    family: str
    name: str
    serves: Serves
    published: float
    calls: tuple[tuple[float, float], ...]
    source: str
    is_opened: bool

    def ratio(self, rates: Rates) -> float:
        """Return published over modelled cycles."""
        return self.published / sum(max(own, ideal / rates.share) + rates.call for own, ideal in self.calls)


@dataclass(frozen=True, slots=True)
class Counted:
    """Published over modelled amount of one resource; floating-point designs also by what is fitted to them.

    ``known`` has quantities of the array that a plan knows beforehand, by the names of :data:`KNOWN`. A referee took no
    part in the likely amounts.
    """

    family: str
    name: str
    resource: str
    published: float
    modelled: float
    logic: tuple[int, int, float] | None  # elements, products per element, modelled amount without them
    known: Mapping[str, float]
    source: str
    is_opened: bool
    is_referee: bool = False

    def ratio(self, logic: FloatLogic | None) -> float:
        """Return published over modelled amount, with other cells of floating-point elements where given."""
        if logic is None or self.logic is None:
            return self.published / self.modelled
        elements, simd, rest = self.logic
        return self.published / (rest + logic.at(elements, simd))


# --- designs as engines -----------------------------------------------------------------------------------------------


def ports_of(design: Design) -> MemoryPorts:
    """Return the ports of a design: those of its board, 512 bits to a DDR4 channel, or those of a DPU."""
    clock = design.clock_mhz or NO_CLOCK_MHZ
    if design.board:
        return array_ports(load_board(design.board, CONFIGS / "boards").clocked(clock), design.channels)
    if design.channel_bytes_per_s:
        usual = load_board("u250", CONFIGS / "boards").memory
        rate = design.channel_bytes_per_s
        return MemoryPorts(design.channels, usual.port_bits, clock, design.channels, rate, usual.efficiency, 0.0)
    return dpu_ports("zcu102", clock)


def dpu_ports(board: str, clock_mhz: float) -> MemoryPorts:
    memory = load_board(board, CONFIGS / "boards").memory
    count, bits = DPU_PORTS
    return MemoryPorts(count, bits, clock_mhz, 1, memory.bytes_per_s, memory.efficiency, 0.0)


def array_of(design: Design) -> SystolicArray:
    rate = design.macs_per_dsp
    if rate is None:
        rate = load_board(design.board, CONFIGS / "boards").macs_per_dsp[design.precision]
    return build_array(design.size, design.precision, ports_of(design), rate, MODELS.systolic, serves="product")


def equations(array: SystolicArray, tasks: Iterable[Task]) -> tuple[tuple[float, float], ...]:
    """Return for each call the cycles of the equations alone, and the cycles with all elements busy.

    Published arrays have loads and stores of their own, of which little is known: theirs are bytes over the ports.
    """
    exact = replace(array.scatter, band=ThreePoint.exactly(1.0))
    timing = replace(array.timing, array_share=1.0, call_cycles=0.0)
    plain = replace(array, timing=timing, scatter=exact, is_generated=False)
    estimates = ((task, plain.estimate(task)) for task in tasks)
    peak = array.peak_macs_per_cycle
    return tuple((found.cycles.likely, task.macs / peak) for task, found in estimates if found is not None)


def task_of(layer: Matmul | Convolution, precision: str) -> Task:
    """Return a product or convolution as a task, every operand once."""
    size = ELEMENT_BYTES[precision]
    if isinstance(layer, Matmul):
        amounts = (layer.k * layer.n, layer.m * layer.k, layer.m * layer.n)
    else:
        window = layer.kernel_height * layer.kernel_width
        pixels = (layer.in_height * layer.in_width, layer.out_height * layer.out_width)
        read, written = layer.batch * layer.in_channels * pixels[0], layer.batch * layer.out_channels * pixels[1]
        amounts = (layer.in_channels * layer.out_channels * window, read, written)
    weights, read, written = (round(amount * size) for amount in amounts)
    return Task("published", "gemm", (layer,), precision, weights, read, written)


# --- published times --------------------------------------------------------------------------------------------------


def timed() -> Iterator[Timed]:
    """Yield every published time whose clock is published too."""
    for design in designs():
        if design.layer is not None and design.time_us is not None and design.clock_mhz is not None:
            calls = equations(array_of(design), [task_of(_part(design.layer, design.count), design.precision)])
            cycles, origin = design.time_us * design.clock_mhz, f"{design.source} ({design.trust})"
            yield Timed(design.family, design.name, "product", cycles, calls, origin, design.trust in OPENED)
    yield from on_generic_arrays(generic_figures())
    yield from _on_overlays()
    yield from _on_the_engine()


def _part(layer: Matmul | Convolution, count: int) -> Matmul | Convolution:
    """Return what each of several equal arrays computes of a product: its share of the rows."""
    return replace(layer, m=ceil(layer.m / count)) if isinstance(layer, Matmul) else layer


def held_out() -> Iterator[Timed]:
    """Yield the published times that took part in no fit and no interval."""
    yield from on_generic_arrays(generic_figures("held_out"))


def on_generic_arrays(found: Iterable[GenericFigures]) -> Iterator[Timed]:
    """Yield the times of whole networks on arrays that were built for none of them."""
    for figures in found:
        design, clock = figures.design, figures.design.clock_mhz or NO_CLOCK_MHZ
        for name, time_us in figures.time_us.items():
            all_tasks = (at_precision(task, design.precision) for task in counted_network(name)[1])
            tasks = [task for task in all_tasks if task.kind == "conv" or not figures.is_convolutions_only]
            calls, origin = equations(array_of(design), tasks), f"{design.source} ({design.trust})"
            yield Timed(design.family, f"{name} on {design.name}", "network", time_us * clock, calls, origin, True)


def at_precision(task: Task, precision: str) -> Task:
    """Return an int8 task in another number format."""
    weights, read, written = (
        round(amount * ELEMENT_BYTES[precision]) for amount in (task.weight_bytes, task.read_bytes, task.written_bytes)
    )
    return replace(task, precision=precision, weight_bytes=weights, read_bytes=read, written_bytes=written)


def _on_overlays() -> Iterator[Timed]:
    for table in network_figures():
        engine = configured(table.engine, table.board)
        if engine.engine_count > 1:
            continue
        shape, clock = engine.shape, engine.clock_mhz
        size = (shape.pixels, shape.out_channels, shape.in_channels)
        array = build_array(size, "int8", dpu_ports(table.board, clock), 4, MODELS.systolic)
        for name, time_us in table.time_us.items():
            net, tasks = counted_network(name)
            if not any(isinstance(layer, Convolution) and layer.groups > 1 for task in tasks for layer in task.layers):
                around_us = _around_us(net, engine)
                cycles, label = (time_us - around_us) * clock, f"{name} on {engine.name}, {table.board}"
                calls = equations(array, tasks)
                yield Timed("dpu", label, "network", cycles, calls, table.source, is_opened=True)


def _on_the_engine() -> Iterator[Timed]:
    """Yield the networks that the engine in Verilog computed in simulation, with all that it waited for."""
    for run in engine_runs():
        place = run.place
        calls = equations(place.array(), engine_tasks(place.network))
        label = f"{place.network} on {'x'.join(map(str, place.size))}, {place.fabric}"
        yield Timed("engine", label, "network", float(run.simulated), calls, "engine_runs.csv (simulated)", True)


@cache
def engine_tasks(name: str) -> tuple[Task, ...]:
    return _counted(network(ENGINE_NETWORKS[name]()))


@cache
def counted_network(name: str) -> tuple[Network, tuple[Task, ...]]:
    net = network(NETWORKS[name]())
    return net, _counted(net)


def _counted(net: Network) -> tuple[Task, ...]:
    candidates = task_candidates(net.graph, fuse(net.graph), net.layers, "int8", longest_chain=1)
    return tuple(found.task for found in candidates if found.task is not None and found.task.macs)


def _around_us(net: Network, engine: OverlayEngine) -> float:
    """Return the time of the host and of the window unit, by the overlay's model."""
    model = predicted(net, engine)
    window = (row["kernel_latency_likely_us"] or 0.0 for row in model.layers if row["unit"] == "window")
    return model.host_us + sum(window)


# --- published resources ----------------------------------------------------------------------------------------------


def counted(scope: Scope = "design") -> Iterator[Counted]:
    """Yield every published amount of every resource; UltraRAM counts as block RAM.

    Beside the *array*: designs that are an array alone, less the logic of those that multiply in LUTs.
    Beside the *design* around it: all published totals, whatever they were spent on. *Apart* are designs that the model
    does not describe.
    """
    for design in (found for key in SECTIONS[scope] for found in designs(key)):
        array, given = array_of(design), dict(design.resources)
        if "bram36" in given:
            given["bram36"] += BRAM_OF_URAM * given.get("uram", 0.0)
        likely = array.bare.times(design.count)
        left_out = LOGIC if scope == "array" and design.has_logic_multipliers else ()
        for resource in (name for name in RESOURCES if name in given and name not in left_out):
            origin = f"{design.source} ({design.trust})"
            modelled = getattr(likely, resource)
            logic = _logic(design, resource, modelled)
            opened, known = design.trust in OPENED, _known(array, design.count)
            amounts = (given[resource], modelled, logic, known, origin, opened)
            yield Counted(design.family, design.name, resource, *amounts, design.is_referee)


def _known(array: SystolicArray, count: int) -> dict[str, float]:
    rows, cols, simd = array.rows, array.cols, array.simd
    stored = sum(held.content_bytes for held in array.buffers)
    ports = array.ports.count * array.ports.port_bits / PORT_BITS
    amounts = (rows * cols, rows * cols * simd, PRECISION_BITS[array.precision] / count, stored, rows + cols, ports)
    return {name: count * amount for name, amount in zip(KNOWN, amounts, strict=True)}


def _logic(design: Design, resource: str, modelled: float) -> tuple[int, int, float] | None:
    cells = {"lut": MODELS.systolic.float_lut, "ff": MODELS.systolic.float_ff}.get(resource)
    if design.precision != FLOAT or cells is None or not design.has_elements:
        return None
    rows, cols, simd = design.size
    return design.count * rows * cols, simd, modelled - design.count * cells[FLOAT].at(rows * cols, simd)
