"""A board: resources by region, memory channels, host link, and the ceilings that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from common.fpga.device.resources import Resources, total
from common.graphs.number_formats import PRECISION_BITS
from common.intervals import ThreePoint, combine
from common.messages.errors import UnusableValueError

# Number formats of plans; fp64 is only for estimates of single kernels.
PLAN_PRECISIONS = tuple(precision for precision in PRECISION_BITS if precision != "fp64")
DEFAULT_PRECISION = "int8"  # what boards are bought for; an overlay engine computes in it as well

PORTS_TO_ONE_CHANNEL = 4  # the high-performance ports of a Zynq UltraScale+ (UG1085, S_AXI_HP0 to HP3)

# Number formats that AI engines compute: those of CHARM's designs on a VCK190 (Zhuang et al., ACM TRETS 2024).
AI_ENGINE_FORMATS = ("fp32", "int16", "int8")

LOWEST_MHZ, HIGHEST_MHZ = 1.0, 1000.0  # wider than the clocks that the DSPs of these devices are specified for

Family = Literal["ultrascale+", "versal", "ecp5", "nexus"]
DspType = Literal["DSP48E2", "DSP58", "MULT18X18D", "MULT18X18"]
MemoryKind = Literal["hbm", "ddr4", "lpddr4", "ddr3", "sdram", "hyperram"]
LinkKind = Literal["pcie", "shared_memory", "serial", "ethernet"]


def peak_flop_per_s(dsp_count: float, macs_per_dsp: float, clock_mhz: float, pumping: float = 1.0) -> float:
    """Return DSPs × MACs per DSP and cycle × 2 FLOPs per MAC × clock × DSP cycles per kernel cycle."""
    return dsp_count * macs_per_dsp * 2 * clock_mhz * 1e6 * pumping


@dataclass(frozen=True, slots=True)
class DeviceRegion:
    """A super logic region, or the whole of a small device. Memory channels belong to the board and are 0 here."""

    name: str
    total: Resources  # resources of the silicon
    usable: Resources  # resources that the shell leaves free


@dataclass(frozen=True, slots=True)
class Memory:
    """The board's own memory, as equal channels."""

    kind: MemoryKind
    channel_count: int
    channel_bytes_per_s: float
    # Share of the theoretical bandwidth of the used channels that kernels attain; the optimistic case is a traffic
    # generator's long bursts.
    efficiency: ThreePoint
    capacity_bytes: int
    port_bits: int  # width of the widest AXI port between a kernel and one channel
    limit_bytes_per_s: float = math.inf  # limit for all channels together, where power allows less than their sum

    @property
    def bytes_per_s(self) -> float:
        """Theoretical bandwidth of all channels together."""
        return min(self.channel_count * self.channel_bytes_per_s, self.limit_bytes_per_s)

    def bandwidth_bytes_per_s(self, channels: int, port_bits: int, clock_mhz: float) -> float:
        """Return the theoretical bandwidth with one port per channel: channels × min(channel rate, port width × clock).

        Raises:
            UnusableValueError: more channels than the memory has, or none.
        """
        if not 1 <= channels <= self.channel_count:
            raise UnusableValueError("channels", f"{channels} is not possible", f"give 1 to {self.channel_count}")
        port_bytes_per_s = port_bits / 8 * clock_mhz * 1e6  # in one direction: one word per cycle
        bytes_per_s = channels * min(self.channel_bytes_per_s, port_bytes_per_s)
        return min(bytes_per_s, self.limit_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Link:
    """The way of operands into the board's memory: over a link, or by a copy within a memory shared with the host."""

    kind: LinkKind
    raw_bytes_per_s: float
    bytes_per_s: ThreePoint


@dataclass(frozen=True, slots=True)
class DatasheetPeak:
    """The vendor's headline figure and the conditions under which it holds."""

    int8_op_per_s: float
    macs_per_dsp: float
    clock_mhz: float


@dataclass(frozen=True, slots=True)
class AiEngines:
    """Vector processors beside the logic; no model of this project covers them."""

    count: int
    int8_op_per_s: float  # vendor's peak
    fp32_flop_per_s: ThreePoint  # rate that published networks attain

    @property
    def published(self) -> str:
        """The attained share of networks, in words."""
        least, most = self.fp32_flop_per_s.pessimistic / 1e12, self.fp32_flop_per_s.optimistic / 1e12
        return f"networks attain {least:g} to {most:g} TFLOP/s in fp32 on them (CHARM, FPGA 2023)"


@dataclass(frozen=True, slots=True)
class Board:
    """An accelerator card or an embedded board."""

    name: str
    title: str
    family: Family
    dsp_type: DspType
    clock_mhz: float
    dsp_pumping: float  # DSP cycles per kernel cycle; an overlay whose DSPs run at twice its clock has its own figure
    regions: tuple[DeviceRegion, ...]
    closure: Resources  # share of each resource up to which designs close timing
    macs_per_dsp: Mapping[str, float]  # multiply-accumulates per DSP and cycle, by number format
    memory: Memory
    link: Link
    # Time from the host's call to the kernel's start, plus from the kernel's end to the host's return
    launch_us: ThreePoint
    limit_w: float
    static_w: ThreePoint  # power with the shell loaded and no kernel running
    dynamic_w: ThreePoint  # power that a busy kernel adds
    datasheet_peak: DatasheetPeak | None  # None where the vendor states no peak of the logic
    ai_engines: AiEngines | None
    own_processor: str  # name of the processor on the board, which is the host of its plans; empty for a card
    is_clock_given: bool = False  # whether the clock was given for a question, and no closure is assumed

    @property
    def total(self) -> Resources:
        """Resources of the silicon in all regions, and the ports to memory."""
        return self._with_channels(total(region.total for region in self.regions))

    @property
    def usable(self) -> Resources:
        """Resources that the shell leaves free in all regions, and the ports to memory."""
        return self._with_channels(total(region.usable for region in self.regions))

    def budget(self, region: DeviceRegion) -> Resources:
        """Return the budget of designs in one region: usable × closure, and the ports to memory, shared by all."""
        return self._with_channels(region.usable.scaled(self.closure))

    @property
    def budgets(self) -> tuple[Resources, ...]:
        """Budget of each region. All regions share the same memory channels, so these must not be added up."""
        return tuple(self.budget(region) for region in self.regions)

    @property
    def total_budget(self) -> Resources:
        return self._with_channels(self.usable.scaled(self.closure))

    @property
    def memory_port_count(self) -> int:
        """Ports to memory that designs may have: one per channel, or several to a single channel."""
        return self.memory.channel_count if self.memory.channel_count > 1 else PORTS_TO_ONE_CHANNEL

    def _with_channels(self, amounts: Resources) -> Resources:
        return replace(amounts, memory_channels=float(self.memory_port_count))

    def peak_flop_per_s(self, precision: str) -> float:
        """Return the peak of the DSPs of the budget at the kernel clock; logic may limit an array earlier."""
        macs, dsp = self.macs_per_dsp[precision], self.total_budget.dsp
        return peak_flop_per_s(dsp, macs, self.clock_mhz, self.dsp_pumping)

    def datasheet_int8_op_per_s(self) -> float | None:
        """Return the peak of all DSPs of the device under the vendor's conditions; None where it states none."""
        if (conditions := self.datasheet_peak) is None:
            return None
        return peak_flop_per_s(self.total.dsp, conditions.macs_per_dsp, conditions.clock_mhz)

    def of_regions(self, count: int) -> Board:
        """Return the board with its ``count`` regions that have the most DSPs, in their order."""
        kept = sorted(self.regions, key=lambda region: -region.usable.dsp)[:count]
        return replace(self, regions=tuple(region for region in self.regions if region in kept))

    def clocked(self, clock_mhz: float) -> Board:
        """Return the board with its kernels at a given clock, which they are taken to reach.

        Raises:
            UnusableValueError: none of these devices runs so slow or so fast.
        """
        if not LOWEST_MHZ <= clock_mhz <= HIGHEST_MHZ:
            limits = f"give {LOWEST_MHZ:g} to {HIGHEST_MHZ:g}"
            raise UnusableValueError("clock_mhz", f"such a device cannot run at {clock_mhz:g} MHz", limits)
        return replace(self, clock_mhz=clock_mhz, is_clock_given=True)

    @property
    def notes(self) -> tuple[str, ...]:
        if (engines := self.ai_engines) is None:
            return ()
        peak = f"{engines.int8_op_per_s / 1e12:g} INT8 TOPS by the vendor"
        return (f"{self.title}: its {engines.count} AI engines ({peak}) are not modelled; {engines.published}",)


@dataclass(frozen=True, slots=True)
class BoardCeilings:
    """The roofline ceilings of a board, computed from its figures or taken from a profile."""

    name: str
    title: str
    based_on: str  # board that a profile describes, or the board itself
    is_given: bool  # whether a profile gives the ceilings
    clock_mhz: float
    peak_flop_per_s: Mapping[str, float]  # peak by number format
    memory_bytes_per_s: float  # theoretical bandwidth
    attained_bytes_per_s: ThreePoint  # bandwidth that kernels attain
    absent: Mapping[str, str]  # reason why a number format has no peak, by number format


def board_ceilings(board: Board) -> BoardCeilings:
    theoretical = board.memory.bytes_per_s
    return BoardCeilings(
        name=board.name,
        title=board.title,
        based_on=board.name,
        is_given=False,
        clock_mhz=board.clock_mhz,
        peak_flop_per_s={precision: board.peak_flop_per_s(precision) for precision in board.macs_per_dsp},
        memory_bytes_per_s=theoretical,
        attained_bytes_per_s=combine(lambda share: theoretical * share, board.memory.efficiency),
        absent={},
    )
