"""The best schedule of a model on an accelerator with several memories, found exactly.

Layers run one after the other. Between two layers, whole tensors may be resident on the chip. A state is the closed set
of layers that have run, with the resident tensors. A schedule is a path through the states. Each step of the path has
the supported points (energy, cycles) of a layer's mappings in the remaining room. Shortest paths under weighted sums of
energy and cycles find the least product (:func:`common.design_space.search.fronts.least_product`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from common.design_space.accelerator.hardware import Hardware, NothingFitsError
from common.design_space.groups.convex_groups import convex_groups
from common.design_space.hierarchy.execution_options import ExecutionOption, LayerPlaces
from common.design_space.hierarchy.model_layers import ModelLayer
from common.design_space.hierarchy.row_tiles import MOST_ROW_TILED_LAYERS
from common.design_space.hierarchy.schedule import LayerStep, MappedSchedule
from common.design_space.hierarchy.schedule_edges import ScheduleEdges, schedule_edges
from common.design_space.hierarchy.staying_weights import staying_sets
from common.design_space.mapping.placement import resident_level, resident_levels
from common.design_space.mapping.space.layer_by_layer import NestSearches, unsearched
from common.design_space.mapping.space.nest_fronts import ALONE, NestFronts, Setting
from common.design_space.search.fronts import Front, SupportedPoint, least_product
from common.design_space.search.observer import UNOBSERVED, SearchInterruptedError, SearchObserver
from common.messages.names import shown
from common.workload.loop_nests import LoopNest
from common.workload.map_layers import LayerGraph

Part = tuple[LoopNest, Setting]
PathChoice = tuple[Sequence[int], Mapping[Part, SupportedPoint[str] | None]]  # steps, and the point of each nest
Costs = Mapping[LoopNest, Mapping[Setting, Front[str]]]


def best_schedule(
    graph: LayerGraph,
    layers: Sequence[ModelLayer],
    hardware: Hardware,
    *,
    keeps: bool = True,
    most_layers: int = MOST_ROW_TILED_LAYERS,
    weights_stay: bool = False,
    observer: SearchObserver = UNOBSERVED,
    searches: NestSearches | None = None,
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
        searches: those that were made before, whose results are taken; new ones if None.

    Raises:
        SearchInterruptedError: it was ended.
        NothingFitsError: no tile of a layer fits.
    """
    found, problem = list[MappedSchedule](), None
    searches = searches or NestSearches()
    count_before = searches.mapping_count
    levels: list[int | None] = [*resident_levels(hardware)] if keeps else []
    for level in levels or [None]:
        own = hardware if level == resident_level(hardware) else replace(hardware, resident_at=level)
        for staying in staying_sets(layers, own) if weights_stay and keeps else [frozenset[int]()]:
            places = LayerPlaces(graph, layers, own, keeps=keeps, staying=staying)
            try:
                found.append(_best_with(places, own, most_layers if keeps else 1, searches, observer))
            except NothingFitsError as error:
                problem = error
    if not found and problem is not None:
        raise problem
    best = min(found, key=lambda schedule: schedule.edp)
    floor = min(schedule.best_of_space for schedule in found)
    evaluations = searches.mapping_count - count_before
    return replace(best, evaluations=evaluations, floor_edp=floor if floor < best.edp else None)


def _best_with(
    places: LayerPlaces, hardware: Hardware, most_layers: int, searches: NestSearches, observer: SearchObserver
) -> MappedSchedule:
    """Return the best schedule with resident tensors in one memory, and with the weights of some layers there."""
    layers = places.layers
    edges = schedule_edges(places, hardware, convex_groups(places.graph, most_layers))
    fronts, waiting = _searched_alone(edges, hardware, searches, observer)
    while True:
        known = {nest: front.fronts for nest, front in fronts.items()}
        paths = _Paths(edges, known | {nest: front.floors for nest, front in waiting.items()})
        if not paths.are_there:
            raise NothingFitsError("hardware", _problem(layers, fronts, hardware), "")
        best_path = least_product(paths.best)
        if not (needed := [nest for nest in paths.nests(best_path.choice) if nest in waiting]):
            break
        for nest in needed:
            if observer.is_interrupted:
                raise SearchInterruptedError
            fronts[nest] = _in_row_tiles(nest, waiting.pop(nest), hardware, searches)
    steps = tuple(paths.steps(best_path.choice, layers))
    floor_edp = None
    if any(front.floors for front in fronts.values()):
        floors = {nest: {at: front.floor(at) for at in front.fronts} for nest, front in {**fronts, **waiting}.items()}
        floor_edp = least_product(_Paths(edges, floors).best).edp
    return MappedSchedule(steps, searches.mapping_count, edges.limit, hardware.resident_at, floor_edp)


def _searched_alone(
    edges: ScheduleEdges, hardware: Hardware, searches: NestSearches, observer: SearchObserver
) -> tuple[dict[LoopNest, NestFronts], dict[LoopNest, NestFronts]]:
    """Return the fronts of the nests of layers that run alone, and bounds of those that occur in row tiles only.

    Row tiles have a nest for each number of rows, and few of them are better than layers that run alone. A nest is
    searched only once its lower bound puts it on the best path. Nests never reached cannot be in the optimum.
    """
    settings: dict[LoopNest, dict[Setting, None]] = {}
    alone = dict[LoopNest, None]()
    for option in (option for plan in edges.plans for option in plan):
        for name, nest in option.nests.items():
            settings.setdefault(nest, {})[option.setting_of(name)] = None
            if option.row_tiles is None:
                alone[nest] = None
    fronts = dict[LoopNest, NestFronts]()
    for nest in alone:
        if observer.is_interrupted:
            raise SearchInterruptedError
        fronts[nest] = searches.fronts(nest, hardware, [ALONE, *settings[nest]])
    return fronts, {nest: unsearched(nest, hardware, own) for nest, own in settings.items() if nest not in fronts}


def _in_row_tiles(nest: LoopNest, bounds: NestFronts, hardware: Hardware, searches: NestSearches) -> NestFronts:
    """Return the fronts of a nest in row tiles; its bounds alone where no cells are left for it."""
    if searches.left <= 0:
        return bounds
    try:
        return searches.fronts(nest, hardware, [*bounds.fronts])
    except NothingFitsError:
        return NestFronts(0, 0.0, bounds.fronts)


def _problem(layers: Sequence[ModelLayer], fronts: Mapping[LoopNest, NestFronts], hardware: Hardware) -> str:
    for layer in layers:
        for nest in layer.nests.values():
            if not any(fronts[nest].fronts.values()):
                return f"no tile of {shown(layer.layer.name)} fits the memories of {hardware.name}"
    return f"no schedule fits the memories of {hardware.name}"


class _Paths:
    """Shortest paths under weighted sums of energy and cycles."""

    def __init__(self, edges: ScheduleEdges, fronts: Costs) -> None:
        """Leave out plans in which a layer does not fit."""
        self.edges, self.fronts = edges, fronts
        options = {id(option): option for plan in edges.plans for option in plan}
        place = {key: index for index, key in enumerate(options)}
        self.options = [*options.values()]
        parts = [_parts(option).values() for option in self.options]
        self.parts = {part: number for number, part in enumerate(dict.fromkeys(part for own in parts for part in own))}
        self.part_of = np.array([self.parts[part] for own in parts for part in own], dtype=np.int64)
        self.option_of = np.repeat(np.arange(len(parts)), [len(own) for own in parts])
        self.runs = np.array([option.runs for option in self.options], dtype=np.float64)
        self.stream_energy_pj = np.array([option.stream_energy_pj for option in self.options])
        self.stream_cycles = np.array([option.stream_cycles for option in self.options])
        self.of_plans = np.array([place[id(option)] for plan in edges.plans for option in plan], dtype=np.int64)
        self.first_of_plan = np.cumsum([0, *(len(plan) for plan in edges.plans)])[:-1]
        self.first = np.searchsorted(edges.target, np.arange(edges.states + 1))
        self.batches = _batches(edges, self.first)

    @property
    def are_there(self) -> bool:
        fits = [all(self.fronts[nest][at] for nest, at in _parts(option).values()) for option in self.options]
        return bool(np.isfinite(self._distances(self._sums(np.where(fits, 0.0, np.inf)))[-1]))

    def _sums(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray(np.add.reduceat(weights[self.of_plans], self.first_of_plan))

    def best(self, energy_weight: float, cycle_weight: float) -> SupportedPoint[PathChoice]:
        """Return the path of the least sum of energy and cycles, times these two weights."""

        def weigh(point: SupportedPoint[str]) -> float:
            return energy_weight * point.energy_pj + cycle_weight * point.cycles

        chosen = {(nest, setting): min(self.fronts[nest][setting], key=weigh, default=None)
                  for nest, setting in self.parts}  # fmt: skip
        least = np.array([np.inf if point is None else weigh(point) for point in chosen.values()])
        weights = self.runs * np.bincount(self.option_of, least[self.part_of], len(self.options))
        weights += energy_weight * self.stream_energy_pj + cycle_weight * self.stream_cycles
        path = self._path(self._sums(weights))
        energy_pj = cycles = 0.0
        for step in path:
            for option in self.edges.plans[self.edges.plan[step]]:
                points = [point for part in _parts(option).values() if (point := chosen[part])]
                energy_pj += option.runs * sum(point.energy_pj for point in points) + option.stream_energy_pj
                cycles += option.runs * sum(point.cycles for point in points) + option.stream_cycles
        return SupportedPoint(energy_pj, cycles, (path, chosen))

    def nests(self, choice: PathChoice) -> list[LoopNest]:
        """Return the distinct nests of a path."""
        options = (option for step in choice[0] for option in self.edges.plans[self.edges.plan[step]])
        return [*dict.fromkeys(nest for option in options for nest in option.nests.values())]

    def steps(self, choice: PathChoice, layers: Sequence[ModelLayer]) -> Iterator[LayerStep]:
        """Yield the layers of a path, with the points of their nests."""
        path, chosen = choice
        for option in (option for step in path for option in self.edges.plan_of(step)):
            points = {name: point for name, part in _parts(option).items() if (point := chosen[part])}
            yield LayerStep(layers[option.layer], option, points)

    def _distances(self, weights: np.ndarray) -> np.ndarray:
        edges, first = self.edges, self.first
        distances = np.full(edges.states, np.inf)
        distances[0] = 0.0
        for begin, end in self.batches:
            into = slice(first[begin], first[end])
            sums = distances[edges.source[into]] + weights[edges.plan[into]]
            distances[begin:end] = np.minimum.reduceat(sums, first[begin:end] - first[begin])
        return distances

    def _path(self, weights: np.ndarray) -> list[int]:
        """Return the steps of a shortest path."""
        edges, distances = self.edges, self._distances(weights)
        state, path = edges.states - 1, list[int]()
        while state:
            into = slice(self.first[state], self.first[state + 1])
            best = int(self.first[state] + np.argmin(distances[edges.source[into]] + weights[edges.plan[into]]))
            path.append(best)
            state = int(edges.source[best])
        return path[::-1]


def _batches(edges: ScheduleEdges, first: np.ndarray) -> list[tuple[int, int]]:
    """Return runs of states, as begin and end, between whose states no step leads; the first state is in none."""
    last_source = np.maximum.reduceat(edges.source, first[1:-1])
    begins = [1]
    for state, source in enumerate(last_source.tolist(), start=1):
        if source >= begins[-1]:
            begins.append(state)
    return [*pairwise([*begins, edges.states])]


def _parts(option: ExecutionOption) -> dict[str, Part]:
    """Return the nests of an option by name, each in its setting."""
    return {name: (nest, option.setting_of(name)) for name, nest in option.nests.items()}
