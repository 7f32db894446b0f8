"""Convex groups of a model's layers: what can be fused, and in which order groups can run.

A group is convex if no path leaves it and comes back. A set of layers is closed if it holds everything that its layers
read. Groups that cover a model, and can run one after the other, are the steps from one closed set to a larger one. So
every cover by convex groups is a path through the closed sets, from the empty set to all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from common.design_space.memoized import memoized
from common.workload.map_layers import LayerGraph

MOST_CLOSED_SETS = 2_000


@dataclass(frozen=True)
class ConvexGroups:
    """The groups of a model. Sets of layers are bit sets: bit i is layer i."""

    before: tuple[int, ...]  # for each layer, the layers that it reads from
    neighbours: tuple[int, ...]  # for each layer, those that read or write a tensor which it reads or writes too
    fusible: int  # layers that may share a group with others
    most_layers: int
    # Whether layers run in the order of the model and groups are runs of consecutive layers. That is so for a model of
    # so many branches that its closed sets are too many.
    keeps_order: bool = False

    @memoized
    def starts(self, done: int) -> tuple[int, ...]:
        """Return the layers that can run once the layers of a closed set have run."""
        first = (~done & (done + 1)).bit_length() - 1  # the first layer that has not run
        layers = range(first, len(self.before))
        can_start = (layer for layer in layers if not done >> layer & 1 and not self.before[layer] & ~done)
        return tuple(islice(can_start, 1 if self.keeps_order else None))

    @memoized
    def steps(self, done: int) -> tuple[int, ...]:
        """Return every connected group that can run next: each layer alone, and each larger group of fusible layers."""
        seen: dict[int, None] = {}
        waiting = [1 << layer for layer in self.starts(done)]
        while waiting:
            group = waiting.pop()
            if group in seen:
                continue
            seen[group] = None
            if not group & ~self.fusible and group.bit_count() < self.most_layers:
                waiting += [group | 1 << layer for layer in self.additions(done, group)]
        return tuple(seen)

    def additions(self, done: int, group: int) -> Iterator[int]:
        """Yield the fusible layers that can join a group: beside it, with all that they read done or in the group."""
        for layer in self.starts(done | group):
            if self.fusible >> layer & 1 and self.neighbours[layer] & group:
                yield layer


def convex_groups(graph: LayerGraph, most_layers: int) -> ConvexGroups:
    """Return the convex groups of a model, each of at most so many layers; 1 allows no fusion."""
    before, neighbours = [0] * len(graph.layers), [0] * len(graph.layers)
    for tensor in {*graph.producer, *graph.consumers}:
        readers, writers = graph.consumers.get(tensor, ()), [graph.producer[tensor]] if tensor in graph.producer else []
        for reader in readers:
            before[reader] |= sum(1 << writer for writer in writers)
        ends = {*readers, *writers}
        for end in ends:
            neighbours[end] |= sum(1 << other for other in ends if other != end)
    fusible = sum(1 << index for index, layer in enumerate(graph.layers) if layer.form is not None)
    groups = ConvexGroups(tuple(before), tuple(neighbours), fusible, most_layers)
    found = closed_sets(lambda done: [1 << layer for layer in groups.starts(done)])
    has_few = sum(1 for _ in islice(found, MOST_CLOSED_SETS + 1)) <= MOST_CLOSED_SETS
    return groups if has_few else replace(groups, keeps_order=True)


def closed_sets(steps: Callable[[int], Iterable[int]]) -> Iterator[int]:
    """Yield every closed set of layers, from the empty one on; the groups that can run next are the ``steps``."""
    seen, waiting = {0}, [0]
    while waiting:
        done = waiting.pop()
        yield done
        for group in steps(done):
            if done | group not in seen:
                seen.add(done | group)
                waiting.append(done | group)


def members_of(group: int) -> tuple[int, ...]:
    """Return the layers of a bit set, in order."""
    members = list[int]()
    while group:
        lowest = group & -group
        members.append(lowest.bit_length() - 1)
        group ^= lowest
    return tuple(members)
