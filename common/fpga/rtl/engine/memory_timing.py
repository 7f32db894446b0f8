"""How a card's memory stalls, in cycles of the engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryTiming:
    """A memory of banks behind one port, whose words are as wide as the engine's."""

    latency_cycles: float  # from the begin of a burst to the begin of its first word
    word_cycles: float  # that a word takes on the data bus
    row_miss_cycles: float  # to close a row of a bank and to open another one
    refresh_interval_cycles: float  # between two refreshes; 0 for none
    refresh_cycles: float  # that a refresh takes
    bank_count: int  # banks; consecutive rows are in consecutive banks
    row_bytes: int  # of a row of a bank


class OpenRows:
    """The rows that are open in the banks of a memory."""

    def __init__(self, timing: MemoryTiming) -> None:
        self.timing = timing
        self._of_bank: dict[int, int] = {}

    def close(self) -> None:
        """Close all of them, as a refresh does."""
        self._of_bank.clear()

    def misses(self, address: int, part_bytes: int, count: int, stride_bytes: int) -> int:
        """Open the rows of ``count`` parts that begin so many bytes one behind the other; return how many were not."""
        if stride_bytes <= self.timing.row_bytes:  # no row is left out
            return self._span(address, (count - 1) * stride_bytes + part_bytes)
        return sum(self._span(address + part * stride_bytes, part_bytes) for part in range(count))

    def _span(self, address: int, size: int) -> int:
        found, banks = 0, self.timing.bank_count
        for row in range(address // self.timing.row_bytes, (address + size - 1) // self.timing.row_bytes + 1):
            if self._of_bank.get(row % banks) != row:
                self._of_bank[row % banks] = row
                found += 1
        return found
