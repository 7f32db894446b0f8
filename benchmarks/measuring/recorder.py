"""Measure what recording costs per inference: the loop with and without it, in turn.

Run by ``make check-costs``; no test depends on it. Exits 1 if recording an inference costs more than ``LIMIT_NS``. Both
loops read the clock twice per turn, as any measurement must. The difference is the time of ``Recorder.record``, into
the series and, once that is full, into the histogram.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from common.latency.recorder import Recorder

LIMIT_NS = 2000
ROUNDS = 21
TURNS = 20_000
LATENCY_NS = 1_234_567  # added to each reading, so that the histogram works as for runs of a millisecond


def loop_ns(record: Callable[[int, int], None] | None) -> float:
    clock = time.perf_counter_ns
    begin = clock()
    if record is None:
        for _ in range(TURNS):
            start = clock()
            clock()
    else:
        for _ in range(TURNS):
            start = clock()
            record(start, clock() + LATENCY_NS)
    return (clock() - begin) / TURNS


def compare(capacity: int) -> tuple[float, float, float]:
    """Return medians over the rounds in ns: a turn without recording, a turn with it, and their difference."""
    recorder = Recorder(capacity)
    rounds = np.array([(loop_ns(None), loop_ns(recorder.record)) for _ in range(ROUNDS)])
    without, recorded = np.median(rounds, axis=0)
    return float(without), float(recorded), float(np.median(rounds[:, 1] - rounds[:, 0]))


def main() -> int:
    print(f"{'into':<10} {'without ns':>10} {'with ns':>8} {'ratio':>6} {'cost ns':>8} {'limit ns':>8}")
    costs = []
    for name, capacity in (("series", ROUNDS * TURNS), ("histogram", 0)):
        without, recorded, cost = compare(capacity)
        costs.append(cost)
        figures = f"{without:>10.0f} {recorded:>8.0f} {recorded / without:>6.2f} {cost:>8.0f} {LIMIT_NS:>8}"
        print(f"{name:<10} {figures} {'ok' if cost <= LIMIT_NS else 'TOO SLOW'}")
    return int(max(costs) > LIMIT_NS)


if __name__ == "__main__":
    sys.exit(main())
