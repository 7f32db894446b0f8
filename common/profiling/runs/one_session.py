"""The runs of a large model: the unprofiled ones first, then the profiled ones, so that one session lives at a time.

Each session packs the weights for its kernels, and the runtime's Python interface shares no packed weights. Weights
that are not packed could be shared, but their products take another time. So two sessions take the memory of two
models.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from common.graphs.graph import Graph
from common.latency.recorder import Recorder
from common.messages.errors import PipelineError
from common.process.free_memory import free_bytes, return_freed
from common.profiling.runs import loop

NO_OBSERVER: AbstractContextManager[object] = nullcontext()
LEAST_STORED = 1 << 16  # runs, in 1 MB: the first run of a large model may take a thousand times as long as a later one
LARGE_BYTES = 1e9  # of weights; a second copy of less is a small price for runs that see the same minute of the host


def is_large(graph: Graph) -> bool:
    """Return whether a model gets one session at a time: its weights are large, or twice as much is not free."""
    sizes = (tensor.size_bytes for tensor in graph.tensors.values() if tensor.kind == "weight")
    weight_bytes, free = sum(size for size in sizes if isinstance(size, int)), free_bytes()
    return weight_bytes > LARGE_BYTES or (free is not None and 2 * weight_bytes > free)


def timed_runs(
    plan: loop.SessionPlan,
    folder: Path,
    budget: loop.Budget,
    progress: loop.Progress = lambda *_: None,
    opened: Callable[[loop.ColdStart], None] = lambda _: None,
    observed: AbstractContextManager[object] = NO_OBSERVER,
    between_runs: Callable[[], None] = lambda: None,
) -> tuple[loop.EndedSession, loop.Runs]:
    """Run a model without and with profiling, by two sessions in turn or by one after the other.

    The unprofiled runs of a session that is alone take half of a duration, and as many profiled ones follow at most.
    The trace and the executed graph (``executed.onnx``) are left in the folder. ``opened`` is called before the
    warm-up. ``observed`` is entered before it and left after the runs: after the unprofiled ones, if a session is
    alone. ``between_runs`` is work to do while no run is timed. PipelineError: the runtime refuses or fails, before a
    run of each session was counted.
    """
    if not plan.is_alone:
        sessions = loop.prepare(plan, folder)
        opened(sessions.cold)
        with observed:
            (runs,) = loop.take_turns([sessions], budget, progress, between_runs)
        return sessions.traced.end(), runs
    plain, feeds, cold = loop.open_plain(plan)
    opened(cold)
    half = replace(budget, duration_s=budget.duration_s and budget.duration_s / 2)
    expected = math.ceil(half.expected_runs(cold.first_run_us))
    unprofiled = Recorder(min(half.stored_runs, max(LEAST_STORED, expected)))  # more would take memory of its own
    with observed:
        run = partial(loop.lap, plain, feeds, unprofiled, plan.model)
        first = _alone(run, unprofiled, half, _half(progress, budget, 0), between_runs)
    del run, plain  # the profiled session takes its memory
    traced = loop.open_traced(plan, folder, feeds)
    warmup, most = loop.traceable_runs(traced.events_per_run, budget.warmup)
    rest = loop.Budget(warmup, min(most, unprofiled.count - budget.warmup))
    profiled = Recorder(warmup + rest.runs)
    run = partial(loop.lap, traced.session, feeds, profiled, plan.model)
    second = _alone(run, profiled, rest, _half(progress, budget, 1), between_runs)
    problem = "; ".join(dict.fromkeys(filter(None, (first, second))))
    counts = f"{unprofiled.count} unprofiled and {profiled.count} profiled runs"
    failure = f"failed after {counts} ({problem})" if problem else ""
    ended = traced.end()
    del run, traced  # trace and nodes are read without them
    return_freed()
    return ended, loop.Runs(unprofiled, profiled, budget.warmup, cold, failure, warmup)


def _half(progress: loop.Progress, budget: loop.Budget, number: int) -> loop.Progress:
    """Return the progress of the first (0) or the second half (1) of a measurement."""
    return lambda done, total: progress(budget.total * (number + done / total) / 2, budget.total)


def _alone(
    run: Callable[[], None],
    runs: Recorder,
    budget: loop.Budget,
    progress: loop.Progress,
    between_runs: Callable[[], None],
) -> str:
    """Run one session, and return why it ended early, if it did; a failure before a run was counted is raised."""
    try:
        loop.repeat(budget, lambda *_: run(), progress, between_runs)
    except PipelineError as error:
        if runs.count <= budget.warmup:
            raise
        return error.problem
    return ""
