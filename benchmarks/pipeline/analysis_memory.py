"""Measure the memory that stage 01 needs after the runs, with synthetic runs in place of an hour of real ones.

The runs take 0.2 ms, three in a hundred twice as long. Ten times a second the counters of the process change, and a
thread keeps losing its processor for 4 ms. Run by hand; a slow test runs it too.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from common.artifacts.checks.schema import conform, write_csv
from common.artifacts.frames import frame_of
from common.latency.recorder import Recorder
from common.latency.run import RunSeries
from common.latency.steady_state import steady_state
from common.os_events.disturbance import disturbances
from common.os_events.events import MAX_EVENTS, OsEvent
from common.profiling.trace.utilization import peak_resident_bytes

RUN_NS, PAUSE_NS = 200_000, 20_000
CHUNK = 1 << 18
SLOW_SHARE = 0.03
READ_PERIOD_S = 0.1
LOST_US = 4000.0


class Discarding(io.StringIO):
    """A file that keeps nothing."""

    def write(self, text: str, /) -> int:
        return len(text)


def recorded(count: int) -> Recorder:
    random, runs, now_ns = np.random.default_rng(0), Recorder(), 10**12
    for done in range(0, count, CHUNK):
        lengths = RUN_NS * (1 + 0.03 * np.abs(random.standard_normal(min(CHUNK, count - done))))
        lengths[random.random(len(lengths)) < SLOW_SHARE] *= 2
        for length_ns in lengths.astype(int).tolist():
            runs.record(now_ns, now_ns + length_ns)
            now_ns += length_ns + PAUSE_NS
    return runs


def events(first_s: float, last_s: float) -> Iterator[OsEvent]:
    """Yield the events of the operating system, as many as a log keeps at most."""
    for number in range(min(MAX_EVENTS // 2, int((last_s - first_s) / READ_PERIOD_S))):
        at_s = first_s + number * READ_PERIOD_S
        yield OsEvent("voluntary_switch", at_s, 1e6 * READ_PERIOD_S, event_count=7)
        yield OsEvent("preempted", at_s, LOST_US, 1, LOST_US, 5, False, 0, "other", 77, False)


def analyse(runs: Recorder) -> Iterator[str]:
    """Analyse the runs as stage 01 does, and yield the name of each step when it is done."""
    yield "recorded"
    starts_s, latencies_us = runs.starts_s, runs.latencies_us
    steady_state(latencies_us)
    yield "steady state"
    runs.figures(10)
    yield "figures"
    numbers = np.arange(len(starts_s))
    columns = {
        "is_profiled": numbers < 0,
        "run_index": numbers,
        "is_warmup": numbers < 10,
        "start_us": 1e6 * (starts_s - starts_s[0]),
        "latency_us": latencies_us,
    }
    write_csv("run_latency", conform("run_latency", pd.DataFrame(columns)), Discarding())
    yield "run_latency.csv"
    series = RunSeries(False, numbers, starts_s, latencies_us)
    rows = disturbances([series], [*events(float(starts_s[0]), float(starts_s[-1]))])
    write_csv("run_disturbances", conform("run_disturbances", frame_of(rows)), Discarding())
    yield "run_disturbances.csv"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=18_000_000, help="default: an hour")
    given = parser.parse_args(argv)
    print(f"{'after':<22}{'peak MB':>8}{'seconds':>9}")
    began = time.perf_counter()
    for step in analyse(recorded(given.runs)):
        print(f"{step:<22}{(peak_resident_bytes() or 0) / 1e6:>8.0f}{time.perf_counter() - began:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
