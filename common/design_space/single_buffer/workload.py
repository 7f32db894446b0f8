"""The best fused groups of a model on accelerators with one buffer for all operands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from common.design_space.accelerator.hardware import KIB, Hardware
from common.design_space.accelerator.single_buffer import SingleBuffer, single_buffer
from common.design_space.fa_dosa import algorithm
from common.design_space.results.design_result import (
    MOST_NAMED,
    DesignResult,
    DesignTask,
    convergence_rows,
    misfit,
    point_row,
)
from common.design_space.search.engines.registry import engine
from common.design_space.search.fronts import SupportedPoint, best
from common.design_space.search.observer import UNOBSERVED, SearchInterruptedError, SearchObserver
from common.design_space.search.search import Improvement, ModelPart, search
from common.design_space.search.settings import EXACT, FA_DOSA, Search
from common.design_space.single_buffer.bound import lower_bound
from common.design_space.single_buffer.fusion import GroupPlan, Schedule, fused_front
from common.design_space.single_buffer.fusion_problem import FusionProblem
from common.design_space.single_buffer.group_tiles import GroupTiling
from common.graphs.source_graph import SourceGraph
from common.messages.errors import PipelineError
from common.messages.names import listed
from common.table_rows import DesignGroupsRow, OpMetricsRow
from common.workload.map_layers import LayerGraph, layer_graph

PUBLISHED_BYTES = 28 * KIB  # of FA-DOSA's result
UNREACHABLE = (
    "FA-DOSA publishes 3.49e14 pJ·cycles for ResNet-18 with this buffer: no schedule reaches that, because a buffer of "
    "28 KiB cannot hold what the figure takes for granted"
)


class _Outcome(NamedTuple):
    """A schedule of some layers, and how the search went."""

    layers: LayerGraph
    schedule: SupportedPoint[Schedule]
    evaluation_count: int | None
    is_complete: bool
    curve: Sequence[Improvement] = ()


@dataclass(frozen=True, slots=True)
class FusedWorkload:
    """The layers of a model that may be fused, and the model as FA-DOSA sees it if all of its sizes are known."""

    layers: LayerGraph
    fa_dosa: algorithm.FaDosaModel | None = None

    @classmethod
    def of(cls, metrics: Sequence[OpMetricsRow], graph: SourceGraph) -> FusedWorkload:
        """Return the layers of a model; PipelineError if it has nothing to move or to compute."""
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

    def searched(self, design: DesignTask, observer: SearchObserver = UNOBSERVED) -> DesignResult:
        """Return the groups that a search finds for a design.

        Raises:
            NothingFitsError: no tile of a layer fits.
            PipelineError: the package of the engine is not installed.
        """
        buffer = single_buffer(design.hardware)
        unfused = best(fused_front(self.layers, buffer, most_layers=1))
        bound = lower_bound(self.layers, buffer).edp
        start_s = time.perf_counter()
        if design.search.engine == FA_DOSA:
            if self.fa_dosa is None:
                return misfit(design, "FA-DOSA's model needs every size, and some depend on data")
            outcome = _learnt(self.fa_dosa, design, buffer, observer)
        elif design.search.engine == EXACT:
            outcome = self._exact(buffer, design.search.most_layers, unfused, observer)
        else:
            observer.begin(bound)
            outcome = self._proposed(buffer, design.search, observer)
        search_s = time.perf_counter() - start_s
        point = point_row(
            design,
            outcome.schedule,
            bound,
            best_of_space=outcome.schedule.edp if design.search.engine == EXACT and outcome.is_complete else None,
            unfused_edp=unfused.edp,
            evaluation_count=outcome.evaluation_count,
            is_complete=outcome.is_complete,
        )
        groups = [
            _group_row(design.name, index, plan, outcome.layers, buffer)
            for index, plan in enumerate(outcome.schedule.choice)
        ]
        curve = convergence_rows(design, outcome.curve)
        return DesignResult(point, groups=groups, convergence=curve, search_s=search_s)

    def _exact(
        self, buffer: SingleBuffer, most_layers: int, unfused: SupportedPoint[Schedule], observer: SearchObserver
    ) -> _Outcome:
        """Return the optimum, or the groups without fusion where somebody ended the search."""
        try:
            front = fused_front(self.layers, buffer, most_layers=most_layers, observer=observer)
        except SearchInterruptedError:
            return _Outcome(self.layers, unfused, None, is_complete=False)
        return _Outcome(self.layers, best(front), None, is_complete=True)

    def _proposed(self, buffer: SingleBuffer, settings: Search, observer: SearchObserver) -> _Outcome:
        parts = {"groups": ModelPart(FusionProblem(self.layers, buffer, settings.most_layers))}
        result = search(parts, engine(settings.engine), settings.evaluations, settings.seed, observer)
        schedule = result.schedules["groups"]
        return _Outcome(self.layers, schedule, result.evaluation_count, result.is_complete, result.curve)


def _learnt(
    model: algorithm.FaDosaModel, design: DesignTask, buffer: SingleBuffer, observer: SearchObserver
) -> _Outcome:
    """Return the best tiles of the groups that FA-DOSA's own algorithm fuses."""
    learnt = algorithm.learnt_groups(model.graph, design.hardware, design.search.evaluations - 1, observer)
    layers = algorithm.kernels_of(model, learnt.fused)
    schedule = best(fused_front(layers, buffer, most_layers=1))
    return _Outcome(layers, schedule, learnt.epoch_count + 1, learnt.is_complete)


def _group_row(design: str, index: int, plan: GroupPlan, graph: LayerGraph, buffer: SingleBuffer) -> DesignGroupsRow:
    layers = [graph.layers[member] for member in plan.members]
    fused = next((tiling for tiling in plan.tilings if isinstance(tiling, GroupTiling)), None)
    macs = sum(layer.macs for layer in layers)
    return {
        "design": design,
        "group_index": index,
        "first_layer": layers[0].name,
        "last_layer": layers[-1].name,
        "layer_count": len(layers),
        "tile_row_count": fused.rows if fused else None,
        "tile_column_count": fused.columns if fused else None,
        "halo": ("kept" if fused.keeps_halo else "recomputed") if fused else "",
        "resident_weight_count": sum(fused.resident_weights) if fused else None,
        "resident_tensor_count": len(plan.resident),
        "dram_bytes": plan.moved_bytes,
        "recomputed_share": plan.macs / macs - 1 if macs else 0.0,
        "modelled_cycles": buffer.cycles(plan.macs, plan.moved_bytes),
        "modelled_energy_pj": buffer.energy_pj(plan.macs, plan.moved_bytes),
        "energy_parts_pj": buffer.energy_parts_pj(plan.macs, plan.moved_bytes),
        "buffer_peak_bytes": max((tiling.peak_bits / 8 for tiling in plan.tilings), default=0.0),
    }
