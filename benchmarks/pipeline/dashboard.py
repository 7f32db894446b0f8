"""Measure the live dashboard beside a model that uses all processors: rate, gaps, cost, start, history, a kill.

Run by ``make check-dashboard`` on a quiet host; no test depends on its figures. Exits 1 if a figure misses its limit.
Clients run in a process of their own and use processor time, too: as much as a browser would, or less.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks.process import ROOT
from common.monitor.history import History
from common.monitor.store import Store

CLIENTS, MANY, DEAD = 5, 200, 50
BOUND = ["--dim", "N=1"]  # of the models in models/ that are measured here
PAIRS, PAIR_S = 5, 12.0
TICKING_S, TICK_MS = 20.0, 2.0  # the time that counts, and a limit of our own: a fiftieth of a processor
HOUR_S = 3600
REQUESTS = 20


class Figure(NamedTuple):
    name: str
    value: float
    limit: float
    unit: str
    is_least: bool = False

    @property
    def is_met(self) -> bool:
        return self.value >= self.limit if self.is_least else self.value <= self.limit


class Dashboard:
    """A dashboard that runs while a ``with`` block does."""

    def __init__(self, model: Path | None, folder: Path) -> None:
        """Start nothing yet; without a model it is one that others post to."""
        source = ["--attach"] if model is None else ["--model", model.resolve(), *BOUND]
        flags = [*source, "--out", folder, "--port", 0]
        self._has_model = model is not None
        self._command = [sys.executable, "-u", "12_dashboard.py", *map(str, flags)]

    def __enter__(self) -> Dashboard:
        """Start it, and wait until it answers."""
        began_s = time.perf_counter()
        self.process = subprocess.Popen(
            self._command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        address, _, self.token = self.process.stdout.readline().strip().partition("/#token=")
        self.host = address.removeprefix("http://")
        self.ask("/healthz")
        self.ready_s = time.perf_counter() - began_s
        while self._has_model and not json.loads(self.ask("/api/metrics/current")).get("is_ready"):
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        """End it; a shell's background job would pass on that Ctrl-C is ignored."""
        self.process.terminate()
        self.process.wait(60)

    def ask(self, path: str, body: str | None = None) -> bytes:
        """Return what an address gives, or answers to a text."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connection.request("POST" if body else "GET", path, body, headers)
        content = connection.getresponse().read()
        connection.close()
        return content

    def clients(self, alive: int, dead: int, seconds: float) -> list[list[tuple[int, float]]]:
        """Return the ticks of the clients that read: their numbers, and when they came."""
        given = json.dumps([self.host, self.token, alive, dead, seconds])
        command = [sys.executable, "-m", "benchmarks.pipeline.dashboard", "--clients", given]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
        return [[(number, time_s) for number, time_s in ticks] for ticks in json.loads(done.stdout)]


async def read_ticks(host: str, token: str, alive: int, dead: int, seconds: float) -> list[list[tuple[int, float]]]:
    """Return the ticks that each of some clients gets within a time; of the others, nobody reads what they get."""
    from websockets.asyncio.client import connect

    async def join() -> Any:
        connection = await connect(f"ws://{host}/ws/metrics", proxy=None, compression=None, max_queue=1)
        await connection.send(json.dumps({"token": token}))
        return connection

    async def read(connection: Any) -> list[tuple[int, float]]:
        ticks = []
        first_s = time.perf_counter()
        while time.perf_counter() - first_s < seconds:
            message = await connection.recv()
            ticks.append((json.loads(message[: message.index(",")] + "}")["tick"], time.perf_counter()))
        return ticks

    connections = [await join() for _ in range(dead + alive)]
    ticks = await asyncio.gather(*(read(connection) for connection in connections[dead:]))
    for connection in connections:
        connection.transport.abort()  # a client that reads nothing does not read our goodbye either
    return ticks


def rates(ticks: Sequence[Sequence[tuple[int, float]]]) -> tuple[float, int, float]:
    """Return the lowest rate of a client in Hz, the ticks that any client missed, and the 99th percentile of gaps.

    The rate is the slope of a least-squares line, so that a first or last tick that comes late is no slower rate.
    """
    times_s = [[time_s for _, time_s in of_client] for of_client in ticks]
    gaps_s = [*map(np.diff, times_s)]
    lowest = min(1 / float(np.polyfit(np.arange(len(of_client)), of_client, 1)[0]) for of_client in times_s)
    missed = sum(int(np.sum(np.diff([number for number, _ in of_client]) - 1)) for of_client in ticks)
    return lowest, missed, float(np.quantile(np.concatenate(gaps_s), 0.99))


def run_bare(model: Path, seconds: float) -> tuple[float, int]:
    """Run the model alone as the dashboard runs it; return the median in µs, and the memory of the process."""
    from common.onnx_graph.load import load_model
    from common.runtime.inputs.given import make_feeds
    from common.runtime.sessions.session import SessionSettings, create_session
    from common.runtime.sessions.stoppable import StoppableRuns
    from common.runtime.sessions.threads import available_threads

    loaded = load_model(model, {"N": 1})
    runs = StoppableRuns(create_session(model, SessionSettings(available_threads())), model)
    feeds = make_feeds(loaded.graph, {}, 0)
    runs.run(feeds)
    durations_ns, end_s = [], time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        began_ns = time.perf_counter_ns()
        runs.run(feeds)
        durations_ns.append(time.perf_counter_ns() - began_ns)
    return float(np.median(durations_ns)) / 1e3, psutil.Process().memory_info().rss


def bare(model: Path, seconds: float) -> tuple[float, int]:
    """Return the figures of :func:`run_bare` from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.pipeline.dashboard", "--bare", str(seconds), "--model", str(model)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    median_us, resident_bytes = json.loads(done.stdout)
    return median_us, resident_bytes


def cost(model: Path, folder: Path) -> list[Figure]:
    """Return how much slower the model is beside a dashboard with clients, and the memory of the dashboard."""
    slowdowns, beyond, ready = [], [], []
    for pair in range(PAIRS):
        before_us, bare_bytes = bare(model, PAIR_S / 2)
        with Dashboard(model, folder / f"pair{pair}") as dashboard:
            dashboard.clients(CLIENTS, 0, PAIR_S)
            resident = psutil.Process(dashboard.process.pid).memory_info().rss
            median_us = json.loads(dashboard.ask("/api/metrics/current"))["figures"]["whole_p50_us"]
        after_us, _ = bare(model, PAIR_S / 2)
        slowdowns.append(2 * median_us / (before_us + after_us) - 1)
        beyond.append(resident - bare_bytes)
        ready.append(dashboard.ready_s)
    return [
        Figure("ready", float(np.median(ready)), 1.0, "s"),
        Figure("slowdown of the median", float(np.median(slowdowns)), 0.01, ""),
        Figure("memory beyond the runtime's", float(np.median(beyond)) / 1e6, 60, "MB"),
    ]


def ticking(folder: Path) -> list[Figure]:
    """Return the processor time of a tick with all that goes on meanwhile, without a model of its own."""
    with Dashboard(None, folder) as dashboard:
        process, durations_us = psutil.Process(dashboard.process.pid), [20_000.0] * 500
        dashboard.ask("/api/ingest", json.dumps({"durations_us": durations_us}))
        before = process.cpu_times()
        ticks = dashboard.clients(CLIENTS, 0, TICKING_S)
        after = process.cpu_times()
    busy_s = after.user + after.system - before.user - before.system
    return [Figure(f"processor time of a tick for {CLIENTS}", 1e3 * busy_s / len(ticks[0]), TICK_MS, "ms")]


def crowd(dashboard: Dashboard, seconds: float) -> list[Figure]:
    """Return what a few clients get, and what many get of which some are dead."""
    rate_hz, missed, gap_s = rates(dashboard.clients(CLIENTS, 0, seconds))
    many_hz, many_missed, many_gap_s = rates(dashboard.clients(MANY - DEAD, DEAD, seconds / 3))
    return [
        Figure(f"rate of the slowest of {CLIENTS}", round(rate_hz, 2), 10.0, "Hz", is_least=True),
        Figure(f"ticks that one of {CLIENTS} missed", missed, 0, ""),
        Figure(f"gap p99 of {CLIENTS}", 1e3 * gap_s, 120, "ms"),
        Figure(f"rate of the slowest of {MANY}, {DEAD} dead", round(many_hz, 2), 10.0, "Hz", is_least=True),
        Figure(f"ticks that one of {MANY} missed", many_missed, 0, ""),
        Figure(f"gap p99 of {MANY}", 1e3 * many_gap_s, 120, "ms"),
    ]


def fill_an_hour(folder: Path) -> None:
    """Enter an hour until now, second by second, as a dashboard would have."""
    store, now_s, random = Store(folder / "dashboard.sqlite"), time.time(), np.random.default_rng(0)
    history = History(store, store.begin("an hour ago", now_s - HOUR_S, {}))
    gauges = {f"power_w:package-{place}": 30.0 + place for place in range(20)}
    for second in range(HOUR_S):
        history.add(now_s - HOUR_S + second, random.integers(10**6, 10**8, 20), gauges)
    store.close()


def answer_s(ask: Callable[[str], bytes], path: str) -> float:
    answers_s = []
    for _ in range(REQUESTS):
        began_s = time.perf_counter()
        ask(path)
        answers_s.append(time.perf_counter() - began_s)
    return float(np.median(answers_s))


def killed(model: Path, folder: Path) -> list[Figure]:
    """Return the time that is lost when a dashboard is killed, and whether its database is whole."""
    with Dashboard(model, folder) as dashboard:
        time.sleep(5.5)
        killed_s = time.time()
        dashboard.process.kill()
    with sqlite3.connect(folder / "dashboard.sqlite") as database:
        is_whole = database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (last_s,) = database.execute("SELECT max(ended_s) FROM runs").fetchone()
    return [
        Figure("time lost by kill -9", killed_s - last_s, 1.0, "s"),
        Figure("databases lost by kill -9", float(not is_whole), 0, ""),
    ]


def measured(model: Path, folder: Path, seconds: float) -> list[Figure]:
    hour = folder / "hour"
    hour.mkdir()
    fill_an_hour(hour)
    with Dashboard(model, hour) as dashboard:
        figures = [
            *crowd(dashboard, seconds),
            Figure("an hour of history", 1e3 * answer_s(dashboard.ask, "/api/metrics/history?duration=3600"), 50, "ms"),
        ]
    return [*figures, *ticking(folder / "ticking"), *cost(model, folder), *killed(model, folder / "killed")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "mobilenet-v1-fp32.onnx")
    parser.add_argument("--seconds", type=float, default=60.0, help="time in which ticks are counted")
    parser.add_argument("--clients", help=argparse.SUPPRESS)
    parser.add_argument("--bare", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.clients:
        print(json.dumps(asyncio.run(read_ticks(*json.loads(given.clients)))))
        return 0
    if given.bare:
        print(json.dumps(run_bare(given.model, given.bare)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        figures = measured(given.model, Path(folder), given.seconds)
    for figure in figures:
        limit = f"{'at least' if figure.is_least else 'at most'} {figure.limit:g}"
        verdict = "" if figure.is_met else "  MISSED"
        print(f"{figure.name:<36} {figure.value:10.4g} {figure.unit:<3} {limit:<14}{verdict}".rstrip())
    return int(not all(figure.is_met for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
