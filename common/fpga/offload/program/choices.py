"""The decision variables of a plan for CP-SAT: options, engines, regions, and the tensors that cross the link."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from common.fpga.device.resources import RESOURCE_NAMES
from common.fpga.offload.problem import Instance, OffloadFlow, Problem, Wiring

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Direction = Literal["h2d", "d2h"]
RESOURCE_GRAIN = 1000  # resources are counted in thousandths: needs are rounded up, budgets down


def nanoseconds(value_us: float) -> int:
    return round(value_us * 1000)


def arrival_ns(flow: OffloadFlow, direction: Direction) -> int:
    """Return the likely time from when a tensor is produced until the other side can read it."""
    is_in = direction == "h2d"
    link, convert = (flow.h2d_us, flow.h2d_convert_us) if is_in else (flow.d2h_us, flow.d2h_convert_us)
    return nanoseconds(link.likely) + nanoseconds(convert.likely)


@dataclass(frozen=True, slots=True)
class Mode:
    """An option on one instance of its engine, with a launch or, if its inputs come from the card, without."""

    option: int
    instance: Instance
    is_launched: bool
    duration_ns: int
    chosen: Any


class Choices:
    """Decision variables without time, and their constraints."""

    def __init__(self, problem: Problem, options: Sequence[int]) -> None:
        from ortools.sat.python import cp_model  # a slow import, which only a plan needs

        self.problem = problem
        self.wiring = Wiring(problem)
        self.model = cp_model.CpModel()
        self.used: dict[Instance, Any] = {}
        self.modes = [mode for option in options for mode in self._modes(option)]
        self.modes_of: list[list[Mode]] = [[] for _ in problem.items]  # that compute each item on the card
        for mode in self.modes:
            for item in problem.options[mode.option].covers:
                self.modes_of[item].append(mode)
        self.on_host = [self._on_host(item) for item in range(len(problem.items))]
        self.travels: dict[tuple[Direction, int], Any] = {}  # by direction and flow, whether it crosses the link
        for index in range(len(problem.flows)):
            self._move(index)
        self._enter_from_card()
        self.region = fit_board(self.model, problem, self.used)
        weights = [problem.options[mode.option].weight_bytes * mode.chosen for mode in self.modes]
        self.model.add(sum(weights) <= math.floor(problem.memory_capacity_bytes))

    def literal(self) -> cp_model.IntVar:
        """Add a Boolean variable."""
        return self.model.new_bool_var("")

    def is_made_here(self, index: int) -> Any:
        """Return the literal that is true if the host produces the tensor."""
        producer = self.problem.flows[index].producer
        return self.model.new_constant(1) if producer is None else self.on_host[producer]

    def serial_ns(self) -> Any:
        """Return the time of a run without any overlap, an upper bound of every schedule."""
        items = zip(self.problem.items, self.on_host, strict=True)
        host = sum(nanoseconds(item.host_us) * literal for item, literal in items)
        calls = sum(mode.duration_ns * mode.chosen for mode in self.modes)
        crossing = ((arrival_ns(self.problem.flows[index], way), here) for (way, index), here in self.travels.items())
        return host + calls + sum(arrives_ns * travels for arrives_ns, travels in crossing)

    def _modes(self, index: int) -> Iterable[Mode]:
        option = self.problem.options[index]
        engine = self.problem.engines[option.engine]
        entering = [self.problem.flows[flow].producer for flow in self.wiring.entering(option.covers)]
        is_always_launched = engine.launch_per == "call" or option.reads_host
        may_be_entered = not is_always_launched and entering and None not in entering
        for number in range(engine.max_instances):
            instance = (option.engine, number)
            if instance not in self.used:
                self.used[instance] = self.literal()
            for is_launched in (True, False) if may_be_entered else (True,):
                launch_ns = nanoseconds(option.launch_us.likely) if is_launched else 0
                # A call with inputs takes at least 1 ns: calls that wait for each other in a circle have no solution.
                duration_ns = max(1 if entering else 0, nanoseconds(option.time_us.likely) + launch_ns)
                mode = Mode(index, instance, is_launched, duration_ns, self.literal())
                self.model.add_implication(mode.chosen, self.used[instance])
                yield mode

    def _on_host(self, item: int) -> Any:
        if not self.modes_of[item]:
            return self.model.new_constant(1)
        literal = self.model.new_constant(0) if self.problem.items[item].is_on_card else self.literal()
        self.model.add_exactly_one([literal, *(mode.chosen for mode in self.modes_of[item])])
        return literal

    def _move(self, index: int) -> None:
        """Let a tensor cross the link where one side produces it and the other reads it."""
        flow, here = self.problem.flows[index], self.is_made_here(index)
        if any(self.modes_of[item] for item in flow.consumers):
            travels = self.travels["h2d", index] = self.literal()
            self.model.add_implication(travels, here)
            for item in dict.fromkeys(flow.consumers):
                self.model.add(travels >= here - self.on_host[item])
        has_way_back = flow.producer is not None and self.modes_of[flow.producer]
        if has_way_back and (flow.is_output or flow.consumers):
            travels = self.travels["d2h", index] = self.literal()
            self.model.add_implication(travels, ~here)
            for item in dict.fromkeys(flow.consumers):
                self.model.add(travels >= self.on_host[item] - here)
            if flow.is_output:
                self.model.add(travels + here == 1)

    def _enter_from_card(self) -> None:
        for mode in (mode for mode in self.modes if not mode.is_launched):
            engine = mode.instance[0]
            for index in self.wiring.entering(self.problem.options[mode.option].covers):
                self.model.add_implication(mode.chosen, ~self.is_made_here(index))
                producer = self.problem.flows[index].producer
                if self.problem.engines[engine].launch_per == "engine" and producer is not None:
                    same = [other.chosen for other in self.modes_of[producer] if other.instance[0] == engine]
                    self.model.add(sum(same) >= mode.chosen)


def fit_board(
    model: cp_model.CpModel, problem: Problem, used: Mapping[Instance, Any]
) -> dict[tuple[int, int, int], Any]:
    """Require that the board holds the engines that are used, of equal ones the first.

    Returns:
        A literal for each engine type, instance and region that it may be in.
    """
    region: dict[tuple[int, int, int], Any] = {}
    for (engine, number), is_used in used.items():
        if number:
            model.add_implication(is_used, used[engine, number - 1])
        if not problem.engines[engine].spans_regions:
            names = [model.new_bool_var("") for _ in problem.regions]
            region.update({(engine, number, index): name for index, name in enumerate(names)})
            model.add(sum(names) == is_used)
    for name in RESOURCE_NAMES:
        _limit_resource(model, problem, name, used, region)
    return region


def _limit_resource(
    model: cp_model.CpModel,
    problem: Problem,
    name: str,
    used: Mapping[Instance, Any],
    region: Mapping[tuple[int, int, int], Any],
) -> None:
    is_channels = name == "memory_channels"
    budgets = [getattr(region.budget, name) for region in problem.regions]
    whole = problem.memory_channels if is_channels else sum(budgets)
    needs = [math.ceil(getattr(engine.resources, name) * RESOURCE_GRAIN - 1e-6) for engine in problem.engines]
    model.add(sum(needs[engine] * is_used for (engine, _), is_used in used.items()) <= _grains_down(whole))
    for number, budget in enumerate([] if is_channels else budgets):
        here = [needs[engine] * is_here for (engine, _, index), is_here in region.items() if index == number]
        model.add(sum(here) <= _grains_down(budget))


def _grains_down(amount: float) -> int:
    return math.floor(amount * RESOURCE_GRAIN * (1 + 1e-9) + 1e-6)
