"""A board: what it has in each region, its memory by channels, its link to the host, and the ceilings that follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from common.errors import UnusableValueError
from common.fpga.device.resources import Resources, total
from common.intervals import ThreePoint, combine
from common.number_formats import PRECISION_BITS

# What a plan can ask for; fp64 is for the checks of single kernels.
PLAN_PRECISIONS = tuple(precision for precision in PRECISION_BITS if precision != "fp64")

PORTS_TO_ONE_CHANNEL = 4  # the high-performance ports of a Zynq UltraScale+ (UG1085, S_AXI_HP0 to HP3)

LOWEST_MHZ, HIGHEST_MHZ = 1.0, 1000.0  # beyond what the DSPs of these devices are specified for

Family = Literal["ultrascale+", "versal"]
DspType = Literal["DSP48E2", "DSP58"]
MemoryKind = Literal["hbm", "ddr4", "lpddr4"]
LinkKind = Literal["pcie", "shared_memory"]


def peak_flop_per_s(dsp_count: float, macs_per_dsp: float, clock_mhz: float, pumping: float = 1.0) -> float:
    """DSPs × MAC per DSP and cycle × 2 FLOPs per MAC × clock × cycles of a DSP per cycle of the kernel."""
    return dsp_count * macs_per_dsp * 2 * clock_mhz * 1e6 * pumping


@dataclass(frozen=True, slots=True)
class Region:
    """A super logic region, or all of a small device. Memory channels belong to the board and are 0 here.

    Attributes:
        total: what the silicon has.
        usable: what the shell leaves of it.
    """

    name: str
    total: Resources
    usable: Resources


@dataclass(frozen=True, slots=True)
class Memory:
    """The board's own memory as equal channels.

    Attributes:
        efficiency: share of the theoretical bandwidth of the channels in use that kernels attain.
        port_bits: the widest AXI port that a kernel can have to one channel.
        limit_bytes_per_s: what all channels together may carry, where power allows less than their sum.
    """

    kind: MemoryKind
    channel_count: int
    channel_bytes_per_s: float
    efficiency: ThreePoint
    capacity_bytes: int
    port_bits: int
    limit_bytes_per_s: float = math.inf

    @property
    def bytes_per_s(self) -> float:
        """Theoretical bandwidth of all channels."""
        return min(self.channel_count * self.channel_bytes_per_s, self.limit_bytes_per_s)

    def bandwidth_bytes_per_s(self, channels: int, port_bits: int, clock_mhz: float) -> float:
        """Theoretical bandwidth of one port on each of some channels: channels × min(channel rate, port width × clock).

        Raises:
            UnusableValueError: more channels than the memory has, or none.
        """
        if not 1 <= channels <= self.channel_count:
            raise UnusableValueError("channels", f"{channels} is not possible", f"give 1 to {self.channel_count}")
        through = channels * min(self.channel_bytes_per_s, port_bytes_per_s(port_bits, clock_mhz))
        return min(through, self.limit_bytes_per_s)


def port_bytes_per_s(port_bits: int, clock_mhz: float) -> float:
    """One direction of an AXI port: its width in bytes once per cycle."""
    return port_bits / 8 * clock_mhz * 1e6


@dataclass(frozen=True, slots=True)
class Link:
    """How operands reach the board's memory: over PCIe, or copied within a memory that host and logic share."""

    kind: LinkKind
    raw_bytes_per_s: float
    bytes_per_s: ThreePoint


@dataclass(frozen=True, slots=True)
class DatasheetPeak:
    """The vendor's headline figure and the conditions that it holds under."""

    int8_op_per_s: float
    macs_per_dsp: float
    clock_mhz: float


@dataclass(frozen=True, slots=True)
class AiEngines:
    """Vector processors beside the logic, which no model of this project covers."""

    count: int
    int8_op_per_s: float


@dataclass(frozen=True, slots=True)
class Board:
    """An accelerator card or an embedded board.

    Attributes:
        clock_mhz: of kernels.
        dsp_pumping: DSP cycles per cycle of the kernel; an engine that clocks its DSPs twice says so itself.
        closure: share of each resource up to which designs close timing.
        macs_per_dsp: multiply-accumulates of one DSP in one cycle, by number format.
        launch_us: from the host's call to the kernel's start, and from its end to the host's return.
        static_w: with the shell loaded and no kernel running.
        dynamic_w: what a busy kernel adds.
        datasheet_peak: None where the vendor states none of the logic.
        host_note: what to know of the host that a plan for this board assumes; may be empty.
    """

    name: str
    title: str
    family: Family
    dsp_type: DspType
    clock_mhz: float
    dsp_pumping: float
    regions: tuple[Region, ...]
    closure: Resources
    macs_per_dsp: Mapping[str, float]
    memory: Memory
    link: Link
    launch_us: ThreePoint
    limit_w: float
    static_w: ThreePoint
    dynamic_w: ThreePoint
    datasheet_peak: DatasheetPeak | None
    ai_engines: AiEngines | None
    host_note: str

    @property
    def total(self) -> Resources:
        """What the silicon has in all regions, and the memory's channels."""
        return self._with_channels(total(region.total for region in self.regions))

    @property
    def usable(self) -> Resources:
        """What the shell leaves in all regions, and the memory's channels."""
        return self._with_channels(total(region.usable for region in self.regions))

    def budget(self, region: Region) -> Resources:
        """What designs in one region may take: usable × closure, and the ports to memory, which all regions have."""
        return self._with_channels(region.usable.scaled(self.closure))

    @property
    def budgets(self) -> tuple[Resources, ...]:
        """The budget of each region. Their channels are the same ones: do not add them."""
        return tuple(self.budget(region) for region in self.regions)

    @property
    def total_budget(self) -> Resources:
        """What all designs on the board may take together."""
        return self._with_channels(self.usable.scaled(self.closure))

    @property
    def memory_port_count(self) -> int:
        """Ports to the memory that designs may have: one for each channel, or several to the only one."""
        return self.memory.channel_count if self.memory.channel_count > 1 else PORTS_TO_ONE_CHANNEL

    def _with_channels(self, amounts: Resources) -> Resources:
        return replace(amounts, memory_channels=float(self.memory_port_count))

    def peak_flop_per_s(self, precision: str) -> float:
        """What the DSPs give up to where timing closes, at the kernel clock; logic may limit an array before."""
        macs, dsp = self.macs_per_dsp[precision], self.total_budget.dsp
        return peak_flop_per_s(dsp, macs, self.clock_mhz, self.dsp_pumping)

    def datasheet_int8_op_per_s(self) -> float | None:
        """What the vendor's conditions give for all DSPs of the device."""
        if (conditions := self.datasheet_peak) is None:
            return None
        return peak_flop_per_s(self.total.dsp, conditions.macs_per_dsp, conditions.clock_mhz)

    def clocked(self, clock_mhz: float) -> Board:
        """The same board with its kernels at another clock.

        Raises:
            UnusableValueError: none of these devices runs so slow or so fast.
        """
        if not LOWEST_MHZ <= clock_mhz <= HIGHEST_MHZ:
            limits = f"give {LOWEST_MHZ:g} to {HIGHEST_MHZ:g}"
            raise UnusableValueError("clock_mhz", f"such a device cannot run at {clock_mhz:g} MHz", limits)
        return replace(self, clock_mhz=clock_mhz)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a plan for this board must say beside its numbers."""
        engines = self.ai_engines and (
            f"{self.title}: its {self.ai_engines.count} AI engines ({self.ai_engines.int8_op_per_s / 1e12:g} INT8 TOPS "
            "by the vendor) are not modelled; only its DSPs are planned with"
        )
        return tuple(note for note in (self.host_note, engines) if note)


@dataclass(frozen=True, slots=True)
class BoardCeilings:
    """The roofs of a board, computed from its figures or given as they are by a profile.

    Attributes:
        based_on: the board that a profile is of, or the board itself.
        is_given: whether they are a profile's.
        peak_flop_per_s: by number format.
        memory_bytes_per_s: theoretical.
        attained_bytes_per_s: what kernels get of it.
        absent: why a number format has no peak.
    """

    name: str
    title: str
    based_on: str
    is_given: bool
    clock_mhz: float
    peak_flop_per_s: Mapping[str, float]
    memory_bytes_per_s: float
    attained_bytes_per_s: ThreePoint
    absent: Mapping[str, str]


def board_ceilings(board: Board) -> BoardCeilings:
    """The ceilings that follow from a board's figures."""
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
