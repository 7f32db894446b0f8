"""Latency, energy and area of a network under mappings and fusions that are real numbers, and these numbers.

The accounting is FA-DOSA's (:mod:`common.design_space.fa_dosa.accounting`): each kernel moves each tensor once.
So the tiles decide the size of the buffer, and with it the area and the energy of an access. They decide no traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from math import log
from pathlib import Path
from typing import TYPE_CHECKING

from common.design_space.accelerator.hardware import KIB, Hardware
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.accelerator.single_buffer import single_buffer
from common.design_space.fa_dosa.accounting import FaDosaCost, FaDosaKernel, fa_dosa_cost
from common.design_space.fa_dosa.graph import ComputationGraph
from common.design_space.mapping.arrays import torch_module, torch_namespace
from common.design_space.mapping.traffic import Nests, P, Q, R, S, tile_words
from common.messages.errors import UnusableValueError
from common.messages.names import quoted
from common.workload.loop_nests import LOOPS

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = Path(__file__).resolve().parents[3] / "configs" / "hardware"


class MappingParameters:
    """The extents of each layer's tile in the buffer, as real numbers above 0.

    The logarithms are what is learnt. A tile starts at the square root of each loop. The steps over tiles are what is
    left of the loop, so tile times steps is always the whole loop. Tensors have one row for each layer, one column for
    each loop of ``LOOPS``.
    """

    def __init__(self, graph: ComputationGraph) -> None:
        """Make the parameters of a graph's layers; PipelineError without PyTorch."""
        torch = torch_module()
        bounds = [[layer.nest.bounds[loop] for loop in LOOPS] for layer in graph.layers.values()]
        self.layers = tuple(graph.layers)  # names, in the order of the rows
        self.extents = torch.tensor(bounds, dtype=torch.float64)
        starts = [[log(extent) / 2 for extent in row] for row in bounds]
        self.log_tiles = torch.tensor(starts, dtype=torch.float64).requires_grad_()

    def parameters(self) -> list[Tensor]:
        return [self.log_tiles]

    @property
    def tiles(self) -> Tensor:
        return self.log_tiles.exp()

    def get_mapping_by_original_name(self, name: str) -> dict[str, Tensor]:
        """Return the extent of a layer's tile along each loop; UnusableValueError if there is no such layer."""
        if name not in self.layers:
            raise UnusableValueError("layer", f"{quoted(name)} has no mapping", "name a layer of the graph")
        return dict(zip(LOOPS, self.tiles[self.layers.index(name)], strict=True))


class FusionParameters:
    """The probability that the layers of a group run as one kernel, for each group of a graph: a half at first."""

    def __init__(self, graph: ComputationGraph) -> None:
        """Make the parameters of a graph's groups; PipelineError without PyTorch."""
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


@cache
def fa_dosa_hardware() -> Hardware:
    return load_hardware("fa-dosa", FOLDER)


class ConditionalPerformanceModel:
    """Costs under probabilities of fusion: those of the fused and of the single kernels, weighted.

    A fused group is one kernel. What one of its layers writes and another reads does not leave the chip: its read is
    saved, and its write too if no other layer reads it. Room for it in the buffer is not counted, as in FA-DOSA.
    """

    def __init__(self, hardware: Hardware | None = None) -> None:
        """Take an accelerator with one buffer, FA-DOSA's if None; UnusableValueError for other memories."""
        self.hardware = hardware or fa_dosa_hardware()
        self._rates = single_buffer(self.hardware)

    def __call__(
        self, mapping_params: MappingParameters, fusion_params: FusionParameters, graph: ComputationGraph
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return latency in cycles, energy in pJ and area in mm², each a scalar with a gradient."""
        config = calculate_hardware_config(mapping_params, graph, self.hardware)
        single = self._cost(graph, [(name,) for name in graph.layers])
        cycles, moved = torch_namespace().asarray(single.cycles), single.moved_bytes
        for group in graph.fusion_groups:
            apart, fused = self._cost(graph, [(name,) for name in group]), self._cost(graph, [group])
            probability = fusion_params.get_fusion_probability(group)
            cycles = cycles + probability * (fused.cycles - apart.cycles)
            moved = moved + probability * (fused.moved_bytes - apart.moved_bytes)
        buffer = self.hardware.levels[1]
        buffer_pj = buffer.base_pj_per_byte + buffer.slope_pj_per_byte_per_kib * config["buffer_kib"]
        macs = sum(layer.macs for layer in graph.layers.values())
        energy = moved * (self._rates.memory_pj_per_byte + buffer_pj) + macs * self._rates.mac_pj
        return cycles, energy, config["area_mm2"]

    def _cost(self, graph: ComputationGraph, kernels: Iterable[tuple[str, ...]]) -> FaDosaCost:
        return fa_dosa_cost((_kernel(graph, names) for names in kernels), self._rates)


def calculate_hardware_config(
    mapping_params: MappingParameters, graph: ComputationGraph, hardware: Hardware | None = None
) -> dict[str, Tensor]:
    """Return the least hardware that holds every layer's tile: ``buffer_kib`` and ``area_mm2``, with gradients.

    The accelerator has one buffer, and is FA-DOSA's if None. UnusableValueError: the tiles are of other layers, there
    are none, or the accelerator has other memories.
    """
    if not graph.layers or mapping_params.layers != tuple(graph.layers):
        raise UnusableValueError("mapping", "has other layers than the graph, or none", "make it from the whole graph")
    chosen = hardware or fa_dosa_hardware()
    single_buffer(chosen)  # refuses other memories
    buffer = chosen.levels[1]
    words = _tile_words(mapping_params, graph).max()
    kib = words * buffer.word_bytes / KIB
    return {"buffer_kib": kib, "area_mm2": kib * (buffer.area_mm2_per_kib or 0.0)}


def _tile_words(mapping_params: MappingParameters, graph: ComputationGraph) -> Tensor:
    """Return the words of each layer's tile; a window spans one element at least."""
    xp = torch_namespace()
    nests, tiles = Nests.of([layer.nest for layer in graph.layers.values()], xp), mapping_params.tiles
    in_window = xp.asarray([loop in (P, Q, R, S) for loop in range(len(LOOPS))])
    spanned = xp.module.where(in_window, tiles.clamp(min=1.0), tiles)
    is_weighted = xp.asarray([float(layer.tensor_bytes["weight"] > 0) for layer in graph.layers.values()])
    weights = tile_words("weight", tiles, nests, xp) * is_weighted
    return tile_words("input", spanned, nests, xp) + weights + tile_words("output", tiles, nests, xp)


def _kernel(graph: ComputationGraph, names: tuple[str, ...]) -> FaDosaKernel:
    layers = [graph.layers[name] for name in names]
    moved = sum(sum(layer.tensor_bytes.values()) for layer in layers) - _saved_bytes(graph, names)
    return FaDosaKernel(names, sum(layer.macs for layer in layers), moved, added_bytes=0)


def _saved_bytes(graph: ComputationGraph, names: Iterable[str]) -> int:
    """Return the bytes that stay on the chip when layers run as one kernel."""
    inside, saved = set(names), 0
    for name in inside:
        size, readers = graph.layers[name].tensor_bytes["output"], graph.readers(name)
        reads = [min(size, graph.layers[reader].tensor_bytes["input"]) for reader in readers if reader in inside]
        saved += sum(reads) + (size if reads and len(reads) == len(readers) else 0)
    return saved
