"""Decisions of a plan: the items of the host, the engines and their options; and which engines fit on the board."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from common.fpga.device.resources import Resources, total
from common.intervals import ThreePoint

Case = Literal["pessimistic", "likely", "optimistic"]
LaunchRule = Literal["call", "entry", "engine"]
CASES: tuple[Case, ...] = ("pessimistic", "likely", "optimistic")
NONE = ThreePoint.exactly(0.0)


@dataclass(frozen=True, slots=True)
class Item:
    """One step of the host: a fused group, a node that the runtime inserted, or the gap between nodes."""

    name: str
    host_us: float
    is_on_card: bool = False  # a call must compute it


@dataclass(frozen=True, slots=True)
class OffloadFlow:
    """A tensor that one item writes and others read; weights have no flow."""

    tensor: str
    # Index of the item that writes it, or None for a graph input, which is on the host from the start
    producer: int | None
    consumers: tuple[int, ...]
    is_output: bool  # whether it must be on the host at the end
    h2d_us: ThreePoint
    d2h_us: ThreePoint
    h2d_convert_us: ThreePoint = NONE  # conversion to the card's number format, on the card, after the transfer
    d2h_convert_us: ThreePoint = NONE  # conversion to the host's number format, on the card, before the transfer

    @property
    def times_us(self) -> tuple[ThreePoint, ...]:
        return self.h2d_us, self.d2h_us, self.h2d_convert_us, self.d2h_convert_us

    def timed(self, change: Callable[[ThreePoint], ThreePoint]) -> OffloadFlow:
        """Return the tensor with all times changed alike."""
        return OffloadFlow(self.tensor, self.producer, self.consumers, self.is_output, *map(change, self.times_us))


@dataclass(frozen=True, slots=True)
class EngineType:
    """A kernel that the board may hold up to ``max_instances`` times; an instance serves one call at a time."""

    name: str
    resources: Resources  # of one instance
    spans_regions: bool  # whether an instance may be divided over several regions
    max_instances: int = 1
    # Which calls the host launches. ``call``: every one. ``entry``: those that read a tensor of the host. ``engine``:
    # those that read something that no call on this engine wrote. The engine fetches its own instructions, but somebody
    # must start it: at least once, whoever feeds it.
    launch_per: LaunchRule = "call"


@dataclass(frozen=True, slots=True)
class RegionBudget:
    name: str
    budget: Resources


@dataclass(frozen=True, slots=True)
class Option:
    """A way to compute items on the card as one call: a fused group, or a chain of groups."""

    name: str
    covers: tuple[int, ...]  # indices of its items, ascending
    engine: int  # index of its engine type
    time_us: ThreePoint
    launch_us: ThreePoint  # of one launch
    weight_bytes: int  # weights that stay in the card's memory from run to run
    # Whether it also reads a tensor that never is on the card, and that is no flow of the problem
    reads_host: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Items to assign, and the engines and the board to assign them to.

    Raises:
        ValueError: an index is out of range, items are not in topological order, or a time is not a duration.
    """

    items: tuple[Item, ...]
    flows: tuple[OffloadFlow, ...]
    engines: tuple[EngineType, ...]
    options: tuple[Option, ...]
    regions: tuple[RegionBudget, ...]
    memory_channels: float
    memory_capacity_bytes: float

    def __post_init__(self) -> None:
        for flow in self.flows:
            earliest = -1 if flow.producer is None else flow.producer
            if any(not earliest < consumer < len(self.items) for consumer in flow.consumers):
                raise ValueError(f"tensor {flow.tensor} is read before it is written, or by an item that is not there")
            _check(flow.tensor, flow.times_us)
        for option in self.options:
            covers = option.covers
            if not covers or list(covers) != sorted(set(covers)) or covers[0] < 0 or covers[-1] >= len(self.items):
                raise ValueError(f"option {option.name} does not cover items in order")
            if not 0 <= option.engine < len(self.engines):
                raise ValueError(f"option {option.name} has no engine")
            _check(option.name, (option.time_us, option.launch_us))
        for item in self.items:
            if not 0 <= item.host_us < math.inf:
                raise ValueError(f"{item.name}: {item.host_us} is no duration")

    @property
    def host_only_us(self) -> float:
        return sum(item.host_us for item in self.items)


def _check(name: str, times: Iterable[ThreePoint]) -> None:
    for value in (value for time in times for value in time.cases):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}: {value} is no duration")


class Wiring:
    """Index of the flows that each item reads and writes."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.read_by: list[list[int]] = [[] for _ in problem.items]
        self.written_by: list[list[int]] = [[] for _ in problem.items]
        for index, flow in enumerate(problem.flows):
            for consumer in dict.fromkeys(flow.consumers):
                self.read_by[consumer].append(index)
            if flow.producer is not None:
                self.written_by[flow.producer].append(index)

    def entering(self, covers: Iterable[int]) -> list[int]:
        """Return the flows that a call over these items needs before it can start."""
        inside = set(covers)
        read = dict.fromkeys(flow for item in sorted(inside) for flow in self.read_by[item])
        return [flow for flow in read if self.problem.flows[flow].producer not in inside]

    def leaving(self, covers: Iterable[int]) -> list[int]:
        """Return the flows that a call over these items writes."""
        return [flow for item in covers for flow in self.written_by[item]]

    def waits_for_itself(self, covers: tuple[int, ...]) -> bool:
        """Return whether a path leaves the call's items and comes back: the call would wait for its own results."""
        inside, tainted = set(covers), set[int]()
        for item in range(covers[0], covers[-1] + 1):
            producers = {self.problem.flows[flow].producer for flow in self.read_by[item]}
            if item in inside:
                if producers & tainted:
                    return True
            elif producers & (inside | tainted):
                tainted.add(item)
        return False


Instance = tuple[int, int]  # index of the engine type, number of the instance
Floorplan = tuple[tuple[int, int, int | None], ...]  # engine type, instance, region; None spans regions


def place(problem: Problem, instances: Sequence[Instance]) -> Floorplan | None:
    """Return a region for each engine, or None if they do not fit. The search is exact: it backtracks."""
    if shortfall(problem, instances):
        return None
    fixed = [instance for instance in instances if not problem.engines[instance[0]].spans_regions]
    fixed.sort(key=lambda instance: (-_size(problem, instance[0]), instance))
    regions = _pack(problem, fixed, [_fabric(region.budget) for region in problem.regions])
    if regions is None:
        return None
    region_of = dict(zip(fixed, regions, strict=True))
    return tuple((*instance, region_of.get(instance)) for instance in sorted(instances))


def shortfall(problem: Problem, instances: Sequence[Instance]) -> str:
    """Name a resource of which the whole board has too little for these engines; empty if it has enough of each."""
    needed = total(problem.engines[engine].resources for engine, _ in instances)
    return needed.shortfall(_board(problem))


def misfit(problem: Problem, engine: int) -> str:
    """Name a resource of which an empty board has too little for one engine of the type; empty if it fits."""
    engine_type = problem.engines[engine]
    if (lacking := shortfall(problem, [(engine, 0)])) or engine_type.spans_regions:
        return lacking
    shortfalls = [_fabric(engine_type.resources).shortfall(region.budget) for region in problem.regions]
    return "" if "" in shortfalls else (shortfalls or ["region"])[0]


def _board(problem: Problem) -> Resources:
    fabric = total(region.budget for region in problem.regions)
    return replace(fabric, memory_channels=problem.memory_channels)


def _fabric(resources: Resources) -> Resources:
    """Leave out memory channels, which belong to no region."""
    return replace(resources, memory_channels=0.0)


def _size(problem: Problem, engine: int) -> float:
    resources = problem.engines[engine].resources
    return resources.lut + resources.dsp * 100 + resources.bram36 * 100


def _pack(problem: Problem, fixed: Sequence[Instance], free: list[Resources]) -> tuple[int, ...] | None:
    if not fixed:
        return ()
    needed = _fabric(problem.engines[fixed[0][0]].resources)
    for region, available in enumerate(free):
        if needed.fits(available):
            left = [*free[:region], available + needed.times(-1), *free[region + 1 :]]
            if (others := _pack(problem, fixed[1:], left)) is not None:
                return (region, *others)
    return None
