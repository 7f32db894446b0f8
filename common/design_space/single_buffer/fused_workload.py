"""The best fused groups of a model on accelerators with one buffer for all operands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from common.design_space.accelerator.hardware import KIB, Hardware
from common.design_space.accelerator.single_buffer import SingleBuffer, single_buffer
from common.design_space.fa_dosa import algorithm
from common.design_space.results.found_design import MOST_NAMED, FoundDesign, Row, convergence, misfit, point
from common.design_space.search.engines.registry import engine
from common.design_space.search.fronts import SupportedPoint, best
from common.design_space.search.observer import UNOBSERVED, SearchInterruptedError, SearchObserver
from common.design_space.search.search import Improvement, ModelPart
from common.design_space.search.search import search as searched
from common.design_space.search.settings import EXACT, FA_DOSA, Search
from common.design_space.single_buffer.bound import lower_bound
from common.design_space.single_buffer.fusion import Schedule, fused_front
from common.design_space.single_buffer.fusion_problem import FusionProblem
from common.design_space.single_buffer.group_rows import group_rows
from common.errors import PipelineError
from common.names import listed
from common.source_graph import SourceGraph
from common.workload.map_layers import LayerGraph, layer_graph

PUBLISHED_BYTES = 28 * KIB  # of FA-DOSA's result
UNREACHABLE = (
    "FA-DOSA publishes 3.49e14 pJ·cycles for ResNet-18 with this buffer: no schedule reaches that, because a buffer of "
    "28 KiB cannot hold what the figure takes for granted"
)


@dataclass(frozen=True, slots=True)
class FusedWorkload:
    """The layers of a model that may be fused, and the model as FA-DOSA sees it if all of its sizes are known."""

    layers: LayerGraph
    fa_dosa: algorithm.FaDosaModel | None = None

    @classmethod
    def of(cls, metrics: Sequence[Row], graph: SourceGraph) -> FusedWorkload:
        """Return the layers of a model.

        Raises:
            PipelineError: the model has nothing to move or to compute.
        """
        layers = layer_graph(metrics, graph)
        if not layers.layers:
            raise PipelineError("op_metrics.csv", "no operator moves or computes anything", "choose another model")
        return cls(layers, algorithm.FaDosaModel.of(metrics, graph))

    def notes(self, hardware: Hardware) -> tuple[str, ...]:
        """Return what counts as traffic and work alone, on any accelerator."""
        outside = dict.fromkeys(layer.outside for layer in self.layers.layers if layer.outside)
        notes = (f"beside contractions and pools: {listed(outside, MOST_NAMED)}",) if outside else ()
        is_published = hardware.name == "fa-dosa" and single_buffer(hardware).capacity_bytes == PUBLISHED_BYTES
        return (*notes, UNREACHABLE) if is_published else notes

    def found(
        self, design: str, hardware: Hardware, search: Search, observer: SearchObserver = UNOBSERVED
    ) -> FoundDesign:
        """Return the groups that the search finds on an accelerator.

        Raises:
            NothingFitsError: no tile of a layer fits.
            PipelineError: the package of the engine is not installed.
        """
        buffer = single_buffer(hardware)
        unfused = best(fused_front(self.layers, buffer, most_layers=1))
        bound = lower_bound(self.layers, buffer).edp
        layers, start_s = self.layers, time.perf_counter()
        outcome: Row
        curve: list[Improvement]
        if search.engine == FA_DOSA:
            if self.fa_dosa is None:
                return misfit(design, hardware, search, "FA-DOSA's model needs every size, and some depend on data")
            learnt = algorithm.learnt_groups(self.fa_dosa.graph, hardware, search.evaluations - 1, observer)
            layers = algorithm.kernels_of(self.fa_dosa, learnt.fused)
            found, curve = best(fused_front(layers, buffer, most_layers=1)), []
            outcome = {"evaluation_count": learnt.epoch_count + 1, "is_complete": learnt.is_complete}
        elif search.engine == EXACT:
            found, outcome, curve = self._exact(buffer, search.most_layers, unfused, observer)
        else:
            observer.begin(bound)
            found, outcome, curve = self._proposed(buffer, search, observer)
        search_s = time.perf_counter() - start_s
        row = point(design, hardware, search, found, bound) | {"unfused_edp_pj_cycles": unfused.edp} | outcome
        rows = enumerate(group_rows(layers, found, buffer))
        groups = [{"design": design, "group_index": index, **group} for index, group in rows]
        return FoundDesign(row, groups=groups, convergence=convergence(row, curve), search_s=search_s)

    def _exact(
        self, buffer: SingleBuffer, most_layers: int, unfused: SupportedPoint[Schedule], observer: SearchObserver
    ) -> tuple[SupportedPoint[Schedule], Row, list[Improvement]]:
        """Return the optimum, or the groups without fusion where somebody ended the search."""
        try:
            found = best(fused_front(self.layers, buffer, most_layers=most_layers, observer=observer))
        except SearchInterruptedError:
            return unfused, {"is_complete": False}, []
        return found, {"is_complete": True}, []

    def _proposed(
        self, buffer: SingleBuffer, search: Search, observer: SearchObserver
    ) -> tuple[SupportedPoint[Schedule], Row, list[Improvement]]:
        """Return the groups that an engine finds, whether it came to its end, and how they improved."""
        parts = {"groups": ModelPart(FusionProblem(self.layers, buffer, search.most_layers))}
        found = searched(parts, engine(search.engine), search.evaluations, search.seed, observer)
        outcome: Row = {"evaluation_count": found.evaluation_count, "is_complete": found.is_complete}
        return found.schedules["groups"], outcome, [*found.curve]
