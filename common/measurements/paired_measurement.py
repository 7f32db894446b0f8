"""Two models that are measured run by run in turn: the two sides of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from common.attribution.ownership import owners
from common.comparison.alignment import Executed
from common.comparison.measured import MeasuredSide
from common.latency.dependence import Samples
from common.onnx_graph.executed import saved_graph
from common.onnx_graph.load import LoadedModel
from common.profiling.runs.loop import Budget, Progress, SessionPlan, prepare, take_turns
from common.profiling.runs.measurement import Measurement, conclude
from common.profiling.trace.nesting import Bodies
from common.profiling.trace.reader import keep_runs, read_trace
from common.runtime.sessions.session import GIVEN
from common.sensors.other_work import OtherWork

SESSION_ROUNDS = 20  # as many as the blocks of a series, which are then independent
LEAST_ROUND = 5  # runs of a pair of sessions
# of the runs of both sides, and of their nodes
PairedTimes: TypeAlias = tuple[tuple[Samples, Samples], tuple[dict[str, Samples], dict[str, Samples]]]


@dataclass(frozen=True, slots=True)
class ExecutedModel:
    """What a session executed, the naming of the nodes of its bodies, and the operator of each node."""

    nodes: Executed
    bodies: Bodies
    op_types: dict[str, str]


def measured_pair(
    sides: Sequence[SessionPlan],
    models: Sequence[LoadedModel],
    budget: Budget,
    folder: Path,
    new_bar: Callable[[], Progress],
    note: Callable[[str], None],
) -> tuple[MeasuredSide, MeasuredSide]:
    """Measure two models, or two settings of one, part by part in new sessions.

    Args:
        budget: of all parts together; each part has a warm-up besides.
        folder: where the sessions leave their traces.
        new_bar: returns a function that shows the progress of one part.
        note: receives the reason if a part ended early.

    Raises:
        PipelineError: the runtime refuses or fails.
    """
    other_work, busy, parts = OtherWork(), list[str](), list[PairedTimes]()
    for number, runs in enumerate(shares_of_runs(budget.runs)):
        (part_folder := folder / f"part-{number}").mkdir()
        order = 1 - 2 * (number % 2)  # which session is created first moves its memory
        part = Budget(budget.warmup, runs)
        measured = _in_turn(sides[::order], models[::order], part_folder, part, new_bar(), other_work)[::order]
        busy += other_work.notes(max(plan.settings.threads for plan in sides))
        for failure in (side.failure for side, _ in measured if side.failure):
            note(failure)
        one, other = (side.renamed(executed.bodies) for side, executed in measured)
        parts.append((paired_runs(one, other), paired_node_runs(one, other)))
    latencies, nodes = joined_pairs(parts)
    first, second = (
        MeasuredSide(
            f"{'AB'[side]} ({plan.model.name})",
            model.model_id,
            model.dimensions,
            latencies[side],
            nodes[side],
            executed.nodes,
            executed.op_types,
            conditions={name: getattr(plan.settings, name) for name in GIVEN},
            doubts=busy[:1],
        )
        for side, (plan, model, (_, executed)) in enumerate(zip(sides, models, measured, strict=True))
    )
    return first, second


def _in_turn(
    sides: Sequence[SessionPlan],
    models: Sequence[LoadedModel],
    folder: Path,
    budget: Budget,
    progress: Progress,
    other_work: OtherWork,
) -> list[tuple[Measurement, ExecutedModel]]:
    """Measure several models run by run in turn, each with a folder of its own, and read what each executed."""
    sessions = []
    with other_work:
        for index, side in enumerate(sides):
            (own := folder / f"side-{index}").mkdir()
            sessions.append(prepare(side, own))
        runs = take_turns(sessions, budget, progress)
        measured = [conclude(own.traced.end(), own_runs) for own, own_runs in zip(sessions, runs, strict=True)]
    # the files of the executed graphs are there as long as the sessions
    return [(side, _executed_in(side, model)) for side, model in zip(measured, models, strict=True)]


def _executed_in(measurement: Measurement, model: LoadedModel) -> ExecutedModel:
    executed = measurement.trace_file.parent / "executed.onnx"
    saved = saved_graph(executed, measurement.trace.op_types, model.dimensions)
    attribution = owners(model.graph, saved.graph)
    sources = {node.name: attribution.sources.get(node.name, ()) for node in saved.graph.nodes}
    op_types = {node.name: node.op_type for node in saved.graph.nodes}
    return ExecutedModel(Executed(sources, attribution.layout_of), saved.bodies, op_types)


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
