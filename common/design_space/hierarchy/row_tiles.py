"""Layers that run depth first, in row tiles: between them, only what the next row tiles need is on the chip.

Row tiles follow each other from top to bottom. Within a row tile, layer follows layer. Each layer computes the rows
that its readers need. Rows that a later row tile reads stay. Rows that no window reads come in the last row tile. A map
from outside the group comes from DRAM at each of its readers, or is resident as a whole. The weights of a layer come
from DRAM in each row tile, or are resident.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.groups.axis_tiles import AxisTiles, axis_tiles, tile_sizes
from common.design_space.groups.convex_groups import members_of
from common.design_space.groups.tiled_group import TiledGroup, tiled_group
from common.design_space.hierarchy.execution_options import NOTHING, ExecutionOption, LayerPlaces, Places, RowTiles
from common.design_space.mapping.cost import stream_cost
from common.design_space.mapping.placement import Placement, side_streams
from common.design_space.memoized import memoized
from common.workload.loop_nests import LoopNest

MOST_ROW_TILED_LAYERS = 3
SMALL_SHARE = 0.25  # of the memory of resident maps, or of the largest tensor where that is smaller
Plan = tuple[ExecutionOption, ...]


@dataclass(frozen=True, slots=True)
class GroupUse:
    """A group of layers, and what is on the chip after it."""

    members: tuple[int, ...]
    after: Places

    @property
    def on_chip(self) -> frozenset[str]:
        return self.after.inherited | self.after.left


class RowTilePlans:
    """The execution options of groups of layers in row tiles.

    Layers of a model are often equal. Groups that differ in names alone have the same plans, with the names of the
    first of them; :meth:`named` gives the names of another.
    """

    def __init__(self, places: LayerPlaces, hardware: Hardware) -> None:
        self.places, self.hardware = places, hardware
        # Beyond the largest tensor the limit no longer grows. A larger memory then has all groups of a smaller one.
        self._large_words = SMALL_SHARE * min(places.capacity, max(places.sizes.values(), default=0))
        self._numbers: dict[Hashable, int] = {}
        self._groups: list[TiledGroup] = []
        self._by_shape: dict[Hashable, tuple[Plan, ...]] = {}

    def of_group(
        self, group: int, resident: Mapping[str, bool], done: int
    ) -> Iterator[tuple[GroupUse, Sequence[Plan]]]:
        """Yield what stays on the chip after a group, and how it may run.

        Args:
            group: its layers, as a bit set.
            resident: resident tensors before it, and whether each is in DRAM too.
            done: the layers that have run, these included, as a bit set.
        """
        members = self._tiled_members(group)
        if not members:
            return
        begin = self.places.words(resident)
        inside = set(members)
        read = frozenset(name for index in members for name in self.places.layers[index].layer.reads)
        last = [index for index in members
                if not any(inside & set(self.places.graph.consumers.get(name, ()))
                           for name in self.places.layers[index].layer.writes)]  # fmt: skip
        for left, saved in self.places.results(last, done):
            words = begin + self.places.words(left) + self.places.staying_weight_words
            yield self._use(members, Places(read.intersection(resident), NOTHING, left, saved, begin, words))

    @memoized
    def _use(self, members: tuple[int, ...], after: Places) -> tuple[GroupUse, Sequence[Plan]]:
        use = GroupUse(members, after)
        if (shape := self._shape(members, use.on_chip)) is None:
            return use, ()
        written = [next(iter(self.places.layers[index].layer.writes)) for index in members]
        stay = tuple((name in after.left, name in after.saved) for name in written)
        key = shape, stay, after.resident_words
        if key not in self._by_shape:
            self._by_shape[key] = tuple(self._searched(use, shape))
        return use, self._by_shape[key]

    def named(self, plan: Plan, use: GroupUse) -> Plan:
        """Return a plan of a group with the names of the group's own layers and tensors."""
        shape, row_tiles = self._shape(use.members, use.on_chip), plan[0].row_tiles
        assert shape is not None
        assert row_tiles is not None
        return self._tiled(use, shape, row_tiles.rows, row_tiles.resident_weights).plan()

    @memoized
    def _tiled_members(self, group: int) -> tuple[int, ...]:
        """Return the layers of a group; none where they do not run in row tiles."""
        members = members_of(group)
        layers = [self.places.layers[index] for index in members]
        have_rows = all(layer.layer.form is not None and not layer.macs for layer in layers)
        if not have_rows or not all(map(self.places.can_be_resident, members)):
            return ()
        written = {name for layer in layers for name in layer.layer.writes}
        inside = {name for layer in layers for name in layer.layer.reads} & written
        # Maps between the layers that take little of the memory are resident instead.
        return members if any(self.places.sizes[name] > self._large_words for name in inside) else ()

    def _searched(self, use: GroupUse, shape: int) -> Iterator[Plan]:
        group = self._groups[shape]
        rows = group.maps[group.external_count + group.sinks[0]].rows
        for size in tile_sizes(rows)[1:]:
            for resident_weights in product(*map(self._weight_places, use.members)):
                row_tiled = self._tiled(use, shape, size, resident_weights)
                if max(row_tiled.resident_words) <= self.places.capacity:
                    yield row_tiled.plan()

    def _tiled(self, use: GroupUse, shape: int, size: int, resident_weights: tuple[bool, ...]) -> _RowTiledGroup:
        group, axis = self._groups[shape], self._axis(shape, size)
        return _RowTiledGroup(self.places, self.hardware, use.members, group, axis, size, use.after, resident_weights)

    @memoized
    def _axis(self, shape: int, size: int) -> AxisTiles:
        return axis_tiles(self._groups[shape], 0, size, keeps_halo=True)

    @memoized
    def _shape(self, members: tuple[int, ...], on_chip: frozenset[str]) -> int | None:
        """Return the number of what is alike in groups that differ in names alone; None where there are no tiles."""
        if (group := tiled_group(self.places.graph, members, on_chip)) is None:
            return None
        shape = self._numbers.setdefault((group, tuple(map(self._kind, members))), len(self._groups))
        if shape == len(self._groups):
            self._groups.append(group)
        return shape

    def _kind(self, index: int) -> Hashable:
        """Return what decides how a layer runs, except its tensors."""
        layer = self.places.layers[index]
        return tuple(layer.nests.values()), layer.constants, index in self.places.staying

    def _weight_places(self, index: int) -> tuple[bool, ...]:
        """Return whether the weights of a layer may be resident: if they stay between inferences, they are."""
        if index in self.places.staying:
            return (True,)
        return (False, True) if self.places.layers[index].nests else (False,)


@dataclass(frozen=True)
class _RowTiledGroup:
    """One execution option of a group in row tiles."""

    places: LayerPlaces
    hardware: Hardware
    members: Sequence[int]
    group: TiledGroup  # the same as maps and stages
    axis: AxisTiles  # the rows of each row tile
    rows: int  # of a row tile, of the last layers' results
    after: Places  # resident tensors, those that stay after the group included
    resident_weights: tuple[bool, ...]  # for each layer, whether its weights are resident

    def _nest(self, number: int) -> tuple[str, LoopNest]:
        ((name, nest),) = self.places.layers[self.members[number]].nests.items()
        return name, nest

    @cached_property
    def _weight_words(self) -> list[int]:
        return [
            self._nest(number)[1].elements["weight"] if self._is_loaded(number) else 0
            for number in range(len(self.members))
        ]

    def _is_loaded(self, number: int) -> bool:
        """Return whether the weights of a layer come to the chip once for the group."""
        return self.resident_weights[number] and self.members[number] not in self.places.staying

    @cached_property
    def resident_words(self) -> list[float]:
        """Resident words beside the tiles of each layer, in the row tile that has most of them."""
        always = self.after.resident_words + sum(self._weight_words)
        return [always + float(self._row_tile_words(number).max()) for number in range(len(self.members))]

    def _row_tile_words(self, number: int) -> np.ndarray:
        group, axis = self.group, self.axis
        total = np.zeros(axis.tile_count)
        for index in range(group.external_count, len(group.maps)):
            if group.readers[index] and not group.is_resident(index):
                writer, last = index - group.external_count, max(group.readers[index])
                lines = axis.kept_before if number < writer else axis.kept_after if number > last else axis.held
                total += lines[index] * self._line_words(index)
        return total

    def _line_words(self, index: int) -> int:
        return self.group.maps[index].columns * self.group.maps[index].channels

    def plan(self) -> Plan:
        options = [option for number in range(len(self.members)) for option in self._options(number)]
        row_tiles = RowTiles(tuple(self.members), self.rows, self.resident_weights)
        first = replace(options[0], places=replace(options[0].places, begin_words=self.after.begin_words))
        return tuple(replace(option, row_tiles=row_tiles) for option in (first, *options[1:]))

    def _options(self, number: int) -> Iterator[ExecutionOption]:
        """Yield an execution option of a layer for each distinct number of rows that it computes in a row tile."""
        index, stage = self.members[number], self.group.stages[number]
        if not self.places.layers[index].nests:
            words = self._words(number, int(self.axis.computed[number].sum()), int(self.axis.windows[number].sum()))
            words = tuple(tuple(count * self.group.images for count in streams) for streams in words)
            stream = stream_cost(words, 0, self.hardware)
            yield ExecutionOption(
                index, self._places(number), {}, (Placement(), self.resident_words[number]), 1, words, stream
            )
            return
        name, nest = self._nest(number)
        operands = {
            "input": self._is_on_chip(stage.source),
            "weight": self.resident_weights[number],
            "output": self._is_on_chip(self.group.external_count + number),
        }
        on_chip = frozenset(operand for operand, is_there in operands.items() if is_there)
        if self._is_loaded(number):
            yield self._load(number)
        for rows, runs in sorted(Counter(self.axis.computed[number].tolist()).items()):
            if not rows:
                continue
            part = replace(nest, n=1, p=rows, pad_p=0, pad_q=0, height=0, width=0)
            words = self._words(number, rows, 0)
            total = tuple(tuple(count * runs * self.group.images for count in streams) for streams in words)
            setting = Placement(on_chip, words), self.resident_words[number]
            yield ExecutionOption(
                index, self._places(number), {name: part}, setting, runs * self.group.images, total, None
            )

    def _load(self, number: int) -> ExecutionOption:
        words = side_streams(self.hardware, copied=[self._weight_words[number]])
        setting = Placement(), self.resident_words[number]
        stream = stream_cost(words, 0, self.hardware)
        return ExecutionOption(self.members[number], self._places(number), {}, setting, 1, words, stream)

    def _is_on_chip(self, index: int) -> bool:
        """Return whether a map is on the chip: as a whole, or its rows because a layer of the group reads them."""
        is_inside = index >= self.group.external_count and bool(self.group.readers[index])
        return is_inside or self.group.is_resident(index)

    def _words(self, number: int, rows: int, window_rows: int) -> tuple[tuple[float, ...], ...]:
        """Return the words at each level that move beside the nest of a layer, for some of its rows."""
        layer, stage = self.places.layers[self.members[number]], self.group.stages[number]
        own = self.group.external_count + number
        moved = [(index, rows) for index in stage.added]
        if not layer.nests:
            moved += [(stage.source, window_rows), (own, rows)]
        counts = [(self._is_on_chip(index), lines * self._line_words(index)) for index, lines in moved]
        (name,) = layer.layer.writes
        is_copied = name in self.after.saved or (self._is_on_chip(own) and name not in self.after.left
                                                 and self.group.leaving[number])  # fmt: skip
        constants = [layer.constants] if layer.constants else []
        return side_streams(
            self.hardware,
            [*constants, *(words for is_there, words in counts if not is_there)],
            [words for is_there, words in counts if is_there],
            [rows * self._line_words(own)] if is_copied else [],
        )

    def _places(self, number: int) -> Places:
        """Return the tensors of a layer that are on the chip, as a whole or in row tiles."""
        layer = self.places.layers[self.members[number]]
        reads = (layer.source, *layer.reads) if layer.source else tuple(layer.reads)
        written = {name for index in self.members for name in self.places.layers[index].layer.writes}
        inherited = frozenset(name for name in reads if name in written or name in self.after.inherited)
        own = self._is_on_chip(self.group.external_count + number)
        left = frozenset(layer.layer.writes) if own else NOTHING
        words = self.resident_words[number]
        stays = self.members[number] in self.places.staying
        return Places(inherited, NOTHING, left, self.after.saved & left, words, words, weights_stay=stays)
