"""Compare our latency clock with MLPerf LoadGen's on the same queries, in its SingleStream scenario.

LoadGen issues a query, waits until it is reported as complete, and issues the next one. Each query is one run of the
model, and our recorder times that run, inside the query. So LoadGen's latency is ours plus its call into Python, our
call of the run, and the report of completion: some microseconds, never negative. The last line shows this offset, query
by query, from LoadGen's trace.

The percentiles are LoadGen's own (``mlperf_log_detail.txt``, in whole ns), not computed again here. It uses the sample
of rank n·q rounded down, we interpolate at (n - 1)·q. For 1,000·k + 1 queries both are the same sample, so the number
of queries has this form. Agreement is a difference within 100 µs or the gap to the neighbouring samples, whichever is
larger. On a busy machine another process may run between the two clock readings, so a percentile that disagrees is
measured again, ``ROUNDS`` times at most. Exits 1 if it still disagrees, 2 if LoadGen is missing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from common.latency.dependence import Samples
from common.latency.recorder import Recorder
from common.latency.statistics import QUANTILES
from common.messages.errors import PipelineError
from common.onnx_graph.load import load_model
from common.runtime.inputs.given import make_feeds
from common.runtime.inputs.values import Operands, operands
from common.runtime.sessions.session import Session, SessionSettings, create_session, run
from models.transformers.vit import build_vit

LIMIT_US = 100.0
ROUNDS = 3
WARMUP = 10
TRACE_SAMPLE = '{"name":"Sample"'


@dataclass(frozen=True, slots=True)
class Row:
    """One percentile by both clocks, in µs."""

    name: str
    ours_us: float
    loadgen_us: float
    limit_us: float

    @property
    def agrees(self) -> bool:
        """Whether the two are within the limit of each other."""
        return abs(self.loadgen_us - self.ours_us) <= self.limit_us


def query_count(wanted: int) -> int:
    """Return the next number of the form 1,000·k + 1, so that no percentile falls between two samples."""
    return -(-max(wanted - 1, 1) // 1000) * 1000 + 1


def single_stream(loadgen: Any, session: Session, feeds: Operands, queries: int, folder: Path) -> Samples:
    """Let LoadGen issue the queries and write its logs into a folder; return our latencies in µs."""
    recorder = Recorder(queries)
    clock = time.perf_counter_ns

    def issue(samples: Sequence[Any]) -> None:
        for sample in samples:
            start = clock()
            run(session, feeds)
            recorder.record(start, clock())
            loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(sample.id, 0, 0)])

    system = loadgen.ConstructSUT(issue, lambda: None)
    library = loadgen.ConstructQSL(1, 1, lambda indices: None, lambda indices: None)
    loadgen.StartTestWithLogSettings(system, library, *_settings(loadgen, queries, folder))
    loadgen.DestroyQSL(library)
    loadgen.DestroySUT(system)
    return recorder.latencies_us


def _settings(loadgen: Any, queries: int, folder: Path) -> tuple[Any, Any]:
    """Return settings for exactly this number of queries, however long they take; log everything, print nothing."""
    test, log = loadgen.TestSettings(), loadgen.LogSettings()
    test.scenario = loadgen.TestScenario.SingleStream
    test.mode = loadgen.TestMode.PerformanceOnly
    test.min_query_count = test.max_query_count = queries
    test.min_duration_ms = 0
    log.enable_trace = True
    log.log_output.outdir = str(folder)
    log.log_output.copy_summary_to_stdout = False
    return test, log


def own_percentiles_us(folder: Path) -> dict[str, float]:
    """Return LoadGen's percentiles by our names."""
    lines = (folder / "mlperf_log_detail.txt").read_text(encoding="utf-8").splitlines()
    entries = (json.loads(line.partition(" ")[2]) for line in lines if line.startswith(":::MLLOG"))
    results = {entry["key"]: entry["value"] for entry in entries}
    return {name: results[f"result_{100 * q:.2f}_percentile_latency_ns"] / 1e3 for name, q in QUANTILES.items()}


def query_latencies_us(folder: Path) -> Samples:
    """Return LoadGen's latency of each query, in order."""
    lines = (folder / "mlperf_log_trace.json").read_text(encoding="utf-8").splitlines()
    events = (json.loads(line.rstrip(",")) for line in lines if line.startswith(TRACE_SAMPLE))
    begun = sorted((event["id"], event["args"]["complete_ns"]) for event in events if event["ph"] == "b")
    return np.array([nanoseconds / 1e3 for _, nanoseconds in begun])


def compare(ours_us: Samples, loadgen_us: dict[str, float]) -> list[Row]:
    """Return a row per percentile; its limit is ``LIMIT_US``, or the larger gap to the samples on either side."""
    ordered = np.sort(ours_us)
    rows = []
    for name, quantile in QUANTILES.items():
        rank = round(quantile * (len(ordered) - 1))
        gaps = np.diff(ordered[max(rank - 1, 0) : rank + 2])
        limit_us = max(LIMIT_US, float(gaps.max()))
        rows.append(Row(name, float(np.quantile(ordered, quantile)), loadgen_us[name], limit_us))
    return rows


def report(rows: Sequence[Row], ours_us: Samples, theirs_us: Samples) -> str:
    """Return the table, and the offset of LoadGen's latencies from ours."""
    lines = [f"{'':<6} {'ours µs':>12} {'LoadGen µs':>12} {'difference µs':>13} {'limit µs':>9}"]
    for row in rows:
        verdict = "ok" if row.agrees else "OUT"
        difference_us = row.loadgen_us - row.ours_us
        lines.append(
            f"{row.name.replace('_', '.'):<6} {row.ours_us:>12.1f} {row.loadgen_us:>12.1f} {difference_us:>+13.1f} "
            f"{row.limit_us:>9.1f} {verdict}"
        )
    offset = np.percentile(theirs_us - ours_us, [0, 50, 99, 100])
    lines.append(
        f"offset of {len(ours_us)} queries, LoadGen's less ours: least {offset[0]:.1f}, median {offset[1]:.1f}, "
        f"p99 {offset[2]:.1f}, most {offset[3]:.1f} µs"
    )
    return "\n".join(lines)


def rounds(loadgen: Any, options: argparse.Namespace, folder: Path) -> bool:
    """Run the queries until all percentiles agree, ``ROUNDS`` times at most; return whether they agree."""
    model = options.model or _vision_transformer(folder)
    bindings = {name: int(size) for name, _, size in (dim.partition("=") for dim in options.dim)}
    graph = load_model(model, bindings, {"batch": 1, "N": 1}).graph
    session = create_session(model, SessionSettings(options.threads))
    feeds = operands(session, make_feeds(graph, {}, seed=0))
    for _ in range(WARMUP):
        run(session, feeds)
    for _ in range(ROUNDS):
        ours_us = single_stream(loadgen, session, feeds, query_count(options.queries), folder)
        rows = compare(ours_us, own_percentiles_us(folder))
        print(report(rows, ours_us, query_latencies_us(folder)), flush=True)
        if all(row.agrees for row in rows):
            return True
    return False


def _vision_transformer(folder: Path) -> Path:
    """Write a model of some milliseconds, four layers of a ViT of width 192, and return its path."""
    path = folder / "vit.onnx"
    onnx.save(build_vit(depth=4, width=192, heads=3, feed=768), path)
    return path


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="an ONNX file (default: a vision transformer of four layers)")
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=N", help="bind a dimension; batch and N are 1"
    )
    parser.add_argument("--queries", type=int, default=1001, help="rounded up to 1,000·k + 1 (default: 1001)")
    parser.add_argument("--threads", type=int, default=1, help="default: 1, which leaves a processor to LoadGen's own")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    try:
        loadgen = importlib.import_module("mlperf_loadgen")
    except ImportError:
        print("mlperf_loadgen: not installed; run: pip install mlcommons-loadgen", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        try:
            return int(not rounds(loadgen, options, Path(folder)))
        except PipelineError as error:
            print(f"benchmarks.measuring.loadgen: error: {error}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
