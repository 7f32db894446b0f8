"""Two models that are measured run by run in turn: the two sides of a comparison."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.attribution.ownership import owners
from common.comparison.alignment import Executed
from common.comparison.measured import MeasuredSide
from common.measurements.profiled_nodes import executed_by
from common.onnx_graph.load import LoadedModel
from common.profiling.runs.loop import Budget, Progress, SessionPlan
from common.profiling.runs.measurement import Measurement
from common.profiling.runs.pairs import (
    PairedTimes,
    joined_pairs,
    measured_in_turn,
    paired_node_runs,
    paired_runs,
    shares_of_runs,
)
from common.profiling.trace.nesting import Bodies
from common.runtime.sessions.session import GIVEN
from common.sensors.other_work import OtherWork


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
    (latencies, nodes), executed, busy = _runs_in_turn(sides, models, budget, folder, new_bar, note)
    first, second = (
        MeasuredSide(
            f"{'AB'[side]} ({plan.model.name})",
            models[side].model_id,
            models[side].dimensions,
            latencies[side],
            nodes[side],
            executed[side].nodes,
            executed[side].op_types,
            conditions={name: getattr(plan.settings, name) for name in GIVEN},
            doubts=busy,
        )
        for side, plan in enumerate(sides)
    )
    return first, second


def _runs_in_turn(
    sides: Sequence[SessionPlan],
    models: Sequence[LoadedModel],
    budget: Budget,
    folder: Path,
    new_bar: Callable[[], Progress],
    note: Callable[[str], None],
) -> tuple[PairedTimes, list[ExecutedModel], list[str]]:
    """Return the runs of both sides and of their nodes, what the last sessions executed, and a note on a busy host."""
    other_work, busy, parts = OtherWork(), list[str](), list[PairedTimes]()
    for number, runs in enumerate(shares_of_runs(budget.runs)):
        (part_folder := folder / f"part-{number}").mkdir()
        order = 1 - 2 * (number % 2)  # which session is created first moves its memory
        with contextlib.ExitStack() as stack:
            with other_work:
                turns = measured_in_turn(sides[::order], part_folder, Budget(budget.warmup, runs), new_bar())
                measured = stack.enter_context(turns)[::order]
            executed = [_executed_in(side, model) for side, model in zip(measured, models, strict=True)]
        busy += other_work.notes(max(plan.settings.threads for plan in sides))
        for failure in (side.failure for side in measured if side.failure):
            note(failure)
        first, second = (side.renamed(own.bodies) for side, own in zip(measured, executed, strict=True))
        parts.append((paired_runs(first, second), paired_node_runs(first, second)))
    return joined_pairs(parts), executed, busy[:1]


def _executed_in(measurement: Measurement, model: LoadedModel) -> ExecutedModel:
    saved = executed_by(measurement, model.dimensions)
    attribution = owners(model.graph, saved.graph)
    sources = {node.name: attribution.sources.get(node.name, ()) for node in saved.graph.nodes}
    op_types = {node.name: node.op_type for node in saved.graph.nodes}
    return ExecutedModel(Executed(sources, attribution.layout_of), saved.bodies, op_types)
