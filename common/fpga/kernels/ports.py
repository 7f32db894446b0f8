"""Ports to the card's memory: what a stream of words costs by channels, port width and clock, not by one bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Protocol

from common.errors import UnusableValueError
from common.fpga.kernels.estimate import Bound, KernelEstimate, interval
from common.intervals import ThreePoint, combine


class ChannelMemory(Protocol):
    """What is needed of a board's memory."""

    @property
    def channel_count(self) -> int:
        """Independent channels."""
        ...

    @property
    def channel_bytes_per_s(self) -> float:
        """Theoretical rate of one channel."""
        ...

    @property
    def efficiency(self) -> ThreePoint:
        """Share of that rate; the optimistic end is what a traffic generator reads in long bursts."""
        ...

    @property
    def port_bits(self) -> int:
        """Widest port to one channel."""
        ...

    @property
    def limit_bytes_per_s(self) -> float:
        """What all channels together may carry."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryPorts:
    """Equal ports, each to its own channel, or several to one where there are fewer channels than ports.

    Attributes:
        count: ports.
        port_bits: width of a word.
        clock_mhz: a port asks for one word in a cycle.
        channel_count: channels behind all of them.
        channel_bytes_per_s: theoretical rate of one channel.
        efficiency: share of the channels' rate that kernels attain.
        stall_share: cycles without a word per cycle with one, of a port that is slower than its channel.
        limit_bytes_per_s: what all channels together may carry, where power allows less than their sum.
    """

    count: int
    port_bits: int
    clock_mhz: float
    channel_count: int
    channel_bytes_per_s: float
    efficiency: ThreePoint
    stall_share: float
    limit_bytes_per_s: float = inf

    @classmethod
    def of(
        cls, memory: ChannelMemory, count: int, clock_mhz: float, stall_share: float, port_bits: int | None = None
    ) -> MemoryPorts:
        """Ports on a board's memory, as wide as it has them unless told otherwise.

        Raises:
            UnusableValueError: no port, no clock, or a port wider than the memory has.
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

    @property
    def word_bytes(self) -> float:
        """Bytes of one word."""
        return self.port_bits / 8

    @property
    def channel_rate_bytes_per_s(self) -> float:
        """Theoretical rate of the channels in use, whatever the ports can take."""
        return min(self.channel_count * self.channel_bytes_per_s, self.limit_bytes_per_s)

    @property
    def port_rate_bytes_per_s(self) -> float:
        """What the ports could take if no cycle were lost."""
        return self.count * self.word_bytes * self.clock_mhz * 1e6

    @property
    def bytes_per_s(self) -> float:
        """Theoretical bandwidth: the slower of ports and channels."""
        return min(self.port_rate_bytes_per_s, self.channel_rate_bytes_per_s)

    @property
    def sustained_bytes_per_s(self) -> float:
        """What the channels give to long bursts."""
        return self.channel_rate_bytes_per_s * self.efficiency.optimistic

    @property
    def word_cycles(self) -> float:
        """Cycles per word of a long stream: the port's stalls, or its channel's sustained rate if that is slower."""
        return max(1 + self.stall_share, self.port_rate_bytes_per_s / self.sustained_bytes_per_s)

    def elements_per_word(self, element_bits: int) -> int:
        """Whole elements that one word carries; at least one."""
        return max(1, self.port_bits // element_bits)

    def stream_cycles(self, byte_count: float) -> float:
        """Cycles to move bytes that are spread evenly over the ports."""
        return ceil(byte_count / (self.count * self.word_bytes)) * self.word_cycles

    def duplex_cycles(self, read_bytes: float, written_bytes: float) -> float:
        """Cycles to read and write at once: a port has a lane for each direction, its channel serves one at a time."""
        of_channels = (read_bytes + written_bytes) / self.sustained_bytes_per_s * self.clock_mhz * 1e6
        return max(self.stream_cycles(read_bytes), self.stream_cycles(written_bytes), of_channels)

    def estimate(
        self,
        cycles: float,
        *,
        ideal_compute_cycles: float,
        port_bytes: float,
        fixed_cycles: float,
        efficiency: ThreePoint,
        bound: Bound,
        flops: int,
        moved_bytes: float,
        one_way_bytes: float,
    ) -> KernelEstimate:
        """A model's cycles with the interval that published efficiencies put around them.

        Args:
            cycles: what the model says, start-up included.
            ideal_compute_cycles: work over the lanes, if all were busy in all cycles.
            port_bytes: what these ports move.
            fixed_cycles: start-up.
            efficiency: share of the lanes' peak that published kernels of this kind attain.
            bound: what decides ``cycles``.
            flops: work of the call, one multiply-accumulate being two.
            moved_bytes: traffic of all ports of the kernel.
            one_way_bytes: what these ports read or what they write, whichever is more; no case is faster than that.
        """
        found = interval(
            cycles / self.clock_mhz,
            ideal_compute_cycles / self.clock_mhz,
            port_bytes / self.channel_rate_bytes_per_s * 1e6,
            efficiency,
            self.efficiency,
            fixed_cycles / self.clock_mhz,
        )
        floor_us = one_way_bytes / self.port_rate_bytes_per_s * 1e6
        time_us = combine(lambda us: max(us, floor_us), found)
        in_cycles = combine(lambda us: us * self.clock_mhz, time_us)
        return KernelEstimate(in_cycles, time_us, bound, flops, round(moved_bytes))
