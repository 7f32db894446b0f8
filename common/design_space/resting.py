"""The best schedule of a model on an accelerator with several memories, found exactly.

Layers run one after the other. Between two layers, some tensors rest on the chip as a whole. A state is the closed set
of layers that have run, with the tensors that rest. A schedule is a path through the states, and each of its steps
has the corners (energy, cycles) of a layer's mappings in the room that is left. The least product of all energy and all
cycles is found by shortest paths under weighted sums of both (:func:`common.design_space.fronts.least_product`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from common.design_space.convex_groups import ConvexGroups, convex_groups
from common.design_space.cost import StreamCost
from common.design_space.engines.follower import UNFOLLOWED, Follower, SearchInterruptedError
from common.design_space.fronts import Corner, least_product
from common.design_space.hardware import Hardware, NothingFitsError
from common.design_space.layer_search import MappedLayer
from common.design_space.layer_ways import LayerPlaces, Places, Way, way
from common.design_space.mapped_schedule import LayerStep, MappedSchedule
from common.design_space.model_layers import ModelLayer
from common.design_space.nest_fronts import NestFronts, Setting, nest_fronts
from common.names import shown
from common.workload.loop_nests import LoopNest
from common.workload.map_layers import LayerGraph

MOST_STATES = 20_000
Part = tuple[LoopNest, Setting]
Chosen = tuple[int, Way, Mapping[str, Corner[int]]]  # a layer, how it runs, and a corner of each of its nests
Resting = frozenset[tuple[str, bool]]  # tensors on the chip, and whether each of them is in DRAM too
State = tuple[int, Resting]  # the closed set of layers that have run, and what rests


def best_schedule(
    graph: LayerGraph,
    layers: Sequence[ModelLayer],
    hardware: Hardware,
    *,
    keeps: bool = True,
    follower: Follower = UNFOLLOWED,
) -> MappedSchedule:
    """Return the schedule of the least energy-delay product of the space, which is its own bound.

    Args:
        graph: the layers of a model.
        layers: the same, as the accelerator runs them.
        hardware: the accelerator.
        keeps: whether tensors may rest on the chip.
        follower: who may end the search.

    Raises:
        SearchInterruptedError: it was ended.
        NothingFitsError: no tile of a layer fits.
    """
    places = LayerPlaces(graph, layers, hardware, keeps=keeps)
    edges = _edges(places, convex_groups(graph, 1))
    ways = [way(layers[layer], chosen, hardware, places.sizes) for layer, chosen in edges.ways]
    settings: dict[LoopNest, dict[Setting, None]] = {}
    for one in ways:
        for nest in one.nests.values():
            settings.setdefault(nest, {})[one.setting] = None
    fronts = {}
    for nest, wanted in settings.items():
        if follower.is_interrupted:
            raise SearchInterruptedError
        fronts[nest] = nest_fronts(nest, hardware, tuple(wanted))
    paths = _Paths(edges, ways, fronts)
    if not paths.are_there:
        raise NothingFitsError("hardware", _problem(layers, fronts, hardware), "")
    found = least_product(paths.best)
    steps = tuple(_step(layers[layer], chosen, corners, fronts) for layer, chosen, corners in found.choice)
    evaluations = sum(len(front.space) * len({place for place, _ in front.fronts}) for front in fronts.values())
    return MappedSchedule(steps, evaluations)


def _step(
    layer: ModelLayer, chosen: Way, corners: Mapping[str, Corner[int]], fronts: Mapping[LoopNest, NestFronts]
) -> LayerStep:
    """Return a step of a schedule, its mappings as text."""
    mapped = {}
    for name, corner in corners.items():
        text = fronts[chosen.nests[name]].space.text(corner.choice)
        mapped[name] = MappedLayer(chosen.nests[name], text, corner.cycles, corner.energy_pj, chosen.runs)
    return LayerStep(layer, chosen, mapped)


def _problem(layers: Sequence[ModelLayer], fronts: Mapping[LoopNest, NestFronts], hardware: Hardware) -> str:
    for layer in layers:
        for nest in layer.nests.values():
            if not any(fronts[nest].fronts.values()):
                return f"no tile of {shown(layer.layer.name)} fits the memories of {hardware.name}"
    return f"no schedule fits the memories of {hardware.name}"


@dataclass(frozen=True)
class _Edges:
    """Steps between states, sorted by the number of layers that have run and by the state that they lead to.

    Attributes:
        states: number of states; the first is the start, the last the end.
        ways: layer and places of each distinct way.
        source: state that each edge leaves.
        target: state that it leads to.
        way: index of its way.
    """

    states: int
    ways: Sequence[tuple[int, Places]]
    source: np.ndarray
    target: np.ndarray
    way: np.ndarray


def _edges(places: LayerPlaces, groups: ConvexGroups) -> _Edges:
    """Return all steps; in a model of too many states, layers run in their order."""
    count = len(places.layers)
    states: dict[State, int] = {(0, frozenset()): 0}
    ways: dict[tuple[int, Places], int] = {}
    found: list[tuple[int, int, int]] = []
    here: dict[State, int] = dict(states)
    for _ in range(count):
        after: dict[State, int] = {}
        for (done, resting), number in here.items():
            for layer in groups.starts(done):
                then = done | 1 << layer
                for chosen in places.of_layer(layer, dict(resting), then):
                    index = ways.setdefault((layer, chosen), len(ways))
                    for kept in places.afterwards(dict(resting), chosen, then):
                        state = (then, frozenset(kept.items()))
                        if state not in after:
                            after[state] = len(states) + len(after)
                        found.append((number, after[state], index))
        states |= after
        here = after
        if len(states) > MOST_STATES and not groups.keeps_order:
            return _edges(places, replace(groups, keeps_order=True))
    source, target, chosen_way = np.array(sorted(found, key=lambda edge: edge[1]), dtype=np.int64).T
    return _Edges(len(states), [*ways], source, target, chosen_way)


class _Paths:
    """Shortest paths under weighted sums of energy and cycles."""

    def __init__(self, edges: _Edges, ways: Sequence[Way], fronts: Mapping[LoopNest, NestFronts]) -> None:
        """Leave out edges on which a layer does not fit."""
        self.edges, self.ways, self.fronts = edges, ways, fronts
        self.parts = dict.fromkeys((nest, one.setting) for one in ways for nest in one.nests.values())
        self.fits = np.array(
            [all(fronts[nest].fronts[one.setting] for nest in one.nests.values()) for one in ways], dtype=bool
        )
        self.first = np.searchsorted(edges.target, np.arange(edges.states + 1))

    @property
    def are_there(self) -> bool:
        """Whether a schedule fits."""
        return bool(np.isfinite(self._distances(np.where(self.fits, 0.0, np.inf))[-1]))

    def best(self, energy_weight: float, cycle_weight: float) -> Corner[Sequence[Chosen]]:
        """Return the schedule of the least weighted sum."""

        def weigh(one: Corner[int] | StreamCost) -> float:
            return energy_weight * one.energy_pj + cycle_weight * one.cycles

        chosen = {(nest, setting): min(self.fronts[nest].fronts[setting], key=weigh, default=None)
                  for nest, setting in self.parts}  # fmt: skip
        weights = np.full(len(self.ways), np.inf)
        for index in np.flatnonzero(self.fits).tolist():
            one = self.ways[index]
            nests = sum(weigh(corner) for nest in one.nests.values() if (corner := chosen[nest, one.setting]))
            weights[index] = one.runs * nests + (weigh(one.stream) if one.stream else 0.0)
        steps: list[Chosen] = []
        energy_pj = cycles = 0.0
        for index in self._path(weights):
            one = self.ways[index]
            corners = {name: corner for name, nest in one.nests.items() if (corner := chosen[nest, one.setting])}
            steps.append((self.edges.ways[index][0], one, corners))
            energy_pj += one.runs * sum(corner.energy_pj for corner in corners.values()) + one.stream_energy_pj
            cycles += one.runs * sum(corner.cycles for corner in corners.values()) + one.stream_cycles
        return Corner(energy_pj, cycles, steps)

    def _distances(self, weights: np.ndarray) -> np.ndarray:
        """Return the least sum of weights up to each state."""
        edges, first = self.edges, self.first
        distances = np.full(edges.states, np.inf)
        distances[0] = 0.0
        for state in range(1, edges.states):
            into = slice(first[state], first[state + 1])
            distances[state] = (distances[edges.source[into]] + weights[edges.way[into]]).min()
        return distances

    def _path(self, weights: np.ndarray) -> list[int]:
        """Return the ways of the path of the least sum, in the order in which they run."""
        edges, distances = self.edges, self._distances(weights)
        state, path = edges.states - 1, []
        while state:
            into = slice(self.first[state], self.first[state + 1])
            best = int(self.first[state] + np.argmin(distances[edges.source[into]] + weights[edges.way[into]]))
            path.append(int(edges.way[best]))
            state = int(edges.source[best])
        return path[::-1]
