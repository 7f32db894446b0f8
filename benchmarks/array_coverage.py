"""Fit what published arrays take beyond the model's equations, and count how many of them the intervals hold.

    python -m benchmarks.array_coverage

Each design of ``published.yaml`` is estimated as ``python -m common.fpga estimate`` would: with the size, ports and
clock that were published, and the tile that the model chooses. Whole networks on a DPU are the sum of their products
and convolutions on an array of its shape; the parts of the host and of the window unit, as fitted for the overlay, are
taken off the published time. Networks with depthwise convolutions are left out, for which a DPU has another unit.

A figure never judges an interval that it helped to choose: for the coverage of a family, the rates and the interval are
chosen from the other families. Designs that are only recalled take part in neither.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import log
from statistics import fmean, median
from typing import TypeVar

from benchmarks.coverage import Band, band_of
from benchmarks.overlay_fit import CONFIGS, Network, Prior, configured, network, predicted
from benchmarks.published import OPENED, Closure, Design, attention_shares, closures, designs, network_figures
from benchmarks.zoo_networks import NETWORKS
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.device.resources import Resources
from common.fpga.engine_catalogue import array_ports, closing
from common.fpga.kernels.overlay import OverlayEngine
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.systolic import ELEMENT_BYTES, SystolicArray, build_array
from common.fpga.kernels.systolic_resources import FloatLogic
from common.fpga.kernels.systolic_timing import ONE_REGION, SEVERAL_REGIONS
from common.fusion.groups import fuse
from common.workload.layers import Convolution, Matmul
from common.workload.task_candidates import task_candidates
from common.workload.tasks import Task

MODELS = load_models(CONFIGS)
NO_CLOCK_MHZ = 300.0  # for resources, which do not depend on the clock
DPU_PORTS = (2, 128)  # PG338, Port Descriptions
BRAM_OF_URAM = 8  # 288 Kb of an UltraRAM over 36 Kb
RESOURCES = ("lut", "ff", "bram36", "dsp")
# Steps of the search, around what the overlay's fit believes: shares of the cycles, cycles of a call.
SHARES, CALLS = tuple(0.80 + 0.01 * step for step in range(21)), tuple(range(100, 3001, 100))
RATE_PRIORS = (Prior(0.9, 0.07), Prior(2131.0, 0.8))
# Cells of a multiply-accumulate, around those of its two operators (configs/dataflow.yaml), and of an element.
PER_MAC, PER_ELEMENT = tuple(range(300, 901, 10)), tuple(range(100, 2001, 20))
LOGIC_PRIORS = (Prior(349.0, 0.5), Prior(500.0, 1.0))
SPREAD = 0.1  # standard deviation of the logarithm of published over modelled, within a family
FLOAT = "fp32"
RECALLED = "(recalled)"


@dataclass(frozen=True, slots=True)
class Timed:
    """A published time, in cycles, and the cycles of the equations for each call: (equations, all elements busy)."""

    family: str
    name: str
    published: float
    calls: tuple[tuple[float, float], ...]
    source: str
    is_opened: bool

    def ratio(self, rates: Rates) -> float:
        """Return published over modelled cycles."""
        return self.published / sum(max(own, ideal / rates.share) + rates.call for own, ideal in self.calls)


@dataclass(frozen=True, slots=True)
class Rates:
    """Share of the cycles in which elements have operands, and cycles of a call."""

    share: float
    call: float


@dataclass(frozen=True, slots=True)
class Counted:
    """Published over modelled amount of one resource; floating-point designs also by what is fitted to them."""

    family: str
    name: str
    resource: str
    published: float
    modelled: float
    logic: tuple[int, int, float] | None  # elements, products per element, modelled amount without them
    source: str
    is_opened: bool

    def ratio(self, logic: FloatLogic | None) -> float:
        """Return published over modelled amount, with other cells of floating-point elements where given."""
        if logic is None or self.logic is None:
            return self.published / self.modelled
        elements, simd, rest = self.logic
        return self.published / (rest + logic.at(elements, simd))


Point = TypeVar("Point", Timed, Counted)


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
    """Return the ports of a DPU on an embedded board."""
    memory = load_board(board, CONFIGS / "boards").memory
    count, bits = DPU_PORTS
    return MemoryPorts(count, bits, clock_mhz, 1, memory.bytes_per_s, memory.efficiency, 0.0)


def array_of(design: Design) -> SystolicArray:
    """Return a design as the model builds it."""
    rate = design.macs_per_dsp
    if rate is None:
        rate = load_board(design.board, CONFIGS / "boards").macs_per_dsp[design.precision]
    return build_array(design.size, design.precision, ports_of(design), rate, MODELS.systolic)


def equations(array: SystolicArray, tasks: Iterable[Task]) -> tuple[tuple[float, float], ...]:
    """Return for each call the cycles of the equations alone, and the cycles with all elements busy."""
    plain = replace(array, timing=replace(array.timing, array_share=1.0, call_cycles=0.0))
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
            calls = equations(array_of(design), [task_of(design.layer, design.precision)])
            cycles, origin = design.time_us * design.clock_mhz, f"{design.source} ({design.trust})"
            yield Timed(design.family, design.name, cycles, calls, origin, design.trust in OPENED)
    yield from _networks()


def _networks() -> Iterator[Timed]:
    for table in network_figures():
        engine = configured(table.engine, table.board)
        if engine.config.engine_count > 1:
            continue
        shape, clock = engine.config.shape, engine.clock_mhz
        size = (shape.pixels, shape.out_channels, shape.in_channels)
        array = build_array(size, "int8", dpu_ports(table.board, clock), 4, MODELS.systolic)
        for name, time_us in table.time_us.items():
            net, tasks = counted_network(name)
            if not any(isinstance(layer, Convolution) and layer.groups > 1 for task in tasks for layer in task.layers):
                around_us = _around_us(net, engine)
                cycles, label = (time_us - around_us) * clock, f"{name} on {engine.name}, {table.board}"
                yield Timed("dpu", label, cycles, equations(array, tasks), table.source, is_opened=True)


@cache
def counted_network(name: str) -> tuple[Network, tuple[Task, ...]]:
    """Return a network, and its products and convolutions as tasks."""
    net = network(NETWORKS[name]())
    candidates = task_candidates(net.graph, fuse(net.graph), net.layers, "int8", longest_chain=1)
    return net, tuple(found.task for found in candidates if found.task is not None and found.task.macs)


def _around_us(net: Network, engine: OverlayEngine) -> float:
    """Return the time of the host and of the window unit, by the overlay's model."""
    model = predicted(net, engine)
    return model.host_us + sum(row.time_us for row in model.layers if row.unit == "window")


# --- published resources ----------------------------------------------------------------------------------------------


def counted() -> Iterator[Counted]:
    """Yield every published amount of every resource; UltraRAM counts as block RAM."""
    for design in (*designs("arrays"), *designs("engines")):
        array, given = array_of(design), dict(design.resources)
        if "bram36" in given:
            given["bram36"] += BRAM_OF_URAM * given.get("uram", 0.0)
        likely = array.resources.times(design.count)
        if design.has_dsp_accumulators:
            likely += Resources(dsp=design.count * array.rows * array.cols)
        for resource in RESOURCES:
            if resource in given:
                origin = f"{design.source} ({design.trust})"
                modelled = getattr(likely, resource)
                logic = _logic(design, resource, modelled)
                opened = design.trust in OPENED
                yield Counted(design.family, design.name, resource, given[resource], modelled, logic, origin, opened)


def _logic(design: Design, resource: str, modelled: float) -> tuple[int, int, float] | None:
    cells = {"lut": MODELS.systolic.float_lut, "ff": MODELS.systolic.float_ff}.get(resource)
    if design.precision != FLOAT or cells is None:
        return None
    rows, cols, simd = design.size
    return rows * cols, simd, modelled - cells[FLOAT].at(rows * cols, simd)


# --- fits -------------------------------------------------------------------------------------------------------------


def fit_rates(points: Sequence[Timed]) -> Rates:
    """Return the most probable rates under their priors and the points, every family alike."""

    def loss(rates: Rates) -> float:
        return _loss(points, lambda point: point.ratio(rates)) + _prior((rates.share, rates.call), RATE_PRIORS)

    return min((Rates(*pair) for pair in product(SHARES, CALLS)), key=loss)


def fit_logic(points: Sequence[Counted]) -> FloatLogic:
    """Return the most probable cells of a floating-point multiply-accumulate and of an element, every family alike."""
    own = [point for point in points if point.logic is not None]

    def loss(logic: FloatLogic) -> float:
        return _loss(own, lambda point: point.ratio(logic)) + _prior((logic.per_mac, logic.per_element), LOGIC_PRIORS)

    return min((FloatLogic(*pair) for pair in product(PER_MAC, PER_ELEMENT)), key=loss)


def _loss(points: Sequence[Point], ratio: Callable[[Point], float]) -> float:
    """Return the squared logarithms in units of ``SPREAD``, averaged in each family and summed over the families."""
    families = {point.family for point in points}
    own = ([log(ratio(point)) / SPREAD for point in points if point.family == family] for family in families)
    return sum(fmean(error * error for error in errors) for errors in own)


def _prior(values: Sequence[float], priors: Sequence[Prior]) -> float:
    return sum((log(value / prior.median) / prior.spread) ** 2 for value, prior in zip(values, priors, strict=True))


# --- coverage ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """A published figure beside an interval that it took no part in choosing."""

    family: str
    name: str
    published: float
    likely: float
    band: Band
    source: str

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds the figure."""
        return self.published / self.likely in self.band


def by_family(ratios: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    """Return the ratios of each family."""
    found: dict[str, list[float]] = {}
    for family, ratio in ratios:
        found.setdefault(family, []).append(ratio)
    return found


def chosen_band(points: Sequence[Timed]) -> tuple[Rates, Band]:
    """Return the rates and the interval that the points give."""
    rates = fit_rates(points)
    return rates, band_of(by_family((point.family, point.ratio(rates)) for point in points))


def judged_times(points: Sequence[Timed]) -> Iterator[Judged]:
    """Judge the times of each family by the rates and the interval of the others."""
    for family in dict.fromkeys(point.family for point in points):
        rates, band = chosen_band([point for point in points if point.is_opened and point.family != family])
        for point in points:
            if point.family == family:
                likely = point.published / point.ratio(rates)
                yield Judged(family, point.name, point.published, likely, band, point.source)


def chosen_resource_band(points: Sequence[Counted]) -> tuple[FloatLogic | None, Band]:
    """Return the cells and the interval that the points give, all of one resource."""
    logic = fit_logic(points) if any(point.logic for point in points) else None
    return logic, band_of(by_family((point.family, point.ratio(logic)) for point in points))


def judged_resources(points: Sequence[Counted]) -> Iterator[Judged]:
    """Judge the amounts of one resource of each family by the cells and the interval of the others."""
    for family in dict.fromkeys(point.family for point in points):
        others = [point for point in points if point.is_opened and point.family != family]
        logic, band = chosen_resource_band(others)
        for point in points:
            if point.family == family:
                likely = point.published / point.ratio(logic)
                yield Judged(family, point.name, point.published, likely, band, point.source)


# --- clock ------------------------------------------------------------------------------------------------------------


def clock_shares(found: Sequence[Closure]) -> dict[str, tuple[float, float, float]]:
    """Return low, likely and high share of the clock asked for, by regions and density.

    A design over several regions is taken to be floorplanned in the likely case; all others give the low end.
    """
    shares = {}
    for regions, is_dense in product((ONE_REGION, SEVERAL_REGIONS), (False, True)):
        own = [one for one in found if (one.regions > 1) == (regions == SEVERAL_REGIONS)]
        planned = [one.clock_share for one in own if one.is_floorplanned and _is_dense(one) == is_dense]
        all_shares = [one.clock_share for one in own if not one.is_floorplanned] + planned
        shares[f"{regions} {'dense' if is_dense else 'sparse'}"] = (min(all_shares), median(planned), max(planned))
    return shares


def _is_dense(closure: Closure) -> bool:
    return (closure.lut_share or 0.0) >= MODELS.systolic.clock.dense_lut_share


def judged_clocks() -> Iterator[Judged]:
    """Compare designs over several regions with the estimate that does not know their clock, as configured."""
    for design in designs():
        if design.family == "autosa" and design.layer is not None and design.time_us is not None:
            board = load_board(design.board, CONFIGS / "boards")
            array = closing(replace(array_of(replace(design, clock_mhz=None)), spans_regions=True), board, MODELS)
            if (found := array.estimate(task_of(design.layer, design.precision))) is not None:
                worst, likely, best = found.time_us.cases
                band = Band(best / likely, worst / likely)
                yield Judged(design.family, design.name, design.time_us, likely, band, design.source)


# --- report -----------------------------------------------------------------------------------------------------------


def report() -> str:
    """Return the fits, the intervals, and a line for each published figure."""
    points, amounts = list(timed()), list(counted())
    rates, band = chosen_band([point for point in points if point.is_opened])
    held = _held(band, [point.ratio(rates) for point in points])
    lines = [f"array share {rates.share:.2f}, {rates.call:.0f} cycles a call; time {band}, {held}"]
    for resource in RESOURCES:
        own = [point for point in amounts if point.resource == resource]
        logic, found = chosen_resource_band([point for point in own if point.is_opened])
        cells = f"; fp32: {logic.per_mac:.0f} a product, {logic.per_element:.0f} an element" if logic else ""
        held = _held(found, [point.ratio(logic) for point in own])
        lines.append(f"{resource} {found}, {held}{cells}")
    lines += [f"clock, {name}: {low:.2f}, {likely:.2f}, {high:.2f}" for name, (low, likely, high) in _clocks()]
    lines += ["", *_table("time, thousand cycles", list(judged_times(points)), 1e-3)]
    for resource in RESOURCES:
        own = [point for point in amounts if point.resource == resource]
        lines += ["", *_table(resource, list(judged_resources(own)), 1.0)]
    lines += ["", *_rows("time without the clock, us (as configured, floorplanned)", list(judged_clocks()), 1.0)]
    lines += ["", "attention kernels, share of the peak of their own multipliers"]
    lines += [f"  {name}: {share:.3f}" for name, share in attention_shares().items()]
    return "\n".join(lines)


def _held(band: Band, ratios: Sequence[float]) -> str:
    return f"which holds {sum(ratio in band for ratio in ratios)} of all {len(ratios)}"


def _clocks() -> Iterable[tuple[str, tuple[float, float, float]]]:
    return clock_shares(closures()).items()


def _table(title: str, rows: Sequence[Judged], unit: float) -> Iterator[str]:
    """Yield a line for each figure, and the coverage by family and of all that were opened."""
    yield from _rows(title, rows, unit)
    for family in dict.fromkeys(row.family for row in rows):
        own = [row for row in rows if row.family == family]
        inside = sum(row.is_inside for row in own)
        yield f"  {family}: {inside} of {len(own)} inside, under the interval {own[0].band} of the others"
    opened = [row for row in rows if RECALLED not in row.source]
    for label, chosen in (("all", rows), ("those that were opened", opened)):
        inside = sum(row.is_inside for row in chosen)
        error = fmean(abs(row.likely / row.published - 1) for row in chosen)
        yield f"  {label}: {inside} of {len(chosen)} inside ({inside / len(chosen):.0%}), mean error {error:.0%}"


def _rows(title: str, rows: Sequence[Judged], unit: float) -> Iterator[str]:
    """Yield a line for each figure; an exclamation mark stands beside those outside their interval."""
    yield f"{title:48}{'published':>12}{'likely':>12}{'interval':>24}{'error':>8}  source"
    for row in rows:
        low, high = row.likely * row.band.low, row.likely * row.band.high
        mark = "" if row.is_inside else "!"
        figures = (
            f"{row.published * unit:12,.0f}{row.likely * unit:12,.0f}{low * unit:11,.0f} -{high * unit:10,.0f}{mark:1}"
        )
        yield f"{row.family + ': ' + row.name:48}{figures}{row.likely / row.published - 1:8.0%}  {row.source}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report."""
    argparse.ArgumentParser(prog="python -m benchmarks.array_coverage", description=__doc__).parse_args(argv)
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
