"""MLPerf LoadGen as the source of requests: its scenarios drive the same service, and its rules judge the load.

LoadGen (github.com/mlcommons/inference, loadgen/) issues queries from its own thread, and takes the time until they
are reported as complete. Here its queries enter the queue like all requests, and the answers go back. Its log says
what it measured, whether its rules hold (run length, query count, the bound, early stopping) and is kept.
"""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.load.generator.harness import Harness
from common.load.generator.wall_clock import Listener, nobody, serve
from common.load.requests.batching import NEVER_NS, BatchPolicy
from common.load.requests.demand import Demand
from common.load.requests.load_record import LoadRecord, uninterrupted
from common.load.requests.sources import Arrival, ClosedLoop
from common.load.results.load_figures import LoadTest
from common.load.service.service import Service
from common.messages.errors import PipelineError
from common.process import interrupts

SEEDS = 2**64  # that LoadGen knows
SCENARIOS = {"single-stream": "SingleStream", "multi-stream": "MultiStream", "server": "Server", "offline": "Offline"}
SUMMARY, DETAIL = "mlperf_log_summary.txt", "mlperf_log_detail.txt"
PREFIX = ":::MLLOG "
PROBES = 20  # calls that say how fast the service is
KNOWN_SAMPLES = 1024  # numbers that LoadGen draws from; all mean the same few inputs


class Issued:
    """Requests as LoadGen issues them; ``complete`` takes its ids of those that were answered or given up."""

    def __init__(self, complete: Callable[[Sequence[int]], None]) -> None:
        self._complete = complete
        self._new: deque[tuple[int, int]] = deque()  # LoadGen's id, and when it was issued
        self._ids: list[int] = []  # by the request's number
        self._now_ns: Callable[[], int] | None = None
        self._wake: Callable[[], None] = lambda: None
        self._is_ended = False

    def attach(self, now_ns: Callable[[], int], wake: Callable[[], None]) -> None:
        self._now_ns, self._wake = now_ns, wake

    def issue(self, ids: Sequence[int]) -> None:
        now_ns = self._now_ns() if self._now_ns else 0
        self._new.extend((number, now_ns) for number in ids)
        self._wake()

    def end(self) -> None:
        self._is_ended = True
        self._wake()

    def due(self, now_ns: int) -> list[Arrival]:
        new = [self._new.popleft() for _ in range(len(self._new))]
        self._ids += [number for number, _ in new]
        return [(issued_ns, 0) for _, issued_ns in new]

    def expected_ns(self, count: int) -> None:
        """Return nothing: only LoadGen knows."""

    def settled(self, requests: Sequence[int], now_ns: int) -> None:
        self._complete([self._ids[request] for request in requests])

    @property
    def is_over(self) -> bool:
        return self._is_ended and not self._new


def require_loadgen() -> Any:
    """Return the package, or raise a PipelineError that says how to install it."""
    try:
        import mlperf_loadgen
    except ImportError as error:
        remedy = "run: python -m pip install mlcommons-loadgen"
        raise PipelineError("mlperf_loadgen", "is not installed", remedy) from error
    return mlperf_loadgen


def load_by_scenario(
    harness: Harness, scenario: str, bound_s: float, folder: Path
) -> tuple[LoadTest, dict[str, str | float | bool]]:
    """Let LoadGen send the requests of a scenario, as :func:`drive` does; return the test, and LoadGen's results.

    These are empty where a signal ended the load.
    """
    service = (harness.service, harness.policy, harness.demand)
    record = drive(scenario, *service, bound_s, folder, harness.listener)
    results_of_log = {} if record.is_interrupted else results(folder)
    return harness.test_of(record, is_open=scenario == "server"), results_of_log


def drive(
    scenario: str,
    service: Service,
    policy: BatchPolicy,
    demand: Demand,
    bound_s: float,
    folder: Path,
    listener: Listener = nobody,
) -> LoadRecord:
    """Let LoadGen send the requests of a scenario, and leave its logs in a folder, unless a signal ends the load.

    Args:
        scenario: one of ``SCENARIOS``.
        demand: the least length of the load; of the server scenario also the rate and the seed of
            ``schedules.poisson``. The others send as fast as the service answers.
        bound_s: the latency that LoadGen's rules hold the server scenario to.

    Raises:
        KeyboardInterrupt: a signal came before LoadGen began.
    """
    loadgen = require_loadgen()

    def complete(ids: Sequence[int]) -> None:
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(number, 0, 0) for number in ids])

    issued = Issued(complete)
    test, log = _settings(loadgen, scenario, demand, bound_s, folder)
    _expect(test, scenario, service, policy, demand.rate_hz)
    thread = threading.Thread(target=_send, args=(loadgen, issued, test, log), name="loadgen", daemon=True)

    def attach(now_ns: Callable[[], int], wake: Callable[[], None]) -> None:
        issued.attach(now_ns, wake)
        thread.start()

    record = serve(issued, service, policy, started=attach, listener=listener)
    if record.is_interrupted:
        interrupts.leave_alone(thread)  # nothing ends LoadGen before its time
    return record


def _send(loadgen: Any, issued: Issued, test: Any, log: Any) -> None:
    """Let LoadGen send all queries of a test, and say when the last one is answered."""
    system = loadgen.ConstructSUT(lambda samples: issued.issue([sample.id for sample in samples]), lambda: None)
    library = loadgen.ConstructQSL(KNOWN_SAMPLES, KNOWN_SAMPLES, lambda _: None, lambda _: None)
    loadgen.StartTestWithLogSettings(system, library, test, log)
    loadgen.DestroyQSL(library)
    loadgen.DestroySUT(system)
    issued.end()


def _settings(loadgen: Any, scenario: str, demand: Demand, bound_s: float, folder: Path) -> tuple[Any, Any]:
    test, log = loadgen.TestSettings(), loadgen.LogSettings()
    test.scenario = getattr(loadgen.TestScenario, SCENARIOS[scenario])
    test.mode = loadgen.TestMode.PerformanceOnly
    test.min_duration_ms = round(1e3 * demand.duration_s)
    test.server_target_latency_ns = round(1e9 * bound_s)
    test.schedule_rng_seed = test.sample_index_rng_seed = test.qsl_rng_seed = demand.seed % SEEDS
    log.log_output.outdir = str(folder)
    log.log_output.copy_summary_to_stdout = False
    log.enable_trace = False
    return test, log


def _expect(test: Any, scenario: str, service: Service, policy: BatchPolicy, rate_hz: float) -> None:
    """Tell LoadGen the rate of the server scenario; of another, how fast the service answers.

    LoadGen makes its queries beforehand from this figure, so too few would end the load early. A stream drops those
    that are left over, and gets the shortest call. Offline sends all, and gets the rate of the second half of calls.
    """
    if scenario == "server":
        test.server_target_qps = rate_hz
        return
    users = service.worker_count * policy.most
    batches = uninterrupted(serve(ClosedLoop(users, NEVER_NS, most_requests=PROBES * users), service, policy)).batches
    fastest_ns = max(1, int((batches.ended_ns - batches.started_ns).min()))
    rounds = math.ceil(test.multi_stream_samples_per_query / users)
    test.single_stream_expected_latency_ns, test.multi_stream_expected_latency_ns = fastest_ns, rounds * fastest_ns
    ends_ns, middle = np.sort(batches.ended_ns), len(batches.sizes) // 2
    later = float(batches.sizes[batches.ended_ns > ends_ns[middle]].sum())
    test.offline_expected_qps = 1e9 * later / max(1, int(ends_ns[-1] - ends_ns[middle]))


def results(folder: Path) -> dict[str, str | float | bool]:
    """Return what LoadGen's log says of its result: validity, rules, percentiles in ns.

    Raises:
        PipelineError: it wrote none.
    """
    try:
        lines = (folder / DETAIL).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise PipelineError(folder / DETAIL, "LoadGen wrote no log", "see what it printed") from error
    entries: list[Mapping[str, Any]] = [json.loads(line.removeprefix(PREFIX)) for line in lines if PREFIX in line]
    return {entry["key"]: entry["value"] for entry in entries if entry["key"].startswith(("result_", "early_stopping"))}
