"""A load on a virtual clock: the same queue and the same record as by the wall clock, with given service times.

Nothing depends on the machine. Ties of time go to the end of a batch, then to arrivals.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from common.load.requests.batching import NEVER_NS, BatchPolicy, BatchQueue
from common.load.requests.load_record import Batch, LoadRecord, Log
from common.load.requests.sources import Source

ServiceTime = Callable[[Batch, int], int]  # what a batch that starts at a time takes, in ns


def simulate(
    source: Source, service_ns: ServiceTime, policy: BatchPolicy, *, workers: int = 1, end_ns: int = NEVER_NS
) -> LoadRecord:
    """Return the record of a load whose batches take ``service_ns``; what is not answered at the end is cancelled."""
    log = Log()
    queue = BatchQueue(source, policy, log)
    free = [(0, worker) for worker in range(workers)]  # since when
    running: list[tuple[int, int, int, Batch]] = []  # end, worker, start, batch
    now_ns = 0
    while True:
        while free and (batch := queue.next_batch(now_ns, free[0][1], free[0][0])) is not None:
            _, worker = free.pop(0)
            heapq.heappush(running, (now_ns + service_ns(batch, now_ns), worker, now_ns, batch))
        if queue.is_over and not running:
            break
        if not free:
            queue.admit(now_ns)  # requests expire while all workers are busy
        wake_ns = queue.wake_ns if free else queue.expires_ns
        now_ns = max(now_ns, min(wake_ns, running[0][0] if running else NEVER_NS))
        if now_ns >= end_ns:
            now_ns = end_ns
            break
        while running and running[0][0] <= now_ns:
            end, worker, start_ns, batch = heapq.heappop(running)
            log.end(batch, start_ns, end)
            source.settled(batch.requests, end)
            free.append((end, worker))
    queue.admit(now_ns)
    return log.finished(0.0, now_ns, (), is_interrupted=False)
