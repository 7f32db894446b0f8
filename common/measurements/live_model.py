"""The model that a dashboard runs: its graph is read before the server starts, its sessions while it answers."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.graphs.sums import total
from common.messages.errors import PipelineError
from common.monitor.continuous import ContinuousRuns, LiveModel
from common.monitor.monitor import NodeShare
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import LoadedModel, load_model
from common.profiling.trace.reader import Trace, read_trace
from common.runtime.inputs.given import given_arrays, make_feeds
from common.runtime.inputs.values import Array
from common.runtime.memory import require_memory
from common.runtime.sessions.session import SessionSettings, create_session, given_settings
from common.runtime.sessions.stoppable import StoppableRuns

MOST_RUNS, LONGEST_S = 5, 2.0  # of the profiled runs that count


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """What is known of a model before the first session: it can be run with these settings and inputs."""

    path: Path
    model: LoadedModel
    options: SessionSettings
    feeds: Mapping[str, Array]


def prepared(
    path: Path,
    sizes: tuple[Mapping[str, int], Mapping[str, int]],
    files: Mapping[str, Path],
    values: Mapping[str, Any],
) -> PreparedModel:
    """Read a model, and make its inputs.

    Args:
        sizes: given sizes of dynamic dimensions, and those of lower precedence.
        values: settings of the session, and the seed of the other inputs.

    Raises:
        PipelineError: the model cannot be used.
        UnusableValueError: a dimension is unbound, an input does not fit, or a setting is unknown.
    """
    options = given_settings(values)
    model = load_model(path, *sizes, values=given_arrays(files))
    require_memory(path, model.graph)
    return PreparedModel(path, model, options, make_feeds(model.graph, files, values["seed"]))


def live_model(prepared: PreparedModel, live: ContinuousRuns, note: Callable[[str], None]) -> LiveModel:
    """Run a model once, and count what a run computes; a PipelineError says that the runtime cannot run it.

    The live runs may end before the model has run. Notes say what is missing.
    """
    path, options, feeds = prepared.path, prepared.options, prepared.feeds
    nodes = list[NodeShare]()
    try:
        nodes = time_shares(path, options, feeds, lambda runs: live.stop_by(runs.stop))
    except PipelineError as error:  # a model that cannot be run at all says so below
        if live.are_over:
            raise
        note(f"the time of the nodes is unknown: {error}")
    runs = StoppableRuns(create_session(path, options), path)
    live.stop_by(runs.stop)
    runs.run(feeds)  # the first one allocates
    counts = count_nodes(prepared.model.graph, prepared.model.bounds)
    flops, moved = (total(count.figure(name) for count in counts) for name in ("flops", "bytes"))
    known = (None if figure is None else float(figure) for figure in (flops, moved))
    return LiveModel(lambda: runs.run(feeds), nodes, *known)


def time_shares(
    model: Path,
    settings: SessionSettings,
    feeds: Mapping[str, Array],
    hear: Callable[[StoppableRuns], object] = lambda _: None,
) -> list[NodeShare]:
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


def shares_of(trace: Trace) -> list[NodeShare]:
    """Return the shares of the nodes of a trace, all runs but the first together; none where no time passed."""
    times_us = {node.name: sum(node.run_us[1:]) for node in trace.nodes.values()}
    total_us = sum(times_us.values())
    shares = (
        NodeShare(node.name, node.op_type, times_us[node.name] / total_us) for node in trace.nodes.values() if total_us
    )
    return sorted(shares, key=lambda node: -node.share)
