"""Accelerators that are evaluated for a model, as rows of tables: the best schedule on each, and its lower bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


def evaluate(designs: Mapping[str, Hardware], metrics: Sequence[Row], graph: SourceGraph, search: Search) -> Evaluated:
    """Return the best schedule of a model on each of some designs of one accelerator.

    An accelerator with one buffer for all operands gets fused groups, any other a mapping for each layer. A design on
    which nothing fits has a row that says so.

    Args:
        designs: the accelerator with different sizes, by name.
        metrics: rows of op_metrics.
        graph: the same model's graph.
        search: how to search.

    Raises:
        UpstreamError: dimensions of the model are unbound.
        NothingFitsError: no design has a schedule that fits.
        UnusableValueError: there is no such search on this accelerator.
        PipelineError: the model has nothing to map.
    """
    first = next(iter(designs.values()))
    workload = (FusedWorkload if has_single_buffer(first) else MappedWorkload).of(metrics, graph)
    found, problems = [], []
    for design, hardware in designs.items():
        try:
            hardware.require_room()
            found.append(workload.found(design, hardware, search))
        except NothingFitsError as error:
            problems.append(error)
            found.append(misfit(design, hardware, search, error.problem))
    if len(problems) == len(found):
        raise problems[0]
    return Evaluated(found, workload.notes(first))
