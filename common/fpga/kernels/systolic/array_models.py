"""Resources of a systolic array, and its time and clock beyond its folds, with figures from published designs.

*Resources.* DSPs follow from packing, LUTs and flip-flops from a fit to synthesis. That is the *array*: its elements,
its banks, its ports and its control. A *design* around it also pools, adds, computes addresses and is connected;
published totals differ from the array by factors, which the budget of a board counts.

*Time.* An array waits for instructions and for short bursts, which no equation of its folds shows. Three figures carry
that: the share of cycles in which the elements have operands, the share of the ports' rate that tiles attain, and the
cycles of a call. What an array *serves* decides the rest: an array that was tuned for one product attains more of its
peak than one that computes the layers of a network.

*Clock*, of arrays and of other kernels. Each border between regions that a design crosses costs a part of its clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Literal

from common.files.configuration import Section
from common.fpga.device.resources import RESOURCE_NAMES, Resources, total
from common.fpga.kernels.estimate import TimeScatter, read_scatter
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.systolic.tiling import Buffer
from common.fpga.rtl.generate import FORMATS
from common.intervals import ThreePoint

SCHEDULES = ("simple", "overlapped")
Serves = Literal["product", "network"]
SERVES: tuple[Serves, ...] = ("product", "network")
PORT_BITS = 512  # width of the port whose logic the configuration gives


@dataclass(frozen=True, slots=True)
class Fit:
    """A cell count as a linear form of :func:`terms`, with its error on sizes that took no part in the fit."""

    coefficients: Mapping[str, float]
    fit_count: int
    held_out_count: int
    worst_error: float

    def at(self, values: Mapping[str, float]) -> float:
        return sum(weight * values[name] for name, weight in self.coefficients.items())


@dataclass(frozen=True, slots=True)
class FloatLogic:
    """Cells of a floating-point array: of a multiply-accumulate, and of an element with its buffers and network."""

    per_mac: float
    per_element: float

    def at(self, elements: int, simd: int) -> float:
        return elements * (simd * self.per_mac + self.per_element)


@dataclass(frozen=True, slots=True)
class ArrayTiming:
    """Time of published arrays beyond the cycles of their equations."""

    array_share: float  # share of the cycles in which the elements have operands
    port_share: float  # share of the ports' rate that tiles attain, whose bursts are short
    call_cycles: float  # cycles to fetch a call's instructions and to synchronize its end

    @property
    def stall_share(self) -> float:
        return 1 / self.port_share - 1


@dataclass(frozen=True, slots=True)
class ClockClosure:
    """Shares of the board's clock at which designs close."""

    dense_lut_share: float  # share of the LUTs of its regions from which a design counts as dense
    one_region: Mapping[bool, ThreePoint]  # of designs in one region, by whether they are dense
    crossing_share: float  # share of the clock that each border between regions leaves
    several_regions: ThreePoint  # lowest and highest share of designs over several regions

    def share(self, lut_share: float, regions: int = 1) -> ThreePoint:
        """Return the share of the board's clock for a design that takes a share of the LUTs of its regions."""
        if regions == 1:
            return self.one_region[lut_share >= self.dense_lut_share]
        likely = self.crossing_share ** (regions - 1)
        slowest, fastest = self.several_regions.pessimistic, self.several_regions.optimistic
        return ThreePoint(min(slowest, likely), likely, max(fastest, likely))


@dataclass(frozen=True, slots=True)
class ResourceModels:
    """Content of configs/systolic_rtl.yaml."""

    # Fits by format, schedule and kind (``lut``, ``ff``), for integer arrays with s = 1
    fits: Mapping[tuple[str, str, str], Fit]
    deeper_ff: Mapping[str, Fit]  # flip-flops that each further product of all elements adds, by integer format
    float_lut: Mapping[str, FloatLogic]  # LUTs of a floating-point multiply-accumulate and of an element, by format
    float_ff: Mapping[str, FloatLogic]  # flip-flops of the same
    # LUTs where a DSP multiplies and adds floating-point numbers by itself (DSP58)
    hard_float_lut: Mapping[str, FloatLogic]
    hard_float_ff: Mapping[str, FloatLogic]  # flip-flops of the same
    # LUTs, flip-flops and block RAMs of what is there once: instructions, descriptors, loads and stores
    control: Resources
    port: Resources  # the same of a 512-bit port to the card's memory with its burst buffers
    timing: ArrayTiming  # what a call takes beyond the array's own cycles
    scatters: Mapping[Serves, TimeScatter]  # how measured times scatter around that, by what the array serves
    # Lowest, likely and highest factor of these amounts in published arrays, by resource
    array_bands: Mapping[str, ThreePoint]
    design_bands: Mapping[str, ThreePoint]  # the same for the designs around them
    clock: ClockClosure  # shares of the board's clock at which designs close

    @property
    def design_factors(self) -> Resources:
        """Likely amounts of a design over those of its array."""
        factors = {name: band.likely for name, band in self.design_bands.items()}
        return Resources(**{name: factors.get(name, 1.0) for name in RESOURCE_NAMES})


def read_systolic(file: Section) -> ResourceModels:
    """Read configs/systolic_rtl.yaml; errors are those of :class:`Section`."""
    fits_of = file.section("fits")
    fits = {
        (precision, schedule, kind): _fit(fits_of.section(precision).section(schedule).section(kind), precision)
        for precision, schedule, kind in product(FORMATS, SCHEDULES, ("lut", "ff"))
    }
    deeper = {
        precision: _fit(fits_of.section(precision).section("deeper").section("ff"), precision) for precision in FORMATS
    }
    models = ResourceModels(
        fits,
        deeper,
        _float_logic(file.section("float_lut")),
        _float_logic(file.section("float_ff")),
        _float_logic(file.section("hard_float_lut")),
        _float_logic(file.section("hard_float_ff")),
        _logic(file.section("control")),
        _logic(file.section("port")),
        _timing(file.section("timing")),
        {serves: read_scatter(file.section("scatter").section(serves)) for serves in SERVES},
        _bands(file.section("array_factors")),
        _bands(file.section("design_factors")),
        _closure(file.section("clock_share")),
    )
    file.text("source")
    file.close()
    return models


def _timing(section: Section) -> ArrayTiming:
    names = ("array_fraction", "port_fraction", "call_cycles")
    return ArrayTiming(*(section.constant(name).likely for name in names))


def _closure(section: Section) -> ClockClosure:
    one = section.section("one_region")
    return ClockClosure(
        section.constant("dense_lut_fraction").likely,
        {is_dense: one.constant("dense" if is_dense else "sparse").as_rate() for is_dense in (False, True)},
        section.constant("crossing_fraction").likely,
        section.constant("several_regions").as_rate(),
    )


def _float_logic(section: Section) -> dict[str, FloatLogic]:
    return {
        precision: FloatLogic(*(section.section(precision).constant(key).likely for key in ("per_mac", "per_element")))
        for precision in section
    }


def _bands(section: Section) -> dict[str, ThreePoint]:
    return {name: section.constant(name).as_cost() for name in section}


def _logic(section: Section) -> Resources:
    return Resources(**{name: section.constant(name).likely for name in ("lut", "ff", "bram36")})


def _fit(section: Section, precision: str) -> Fit:
    given = section.section("coefficients")
    weights = {name: given.number(name) for name in terms(precision, 4, 4) if name in given}
    if not weights:
        raise given.error("", "is empty", "python -m benchmarks.kernels.systolic_fit fits again")
    numbers = [section.number(key) for key in ("fit_count", "held_out_count", "worst_error")]
    return Fit(weights, int(numbers[0]), int(numbers[1]), numbers[2])


def terms(precision: str, rows: int, cols: int) -> dict[str, float]:
    """Return the terms of a cell count: corner, edges and cells of the array, and the odd edges that packing leaves.

    Blocks of two columns (int8) or two by two (int4) leave a narrower column, row and corner where a side is odd.
    """
    packing = FORMATS[precision]
    down = {"": 1.0, "row": float(rows)} | ({"odd_row": float(rows % 2)} if packing.pack_rows == 2 else {})
    across = {"": 1.0, "col": float(cols)} | ({"odd_col": float(cols % 2)} if packing.pack_cols == 2 else {})
    return {
        "_".join(filter(None, (r, c))) or "one": down_value * across_value
        for r, down_value in down.items()
        for c, across_value in across.items()
    }


def dsp_count(rows: int, cols: int, simd: int, precision: str, macs_per_dsp: float) -> int:
    """Return the DSP slices of an array.

    Two products of two columns share a slice, or four of two columns and two rows. An odd side leaves slices half
    empty, and in int4 a corner product that is small enough for LUTs. At a rate of one or less, each product takes
    1 / ``macs_per_dsp`` slices (five for fp32 on a DSP48E2). At other rates a slice adds along k.
    """
    if macs_per_dsp <= 1:
        return rows * cols * simd * ceil(1 / macs_per_dsp - 1e-9)
    if macs_per_dsp == 2:
        return rows * ceil(cols / 2) * simd
    if macs_per_dsp == 4:
        corner = (rows % 2) * (cols % 2) if precision == "int4" else 0
        return (ceil(rows / 2) * ceil(cols / 2) - corner) * simd
    return rows * cols * ceil(simd / macs_per_dsp)


def array_resources(
    size: tuple[int, int, int],
    precision: str,
    held: Iterable[Buffer],
    ports: MemoryPorts,
    macs_per_dsp: float,
    models: ResourceModels,
) -> Resources:
    """Return the likely resources of the array with its buffers, ports and control; each port has an adapter."""
    rows, cols, simd = size
    cells = cell_resources(size, precision, models, is_hard_float=macs_per_dsp >= 1)
    words = ports.count * ports.port_bits / PORT_BITS
    adapters = models.port.times(words)
    channels = Resources(memory_channels=ports.channel_count)
    dsp = Resources(dsp=dsp_count(rows, cols, simd, precision, macs_per_dsp))
    return cells + dsp + total(each.resources for each in held) + adapters + channels + models.control


def cell_resources(
    size: tuple[int, int, int],
    precision: str,
    models: ResourceModels,
    schedule: str = "overlapped",
    *,
    is_hard_float: bool = False,
) -> Resources:
    """Return LUTs and flip-flops of the processing elements, their skew registers and their control.

    With ``is_hard_float`` a DSP multiplies and adds floating-point numbers by itself.
    """
    rows, cols, simd = size
    if precision not in FORMATS:
        hard, soft = (models.hard_float_lut, models.hard_float_ff), (models.float_lut, models.float_ff)
        return Resources(*(part[precision].at(rows * cols, simd) for part in (hard if is_hard_float else soft)))
    values = terms(precision, rows, cols)
    lut, ff = (models.fits[precision, schedule, kind].at(values) for kind in ("lut", "ff"))
    tree = rows * cols * (2 * FORMATS[precision].bits + 3)  # of one more product: two fields' sum, as in the Verilog
    return Resources(lut + (simd - 1) * tree, ff + (simd - 1) * models.deeper_ff[precision].at(values))
