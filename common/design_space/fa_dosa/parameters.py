"""The variables of FA-DOSA's gradient: a tile for each layer, and for each group the probability that it is fused."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING

from common.design_space.fa_dosa.graph import ComputationGraph
from common.design_space.mapping.arrays import torch_module
from common.messages.errors import UnusableValueError
from common.messages.names import quoted
from common.workload.loop_nests import LOOPS

if TYPE_CHECKING:
    from torch import Tensor


class MappingParameters:
    """The extents of each layer's tile in the buffer, as real numbers above 0.

    The logarithms are what is learnt. A tile starts at the square root of each loop. The steps over tiles are what is
    left of the loop, so tile times steps is always the whole loop.

    Attributes:
        layers: names, in the order of the rows.
        log_tiles: one row for each layer, one column for each loop of ``LOOPS``.
        extents: of the loops, likewise.
    """

    def __init__(self, graph: ComputationGraph) -> None:
        """Make the parameters of a graph's layers.

        Raises:
            PipelineError: PyTorch is not installed.
        """
        torch = torch_module()
        bounds = [[layer.nest.bounds[loop] for loop in LOOPS] for layer in graph.layers.values()]
        self.layers = tuple(graph.layers)
        self.extents = torch.tensor(bounds, dtype=torch.float64)
        starts = [[log(extent) / 2 for extent in row] for row in bounds]
        self.log_tiles = torch.tensor(starts, dtype=torch.float64).requires_grad_()

    def parameters(self) -> list[Tensor]:
        return [self.log_tiles]

    @property
    def tiles(self) -> Tensor:
        """Extents of the tiles: one row for each layer, one column for each loop."""
        return self.log_tiles.exp()

    def get_mapping_by_original_name(self, name: str) -> dict[str, Tensor]:
        """Return the extent of a layer's tile along each loop.

        Raises:
            UnusableValueError: there is no such layer.
        """
        if name not in self.layers:
            raise UnusableValueError("layer", f"{quoted(name)} has no mapping", "name a layer of the graph")
        return dict(zip(LOOPS, self.tiles[self.layers.index(name)], strict=True))


class FusionParameters:
    """The probability that the layers of a group run as one kernel, for each group of a graph.

    Attributes:
        logits: of the probabilities, one for each group; they start at 0, which is a half.
    """

    def __init__(self, graph: ComputationGraph) -> None:
        """Make the parameters of a graph's groups.

        Raises:
            PipelineError: PyTorch is not installed.
        """
        self._places = {frozenset(group): place for place, group in enumerate(graph.fusion_groups)}
        torch = torch_module()
        self.logits = torch.zeros(len(graph.fusion_groups), dtype=torch.float64).requires_grad_()

    def parameters(self) -> list[Tensor]:
        return [self.logits]

    def get_fusion_probability(self, group: Sequence[str]) -> Tensor:
        """Return the probability that a group is fused; 0 for layers that are no group of the graph."""
        place = self._places.get(frozenset(group))
        return self.logits.new_zeros(()) if place is None else self.logits[place].sigmoid()


def calculate_penalty_loss(mapping_params: MappingParameters) -> Tensor:
    """Return by how much factors fall below one: the sum of ``max(0, 1 - factor)`` over all tiles and steps.

    No factor adds more than one, so the penalty is bounded.
    """
    tiles = mapping_params.tiles
    return (1 - tiles).relu().sum() + (1 - mapping_params.extents / tiles).relu().sum()
