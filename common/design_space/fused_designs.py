"""The best fused groups of a model on accelerators with one buffer for all operands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from common.design_space.bound import lower_bound
from common.design_space.engines.follower import UNFOLLOWED, Follower, SearchInterruptedError
from common.design_space.engines.registry import EXACT
from common.design_space.found_design import MOST_NAMED, FoundDesign, Row, Search, point
from common.design_space.fronts import best
from common.design_space.fusion import fused_front
from common.design_space.group_rows import group_rows
from common.design_space.hardware import Hardware
from common.design_space.single_buffer import single_buffer
from common.errors import PipelineError, UnusableValueError
from common.names import listed
from common.source_graph import SourceGraph
from common.workload.map_layers import LayerGraph, layer_graph


@dataclass(frozen=True, slots=True)
class FusedWorkload:
    """The layers of a model that may be fused."""

    layers: LayerGraph

    @classmethod
    def of(cls, metrics: Sequence[Row], graph: SourceGraph) -> FusedWorkload:
        """Return the layers of a model.

        Raises:
            PipelineError: the model has nothing to move or to compute.
        """
        layers = layer_graph(metrics, graph)
        if not layers.layers:
            raise PipelineError("op_metrics.csv", "no operator moves or computes anything", "choose another model")
        return cls(layers)

    def notes(self, hardware: Hardware) -> tuple[str, ...]:
        """Return what counts as traffic and work alone, on any accelerator."""
        outside = dict.fromkeys(layer.outside for layer in self.layers.layers if layer.outside)
        return (f"beside contractions and pools: {listed(outside, MOST_NAMED)}",) if outside else ()

    def found(self, design: str, hardware: Hardware, search: Search, follower: Follower = UNFOLLOWED) -> FoundDesign:
        """Return the best groups on an accelerator.

        Raises:
            NothingFitsError: no tile of a layer fits.
            UnusableValueError: the engine does not search groups.
        """
        if search.engine != EXACT:
            problem = f"{search.engine} mappings are not drawn of fused groups"
            raise UnusableValueError("engine", problem, "exact searches accelerators with one buffer")
        buffer = single_buffer(hardware)
        unfused = best(fused_front(self.layers, buffer, most_layers=1))
        bound = lower_bound(self.layers, buffer).edp
        start_s, is_complete = time.perf_counter(), True
        try:
            fused = best(fused_front(self.layers, buffer, most_layers=search.most_layers, follower=follower))
        except SearchInterruptedError:
            fused, is_complete = unfused, False
        search_s = time.perf_counter() - start_s
        row = point(design, hardware, search, fused, bound) | {"unfused_edp_pj_cycles": unfused.edp}
        row["is_complete"] = is_complete
        rows = enumerate(group_rows(self.layers, fused, buffer))
        groups = [{"design": design, "group_index": index, **group} for index, group in rows]
        return FoundDesign(row, groups=groups, search_s=search_s)
