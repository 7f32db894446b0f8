"""Ports to the card's memory: the cycles of a stream follow from channels, port width and clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf

from common.fpga.device.board import Memory
from common.fpga.kernels.estimate import Bound, KernelEstimate, interval, scattered, widened
from common.intervals import ThreePoint, combine
from common.messages.errors import UnusableValueError


class OnPorts:
    """An engine that runs at the clock of its ports."""

    __slots__ = ()
    ports: MemoryPorts

    @property
    def clock_mhz(self) -> float:
        return self.ports.clock_mhz

    @property
    def clock_cases_mhz(self) -> ThreePoint:
        return self.ports.clock_cases_mhz


@dataclass(frozen=True, slots=True)
class MemoryPorts:
    """Equal ports with a channel each; where there are fewer channels than ports, several ports share one."""

    count: int
    port_bits: int  # of a port and of one word
    clock_mhz: float  # of the ports, which request one word per cycle
    channel_count: int  # channels that all ports use together
    channel_bytes_per_s: float  # theoretical rate of one channel
    efficiency: ThreePoint  # share of the channels' rate that kernels attain
    stall_share: float  # stall cycles per word of a port that is slower than its channel
    limit_bytes_per_s: float = inf  # for all channels together, where power allows less than their sum
    # Clocks at which such designs close, as factors of the likely one.
    clock_factors: ThreePoint = ThreePoint.exactly(1.0)  # noqa: RUF009 - frozen

    @classmethod
    def of(
        cls, memory: Memory, count: int, clock_mhz: float, stall_share: float, port_bits: int | None = None
    ) -> MemoryPorts:
        """Return ports to a board's memory; by default each is as wide as the memory allows.

        Raises:
            UnusableValueError: no port, no clock, or a width that the memory does not have.
        """
        bits = memory.port_bits if port_bits is None else port_bits
        if count < 1 or clock_mhz <= 0:
            problem = f"{count} ports at {clock_mhz:g} MHz transfer nothing"
            raise UnusableValueError("channels, clock_mhz", problem, "give positive values")
        if bits > memory.port_bits or bits < 8:
            raise UnusableValueError("port_bits", f"a port cannot be {bits} bits wide", f"give 8 to {memory.port_bits}")
        channels = min(count, memory.channel_count)
        rate, limit = memory.channel_bytes_per_s, memory.limit_bytes_per_s
        return cls(count, bits, clock_mhz, channels, rate, memory.efficiency, stall_share, limit)

    def closing(self, clock_share: ThreePoint) -> MemoryPorts:
        """Return the ports at the likely share of their clock, with the other cases beside it."""
        factors = combine(lambda share: share / clock_share.likely, clock_share)
        return replace(self, clock_mhz=self.clock_mhz * clock_share.likely, clock_factors=factors)

    @property
    def clock_cases_mhz(self) -> ThreePoint:
        return combine(lambda factor: factor * self.clock_mhz, self.clock_factors)

    @property
    def word_bytes(self) -> float:
        return self.port_bits / 8

    @property
    def bytes_per_cycle(self) -> float:
        """Bytes of a word on every port, in one direction."""
        return self.count * self.word_bytes

    @property
    def channel_rate_bytes_per_s(self) -> float:
        """Theoretical rate of the used channels, without the limit of the ports."""
        return min(self.channel_count * self.channel_bytes_per_s, self.limit_bytes_per_s)

    @property
    def port_rate_bytes_per_s(self) -> float:
        return self.count * self.word_bytes * self.clock_mhz * 1e6

    @property
    def bytes_per_s(self) -> float:
        """Theoretical bandwidth: the slower of ports and channels."""
        return min(self.port_rate_bytes_per_s, self.channel_rate_bytes_per_s)

    @property
    def sustained_bytes_per_s(self) -> float:
        return self.channel_rate_bytes_per_s * self.efficiency.optimistic

    @property
    def word_cycles(self) -> float:
        """Cycles per word of a long stream, limited by the port's stalls or by its channel's sustained rate."""
        return max(1 + self.stall_share, self.port_rate_bytes_per_s / self.sustained_bytes_per_s)

    def elements_per_word(self, element_bits: int) -> int:
        """Return the whole elements that one word holds; at least one."""
        return max(1, self.port_bits // element_bits)

    def stream_cycles(self, byte_count: float) -> float:
        """Return the cycles to move bytes that are spread evenly over the ports."""
        return ceil(byte_count / (self.count * self.word_bytes)) * self.word_cycles

    def duplex_cycles(self, read_bytes: float, written_bytes: float) -> float:
        """Return the cycles to read and write at once: a port is full duplex, its channel is not."""
        of_channels = (read_bytes + written_bytes) / self.sustained_bytes_per_s * self.clock_mhz * 1e6
        return max(self.stream_cycles(read_bytes), self.stream_cycles(written_bytes), of_channels)

    def estimate(
        self,
        cycles: float,  # by the model, start-up included
        *,
        ideal_compute_cycles: float,  # work divided by the lanes, as if all were busy in every cycle
        port_bytes: float,  # traffic of these ports
        fixed_cycles: float,  # start-up
        efficiency: ThreePoint,  # share of the lanes' peak that published kernels of this kind attain
        bound: Bound,  # the limit that decides the cycles
        flops: int,  # work of the call; a multiply-accumulate counts as two
        moved_bytes: float,  # traffic of all ports of the kernel
        one_way_bytes: float,  # read or written by these ports, whichever is more; no case is faster
        kept_bytes: int = 0,  # to and from memories on the chip that keep activations between calls
    ) -> KernelEstimate:
        """Return a model's cycles with the interval that published efficiencies and clocks imply."""
        likely_us = cycles / self.clock_mhz
        at_clock_us = interval(
            likely_us,
            ideal_compute_cycles / self.clock_mhz,
            port_bytes / self.channel_rate_bytes_per_s * 1e6,
            efficiency,
            self.efficiency,
            fixed_cycles / self.clock_mhz,
        )
        floor_us = one_way_bytes / self.port_rate_bytes_per_s * 1e6 / self.clock_factors.optimistic
        band = widened(combine(lambda us: us / likely_us, at_clock_us), self.clock_factors)
        time_us = scattered(likely_us, band, floor_us)
        case_cycles = combine(lambda us: us * self.clock_mhz, time_us)
        return KernelEstimate(case_cycles, time_us, bound, flops, round(moved_bytes), kept_bytes)
