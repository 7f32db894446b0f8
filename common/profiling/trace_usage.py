"""Use of the thread pool and of memory, gathered while a trace is read.

The pool: ``thread_scheduling_stats`` of a node's event has, in µs and of this event alone, what the thread that runs
the session spent in parallel loops: handing out work (``Distribution``, ``DistributionEnqueue``), on its own share
(``Run``), waiting for the others (``Wait``) and taking back work that no other had begun (``WaitRevoke``). Of each
other thread it has only ``num_run``, the tasks that it has finished since the pool was made: its rise says whether it
took part, not for how long. ``block_size`` is empty where the node ran no parallel loop.

Memory: the ``mem_*`` fields are those of the allocator's arena when the event ended: ``mem_bytes_in_use`` in chunks
(multiples of 256 B, and more where a chunk was not worth splitting), ``mem_bytes_requested_in_use`` without that
padding, ``mem_in_use_peak`` the most that was in use since the session was made, ``*_delta`` the difference that the
node made. Weights are in all of them where the session put them into the arena. The fields are absent without an arena.
From the second run on the arena gives one block for all that a run needs: only the first shows what each node takes.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

WAITS = ("Wait", "WaitRevoke")
LOOP_PHASES = ("Distribution", "DistributionEnqueue", "Run", *WAITS)
# Others report an arena that holds nothing but what they take in and give back.
ARENA_PROVIDERS = frozenset({"CPUExecutionProvider"})


ARENA_FIELDS = frozenset(
    {
        *("mem_bytes_in_use", "mem_in_use_delta", "mem_in_use_peak", "mem_arena_held"),
        *("mem_bytes_requested_in_use", "mem_requested_in_use_delta"),
    }
)


def _times() -> array[float]:
    return array("d")


@dataclass(slots=True)
class PoolUse:
    """A node's parallel loops: sums over its events in each run, zero in runs without a loop.

    ``loop_us`` is the time from begin to end of its loops, ``wait_us`` what the session's own thread waited of it,
    ``helper_us`` the same time counted once for each other thread that took part, ``helper_count`` those threads.
    """

    pool_size: int
    loop_us: array[float] = field(default_factory=_times)
    wait_us: array[float] = field(default_factory=_times)
    helper_us: array[float] = field(default_factory=_times)
    helper_count: array[float] = field(default_factory=_times)
    event_count: array[float] = field(default_factory=_times)

    def series(self) -> tuple[array[float], ...]:
        """Return the sums by run."""
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
        """Return the kept runs only."""
        return PoolUse(self.pool_size, *(array("d", compress(values, runs)) for values in self.series()))


@dataclass(slots=True)
class MemoryUse:
    """Bytes of the arena in a node's first run; the maximum over its events.

    ``peak_bytes`` see :func:`observed_peak`; ``live_bytes`` the sum of all requests that were alive when the node began
    or ended, ``allocated_bytes`` of those the ones that it made, less what it gave back, 0 at least.
    """

    run: int
    peak_bytes: int
    live_bytes: int
    allocated_bytes: int


@dataclass(slots=True)
class UsageReader:
    """Gathers the use from events in the order of the trace; two of their fields are running totals."""

    peak_memory_bytes: int | None = None
    arena_bytes: int | None = None
    _finished_tasks: dict[str, int] = field(default_factory=dict)

    def add_pool(self, use: PoolUse | None, args: Mapping[str, Any], run: int) -> PoolUse | None:
        """Add an event's parallel loops to those of its node."""
        statistics = args.get("thread_scheduling_stats")
        if not isinstance(statistics, dict):
            return use
        others = statistics.get("sub_threads") or {}
        helpers = sum(self._took_part(thread, int(tasks.get("num_run", 0))) for thread, tasks in others.items())
        main = statistics.get("main_thread") or {}
        if not main.get("block_size"):
            return use
        use = use or PoolUse(1 + len(others))
        use.pool_size = max(use.pool_size, 1 + len(others))  # threads that have not started yet share one entry
        use.extend(run + 1)
        use.add(run, main, helpers)
        return use

    def _took_part(self, thread: str, finished: int) -> bool:
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
