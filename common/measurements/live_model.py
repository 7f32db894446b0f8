"""The model that a dashboard runs: its graph is read before the server starts, its sessions while it answers."""

from __future__ import annotations

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
from common.profiling.runs.time_shares import time_shares
from common.runtime.inputs.given import given_arrays, make_feeds
from common.runtime.inputs.values import Array
from common.runtime.memory import require_memory
from common.runtime.sessions.session import SessionSettings, create_session, given_settings
from common.runtime.sessions.stoppable import StoppableRuns


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
    counts = count_nodes(prepared.model.graph, prepared.model.bounds)
    flops, moved = (total(count.figure(name) for count in counts) for name in ("flops", "bytes"))
    known = (None if figure is None else float(figure) for figure in (flops, moved))
    return LiveModel(lambda: runs.run(feeds), nodes, *known)
