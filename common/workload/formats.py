"""The number format of each group on the card: that of the kernels, or a wider one for layers that need it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from common.fusion.groups import Group
from common.messages.errors import UnusableValueError
from common.table_rows import PrecisionMixturesRow
from common.workload.task_candidates import TaskCandidate, task_candidates
from common.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class WiderLayers:
    """Layers, by their names, that a plan computes in a wider number format than the others."""

    precision: str
    nodes: frozenset[str]


def layers_of(mixture: PrecisionMixturesRow, wider: str) -> WiderLayers:
    return WiderLayers(wider, frozenset(mixture["float_nodes"]))


def written_mixture(mixtures: Sequence[PrecisionMixturesRow], precision: str) -> PrecisionMixturesRow:
    """Return the mixture that was written, the one within the bounds on its error; none is an UnusableValueError."""
    found = next((row for row in mixtures if row["is_written_model"] and row["number_format"] == precision), None)
    if found is None:
        problem = f"no mixture with {precision} met its bounds"
        raise UnusableValueError("mixed_with", problem, "run <mixed> in that format")
    return found


def group_formats(groups: Iterable[Group], precision: str, wider: WiderLayers | None = None) -> tuple[str, ...]:
    """Return the number format of each group: a group with one layer in the wider format is in it as a whole."""
    if wider is None:
        return tuple(precision for _ in groups)
    return tuple(precision if wider.nodes.isdisjoint(group.nodes) else wider.precision for group in groups)


def candidates_in(workload: Workload, formats: Sequence[str]) -> list[TaskCandidate]:
    """Return the candidates of a plan, each in the format of its groups; no chain has groups of two formats."""
    by_format = {
        name: task_candidates(workload.graph, workload.groups, workload.layers, name, workload.in_bodies)
        for name in dict.fromkeys(formats)
    }
    found = []
    for alternatives in zip(*by_format.values(), strict=True):  # the same groups and chains in every format
        names = {formats[group] for group in alternatives[0].covers}
        if len(names) == 1:
            found.append(dict(zip(by_format, alternatives, strict=True))[names.pop()])
    return found
