"""Compare load tests of real models with MLPerf LoadGen's Server scenario, and with what the queue is predicted to do.

For each model, batches are timed first. Then requests come at three shares of the rate that single calls allow, by the
same arrivals of the same seed: once sent by LoadGen, and once by 10's generator, ``--rounds`` times in turn. The first
table has the median over the rounds of each percentile's ratio, with a 95 % interval from the order of the ratios
(Hettmansperger and Sheather 1986). ``spread`` is by how much LoadGen's own rounds differ, which is what this host does
to two runs of the same program. The second table has the curve of rate against latency for batches of up to four,
beside the prediction, and why they differ where they do by more than 10 % below 80 % utilization.

Run by ``make check-load-models`` on a quiet host, for an hour; no test depends on a figure. Exits 1 if a
percentile surely differs by more than ``LIMIT``, and 2 if LoadGen is missing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from common.latency.dependence import Samples
from common.latency.statistics import Estimate, percentile
from common.load.generator import wall_clock
from common.load.generator.loadgen import drive, require_loadgen, results
from common.load.requests.batching import BatchPolicy
from common.load.requests.demand import Demand
from common.load.requests.load_record import LoadRecord
from common.load.requests.schedules import poisson
from common.load.requests.sources import OpenLoop, Source
from common.load.results.validity import judge
from common.load.search.batch_times import ServiceTimes, measure_times
from common.load.search.curve import CurvePoint, curve
from common.load.search.halving import Configuration
from common.load.search.trials import SessionHarness
from common.load.service.concurrency import USUAL, Concurrency
from common.load.service.sessions import Inputs, SessionService, batched_inputs, warm_up
from common.messages.errors import PipelineError
from common.onnx_graph.load import load_model
from common.runtime.inputs.given import make_feeds
from common.runtime.sessions.session import SessionSettings, create_session
from common.runtime.sessions.threads import usable_threads
from common.view.text import duration, percent, significant, text_table
from models.classifiers.mobilenet_v1 import build_mobilenet_v1
from models.classifiers.squeezenet import build_squeezenet
from models.transformers.vit import build_vit

LIMIT = 0.05
LOADS = (0.3, 0.5, 0.7)  # of what single calls allow
SHARES = {"50.00": 0.5, "90.00": 0.9, "99.00": 0.99}  # by LoadGen's names
SIZES = [1, 2, 4]  # batches that are timed
TIMING_S = 6.0  # for each size
NO_BOUND_S = 3600.0  # what LoadGen's rules hold the run to
NS_PER_US = 1e3
BUILDERS: dict[str, Callable[[], onnx.ModelProto]] = {
    "mobilenet-v1": build_mobilenet_v1,
    "squeezenet": build_squeezenet,
    # DeiT-Ti (Touvron et al. 2021, arXiv:2012.12877, table 1): a ViT of width 192 with three heads.
    "vit-ti16": partial(build_vit, width=192, heads=3, feed=768),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A percentile at a rate, in µs: in each round by 10, and by LoadGen."""

    rate_hz: float
    name: str
    ours_us: Samples
    theirs_us: Samples

    @property
    def difference(self) -> Estimate:
        """The excess of ours over LoadGen's: the median over the rounds, with its limits."""
        ratio = percentile(np.asarray(self.ours_us / self.theirs_us), 0.5)
        return Estimate(*(None if limit is None else limit - 1 for limit in (ratio.value, ratio.low, ratio.high)))

    @property
    def spread(self) -> float:
        """The difference between LoadGen's own rounds."""
        return float(np.ptp(self.theirs_us) / np.median(self.theirs_us))

    @property
    def verdict(self) -> str:
        """``ok`` if the median is within ``LIMIT``, ``OUT`` if the whole interval is beyond, else ``undecided``."""
        value, low, high = self.difference.value, self.difference.low, self.difference.high
        if value is not None and abs(value) <= LIMIT:
            return "ok"
        return "undecided" if low is None or high is None or (low <= LIMIT and high >= -LIMIT) else "OUT"


def open_service(path: Path, session_count: int, threads: int, concurrency: Concurrency = USUAL) -> SessionService:
    graph = load_model(path, {}, {"batch": 1, "N": 1}).graph
    settings = concurrency.settings_of(session_count, SessionSettings(threads))
    sessions = [create_session(path, each) for each in settings]
    samples = [make_feeds(graph, {}, seed) for seed in range(2)]
    service = SessionService(sessions, path, Inputs(samples, batched_inputs(sessions[0]), {}))
    for size in SIZES:
        warm_up(service, BatchPolicy(most=size), 0)
    return service


def run(service: SessionService, source: Source, policy: BatchPolicy) -> LoadRecord:
    return wall_clock.serve(source, service, policy)


def by_loadgen(service: SessionService, rate_hz: float, duration_s: float, seed: int) -> tuple[Samples, str, int]:
    """Let LoadGen send the requests; return its percentiles in µs, its verdict, and how many it sent."""
    with tempfile.TemporaryDirectory() as folder:
        policy, place = BatchPolicy(), Path(folder)
        drive("server", service, policy, Demand(rate_hz, duration_s, seed), NO_BOUND_S, place)
        figures = results(place)
    times_us = np.array([float(figures[f"result_{name}_percentile_latency_ns"]) for name in SHARES]) / NS_PER_US
    return times_us, str(figures["result_validity"]), int(figures["result_query_count"])


def compare(service: SessionService, rate_hz: float, count: int, seed: int, rounds: int) -> list[Row]:
    """Let both send about so many requests by the same arrivals, in turn; return a row per percentile."""
    ours, theirs, duration_s = list[Samples](), list[Samples](), round(count / rate_hz, 3)
    doubts = Counter[str]()
    for _ in range(rounds):
        times_us, validity, sent = by_loadgen(service, rate_hz, duration_s, seed)
        record = wall_clock.serve(OpenLoop(poisson(rate_hz, duration_s, seed)), service, BatchPolicy())
        if sent != len(record) + 1:  # it sends one more, after the end
            problem = f"sent {sent} requests, and 10 {len(record)}"
            raise PipelineError("LoadGen", problem, "give --requests 150 or more, since it sends 100 at least")
        doubts["by LoadGen's rules"] += validity != "VALID"
        doubts["by those of 10"] += judge([record], is_open=True, most_running=1).reason != ""
        theirs.append(times_us)
        ours.append(np.quantile(record.latencies_us, [*SHARES.values()]))
    for rules, invalid in (+doubts).items():
        print(f"{rate_hz:.4g} requests/s: {invalid} of {rounds} rounds are invalid {rules}", file=sys.stderr)
    columns = zip(SHARES, np.array(ours).T, np.array(theirs).T, strict=True)
    return [Row(rate_hz, f"p{float(name):g}", *both) for name, *both in columns]


def against_loadgen(model: str, service: SessionService, times: ServiceTimes, options: argparse.Namespace) -> list[Row]:
    rows = list[Row]()
    for load in LOADS:
        rate_hz = round(load / float(times[1].mean()), 2)
        rows += compare(service, rate_hz, options.requests, options.seed, options.rounds)
    head = (model, "", "ours", "LoadGen", "difference", "from", "to", "spread", "")
    cells = [
        [
            f"{row.rate_hz:.4g}/s",
            row.name,
            *(duration(float(np.median(times_us)), 4) for times_us in (row.ours_us, row.theirs_us)),
            *(percent(share, 2) for share in (row.difference.value, row.difference.low, row.difference.high)),
            percent(row.spread, 2),
            row.verdict,
        ]
        for row in rows
    ]
    print(text_table(head, cells), flush=True)
    return rows


def prediction_table(model: str, points: Sequence[CurvePoint]) -> str:
    """Return a row per rate: measured, predicted, and why they differ."""
    head = (model, "utilization", "p50", "predicted", "p99", "predicted", "why they differ")
    return text_table(head, [_prediction_row(point) for point in points])


def _prediction_row(point: CurvePoint) -> list[str]:
    response, measured = point.response, point.trial
    predicted = (None, None, None) if response is None else (response.p50_us, response.p99_us, response.utilization)
    return [
        f"{significant(measured.rate_hz)}/s",
        percent(predicted[2]),
        duration(measured.p50_us.value, 4),
        duration(predicted[0], 4),
        duration(measured.p99_us.value, 4),
        duration(predicted[1], 4),
        point.doubt,
    ]


def of_models(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Print the tables of each model, and yield the rows that compare with LoadGen."""
    threads = max(1, usable_threads(options.threads) - (options.threads is None))  # LoadGen has a thread of its own
    for model in options.models:
        path = folder / f"{model}.onnx"
        onnx.save(BUILDERS[model](), path)
        service = open_service(path, 1, threads)
        times = measure_times(partial(run, service), 1, SIZES, options.timing_s)
        yield from against_loadgen(model, service, times, options)
        harness = SessionHarness(partial(open_service, path), lambda begin_s, end_s: None)
        setup = Configuration(SIZES[-1], 0.0, 1, threads)
        print(prediction_table(model, [*curve(harness, setup, times, options.curve_s, options.seed)]), flush=True)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=BUILDERS, default=[*BUILDERS], metavar="NAME")
    parser.add_argument("--requests", type=int, default=500, help="of a run, at least 150 (default: 500)")
    parser.add_argument("--rounds", type=int, default=15, help="of each comparison, at least 6 (default: 15)")
    parser.add_argument("--timing-s", type=float, default=TIMING_S * len(SIZES), help="time in which batches are timed")
    parser.add_argument("--curve-s", type=float, default=420.0, help="time of a model's curve (default: 420)")
    parser.add_argument("--threads", type=int, help="of the session (default: all but one)")
    parser.add_argument("--seed", type=int, default=0, help="of all arrivals")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    try:
        require_loadgen()
        with tempfile.TemporaryDirectory() as folder:
            rows = [*of_models(options, Path(folder))]  # all tables, whatever the first row says
            return int(any(row.verdict == "OUT" for row in rows))
    except PipelineError as error:
        print(f"benchmarks.load.server_scenario: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
