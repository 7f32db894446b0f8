"""Measure the generator of load tests: its delay, its cost and memory per request, and what it sees that LoadGen sees.

Run by ``make check-load`` on a quiet host; no test depends on it. Exits 1 if a figure exceeds its limit. The service is
a stub that sleeps. Costs are the processor time of this process, for requests that are all due: no sleep is counted.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from benchmarks.load.virtual_clock import simulate
from common.load.endurance.parts import LoadPart, endure, part_of
from common.load.generator.loadgen import drive, results
from common.load.generator.wall_clock import serve
from common.load.requests.batching import BatchPolicy
from common.load.requests.demand import Demand
from common.load.requests.load_record import Batch
from common.load.requests.schedules import constant, poisson
from common.load.requests.sources import ClosedLoop, OpenLoop
from common.load.results.load_figures import LoadTest
from common.messages.errors import PipelineError

LOADGEN_RATES_HZ = (40.0, 80.0, 120.0)
LOADGEN_S = 10.0
SEED = 7
STALL_AT = 500  # the batch in which the service stops
STALL_S = 0.2


class Figure(NamedTuple):
    name: str
    value: float
    limit: float
    unit: str


class Sleeper:
    """A service that sleeps for each batch, and once for longer."""

    stages: tuple[str, ...] = ()

    def __init__(self, service_s: float, workers: int = 1, stall_at: int = -1) -> None:
        self.worker_count, self._service_s, self._stall_at = workers, service_s, stall_at

    def run(self, worker: int, batch: Batch) -> tuple[int, ...]:
        if self._service_s:
            time.sleep(self._service_s + (STALL_S if batch.index == self._stall_at else 0))
        return ()

    def give_up(self, worker: int) -> None:
        """Do nothing, because a sleeper has nothing to give up."""


def late_shares() -> Iterator[Figure]:
    """Yield the share of late requests at 2,000 requests/s, of constant and of Poisson arrivals."""
    for name, arrivals in (("constant", constant(2000, 5)), ("Poisson", poisson(2000, 5, 1))):
        record = serve(OpenLoop(arrivals), Sleeper(3e-4), BatchPolicy(most=8))
        yield Figure(f"late at 2,000 requests/s, {name}", 100 * record.late_share, 1.0, "%")


def costs() -> Iterator[Figure]:
    """Yield processor time and memory per request, of 100,000 that are due at once."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for most in (1, 8):
        begin_s = time.process_time()
        record = serve(OpenLoop(constant(1e7, 0.01)), Sleeper(0), BatchPolicy(most=most))
        spent_us = 1e6 * (time.process_time() - begin_s) / len(record)
        yield Figure(f"cost of a request, batches of {most}", spent_us, 10.0, "µs")
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    yield Figure("memory of 100,000 requests", grown_kib / 1024, 100.0, "MiB")


def hour() -> Iterator[Figure]:
    """Yield by how much memory grows from the second minute of an hour at 1,000 requests/s to its last, simulated."""
    process, held, policy = psutil.Process(), list[int](), BatchPolicy(most=8)

    def run_part(index: int, duration_s: float) -> LoadPart:
        demand = Demand(1000.0, duration_s, index)
        source, _ = demand.source(demand.schedule(), policy)
        record = simulate(source, lambda batch, now_ns: 2_000_000, policy)
        held.append(process.memory_info().rss)  # while the record is there
        return part_of(LoadTest(record, policy, worker_count=1, is_open=True))

    endure(run_part, 3600.0)
    yield Figure("memory of an hour at 1,000 requests/s", (max(held) - held[1]) / (1 << 20), 10.0, "MiB")


def stall() -> str:
    """Return what an open and a closed loop show of a service that once pauses."""
    opened = serve(OpenLoop(constant(500, 4)), Sleeper(1e-3, stall_at=STALL_AT), BatchPolicy())
    closed = serve(ClosedLoop(1, 10**11, most_requests=2000), Sleeper(1e-3, stall_at=STALL_AT), BatchPolicy())
    shown = [np.quantile(record.latencies_us, 0.999) / 1e3 for record in (opened, closed)]
    return (
        f"a stall of 200 ms at 500 requests/s: p99.9 {shown[0]:.1f} ms in an open loop, {shown[1]:.1f} in a closed one"
    )


def against_loadgen() -> Iterator[Figure]:
    """Yield by how much our percentiles differ from those of LoadGen's Server scenario with the same seed."""
    for rate_hz in LOADGEN_RATES_HZ:
        service, policy = Sleeper(5e-3), BatchPolicy()
        with tempfile.TemporaryDirectory() as folder:
            drive("server", service, policy, Demand(rate_hz, LOADGEN_S, SEED), 1.0, Path(folder))
            theirs = results(Path(folder))
        ours_us = serve(OpenLoop(poisson(rate_hz, LOADGEN_S, SEED)), service, policy).latencies_us
        for name, share in (("50.00", 0.5), ("90.00", 0.9), ("99.00", 0.99)):
            their_us = float(theirs[f"result_{name}_percentile_latency_ns"]) / 1e3
            differs = 100 * abs(float(np.quantile(ours_us, share)) / their_us - 1)
            yield Figure(f"p{float(name):g} at {rate_hz:g} requests/s, ours to LoadGen's", differs, 5.0, "%")


def main() -> int:
    print(stall(), flush=True)
    is_within = True
    for figures in (late_shares(), costs(), hour(), against_loadgen()):
        try:
            for figure in figures:
                is_ok = figure.value <= figure.limit
                is_within &= is_ok
                row = f"{figure.name:<44} {figure.value:>8.2f} {figure.unit:<3}  limit {figure.limit:g}"
                print(f"{row}  {'ok' if is_ok else 'OUT'}", flush=True)
        except PipelineError as error:  # LoadGen is not installed
            print(f"benchmarks.load.generator: {error}", file=sys.stderr)
            return 2
    return int(not is_within)


if __name__ == "__main__":
    sys.exit(main())
