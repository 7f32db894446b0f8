"""Accelerators that are evaluated for a model, as rows of tables: the best schedule on each, and its lower bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.design_space.found_design import FoundDesign, Row, Search
from common.design_space.fused_designs import FusedWorkload
from common.design_space.hardware import Hardware
from common.design_space.mapped_designs import MappedWorkload
from common.design_space.single_buffer import has_single_buffer
from common.source_graph import SourceGraph


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Designs that were evaluated.

    Attributes:
        designs: what was found on each.
        notes: what does not count, or counts as traffic alone.
    """

    designs: Sequence[FoundDesign]
    notes: tuple[str, ...]

    @property
    def best(self) -> Row:
        """The row of the design with the least energy-delay product."""
        return min((design.point for design in self.designs), key=lambda point: point["edp_pj_cycles"])


def evaluate(designs: Mapping[str, Hardware], metrics: Sequence[Row], graph: SourceGraph, search: Search) -> Evaluated:
    """Return the best schedule of a model on each of some designs of one accelerator.

    An accelerator with one buffer for all operands gets fused groups, any other a mapping for each layer.

    Args:
        designs: the accelerator with different sizes, by name.
        metrics: rows of op_metrics.
        graph: the same model's graph.
        search: how to search.

    Raises:
        UpstreamError: dimensions of the model are unbound.
        UnusableValueError: a layer has no tile that fits, or there is no such search on this accelerator.
        PipelineError: the model has nothing to map.
    """
    first = next(iter(designs.values()))
    workload = (FusedWorkload if has_single_buffer(first) else MappedWorkload).of(metrics, graph)
    found = [workload.found(design, hardware, search) for design, hardware in designs.items()]
    return Evaluated(found, workload.notes(first))
