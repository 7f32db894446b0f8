"""An FPGA that open tools can route, with its memory as the engine sees it. Figures are in configs/fabrics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from common.files.configuration import Section, find_file
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.open_device import OpenDevice, read_device


@dataclass(frozen=True, slots=True)
class Fabric:
    """A device with one memory."""

    name: str  # of its file
    device: OpenDevice
    clock_mhz: float  # of the engine, until a routed design says which one closes
    memory_bytes_per_s: float  # peak rate of the memory
    latency_ns: float  # from the begin of a burst to its first word
    row_miss_ns: float  # to close a row and to open another one
    refresh_interval_ns: float  # between refreshes, and of one
    refresh_ns: float
    bank_count: int  # of the memory
    row_bytes: int

    def timing(self, word_bytes: int, clock_mhz: float | None = None) -> MemoryTiming:
        """Return the memory in cycles of an engine whose port has words of so many bytes: at most one per cycle."""
        mhz = clock_mhz or self.clock_mhz
        per_ns = mhz / 1e3
        return MemoryTiming(
            latency_cycles=self.latency_ns * per_ns,
            word_cycles=max(1.0, word_bytes / self.memory_bytes_per_s * mhz * 1e6),
            row_miss_cycles=self.row_miss_ns * per_ns,
            refresh_interval_cycles=self.refresh_interval_ns * per_ns,
            refresh_cycles=self.refresh_ns * per_ns,
            bank_count=self.bank_count,
            row_bytes=self.row_bytes,
        )


def load_fabric(name: str, folder: Path) -> Fabric:
    """Read a board's file, given by its name in ``folder`` or by its path.

    Raises:
        UnusableValueError: there is no such file.
        ConfigurationError: a key is missing or unknown, or a number is unusable or has no source.
    """
    file = Section.of_file(find_file("board", name, folder))
    memory = file.section("memory")
    memory.text("kind")
    fabric = Fabric(
        name=file.path.stem,
        device=read_device(file.section("device")),
        clock_mhz=file.constant("clock_mhz").likely,
        memory_bytes_per_s=memory.constant("data_bits").likely / 8 * memory.constant("transfers_per_s").likely,
        latency_ns=memory.constant("latency_ns").likely,
        row_miss_ns=memory.constant("row_miss_ns").likely,
        refresh_interval_ns=memory.constant("refresh_interval_ns").likely,
        refresh_ns=memory.constant("refresh_ns").likely,
        bank_count=memory.count("bank_count"),
        row_bytes=memory.count("row_bytes"),
    )
    file.close()
    return fabric
