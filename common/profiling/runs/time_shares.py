"""The share of a run's time that each executed node takes, from a few profiled runs on a session of their own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from common.profiling.trace.reader import Trace, read_trace
from common.runtime.inputs.values import Array
from common.runtime.sessions.session import SessionSettings, create_session
from common.runtime.sessions.stoppable import StoppableRuns

MOST_RUNS, LONGEST_S = 5, 2.0  # of the runs that count


class TimeShare(NamedTuple):
    node: str
    op_type: str
    share: float


def time_shares(
    model: Path,
    settings: SessionSettings,
    feeds: Mapping[str, Array],
    hear: Callable[[StoppableRuns], object] = lambda _: None,
) -> list[TimeShare]:
    """Return what each node takes, the longest first; a first run, which allocates, does not count.

    A node's time is its own, without the nodes of its subgraphs. It includes the cost of profiling, so nodes of a few
    microseconds are shown as longer than they are.

    Args:
        hear: gets the runs before the first of them, so that another thread can stop them.

    Raises:
        PipelineError: the runtime refuses or fails to run the model, or the runs were stopped.
    """
    with tempfile.TemporaryDirectory() as folder:
        session = create_session(model, settings, trace_prefix=Path(folder) / "trace")
        runs = StoppableRuns(session, model)
        hear(runs)
        runs.run(feeds)
        end_s = time.monotonic() + LONGEST_S
        for _ in range(MOST_RUNS):
            runs.run(feeds)
            if time.monotonic() > end_s:
                break
        return shares_of(read_trace(Path(session.end_profiling()), partial=True))


def shares_of(trace: Trace) -> list[TimeShare]:
    """Return the shares of the nodes of a trace, all runs but the first together; none where no time passed."""
    times_us = {node.name: sum(node.run_us[1:]) for node in trace.nodes.values()}
    total_us = sum(times_us.values())
    shares = (
        TimeShare(node.name, node.op_type, times_us[node.name] / total_us) for node in trace.nodes.values() if total_us
    )
    return sorted(shares, key=lambda node: -node.share)
