"""The states of a model on an accelerator with several memories, and all steps from one state to the next.

A state is the closed set of layers that have run, with the tensors that rest on the chip. A step runs one layer, or a
group of layers in stripes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from common.design_space.convex_groups import ConvexGroups, members_of
from common.design_space.hardware import Hardware
from common.design_space.layer_ways import LayerPlaces, Places, way
from common.design_space.stripes import Plan, StripedPlans

MOST_STATES = 20_000
Resting = frozenset[tuple[str, bool]]  # tensors on the chip, and whether each of them is in DRAM too
State = tuple[int, Resting]  # the closed set of layers that have run, and what rests


@dataclass(frozen=True)
class ScheduleEdges:
    """Steps between states, sorted by the state that they lead to; no step leads to a state before its own.

    Attributes:
        states: number of states; the first is the start, the last the end.
        plans: what the steps run.
        source: state that each step leaves.
        target: state that it leads to.
        plan: index of what it runs.
    """

    states: int
    plans: Sequence[Plan]
    source: np.ndarray
    target: np.ndarray
    plan: np.ndarray


def schedule_edges(places: LayerPlaces, hardware: Hardware, groups: ConvexGroups) -> ScheduleEdges:
    """Return all steps; in a model of too many states, layers run in their order."""
    return _Steps(places, hardware, groups).edges() or schedule_edges(
        places, hardware, replace(groups, keeps_order=True)
    )


class _Steps:
    """Goes through the states by the number of layers that have run."""

    def __init__(self, places: LayerPlaces, hardware: Hardware, groups: ConvexGroups) -> None:
        self.places, self.hardware, self.groups = places, hardware, groups
        self.striped = StripedPlans(places, hardware)
        self.plans: dict[Hashable, tuple[int, Plan]] = {}

    def edges(self) -> ScheduleEdges | None:
        """Return all steps; None where there are too many states and groups need not keep the order of the model."""
        count = len(self.places.layers)
        by_size: list[dict[State, None]] = [{} for _ in range(count + 1)]
        by_size[0][0, frozenset()] = None
        found: list[tuple[State, State, int]] = []
        for here in by_size[:-1]:
            for state in here:
                for then, plan in self._after(state):
                    by_size[then[0].bit_count()].setdefault(then)
                    found.append((state, then, plan))
            if sum(map(len, by_size)) > MOST_STATES and not self.groups.keeps_order:
                return None
        number = {state: index for index, state in enumerate(state for states in by_size for state in states)}
        table = sorted((number[then], number[state], plan) for state, then, plan in found)
        target, source, plan = np.array(table, dtype=np.int64).T
        return ScheduleEdges(len(number), [plan for _, plan in self.plans.values()], source, target, plan)

    def _after(self, state: State) -> Iterator[tuple[State, int]]:
        """Yield the states that a step leads to, and the index of what it runs."""
        done, resting = state[0], dict(state[1])
        for group in self.groups.steps(done):
            then = done | group
            for places, plan in self._plans(group, resting, then):
                for kept in self.places.afterwards(resting, places, then):
                    yield (then, frozenset(kept.items())), plan

    def _plans(self, group: int, resting: dict[str, bool], then: int) -> Iterator[tuple[Places, int]]:
        """Yield what a group may run, by its index, and what stays on the chip after it."""
        members = members_of(group)
        if len(members) > 1:
            for places, plan in self.striped.of_group(group, resting, then):
                yield places, self.plans.setdefault(id(plan), (len(self.plans), plan))[0]
            return
        for places in self.places.of_layer(members[0], resting, then):
            key = members[0], places
            if key not in self.plans:
                layer = self.places.layers[members[0]]
                one = way(members[0], layer, places, self.hardware, self.places.sizes)
                self.plans[key] = len(self.plans), (one,)
            yield places, self.plans[key][0]
