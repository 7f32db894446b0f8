"""The ways to divide one loop among all levels and the array, without those that are never better than another.

A *chain* of a loop is its number of steps at each level that has loops, from DRAM inwards, and its copies at each place
in space. The steps need not divide the loop: they are rounded up, and the last tile of each level is smaller. These
chains suffice:

- *Steps.* With one step fewer at any level, the chain would not cover the loop: an additional step moves no fewer
  words. If equal tiles do not keep most of the input, every size of a tile is a chain instead (:func:`is_uneven`).
- *Levels.* Of the chains with the same steps at DRAM, one is left out if another is no worse. The other has no more
  steps. Where the loop moves an operand, it has no larger tile in the memories that hold that operand. Where the loop
  leaves an operand in place, it has no more steps outside of that operand's memory. It also steps at no further level,
  because a loop that does not step separates no others.
- *Copies.* Fewer copies may be better if a memory further inside holds a copy of each word, if a network carries the
  word, or if other loops need the same axis. Otherwise more copies are better, because they share words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from common.design_space.accelerator.hardware import Hardware
from common.design_space.groups.axis_tiles import require_extent, tile_sizes
from common.design_space.mapping.dataflow import may_step
from common.design_space.mapping.traffic import RELEVANT, WINDOW_LOOPS
from common.design_space.memoized import memoized
from common.workload.loop_nests import LOOPS, LoopNest

Counts = npt.NDArray[np.int64]
MOST_PAIRED = 128  # rows that are compared pair by pair at once
MOST_UNEVEN = 3  # levels with loops on which tiles of every size are tried where windows of unequal tiles differ


@dataclass(frozen=True, slots=True)
class FanoutPlace:
    """A fan-out of the array: the level above it, its axis, and the most copies of each loop."""

    level: int
    size: int
    rooms: tuple[int, ...]


def places_in_space(hardware: Hardware) -> tuple[FanoutPlace, ...]:
    """Return the fan-outs, from the outermost inwards."""
    return tuple(
        FanoutPlace(
            index,
            getattr(hardware.array, fanout.axis),
            tuple(fanout.room(loop, hardware.array) for loop in LOOPS),
        )
        for index, level in enumerate(hardware.levels)
        for fanout in level.fanouts
    )


def levels_with_loops(hardware: Hardware) -> tuple[int, ...]:
    """Return the levels that have loops of their own, from DRAM inwards.

    A level that holds nothing has none: its loops can step at the level outside instead. Neither has a level at which
    all loops that can step leave its operands, and those of the levels between, in place. They can step as the
    innermost loops of the level outside.
    """
    chosen = [0]
    for index, level in enumerate(hardware.levels[1:], start=1):
        if level.keeps and not _is_register(hardware, index, chosen[-1]):
            chosen.append(index)
    return tuple(chosen)


def _is_register(hardware: Hardware, index: int, outside: int) -> bool:
    level = hardware.levels[index]
    words = sorted(map(level.element_words, level.keeps))
    may = may_step(level)
    if sum(words) + words[0] > level.capacity_words:  # one element of each operand
        may = may & ~_moving(level.keeps)
    moved = _moving(frozenset().union(*(other.keeps for other in hardware.levels[outside + 1 : index + 1])))
    is_covered = may_step(hardware.levels[outside]) | ~may
    return bool(level.stationary is None and not (may & moved).any() and is_covered.all())


def _moving(operands: frozenset[str]) -> npt.NDArray[np.bool_]:
    return np.asarray(np.any([RELEVANT[operand] for operand in operands], axis=0))


@dataclass(frozen=True)
class LoopChains:
    """The chains of one loop, and the slices of them that a search tells apart.

    A slice is all chains, or those with the same size of the tile inside DRAM, or one chain. They come in this order.
    """

    extent: int
    steps: Counts  # by chain and level
    copies: Counts  # by chain and place in space
    first: Counts  # the first chain of each size, and the number of all chains
    levels: tuple[int, ...]  # of the places in space

    @property
    def sizes(self) -> int:
        """How many sizes of the tile inside DRAM there are."""
        return len(self.first) - 1

    def parts(self, slices: Counts) -> tuple[Counts, Counts]:
        """Return the parts of given slices, as the first slice of each part and the one after its last.

        A slice of all chains consists of those of the sizes, and one of a size of its chains.
        """
        whole = slices == 0
        size = np.where(whole, 1, slices) - 1
        begin = np.where(whole, 1, 1 + self.sizes + self.first[size])
        return begin, np.where(whole, 1 + self.sizes, 1 + self.sizes + self.first[size + 1])

    def chain(self, slices: Counts) -> Counts:
        """Return the chains of slices of one chain each."""
        return slices - 1 - self.sizes

    @memoized
    def by_slice(self, figure: str) -> Counts:
        """Return the best case of a figure, by slice and by level or place in space."""
        outside = np.cumprod(np.concatenate([np.ones_like(self.steps[:, :1]), self.steps], axis=1), axis=1)
        best, values = {
            "prefix": (np.minimum, outside),  # the fewest steps outside of each level; last the fewest steps in all
            "fewest": (np.minimum, self.steps),  # the fewest steps at each level
            "most_outer": (np.maximum, self.steps[:, :1]),  # the most steps at DRAM
            "tiles": (np.minimum, self.inside),  # the smallest tile of each level
            "most_copies": (np.maximum, self.copies),
            "least_copies": (np.minimum, self.copies),
        }[figure]
        of_sizes = best.reduceat(values, self.first[:-1], axis=0)
        return np.concatenate([best.reduce(of_sizes, axis=0, keepdims=True), of_sizes, values])

    @cached_property
    def inside(self) -> Counts:
        """The tile of each level, by chain and level."""
        factors = self.steps * self.spatial
        return np.minimum(np.cumprod(factors[:, ::-1], axis=1)[:, ::-1], self.extent)

    @cached_property
    def spatial(self) -> Counts:
        spatial = np.ones_like(self.steps)
        for place, level in enumerate(self.levels):
            spatial[:, level] *= self.copies[:, place]
        return spatial


@dataclass(frozen=True, slots=True)
class _Rules:
    """What distinguishes the chains of a loop, besides their steps."""

    levels: int
    loops_at: tuple[int, ...]  # levels at which the loop may step
    places: tuple[int, ...]  # level of each place in space
    rooms: tuple[int, ...]  # the most copies at each of them
    outside: tuple[int, ...]  # levels outside of which steps should be few
    tiles: tuple[int, ...]  # levels of which the tile should be small
    windows: tuple[int, ...]  # levels whose tiles must be of equal size and number
    sharing: tuple[bool, ...]  # of each place, whether more copies are better
    is_uneven: bool  # whether every size of a tile counts


def nest_chains(nest: LoopNest, hardware: Hardware) -> list[LoopChains]:
    """Return the chains of each loop of a nest; PipelineError if one is too long for a search."""
    for extent in nest.bounds.values():
        require_extent(extent)
    return [loop_chains(extent, _rules(nest, hardware, loop)) for loop, extent in enumerate(nest.bounds.values())]


def _rules(nest: LoopNest, hardware: Hardware, loop: int) -> _Rules:
    levels, places = hardware.levels, places_in_space(hardware)
    extent = [*nest.bounds.values()][loop]
    keeps = [{operand for operand in level.keeps if index} for index, level in enumerate(levels)]
    moved = {operand for operand in RELEVANT if RELEVANT[operand][loop]}
    with_input = tuple(index for index, held in enumerate(keeps) if "input" in held)
    loops_at = tuple(index for index in levels_with_loops(hardware) if may_step(levels[index])[loop])
    others = [loop_ for loop_, size in enumerate(nest.bounds.values()) if size > 1 and loop_ != loop]
    return _Rules(
        levels=len(levels),
        loops_at=loops_at,
        places=tuple(place.level for place in places),
        rooms=tuple(min(place.rooms[loop], extent) for place in places),
        outside=tuple(index for index in range(1, len(levels)) if set().union(*keeps[index:]) - moved),
        tiles=tuple(index for index, held in enumerate(keeps) if held & moved),
        windows=with_input if _is_window(nest, loop) else (),
        sharing=tuple(
            _is_sharing(hardware, place, moved) and not any(place.rooms[other] > 1 for other in others)
            for place in places
        ),
        is_uneven=len(loops_at) <= MOST_UNEVEN and needs_every_size(nest, hardware, loop),
    )


def needs_every_size(nest: LoopNest, hardware: Hardware, loop: int) -> bool:
    """Return whether tiles of every size may be best along a loop, not only the smallest for each number of tiles."""
    memories = sum("input" in level.keeps for level in hardware.levels[1:])
    return is_uneven(nest, loop) or (_is_window(nest, loop) and memories > 1)


def _is_window(nest: LoopNest, loop: int) -> bool:
    """Return whether the words of the input depend on how the loop is cut."""
    extents = [*nest.bounds.values()]
    axes = zip(WINDOW_LOOPS, nest.distances, strict=True)
    return any(loop in loops and (min(extents[at] for at in loops) > 1 or max(distances) > 1)
               for loops, distances in axes)  # fmt: skip


def _is_sharing(hardware: Hardware, place: FanoutPlace, moved: set[str]) -> bool:
    """Return whether more copies at a place in space cost nothing, wherever they lie."""
    inside = hardware.levels[place.level + 1 :]
    return all(level.network is None for level in hardware.levels) and not any(level.keeps - moved for level in inside)


def is_uneven(nest: LoopNest, loop: int) -> bool:
    """Return whether tiles of unequal size along a loop may keep more of the input than equal ones.

    Two tiles that are neighbours along the outputs share ``max(0, (taps - 1)·dilation + 1 - stride)`` positions of each
    tile of taps. The sum over tiles of taps depends on their number alone where nothing is cut off at 0.
    """
    extents = [*nest.bounds.values()]
    for (output, tap), (stride, dilation) in zip(WINDOW_LOOPS, nest.distances, strict=True):
        if loop in (output, tap) and min(extents[output], extents[tap]) > 1:
            return (stride if loop == tap else dilation) > 1
    return False


@lru_cache(maxsize=4096)
def loop_chains(extent: int, rules: _Rules) -> LoopChains:
    """Return the chains of a loop, those with the largest tile inside DRAM last."""
    steps, copies = _all_chains(extent, rules)
    unsorted = LoopChains(extent, steps, copies, np.zeros(1, dtype=np.int64), rules.places)
    if not len(steps):
        return unsorted
    inner = np.minimum((steps[:, 1:].prod(axis=1)) * copies.prod(axis=1), extent)
    _, group = np.unique(np.stack([-steps[:, 0], inner * rules.is_uneven]), axis=1, return_inverse=True)
    small, equal = _features(steps, unsorted.inside, rules)
    for place, is_sharing in enumerate(rules.sharing):
        (small if is_sharing else equal).append(-copies[:, place])
    equal += [-(-extent // unsorted.inside[:, level]) for level in rules.windows]
    kept = list[np.ndarray]()
    for number in range(int(group.max()) + 1):
        rows = np.flatnonzero(group.reshape(-1) == number)
        kept.append(rows[_undominated([feature[rows] for feature in small], [feature[rows] for feature in equal])])
    order = np.concatenate(kept)
    first = np.cumsum([0, *map(len, kept)])
    return LoopChains(extent, steps[order], copies[order], first, rules.places)


def _features(steps: Counts, inside: Counts, rules: _Rules) -> tuple[list[Counts], list[Counts]]:
    """Return the features of chains that should be small, and those in which only equal chains are compared."""
    outside = np.cumprod(steps, axis=1)
    small = [steps.prod(axis=1), *(outside[:, level - 1] for level in rules.outside)]
    small += [inside[:, level] for level in rules.tiles]
    small += [(steps[:, level] > 1) * 1 for level in rules.loops_at]
    return small, [inside[:, level] for level in rules.windows]


def _undominated(small: Sequence[Counts], equal: Sequence[Counts]) -> Counts:
    """Return the rows for which no row of equal features is at most as large in the others; of equal rows the first."""
    features = np.stack(small, axis=1)
    if not equal:
        return _lowest(features)
    _, group = np.unique(np.stack(equal, axis=1), axis=0, return_inverse=True)
    order = np.argsort(group.reshape(-1), kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(group.reshape(-1)))[:-1])
    return np.sort(np.concatenate([rows[_lowest(features[rows])] for rows in parts]))


def _lowest(features: Counts) -> Counts:
    """Return the rows for which no other row is at most as large in all features; of equal rows the first."""
    if len(features) == 1:
        return np.zeros(1, dtype=np.int64)
    features = features[:, (features != features[0]).any(axis=0)]
    if len(features) <= MOST_PAIRED:
        is_below = (features[:, None] <= features).all(axis=2)
        is_better = is_below & (~is_below.T | np.triu(np.ones_like(is_below), 1))
        return np.flatnonzero(~is_better.any(axis=0))
    _, left = np.unique(features, axis=0, return_index=True)
    left = left[np.argsort(features[left].sum(axis=1), kind="stable")]
    kept = list[int]()
    while len(left):
        kept.append(int(left[0]))
        left = left[1:][(features[left[1:]] < features[left[0]]).any(axis=1)]
    return np.array(sorted(kept))


def _all_chains(extent: int, rules: _Rules) -> tuple[Counts, Counts]:
    steps, copies = list[Counts](), list[Counts]()
    for chosen in product(*(range(1, room + 1) for room in rules.rooms)):
        total = prod(chosen)
        table = _steps(-(-extent // total), replace(rules, places=(), rooms=(), sharing=()))
        if not rules.is_uneven:  # one step fewer at any level must not cover the loop
            whole = table.prod(axis=1, keepdims=True) * total
            table = table[((table == 1) | (whole // table * (table - 1) < extent)).all(axis=1)]
        if len(table):
            steps.append(table)
            copies.append(np.broadcast_to(np.array(chosen, dtype=np.int64), (len(table), len(chosen))))
    if not steps:  # the loop may step nowhere, and the array has no room for it
        return np.empty((0, rules.levels), dtype=np.int64), np.empty((0, len(rules.rooms)), dtype=np.int64)
    return np.concatenate(steps), np.concatenate(copies)


@lru_cache(maxsize=16_384)
def _steps(extent: int, rules: _Rules) -> Counts:
    """Return the steps at all levels that cover the part of a loop that its copies do not cover."""
    levels = rules.loops_at
    if rules.is_uneven and levels:
        found = np.array([*_inner_steps(extent, len(levels))], dtype=np.int64)
    else:
        found = _even_steps(extent, rules)
    table = np.ones((len(found), rules.levels), dtype=np.int64)
    table[:, list(levels)] = found
    return table


def _even_steps(extent: int, rules: _Rules) -> Counts:
    """Return the steps at the levels of a loop, the outermost first, with no step too many.

    Of those that leave as much of the loop for the levels further inside, only the best go on.
    """
    if not rules.loops_at:
        return np.ones((1 if extent == 1 else 0, 0), dtype=np.int64)
    begun = [(np.ones((1, 0), dtype=np.int64), extent)]
    for place in range(len(rules.loops_at) - 1):
        by_rest: dict[tuple[int, int], list[Counts]] = {}
        for table, rest in begun:
            for size in tile_sizes(rest):
                grown = np.column_stack([table, np.full(len(table), -(-rest // size))])
                by_rest.setdefault((int(grown[0, 0]), size), []).append(grown)  # one number of steps at DRAM
        begun = []
        for (_, rest), parts in by_rest.items():
            table = np.concatenate(parts)
            of_levels = np.ones((len(table), rules.levels), dtype=np.int64)
            of_levels[:, list(rules.loops_at[: place + 1])] = table
            inside = np.cumprod(of_levels[:, ::-1], axis=1)[:, ::-1]
            begun.append((table[_undominated(*_features(of_levels, inside, rules))], rest))
    return np.concatenate([np.column_stack([table, np.full(len(table), rest)]) for table, rest in begun])


def _inner_steps(extent: int, levels: int) -> Iterator[Sequence[int]]:
    if levels == 1:
        yield (extent,)
        return
    for last in range(1, extent + 1):
        for outer in _inner_steps(-(-extent // last), levels - 1):
            yield (*outer, last)
