"""A fused group as numbers: maps, the stages between them, and what leaves the chip. It knows no names of a model."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from common.workload.map_layers import FeatureMap, LayerGraph, MapForm, MapLayer, Window


@dataclass(frozen=True, slots=True)
class TileStage:
    """One layer of a group."""

    source: int  # the map that the window slides over, as an index into the maps of the group
    added: tuple[int, ...]  # maps that are read where the result is
    window: Window
    macs: int  # multiply-accumulates of the whole layer
    weight_bits: int  # bits of its constants
    kernel_bits: int  # bits of the weights between one input channel and one output channel, the least that is streamed
    groups: int = 1  # independent parts of its channels; of a pool or a depthwise convolution as many as channels
    # Whether an output element needs all channels of a position at once (a normalization)
    needs_all_channels: bool = False


@dataclass(frozen=True)
class TiledGroup:
    """Layers that are computed tile by tile, one after the other within a tile."""

    maps: tuple[FeatureMap, ...]  # the maps that are read from memory, then the result of each stage
    stages: tuple[TileStage, ...]  # in an order in which they can run
    leaving: tuple[bool, ...]  # for each stage, whether its result is needed after the group
    # For each map, whether the whole of it is on the chip: a map that a group before has left there, or a result that a
    # later group finds there. Such a map causes no traffic and takes its whole size all the time.
    resident: tuple[bool, ...] = ()

    def is_resident(self, index: int) -> bool:
        """Return whether a map is on the chip as a whole."""
        return bool(self.resident) and self.resident[index]

    @property
    def resident_bits(self) -> int:
        """Bits of the maps that are on the chip as a whole."""
        return sum(shape.elements * shape.bits for index, shape in enumerate(self.maps) if self.is_resident(index))

    @cached_property
    def external_count(self) -> int:
        return len(self.maps) - len(self.stages)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        stages_by_map: list[list[int]] = [[] for _ in self.maps]
        for index, stage in enumerate(self.stages):
            for read in {stage.source, *stage.added}:
                stages_by_map[read].append(index)
        return tuple(tuple(stages) for stages in stages_by_map)

    @cached_property
    def sinks(self) -> tuple[int, ...]:
        """The stages whose results no stage of the group reads."""
        return tuple(index for index in range(len(self.stages)) if not self.readers[self.external_count + index])

    @property
    def images(self) -> int:
        return self.maps[-1].images

    @property
    def is_tileable(self) -> bool:
        """Return whether one tile of rows and columns says which tile of every sink is computed."""
        extents = {self.maps[self.external_count + sink].extents[2:] for sink in self.sinks}
        return len(extents) == len({shape.images for shape in self.maps}) == 1


def tiled_group(graph: LayerGraph, members: Sequence[int], resident: Set[str] = frozenset()) -> TiledGroup | None:
    """Return layers of a model as one group; None where a layer has no tiles, or the maps between them do not fit.

    Args:
        members: indices of the layers, in order.
        resident: tensors that are on the chip as a whole before or after the group.
    """
    layers = [graph.layers[index] for index in members]
    known = [layer.form for layer in layers if layer.form is not None]
    if len(known) < len(layers):
        return None
    written = [next(iter(layer.writes)) for layer in layers]
    position: dict[str, int] = {}
    maps: list[FeatureMap] = []
    for form in known:
        for tensor, extents in ((form.source, form.below), *((name, form.result) for name in form.added)):
            if tensor not in written and tensor not in position:
                position[tensor] = len(maps)
                maps.append(extents)
    position |= {tensor: len(maps) + index for index, tensor in enumerate(written)}
    maps += [form.result for form in known]
    if any(maps[position[form.source]].extents != form.below.extents for form in known):
        return None
    stages = tuple(_stage(layer, form, position) for layer, form in zip(layers, known, strict=True))
    inside = set(members)
    leaving = tuple(
        tensor in graph.returned or not inside.issuperset(graph.consumers.get(tensor, ()))
        or not graph.consumers.get(tensor)
        for tensor in written
    )  # fmt: skip
    on_chip = tuple(tensor in resident for tensor in sorted(position, key=position.__getitem__))
    group = TiledGroup(tuple(maps), stages, leaving, on_chip if any(on_chip) else ())
    return group if group.is_tileable else None


def _stage(layer: MapLayer, form: MapForm, position: dict[str, int]) -> TileStage:
    nest = layer.nests[0] if layer.nests else None
    kernel = nest.r * nest.s * nest.weight_bits if nest is not None else 0
    return TileStage(
        source=position[form.source],
        added=tuple(position[tensor] for tensor in form.added),
        window=form.window,
        macs=layer.macs,
        weight_bits=8 * layer.weight_bytes,
        kernel_bits=min(kernel, 8 * layer.weight_bytes),
        groups=nest.groups if nest is not None else form.result.channels,
        needs_all_channels=layer.kind == "rowwise",
    )
