"""One buffer between memory and the multipliers: what moving a byte costs, and how long a kernel takes."""

from __future__ import annotations

from dataclasses import dataclass

from common.design_space.accelerator.hardware import KIB, Hardware
from common.messages.errors import UnusableValueError


@dataclass(frozen=True, slots=True)
class SingleBuffer:
    """An accelerator with one buffer for all tensors.

    Each byte from or to memory is one access of the buffer. What the multipliers read of the buffer costs nothing here:
    the figures of the hardware hold it within the buffer's energy per byte.

    ``buffer_pj_per_byte`` is the energy of a byte into or out of a buffer of this capacity. ``names`` are those of the
    memory and the buffer.
    """

    capacity_bytes: int
    memory_bytes_per_cycle: float
    buffer_bytes_per_cycle: float
    macs_per_cycle: float
    memory_pj_per_byte: float
    buffer_pj_per_byte: float
    mac_pj: float = 0.0
    names: tuple[str, str] = ("dram", "buffer")

    def cycles(self, macs: float, moved_bytes: float) -> float:
        """Return the cycles of a kernel: its multiply-accumulates and its traffic run at the same time."""
        moved = moved_bytes / min(self.memory_bytes_per_cycle, self.buffer_bytes_per_cycle)
        return max(macs / self.macs_per_cycle, moved)

    def energy_pj(self, macs: float, moved_bytes: float) -> float:
        return moved_bytes * (self.memory_pj_per_byte + self.buffer_pj_per_byte) + macs * self.mac_pj

    def energy_parts_pj(self, macs: float, moved_bytes: float) -> dict[str, float]:
        """Return the energy of a kernel in the multipliers and in each memory."""
        memory, buffer = self.names
        return {
            "multipliers": macs * self.mac_pj,
            memory: moved_bytes * self.memory_pj_per_byte,
            buffer: moved_bytes * self.buffer_pj_per_byte,
        }


def has_single_buffer(hardware: Hardware) -> bool:
    """Return whether the only memory on the chip is one plain buffer for all operands."""
    memory, *inner = hardware.levels
    if not all(level.is_plain for level in hardware.levels):
        return False  # the costs of a byte here are the same for all operands, and leave out what is between memories
    return len(inner) == 1 and inner[0].holds == memory.holds and inner[0].capacity_kib is not None


def single_buffer(hardware: Hardware) -> SingleBuffer:
    """Return an accelerator whose only memory on the chip is one buffer; UnusableValueError for other memories."""
    if not has_single_buffer(hardware):
        names = ", ".join(level.name for level in hardware.levels)
        problem = f"{hardware.name} has the memories {names}"
        raise UnusableValueError("hardware", problem, "fusion needs one buffer that holds all operands, as in fa-dosa")
    memory, buffer = hardware.levels
    return SingleBuffer(
        capacity_bytes=int((buffer.capacity_kib or 0) * KIB),
        memory_bytes_per_cycle=memory.bytes_per_cycle or float("inf"),
        buffer_bytes_per_cycle=buffer.bytes_per_cycle or float("inf"),
        macs_per_cycle=hardware.array.elements,
        memory_pj_per_byte=memory.pj_per_word / memory.word_bytes,
        buffer_pj_per_byte=buffer.pj_per_word / buffer.word_bytes,
        mac_pj=hardware.array.mac_pj,
        names=(memory.name, buffer.name),
    )
