"""The ports of every kernel and the memory channel of each, as the plan counts channels: kernels share none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.fpga.device.board import Board
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.streaming import StreamingGemv
from common.fpga.planning.planned_kernels import PlannedKernel

PAGE_BYTES, MOST_BURST_WORDS = 4096, 256  # an AXI burst ends at the page and has 256 words at most (ARM IHI 0022)


@dataclass(frozen=True, slots=True)
class KernelPort:
    """An AXI master of a kernel. ``memory`` is its channel in the linker's words: ``HBM[3]``, ``DDR[1]``, ``HP0``."""

    name: str
    bits: int
    memory: str

    @property
    def burst_words(self) -> int:
        """Words of its longest burst."""
        return min(MOST_BURST_WORDS, PAGE_BYTES * 8 // self.bits)


def kernel_ports(kernels: Sequence[PlannedKernel], board: Board) -> dict[str, tuple[KernelPort, ...]]:
    """Return the ports of each kernel by its name; channels go to the kernels in their order.

    On a board with one channel each port takes the next of the ways to it, and several share one where they run out.
    """
    placed, first, one_channel = {}, 0, board.memory.channel_count == 1
    for kernel in kernels:
        names, ports = _port_names(kernel.engine), memory_ports(kernel.engine)
        offsets = range(len(names)) if one_channel else names.values()
        placed[kernel.name] = tuple(
            KernelPort(name, ports.port_bits, _memory(board, first + offset))
            for name, offset in zip(names, offsets, strict=True)
            if ports is not None
        )
        first += len(names) if one_channel else round(kernel.engine.resources.memory_channels)
    return placed


def memory_ports(engine: Engine) -> MemoryPorts | None:
    """Return the ports of an engine; None for an overlay, whose vendor connects it."""
    ports = getattr(engine, "ports", None)
    return ports if isinstance(ports, MemoryPorts) else None


def _port_names(engine: Engine) -> dict[str, int]:
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


def by_memory(ports: Mapping[str, Sequence[KernelPort]]) -> dict[str, list[str]]:
    """Return the kernels at each memory channel."""
    kernels: dict[str, list[str]] = {}
    for kernel, of_kernel in ports.items():
        for memory in dict.fromkeys(port.memory for port in of_kernel):
            kernels.setdefault(memory, []).append(kernel)
    return kernels
