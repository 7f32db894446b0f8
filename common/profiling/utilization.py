"""Thread-pool balance and memory of nodes and runs, from the trace.

The balance is the share of the pool's time that was work, in the parallel loops alone: (the session's own thread
without its waiting + the whole loop for each other thread that took part) / (threads of the pool x time of the loops).
The trace does not say how long another thread worked, so that this is an upper bound: a thread that came late or
finished early counts as busy throughout, and so does one that another program had taken the processor from. 1 means
that all took part and the session's thread never waited, 1/threads that it did all the work alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from common.profiling.trace import NodeTrace, Trace
from common.profiling.trace_usage import PoolUse

STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class NodeUtilization:
    """Utilisation by one node; None where the trace does not tell.

    ``pool_thread_count`` is the mean number of threads that took part in its parallel loops, the session's own
    included; ``pool_balance_share`` and ``pool_wait_us``, the time that the session's own waited for the others, are
    medians over runs. In the node's first run, ``peak_memory_bytes`` is the most that the arena is known to have had in
    use while it ran, padding included; ``live_memory_bytes`` the sum of what was requested and alive when it began or
    ended, without padding; ``allocated_bytes`` what it took of that and kept, less what it gave back. Weights count
    in the first two where the session put them into the arena.
    """

    pool_thread_count: float | None
    pool_balance_share: float | None
    pool_wait_us: float | None
    peak_memory_bytes: int | None
    live_memory_bytes: int | None
    allocated_bytes: int | None


@dataclass(frozen=True, slots=True)
class RunUtilization:
    """Utilisation by all runs; None where the trace does not tell.

    ``peak_memory_bytes`` is the most that the arena had in use since the session was made, its creation included;
    ``arena_bytes`` the most that it held.
    """

    pool_balance_share: float | None
    peak_memory_bytes: int | None
    arena_bytes: int | None


def node_utilization(node: NodeTrace, warmup: int) -> NodeUtilization:
    """Return the utilisation by a node.

    Args:
        node: a node of a trace.
        warmup: runs at the start of the trace that the pool's figures leave out.
    """
    pool, memory = node.pool, node.memory
    events = sum(pool.event_count[warmup:]) if pool else 0
    return NodeUtilization(
        pool_thread_count=1 + sum(pool.helper_count[warmup:]) / events if pool and events else None,
        pool_balance_share=_balance([pool], warmup) if pool else None,
        pool_wait_us=median(pool.wait_us[warmup:]) if pool and events else None,
        peak_memory_bytes=memory.peak_bytes if memory else None,
        live_memory_bytes=memory.live_bytes if memory else None,
        allocated_bytes=memory.allocated_bytes if memory else None,
    )


def run_utilization(trace: Trace, warmup: int) -> RunUtilization:
    """Return the utilisation by all nodes together; the balance is weighted by the time of their parallel loops.

    Args:
        trace: a trace.
        warmup: runs at its start that the pool's figures leave out.
    """
    pools = [node.pool for node in trace.nodes.values() if node.pool]
    return RunUtilization(_balance(pools, warmup), trace.peak_memory_bytes, trace.arena_bytes)


def _balance(pools: Sequence[PoolUse], warmup: int) -> float | None:
    """Return the median balance over runs, so that a preempted run weighs no more than another.

    None if the loops took less time than the trace's clock resolves.
    """
    runs = min((len(pool.loop_us) for pool in pools), default=0)
    shares = []
    for run in range(warmup, runs):
        available_us = sum(pool.pool_size * pool.loop_us[run] for pool in pools)
        busy_us = sum(pool.loop_us[run] - pool.wait_us[run] + pool.helper_us[run] for pool in pools)
        if available_us > 0:
            shares.append(busy_us / available_us)
    return median(shares) if shares else None


def peak_resident_bytes(status: Path = STATUS) -> int | None:
    """Return the peak resident memory of this process; None where the system does not tell."""
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    peaks = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return 1024 * int(peaks[0]) if peaks else None
