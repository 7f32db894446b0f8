"""Resources and timing of a systolic array, each with figures from published designs.

*Resources.* DSPs follow from packing, LUTs and flip-flops from a fit to synthesis.

*Time.* An array that serves a network waits for instructions and for short bursts, which no equation of its folds
shows. Three figures carry that: the share of cycles in which the elements have operands, the share of the ports' rate
that tiles attain, and the cycles of a call. The band holds the remaining differences between designs.

*Clock*, of arrays and of other kernels. A design that spans regions closes at the board's clock only with a floorplan
(Guo et al., AutoBridge, FPGA 2021). The likely clock is that of floorplanned designs, the pessimistic one that of the
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import ceil

from common.configuration import Section
from common.fpga.device.resources import Resources, total
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.systolic.tiling import Buffer
from common.fpga.rtl.generate import FORMATS
from common.intervals import ThreePoint

SCHEDULES = ("simple", "overlapped")
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
class ResourceModels:
    """Content of configs/systolic_rtl.yaml.

    Attributes:
        fits: fits by format, schedule and kind (``lut``, ``ff``), for integer arrays with s = 1.
        deeper_ff: flip-flops that each further product of all elements adds, by integer format.
        float_lut: LUTs of a floating-point multiply-accumulate and of an element, by format.
        float_ff: flip-flops of the same.
        hard_float_lut: LUTs where a DSP multiplies and adds floating-point numbers by itself (DSP58).
        hard_float_ff: flip-flops of the same.
        control: LUTs, flip-flops and block RAMs of what is there once: instructions, descriptors, loads and stores.
        port_lut: LUTs of a 512-bit port to the card's memory with its burst buffers.
        port_ff: flip-flops of the same.
        port_bram36: block RAMs of the same.
        timing: what a call takes beyond the array's own cycles, and the interval around it.
        resource_bands: lowest and highest factor of the likely amounts in published designs, by resource.
        clock: shares of the board's clock at which designs close.
    """

    fits: Mapping[tuple[str, str, str], Fit]
    deeper_ff: Mapping[str, Fit]
    float_lut: Mapping[str, FloatLogic]
    float_ff: Mapping[str, FloatLogic]
    hard_float_lut: Mapping[str, FloatLogic]
    hard_float_ff: Mapping[str, FloatLogic]
    control: Resources
    port_lut: float
    port_ff: float
    port_bram36: float
    timing: ArrayTiming
    resource_bands: Mapping[str, ThreePoint]
    clock: ClockClosure


def read_systolic(file: Section) -> ResourceModels:
    """Read configs/systolic_rtl.yaml.

    Raises:
        ConfigurationError: a key is missing or unknown, or a number is unusable or has no source.
    """
    fits_of, port = file.section("fits"), file.section("port")
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
        _control(file.section("control")),
        port.constant("lut").likely,
        port.constant("ff").likely,
        port.constant("bram36").likely,
        read_timing(file.section("timing")),
        {name: constant.as_cost() for name, constant in file.constants("resource_factors").items()},
        read_closure(file.section("clock_share")),
    )
    file.text("source")
    file.close()
    return models


def _float_logic(section: Section) -> dict[str, FloatLogic]:
    parts = {precision: section.section(precision) for precision in section}
    return {
        precision: FloatLogic(*(below.constant(key).likely for key in ("per_mac", "per_element")))
        for precision, below in parts.items()
    }


def _control(section: Section) -> Resources:
    return Resources(**{name: section.constant(name).likely for name in ("lut", "ff", "bram36")})


def _fit(section: Section, precision: str) -> Fit:
    given = section.section("coefficients")
    weights = {name: given.number(name) for name in terms(precision, 4, 4) if name in given}
    if not weights:
        raise given.error("", "is empty", "python -m benchmarks.systolic_fit fits again")
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
    adapters = Resources(models.port_lut, models.port_ff, models.port_bram36).times(words)
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
    tree = rows * cols * _tree_lut(precision)
    return Resources(lut + (simd - 1) * tree, ff + (simd - 1) * models.deeper_ff[precision].at(values))


def _tree_lut(precision: str) -> int:
    """Return the LUTs that one more product adds to an element: the sum of two fields, counted in the Verilog."""
    return 2 * FORMATS[precision].bits + 3


ONE_REGION, SEVERAL_REGIONS = "one_region", "several_regions"


@dataclass(frozen=True, slots=True)
class ArrayTiming:
    """Time of published arrays beyond the cycles of their equations.

    Attributes:
        array_share: share of the cycles in which the elements have operands.
        port_share: share of the ports' rate that tiles attain, whose bursts are short.
        call_cycles: cycles to fetch a call's instructions and to synchronize its end.
        band: factors of the likely time between which designs are measured.
    """

    array_share: float
    port_share: float
    call_cycles: float
    band: ThreePoint

    @property
    def stall_share(self) -> float:
        return 1 / self.port_share - 1


@dataclass(frozen=True, slots=True)
class ClockClosure:
    """Shares of the board's clock at which designs close.

    Attributes:
        dense_lut_share: share of the LUTs of its regions from which a design counts as dense.
        shares: by the number of regions, for sparse and for dense designs.
    """

    dense_lut_share: float
    shares: Mapping[tuple[str, bool], ThreePoint]

    def share(self, lut_share: float, *, spans_regions: bool) -> ThreePoint:
        """Return the share of the board's clock for a design that takes a share of the LUTs of its regions."""
        return self.shares[SEVERAL_REGIONS if spans_regions else ONE_REGION, lut_share >= self.dense_lut_share]


def read_timing(section: Section) -> ArrayTiming:
    return ArrayTiming(
        section.constant("array_fraction").likely,
        section.constant("port_fraction").likely,
        section.constant("call_cycles").likely,
        section.constant("time_factor").as_cost(),
    )


def read_closure(section: Section) -> ClockClosure:
    dense = section.constant("dense_lut_fraction").likely
    regions = {name: section.section(name) for name in (ONE_REGION, SEVERAL_REGIONS)}
    return ClockClosure(
        dense,
        {
            (name, is_dense): below.constant("dense" if is_dense else "sparse").as_rate()
            for name, below in regions.items()
            for is_dense in (False, True)
        },
    )
