"""The ports of an engine and the memory channel of each, as the plan counts channels: kernels share none."""

from __future__ import annotations

from dataclasses import dataclass

from common.fpga.device.board import Board
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.streaming import StreamingGemv

PAGE_BYTES, MOST_BURST_WORDS = 4096, 256  # an AXI burst ends at the page and has 256 words at most (ARM IHI 0022)


@dataclass(frozen=True, slots=True)
class KernelPort:
    """An AXI master of a kernel. ``memory`` is its channel in the linker's words: ``HBM[3]``, ``DDR[1]``, ``HP0``."""

    name: str
    bits: int
    memory: str

    @property
    def burst_words(self) -> int:
        return min(MOST_BURST_WORDS, PAGE_BYTES * 8 // self.bits)


def engine_ports(engine: Engine, board: Board, first: int) -> tuple[tuple[KernelPort, ...], int]:
    """Return the ports of an engine, and how many memory channels it takes.

    On a board with one channel each port takes the next of the ways to it, and several share one where they run out.

    Args:
        engine: the engine; an overlay has no ports, because its vendor connects it.
        board: the board.
        first: number of the first channel that no other engine has.
    """
    names, ports, one_channel = port_names(engine), memory_ports(engine), board.memory.channel_count == 1
    offsets = range(len(names)) if one_channel else names.values()
    placed = tuple(
        KernelPort(name, ports.port_bits, _memory(board, first + offset))
        for name, offset in zip(names, offsets, strict=True)
        if ports is not None
    )
    return placed, len(names) if one_channel else round(engine.resources.memory_channels)


def memory_ports(engine: Engine) -> MemoryPorts | None:
    """Return the ports of an engine; None for an overlay, whose vendor connects it."""
    ports = getattr(engine, "ports", None)
    return ports if isinstance(ports, MemoryPorts) else None


def port_names(engine: Engine) -> dict[str, int]:
    """Return the number of the channel, among those of the kernel, by the name of each port."""
    if (ports := memory_ports(engine)) is None:
        return {}
    names = {f"p{index}": index % ports.channel_count for index in range(ports.count)}
    if isinstance(engine, StreamingGemv):  # a vector has a port to read and one to write, on a channel of its own
        names |= {f"{side}{v}": ports.channel_count + v for v in range(engine.vectors) for side in "xy"}
    return names


def _memory(board: Board, channel: int) -> str:
    """Return a channel in the words of the platform that is linked against."""
    if board.memory.channel_count > 1:
        return f"{'HBM' if board.memory.kind == 'hbm' else 'DDR'}[{channel}]"
    return "DDR" if board.family == "versal" else f"HP{channel % board.memory_port_count}"
