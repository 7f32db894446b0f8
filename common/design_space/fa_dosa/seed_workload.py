"""A model on an accelerator with one buffer as FA-DOSA accounts for it: every kernel moves each of its tensors once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.design_space.accelerator.hardware import Hardware
from common.design_space.accelerator.single_buffer import SingleBuffer, single_buffer
from common.design_space.fa_dosa.seed_accounting import ACTIVATED, ADDED, FOLDED, SeedKernel, seed_cost, seed_kernels
from common.design_space.results.design_result import DesignResult, DesignTask, point_row
from common.design_space.search.observer import UNOBSERVED, SearchObserver
from common.design_space.search.settings import EXACT
from common.errors import PipelineError, UnusableValueError
from common.source_graph import SourceGraph

if TYPE_CHECKING:
    from common.table_rows import DesignGroupsRow, OpMetricsRow

NOTE = (
    "accounting seed: each kernel moves each of its tensors once, however small the buffer is, so its products are no "
    "bound on what a buffer of that size reaches: accounting honest is"
)


@dataclass(frozen=True, slots=True)
class SeedWorkload:
    """The kernels of a model, by what is fused to its contractions: nothing but their normalizations first."""

    kernels: tuple[tuple[SeedKernel, ...], ...]

    @classmethod
    def of(cls, metrics: Sequence[OpMetricsRow], graph: SourceGraph) -> SeedWorkload:
        """Return the kernels of a model.

        Raises:
            PipelineError: the model has nothing to move or to compute.
        """
        kernels = tuple(seed_kernels(metrics, graph, fused) for fused in (FOLDED, ACTIVATED, ADDED))
        if not kernels[0]:
            raise PipelineError("op_metrics.csv", "no operator moves or computes anything", "choose another model")
        return cls(kernels)

    def notes(self, hardware: Hardware) -> tuple[str, ...]:
        """Return what the accounting leaves out."""
        return (NOTE,)

    def searched(self, design: DesignTask, observer: SearchObserver = UNOBSERVED) -> DesignResult:
        """Return the fusion of least product. There are three, and all are tried: nothing else changes a cost.

        Raises:
            UnusableValueError: the accelerator has other memories, or an engine was named that searches.
        """
        if design.search.engine != EXACT:
            problem = f"{design.search.engine} has nothing to search where no tile changes a cost"
            raise UnusableValueError("engine", problem, "accounting seed takes exact")
        buffer, start_s = single_buffer(design.hardware), time.perf_counter()
        costs = {kernels: seed_cost(kernels, buffer) for kernels in self.kernels}
        chosen = min(costs, key=lambda kernels: costs[kernels].edp)
        search_s = time.perf_counter() - start_s
        point = point_row(
            design,
            costs[chosen],
            costs[chosen].edp,
            unfused_edp=costs[self.kernels[0]].edp,
            evaluation_count=len(costs),
            is_complete=True,
        )
        groups = [_group_row(design.name, index, kernel, buffer) for index, kernel in enumerate(chosen)]
        return DesignResult(point, groups=groups, search_s=search_s)


def _group_row(design: str, index: int, kernel: SeedKernel, buffer: SingleBuffer) -> DesignGroupsRow:
    cost = seed_cost([kernel], buffer)
    return {
        "design": design,
        "group_index": index,
        "first_layer": kernel.nodes[0],
        "last_layer": kernel.nodes[-1],
        "layer_count": len(kernel.nodes),
        "tile_row_count": None,
        "tile_column_count": None,
        "halo": "",
        "resident_weight_count": None,
        "resting_count": 0,
        "dram_bytes": kernel.moved_bytes,
        "recomputed_share": 0.0,
        "modelled_cycles": cost.cycles,
        "modelled_energy_pj": cost.energy_pj,
        "energy_parts_pj": buffer.energy_parts_pj(kernel.macs, kernel.moved_bytes),
        "buffer_peak_bytes": None,
    }
