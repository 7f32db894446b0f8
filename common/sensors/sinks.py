"""Sinks: where a sampler puts its samples. A plain list keeps all of them, a ring only the newest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from common.errors import PipelineError
from common.sensors.sensor import Sample


class SampleSink(Protocol):
    """Takes the samples of a sampler, from the sampler's thread and one reading at a time. A list is a sink."""

    def extend(self, samples: Iterable[Sample], /) -> None:
        """Add samples. Must return quickly: the next reading waits for it."""
        ...


class SampleRing:
    """A sink of constant memory that keeps the newest samples, for a view of a sampler that never stops.

    One thread writes and any number of threads read. Neither side takes a lock, so a reader cannot delay the sampling
    thread. Instead, a reader compares the number of samples written before and after it copied the slots, and leaves
    out those that were overwritten in between.

    Args:
        capacity: samples kept.

    Raises:
        PipelineError: a capacity below 1.
    """

    def __init__(self, capacity: int) -> None:
        """Allocate all slots: one more than the capacity, since the writer may be inside one of them."""
        if capacity < 1:
            raise PipelineError("sample ring", f"cannot keep {capacity} samples", "keep at least one")
        self.capacity = capacity
        self._slots: list[Sample | None] = [None] * (capacity + 1)
        self._written_count = 0  # changed by the writing thread only, after the slot is filled

    def extend(self, samples: Iterable[Sample], /) -> None:
        """Add samples, each in place of the oldest."""
        for sample in samples:
            self._slots[self._written_count % len(self._slots)] = sample
            self._written_count += 1

    def newest(self, count: int | None = None) -> list[Sample]:
        """Return up to ``count`` of the newest samples (all that are kept by default), oldest first."""
        end = self._written_count
        slots = self._slots[:]
        start = max(0, self._written_count - self.capacity, end - (self.capacity if count is None else count))
        indexed = (slots[index % len(slots)] for index in range(start, end))
        return [sample for sample in indexed if sample is not None]
