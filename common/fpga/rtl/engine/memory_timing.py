"""How a card's memory stalls, in cycles of the engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryTiming:
    """A memory of banks behind one port, whose words are as wide as the engine's.

    Attributes:
        latency_cycles: from the begin of a burst to the begin of its first word.
        word_cycles: that a word takes on the data bus.
        row_miss_cycles: to close a row of a bank and to open another one.
        refresh_interval_cycles: between two refreshes; 0 for none.
        refresh_cycles: that a refresh takes.
        bank_count: banks; consecutive rows are in consecutive banks.
        row_bytes: of a row of a bank.
    """

    latency_cycles: float
    word_cycles: float
    row_miss_cycles: float
    refresh_interval_cycles: float
    refresh_cycles: float
    bank_count: int
    row_bytes: int
