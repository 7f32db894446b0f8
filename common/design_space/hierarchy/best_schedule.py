"""The best schedule of a model on an accelerator with several memories, found exactly.

Layers run one after the other. Between two layers, whole tensors may be resident on the chip. A state is the closed set
of layers that have run, with the resident tensors. A schedule is a path through the states. Each step of the path has
the supported points (energy, cycles) of a layer's mappings in the remaining room. Shortest paths under weighted sums of
energy and cycles find the least product (:func:`common.design_space.search.fronts.least_product`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from common.design_space.accelerator.hardware import Hardware, NothingFitsError
from common.design_space.groups.convex_groups import convex_groups
from common.design_space.hierarchy.execution_options import ExecutionOption, LayerPlaces
from common.design_space.hierarchy.model_layers import ModelLayer
from common.design_space.hierarchy.row_tiles import MOST_ROW_TILED_LAYERS
from common.design_space.hierarchy.schedule import LayerStep, MappedSchedule
from common.design_space.hierarchy.schedule_edges import ScheduleEdges, schedule_edges
from common.design_space.hierarchy.staying_weights import staying_sets
from common.design_space.mapping.cost import StreamCost
from common.design_space.mapping.placement import resident_level, resident_levels
from common.design_space.mapping.space.nest_fronts import NestFronts, Setting, nest_fronts
from common.design_space.search.fronts import SupportedPoint, least_product
from common.design_space.search.observer import UNOBSERVED, SearchInterruptedError, SearchObserver
from common.messages.names import shown
from common.workload.loop_nests import LoopNest
from common.workload.map_layers import LayerGraph

# How a layer runs, and the point of each of its nests by name.
Chosen = tuple[ExecutionOption, Mapping[str, SupportedPoint[str]]]


def best_schedule(
    graph: LayerGraph,
    layers: Sequence[ModelLayer],
    hardware: Hardware,
    *,
    keeps: bool = True,
    most_layers: int = MOST_ROW_TILED_LAYERS,
    weights_stay: bool = False,
    observer: SearchObserver = UNOBSERVED,
) -> MappedSchedule:
    """Return the schedule of the least energy-delay product: no other of the space is better.

    Where several memories may have resident tensors, each is tried, and the tensors of a schedule are in one of them.
    So is each of the sets of weights that may stay on the chip between inferences.
    Where the search for mappings ended early, ``floor_edp`` of the result is what no schedule of the space is below.

    Args:
        layers: the same, as the accelerator runs them.
        keeps: whether tensors may be resident on the chip.
        most_layers: that may run together in row tiles; 1 for whole layers only.
        weights_stay: whether weights may stay on the chip from one inference to the next.

    Raises:
        SearchInterruptedError: it was ended.
        NothingFitsError: no tile of a layer fits.
    """
    found, problem = list[MappedSchedule](), None
    levels: list[int | None] = [*resident_levels(hardware)] if keeps else []
    for level in levels or [None]:
        own = hardware if level == resident_level(hardware) else replace(hardware, resident_at=level)
        for staying in staying_sets(layers, own) if weights_stay and keeps else [frozenset[int]()]:
            places = LayerPlaces(graph, layers, own, keeps=keeps, staying=staying)
            try:
                found.append(_best_with(places, own, most_layers if keeps else 1, observer))
            except NothingFitsError as error:
                problem = error
    if not found and problem is not None:
        raise problem
    best = min(found, key=lambda schedule: schedule.edp)
    floor = min(schedule.best_of_space for schedule in found)
    evaluations = sum(schedule.evaluations for schedule in found)
    return replace(best, evaluations=evaluations, floor_edp=floor if floor < best.edp else None)


def _best_with(places: LayerPlaces, hardware: Hardware, most_layers: int, observer: SearchObserver) -> MappedSchedule:
    """Return the best schedule with resident tensors in one memory, and with the weights of some layers there."""
    layers = places.layers
    edges = schedule_edges(places, hardware, convex_groups(places.graph, most_layers))
    settings: dict[LoopNest, dict[Setting, None]] = {}
    for option in (option for plan in edges.plans for option in plan):
        for name, nest in option.nests.items():
            settings.setdefault(nest, {})[option.setting_of(name)] = None
    fronts = {}
    for nest, wanted in settings.items():
        if observer.is_interrupted:
            raise SearchInterruptedError
        fronts[nest] = nest_fronts(nest, hardware, tuple(wanted))
    paths = _Paths(edges, fronts)
    if not paths.are_there:
        raise NothingFitsError("hardware", _problem(layers, fronts, hardware), "")
    best_path = least_product(paths.best)
    steps = tuple(LayerStep.of(layers[option.layer], option, points) for option, points in best_path.choice)
    evaluations = sum(front.mapping_count for front in fronts.values())
    floor_edp = None
    if any(front.floors for front in fronts.values()):
        floor_edp = least_product(_Paths(edges, fronts, of_floors=True).best).edp
    return MappedSchedule(steps, evaluations, edges.limit, hardware.resident_at, floor_edp)


def _problem(layers: Sequence[ModelLayer], fronts: Mapping[LoopNest, NestFronts], hardware: Hardware) -> str:
    for layer in layers:
        for nest in layer.nests.values():
            if not any(fronts[nest].fronts.values()):
                return f"no tile of {shown(layer.layer.name)} fits the memories of {hardware.name}"
    return f"no schedule fits the memories of {hardware.name}"


class _Paths:
    """Shortest paths under weighted sums of energy and cycles."""

    def __init__(self, edges: ScheduleEdges, fronts: Mapping[LoopNest, NestFronts], *, of_floors: bool = False) -> None:
        """Leave out plans in which a layer does not fit; ``of_floors`` takes what no mapping is below."""
        self.edges = edges
        self.fronts = {
            nest: {setting: own.floor(setting) if of_floors else own.fronts[setting] for setting in own.fronts}
            for nest, own in fronts.items()
        }
        options = {id(option): option for plan in edges.plans for option in plan}
        self.place = {key: index for index, key in enumerate(options)}
        self.options = [*options.values()]
        self.parts = dict.fromkeys(part for option in self.options for part in _parts(option).values())
        self.of_plans = np.array([self.place[id(option)] for plan in edges.plans for option in plan], dtype=np.int64)
        self.first_of_plan = np.cumsum([0, *(len(plan) for plan in edges.plans)])[:-1]
        self.first = np.searchsorted(edges.target, np.arange(edges.states + 1))

    @property
    def are_there(self) -> bool:
        fits = [all(self.fronts[nest][at] for nest, at in _parts(option).values()) for option in self.options]
        return bool(np.isfinite(self._distances(self._sums(np.where(fits, 0.0, np.inf)))[-1]))

    def _sums(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray(np.add.reduceat(weights[self.of_plans], self.first_of_plan))

    def best(self, energy_weight: float, cycle_weight: float) -> SupportedPoint[Sequence[Chosen]]:
        """Return the path of the least sum of energy and cycles, times these two weights."""

        def weigh(costed: SupportedPoint[str] | StreamCost) -> float:
            return energy_weight * costed.energy_pj + cycle_weight * costed.cycles

        chosen = {(nest, setting): min(self.fronts[nest][setting], key=weigh, default=None)
                  for nest, setting in self.parts}  # fmt: skip
        least = {part: np.inf if point is None else weigh(point) for part, point in chosen.items()}
        weights = [
            option.runs * sum(least[part] for part in _parts(option).values())
            + (weigh(option.stream) if option.stream else 0.0)
            for option in self.options
        ]
        steps: list[Chosen] = []
        energy_pj = cycles = 0.0
        for plan in self._path(self._sums(np.array(weights))):
            for option in self.edges.plans[plan]:
                points = {name: point for name, part in _parts(option).items() if (point := chosen[part])}
                steps.append((option, points))
                energy_pj += option.runs * sum(point.energy_pj for point in points.values()) + option.stream_energy_pj
                cycles += option.runs * sum(point.cycles for point in points.values()) + option.stream_cycles
        return SupportedPoint(energy_pj, cycles, steps)

    def _distances(self, weights: np.ndarray) -> np.ndarray:
        edges, first = self.edges, self.first
        distances = np.full(edges.states, np.inf)
        distances[0] = 0.0
        for state in range(1, edges.states):
            into = slice(first[state], first[state + 1])
            distances[state] = (distances[edges.source[into]] + weights[edges.plan[into]]).min()
        return distances

    def _path(self, weights: np.ndarray) -> list[int]:
        edges, distances = self.edges, self._distances(weights)
        state, path = edges.states - 1, list[int]()
        while state:
            into = slice(self.first[state], self.first[state + 1])
            best = int(self.first[state] + np.argmin(distances[edges.source[into]] + weights[edges.plan[into]]))
            path.append(int(edges.plan[best]))
            state = int(edges.source[best])
        return path[::-1]


def _parts(option: ExecutionOption) -> dict[str, tuple[LoopNest, Setting]]:
    """Return the nests of an option by name, each in its setting."""
    return {name: (nest, option.setting_of(name)) for name, nest in option.nests.items()}
