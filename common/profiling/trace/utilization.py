"""Thread-pool balance and memory of nodes and runs, from the trace.

The balance is the share of the pool's time in parallel loops that was work: (the session's own thread without its
waiting + the whole loop for each other thread that took part) / (threads of the pool x time of the loops). The trace
does not say how long another thread worked, so this is an upper bound: a thread that came late, finished early or lost
its processor to another program counts as busy throughout. 1 means that all threads took part and the session's own
thread never waited; 1/threads means that it did all the work alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from common.profiling.trace.reader import NodeTrace, Trace
from common.profiling.trace.usage import PoolUse

STATUS = Path("/proc/self/status")


def node_utilization(node: NodeTrace, warmup: int) -> dict[str, float | None]:
    """Return the figures of a node by their columns of op_latency; None where the trace has none.

    Those of the pool are means and medians over the runs after ``warmup``, those of memory are of the node's first run.
    Weights count in its peak and in what was alive if the session put them into the arena.
    """
    pool, memory = node.pool, node.memory
    events = sum(pool.event_count[warmup:]) if pool else 0
    return {
        "pool_thread_count": 1 + sum(pool.helper_count[warmup:]) / events if pool and events else None,
        "pool_balance_share": _balance([pool], warmup) if pool else None,
        "pool_wait_us": median(pool.wait_us[warmup:]) if pool and events else None,
        "peak_memory_bytes": memory.peak_bytes if memory else None,
        "live_memory_bytes": memory.live_bytes if memory else None,
        "allocated_bytes": memory.allocated_bytes if memory else None,
    }


def run_utilization(trace: Trace, warmup: int) -> dict[str, float | None]:
    """Return the figures of all nodes by their columns of latency_summary; None where the trace has none.

    The balance is weighted by the time of the nodes' parallel loops. Memory counts from the creation of the session on.
    """
    return {
        "pool_balance_share": _balance([node.pool for node in trace.nodes.values() if node.pool], warmup),
        "peak_memory_bytes": trace.peak_memory_bytes,
        "arena_bytes": trace.arena_bytes,
    }


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
    """Return the peak resident memory of this process; None where the system does not report it."""
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    peaks = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return 1024 * int(peaks[0]) if peaks else None
