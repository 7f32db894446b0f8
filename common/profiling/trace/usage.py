"""Use of the thread pool and of memory, gathered while a trace is read.

Thread pool: ``thread_scheduling_stats`` of a node's event says how the session's own thread spent its time in the
parallel loops of this event, in µs: it hands out work (``Distribution``, ``DistributionEnqueue``), does its own share
(``Run``), waits for the other threads (``Wait``), and takes back work that no other thread has begun (``WaitRevoke``).
For each other thread there is only ``num_run``, the number of tasks that it has finished since the pool was created: an
increase shows that the thread took part, but not for how long. ``block_size`` is empty if the node ran no parallel
loop.

Memory: the ``mem_*`` fields describe the allocator's arena at the end of the event. ``mem_bytes_in_use`` counts whole
chunks (multiples of 256 B, or more where a chunk was not worth splitting), ``mem_bytes_requested_in_use`` leaves out
that padding, ``mem_in_use_peak`` is the maximum in use since the session was created, and ``*_delta`` is the change
that the node made. All of them include the weights if the session put them into the arena. Without an arena the fields
are absent. From the second run on, the arena assigns one block for the whole run, so only the first run shows the needs
of each node.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

WAITS = ("Wait", "WaitRevoke")
LOOP_PHASES = ("Distribution", "DistributionEnqueue", "Run", *WAITS)
# The arenas that other providers report hold only the inputs and outputs of their nodes.
ARENA_PROVIDERS = frozenset({"CPUExecutionProvider"})
ARENA_FIELDS = {
    *("mem_bytes_in_use", "mem_in_use_delta", "mem_in_use_peak", "mem_arena_held"),
    *("mem_bytes_requested_in_use", "mem_requested_in_use_delta"),
}


def _times() -> array[float]:
    return array("d")


@dataclass(slots=True)
class PoolUse:
    """A node's parallel loops: sums over its events in each run, zero in runs without a loop."""

    pool_size: int
    loop_us: array[float] = field(default_factory=_times)  # time from the start to the end of the loops
    # Part of ``loop_us`` in which the session's own thread waited
    wait_us: array[float] = field(default_factory=_times)
    # ``loop_us`` counted once for each other thread that took part
    helper_us: array[float] = field(default_factory=_times)
    helper_count: array[float] = field(default_factory=_times)  # other threads that took part
    event_count: array[float] = field(default_factory=_times)  # events with a loop

    def series(self) -> tuple[array[float], ...]:
        return (self.loop_us, self.wait_us, self.helper_us, self.helper_count, self.event_count)

    def extend(self, runs: int) -> None:
        """Add runs in which the node had no event, up to a number of runs."""
        for values in self.series():
            values.extend([0.0] * (runs - len(values)))

    def add(self, run: int, main: Mapping[str, Any], helpers: int) -> None:
        """Add an event of a run in which ``helpers`` other threads took part."""
        loop_us = float(sum(main.get(phase, 0) for phase in LOOP_PHASES))
        wait_us = float(sum(main.get(phase, 0) for phase in WAITS))
        for values, value in zip(self.series(), (loop_us, wait_us, helpers * loop_us, helpers, 1), strict=True):
            values[run] += value

    def kept(self, runs: Sequence[bool]) -> PoolUse:
        return PoolUse(self.pool_size, *(array("d", compress(values, runs)) for values in self.series()))


@dataclass(slots=True)
class MemoryUse:
    """Bytes of the arena in a node's first run, which ``run`` numbers, each the maximum over the node's events."""

    run: int
    peak_bytes: int  # see :func:`observed_peak`
    live_bytes: int  # requested bytes that were alive when the node began or ended
    allocated_bytes: int  # bytes that the node requested less those that it gave back; at least 0


@dataclass(slots=True)
class UsageReader:
    """Gathers the use from events in the order of the trace, because two of their fields are running totals."""

    peak_memory_bytes: int | None = None
    arena_bytes: int | None = None
    _finished_tasks: dict[str, int] = field(default_factory=dict)

    def add_pool(self, use: PoolUse | None, args: Mapping[str, Any], run: int) -> PoolUse | None:
        """Add an event's parallel loops to those of its node."""
        statistics = args.get("thread_scheduling_stats")
        if not isinstance(statistics, dict):
            return use
        others = statistics.get("sub_threads") or {}
        helpers = sum(self._has_run_more(thread, int(tasks.get("num_run", 0))) for thread, tasks in others.items())
        main = statistics.get("main_thread") or {}
        if not main.get("block_size"):
            return use
        use = use or PoolUse(1 + len(others))
        use.pool_size = max(use.pool_size, 1 + len(others))  # threads that have not started yet share one entry
        use.extend(run + 1)
        use.add(run, main, helpers)
        return use

    def _has_run_more(self, thread: str, finished: int) -> bool:
        """Keep how many tasks a thread has finished, and return whether it is more than at the event before."""
        before = self._finished_tasks.get(thread, 0)
        self._finished_tasks[thread] = finished
        return finished > before

    def add_memory(self, use: MemoryUse | None, args: Mapping[str, Any], run: int) -> MemoryUse | None:
        """Add an event's memory to that of its node, if this is the first run that has it."""
        if not args.keys() >= ARENA_FIELDS or args.get("provider") not in ARENA_PROVIDERS:
            return use
        peak = observed_peak(args, self.peak_memory_bytes)
        self.peak_memory_bytes = max(self.peak_memory_bytes or 0, int(args["mem_in_use_peak"]))
        self.arena_bytes = max(self.arena_bytes or 0, int(args["mem_arena_held"]))
        live, change = int(args["mem_bytes_requested_in_use"]), int(args["mem_requested_in_use_delta"])
        use = use or MemoryUse(run, 0, 0, 0)
        if use.run == run:
            use.peak_bytes = max(use.peak_bytes, peak)
            use.live_bytes = max(use.live_bytes, live, live - change)
            use.allocated_bytes = max(use.allocated_bytes, change)
        return use


def observed_peak(args: Mapping[str, Any], peak_before: int | None) -> int:
    """Return the most memory that is known to have been in use while a node ran, in bytes.

    That is the session's peak, if the node raised it. Otherwise it is the memory in use when the node began or ended:
    memory that it took and gave back in between stayed below the peak and is not visible.
    """
    peak, in_use = int(args["mem_in_use_peak"]), int(args["mem_bytes_in_use"])
    if peak_before is not None and peak > peak_before:
        return peak
    return max(in_use, in_use - int(args["mem_in_use_delta"]))
