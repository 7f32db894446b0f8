"""Accelerators that are evaluated for a model, as rows of tables: the best schedule on each, and its lower bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from common.design_space.engines.follower import UNFOLLOWED, Follower
from common.design_space.found_design import FoundDesign, Row, Search, misfit
from common.design_space.fused_designs import FusedWorkload
from common.design_space.hardware import Hardware, NothingFitsError
from common.design_space.mapped_designs import MappedWorkload
from common.design_space.single_buffer import has_single_buffer
from common.source_graph import SourceGraph


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Designs that were evaluated.

    Attributes:
        designs: what was found on each; on one of them at least.
        notes: what does not count, or counts as traffic alone.
    """

    designs: Sequence[FoundDesign]
    notes: tuple[str, ...]

    @property
    def fitting(self) -> list[Row]:
        """The rows of the designs on which a schedule fits."""
        return [design.point for design in self.designs if design.point["problem"] is None]


def evaluate(
    designs: Mapping[str, Hardware],
    metrics: Sequence[Row],
    graph: SourceGraph,
    searches: Sequence[Search],
    follower: Follower = UNFOLLOWED,
) -> Evaluated:
    """Return the best schedule of a model on each of some designs of one accelerator, by each of some searches.

    An accelerator with one buffer for all operands gets fused groups, any other a mapping for each layer. A design on
    which nothing fits has a row that says so. After an interruption, designs that were not begun have none.

    Args:
        designs: the accelerator with different sizes, by name.
        metrics: rows of op_metrics.
        graph: the same model's graph.
        searches: how to search.
        follower: who follows the searches.

    Raises:
        UpstreamError: dimensions of the model are unbound.
        NothingFitsError: no design has a schedule that fits.
        UnusableValueError: there is no such search on this accelerator, or the evaluations do not suffice.
        PipelineError: the model has nothing to map, or the package of an engine is not installed.
    """
    first = next(iter(designs.values()))
    workload = (FusedWorkload if has_single_buffer(first) else MappedWorkload).of(metrics, graph)
    found: list[FoundDesign] = []
    problems: list[NothingFitsError] = []
    for (design, hardware), search in product(designs.items(), searches):
        if follower.is_interrupted and len(found) > len(problems):
            break
        try:
            hardware.require_room()
            found.append(workload.found(design, hardware, search, follower))
        except NothingFitsError as error:
            problems.append(error)
            found.append(misfit(design, hardware, search, error.problem))
    if len(problems) == len(found):
        raise problems[0]
    return Evaluated(found, workload.notes(first))
