"""Two models, or one under two settings, that take turns run by run, and the runs that count in both."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from common.latency.dependence import Samples
from common.profiling.runs.loop import Budget, Progress, SessionPlan, prepare, take_turns
from common.profiling.runs.measurement import Measurement, conclude
from common.profiling.trace.reader import keep_runs, read_trace

SESSION_ROUNDS = 20  # as many as the blocks of a series, which are then independent
LEAST_ROUND = 5  # runs of a pair of sessions
# of the runs of both sides, and of their nodes
PairedTimes: TypeAlias = tuple[tuple[Samples, Samples], tuple[dict[str, Samples], dict[str, Samples]]]


@contextlib.contextmanager
def measured_in_turn(
    sides: Sequence[SessionPlan], folder: Path, budget: Budget, progress: Progress
) -> Iterator[list[Measurement]]:
    """Measure several models run by run in turn; while the block runs, their executed graphs are there.

    Each has a folder of its own, with the graph beside the trace. Errors are those of :func:`prepare`.
    """
    sessions = []
    for index, side in enumerate(sides):
        (own := folder / f"side-{index}").mkdir()
        sessions.append(prepare(side, own))
    runs = take_turns(sessions, budget, progress)
    yield [conclude(own.traced.end(), own_runs) for own, own_runs in zip(sessions, runs, strict=True)]


def shares_of_runs(runs: int) -> list[int]:
    """Divide runs among new sessions: the place of its memory moves a node by percents while a session lives."""
    parts = max(1, min(SESSION_ROUNDS, runs // LEAST_ROUND))
    return [len(part) for part in np.array_split(np.arange(runs), parts)]


def joined_pairs(parts: Sequence[PairedTimes]) -> PairedTimes:
    """Return the runs of several pairs of sessions one after another; nodes that one of them lacks are left out."""
    latencies = [np.concatenate([part[0][side] for part in parts]) for side in range(2)]
    nodes = [
        {
            name: np.concatenate([part[1][side][name] for part in parts])
            for name in parts[0][1][side]
            if all(name in part[1][side] for part in parts)
        }
        for side in range(2)
    ]
    return (latencies[0], latencies[1]), (nodes[0], nodes[1])


def paired_runs(first: Measurement, second: Measurement) -> tuple[Samples, Samples]:
    """Return the unprofiled runs of two models that took turns: those that count in both, pair by pair."""
    sides = first.plain, second.plain
    begin, end = max(side.warmup_count for side in sides), min(side.runs.stored_count for side in sides)
    first_us, second_us = (side.runs.latencies_us[begin:end] for side in sides)
    return first_us, second_us


def paired_node_runs(first: Measurement, second: Measurement) -> tuple[dict[str, Samples], dict[str, Samples]]:
    """Return the times in µs of the nodes of two models that took turns, in the profiled runs that count in both.

    They include what profiling adds, to both alike. Errors are those of :func:`read_trace`.
    """
    begin = max(first.profiled.warmup_count, second.profiled.warmup_count)
    in_both = map(all, zip(first.kept, second.kept, strict=False))
    kept = [run >= begin and is_kept for run, is_kept in enumerate(in_both)]
    return _times(first, kept), _times(second, kept)


def _times(measurement: Measurement, kept: Sequence[bool]) -> dict[str, Samples]:
    trace = read_trace(measurement.trace_file, measurement.bodies, partial=True)
    missing = [False] * (trace.run_count - len(kept))
    return {name: np.array(node.run_us) for name, node in keep_runs(trace, [*kept, *missing]).nodes.items()}
