"""The offload problem in plain values: items of the host, tensors between them, engines, and what each could compute.

Items stand in the order in which the host executes them, one after the other. Nothing here knows ONNX or a board file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from common.fpga.device.resources import Resources
from common.intervals import ThreePoint

Case = Literal["pessimistic", "likely", "optimistic"]
CASES: tuple[Case, ...] = ("pessimistic", "likely", "optimistic")
NONE = ThreePoint.exactly(0.0)


@dataclass(frozen=True, slots=True)
class Item:
    """One step of the host: an executed node, or the gap between nodes."""

    name: str
    host_us: float


@dataclass(frozen=True, slots=True)
class Flow:
    """A tensor that one item writes and others read; a weight is none.

    Attributes:
        tensor: its name.
        producer: index of the item that writes it, or None for a graph input, which lies on the host from the start.
        consumers: indices of the items that read it.
        is_output: whether it must be on the host in the end.
        h2d_us: to the card, over the link.
        d2h_us: from the card, over the link.
        h2d_convert_us: to the card's number format, on the card, once the tensor has arrived.
        d2h_convert_us: from the card's number format, on the card, before the tensor leaves.
    """

    tensor: str
    producer: int | None
    consumers: tuple[int, ...]
    is_output: bool
    h2d_us: ThreePoint
    d2h_us: ThreePoint
    h2d_convert_us: ThreePoint = NONE
    d2h_convert_us: ThreePoint = NONE


@dataclass(frozen=True, slots=True)
class EngineType:
    """A kernel that may stand on the board up to ``max_instances`` times and serves its calls one after the other.

    ``launch_per``: the host pays a launch for every ``call``, or, where the engine fetches its own instructions, only
    on ``entry``: for a call that reads something which the host made.
    """

    name: str
    resources: Resources
    spans_regions: bool
    max_instances: int = 1
    launch_per: Literal["call", "entry"] = "call"


@dataclass(frozen=True, slots=True)
class RegionBudget:
    """What one region of the board can hold; memory channels are a limit of the whole board."""

    name: str
    budget: Resources


@dataclass(frozen=True, slots=True)
class Option:
    """One way to compute some items on the card as one call: a fused group, or a chain of groups.

    ``engine`` is the index of its engine type; ``weight_bytes`` stay in the card's memory from run to run.
    """

    name: str
    covers: tuple[int, ...]
    engine: int
    time_us: ThreePoint
    launch_us: ThreePoint
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be placed, and on what.

    Raises:
        ValueError: an index, an order or a time that no plan could have.
    """

    items: tuple[Item, ...]
    flows: tuple[Flow, ...]
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
            _check(flow.tensor, (flow.h2d_us, flow.d2h_us, flow.h2d_convert_us, flow.d2h_convert_us))
        for option in self.options:
            covers = option.covers
            if not covers or list(covers) != sorted(set(covers)) or covers[0] < 0 or covers[-1] >= len(self.items):
                raise ValueError(f"option {option.name} does not cover items in order")
            if not 0 <= option.engine < len(self.engines):
                raise ValueError(f"option {option.name} has no engine")
            _check(option.name, (option.time_us, option.launch_us))
        for item in self.items:
            _check(item.name, (ThreePoint.exactly(item.host_us),))

    @property
    def host_only_us(self) -> float:
        """The run without a card."""
        return sum(item.host_us for item in self.items)


def _check(name: str, times: Iterable[ThreePoint]) -> None:
    for value in (value for outlook in times for value in outlook.cases):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name}: {value} is no duration")


class Wiring:
    """Which flows go where, found once for a problem."""

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
        """Flows that a call over these items must have before it can begin."""
        inside = set(covers)
        found = dict.fromkeys(flow for item in sorted(inside) for flow in self.read_by[item])
        return [flow for flow in found if self.problem.flows[flow].producer not in inside]

    def leaving(self, covers: Iterable[int]) -> list[int]:
        """Flows that a call writes."""
        return [flow for item in covers for flow in self.written_by[item]]

    def waits_for_itself(self, covers: tuple[int, ...]) -> bool:
        """Whether an item outside reads what the call writes and writes, by some way, what the call reads."""
        inside, tainted = set(covers), set[int]()
        for item in range(covers[0], covers[-1] + 1):
            makers = {self.problem.flows[flow].producer for flow in self.read_by[item]}
            if item in inside:
                if makers & tainted:
                    return True
            elif makers & (inside | tainted):
                tainted.add(item)
        return False
