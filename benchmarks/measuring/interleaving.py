"""Measure whether a profiled session slows an unprofiled one that runs in turn with it.

Run by ``make bench``; no test depends on it. Stage 01 claims that the ratio is within 5 % of 1.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from common.onnx_graph.load import load_model
from common.profiling.overhead import lap_us
from common.runtime.inputs.given import make_feeds
from common.runtime.inputs.values import Feeds
from common.runtime.sessions.session import Session, SessionSettings, create_session
from common.runtime.sessions.threads import available_threads

ROUNDS = 5


def medians(sessions: list[Session], feeds: Feeds, runs: int) -> float:
    """Return the median latency of the first session while all run in turn; the first tenth of the runs is warm-up."""
    laps = np.array([[lap_us(session, feeds) for session in sessions] for _ in range(runs)])
    return float(np.median(laps[runs // 10 :, 0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("models/resnet50-fp32.onnx"))
    parser.add_argument("--dim", action="append", default=["N=1"], metavar="NAME=N")
    parser.add_argument("--runs", type=int, default=40)
    options = parser.parse_args()
    bindings = {name: int(size) for name, _, size in (dim.partition("=") for dim in options.dim)}
    feeds = make_feeds(load_model(options.model, {}, bindings).graph, {}, seed=0)
    settings = SessionSettings(available_threads())
    plain = create_session(options.model, settings)
    print(f"{'round':>5}  {'lone ms':>8}  {'interleaved ms':>14}  {'ratio':>6}")
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for step in range(ROUNDS):
            lone = medians([plain], feeds, options.runs)
            traced = create_session(options.model, settings, trace_prefix=Path(folder) / "trace")
            together = medians([plain, traced], feeds, options.runs)
            traced.end_profiling()
            del traced  # its pool would go on beside the next lone round
            ratios.append(together / lone)
            print(f"{step:>5}  {lone / 1e3:>8.2f}  {together / 1e3:>14.2f}  {ratios[-1]:>6.3f}")
    print(f"median ratio {np.median(ratios):.3f} at {settings.threads} threads")


if __name__ == "__main__":
    main()
