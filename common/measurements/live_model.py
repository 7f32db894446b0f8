"""The model that a dashboard runs; it is loaded while the server already answers, because loading takes longer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common.graphs.sums import total
from common.messages.errors import PipelineError
from common.monitor.continuous import ContinuousRuns, LiveModel
from common.monitor.monitor import NodeShare
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import load_model
from common.profiling.runs.time_shares import time_shares
from common.runtime.inputs.given import given_arrays, make_feeds
from common.runtime.sessions.session import create_session, given_settings
from common.runtime.sessions.stoppable import StoppableRuns


def loaded(
    path: Path,
    sizes: tuple[Mapping[str, int], Mapping[str, int]],
    files: Mapping[str, Path],
    values: Mapping[str, Any],
    live: ContinuousRuns,
    note: Callable[[str], None],
) -> LiveModel:
    """Load a model, run it once, and count what a run computes.

    Args:
        sizes: given sizes of dynamic dimensions, and those of lower precedence.
        values: settings of the session, and the seed of the other inputs.
        live: the runs, which may end before the model is loaded.
        note: receives notes on what is missing.

    Raises:
        PipelineError: the model cannot be used.
    """
    model = load_model(path, *sizes, values=given_arrays(files))
    options, feeds = given_settings(values), make_feeds(model.graph, files, values["seed"])
    nodes = []
    try:
        nodes = [NodeShare(*share) for share in time_shares(path, options, feeds, lambda runs: live.stop_by(runs.stop))]
    except PipelineError as error:  # a model that cannot be run at all says so below
        if live.are_over:
            raise
        note(f"the time of the nodes is unknown: {error}")
    runs = StoppableRuns(create_session(path, options), path)
    live.stop_by(runs.stop)
    runs.run(feeds)  # the first one allocates
    counts = count_nodes(model.graph, model.bounds)
    flops, moved = (total(count.figure(name) for count in counts) for name in ("flops", "bytes"))
    known = (None if figure is None else float(figure) for figure in (flops, moved))
    return LiveModel(lambda: runs.run(feeds), nodes, *known)
