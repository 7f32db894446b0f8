"""What a plan chooses, as a constraint program for CP-SAT: options, engines, regions, and the tensors that travel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Literal

from common.fpga.device.resources import RESOURCE_NAMES
from common.fpga.offload.floorplan import Instance
from common.fpga.offload.problem import Problem, Wiring
from common.intervals import ThreePoint

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Direction = Literal["h2d", "d2h"]
RESOURCE_GRAIN = 1000  # resources are counted in thousandths, demands rounded up and budgets down


def nanoseconds(value_us: float) -> int:
    """Whole nanoseconds."""
    return round(value_us * 1000)


def chain_ns(link: ThreePoint, convert: ThreePoint) -> int:
    """A transfer with the conversion behind or before it."""
    return nanoseconds(link.likely) + nanoseconds(convert.likely)


@dataclass(frozen=True, slots=True)
class Mode:
    """An option on one instance of its engine, with its launch or, entered from the card, without."""

    option: int
    instance: Instance
    is_launched: bool
    duration_ns: int
    chosen: Any


class Choices:
    """The variables without time, and what limits them.

    Attributes:
        modes_of: ways to compute each item on the card.
        on_host: whether an item stays on the host.
        travels: whether a tensor crosses the link, by direction and flow.
    """

    def __init__(self, problem: Problem, options: Sequence[int]) -> None:
        from ortools.sat.python import cp_model  # only a plan that is asked for pays for this import

        self.problem = problem
        self.wiring = Wiring(problem)
        self.model = cp_model.CpModel()
        self.used: dict[Instance, Any] = {}
        self.region: dict[tuple[int, int, int], Any] = {}
        self.modes = [mode for option in options for mode in self._modes(option)]
        self.modes_of: list[list[Mode]] = [[] for _ in problem.items]
        for mode in self.modes:
            for item in problem.options[mode.option].covers:
                self.modes_of[item].append(mode)
        self.on_host = [self._on_host(item) for item in range(len(problem.items))]
        self.travels: dict[tuple[Direction, int], Any] = {}
        for index in range(len(problem.flows)):
            self._move(index)
        self._enter_from_card()
        self._fit_board()

    def literal(self) -> cp_model.IntVar:
        """A new variable that is false or true."""
        return self.model.new_bool_var("")

    def is_made_here(self, index: int) -> Any:
        """Whether a tensor comes from the host."""
        producer = self.problem.flows[index].producer
        return self.model.new_constant(1) if producer is None else self.on_host[producer]

    def serial_ns(self) -> Any:
        """How long the run takes if nothing overlaps: what no schedule exceeds."""
        items = zip(self.problem.items, self.on_host, strict=True)
        host = sum(nanoseconds(item.host_us) * literal for item, literal in items)
        calls = sum(mode.duration_ns * mode.chosen for mode in self.modes)
        return host + calls + sum(self.arrival_ns(*key) * travels for key, travels in self.travels.items())

    def arrival_ns(self, direction: Direction, index: int) -> int:
        """From when a tensor is there until it can be read on the other side."""
        flow = self.problem.flows[index]
        if direction == "h2d":
            return chain_ns(flow.h2d_us, flow.h2d_convert_us)
        return chain_ns(flow.d2h_us, flow.d2h_convert_us)

    def _modes(self, index: int) -> Iterable[Mode]:
        option = self.problem.options[index]
        engine = self.problem.engines[option.engine]
        entering = [self.problem.flows[flow].producer for flow in self.wiring.entering(option.covers)]
        may_be_entered = engine.launch_per == "entry" and entering and None not in entering
        for number in range(engine.max_instances):
            instance = (option.engine, number)
            if instance not in self.used:
                self.used[instance] = self.literal()
            for is_launched in (True, False) if may_be_entered else (True,):
                launch_ns = nanoseconds(option.launch_us.likely) if is_launched else 0
                # A call takes time, so that no ring of calls that wait for each other has a solution.
                duration_ns = max(1, nanoseconds(option.time_us.likely) + launch_ns)
                mode = Mode(index, instance, is_launched, duration_ns, self.literal())
                self.model.add_implication(mode.chosen, self.used[instance])
                yield mode

    def _on_host(self, item: int) -> Any:
        if not self.modes_of[item]:
            return self.model.new_constant(1)
        literal = self.literal()
        self.model.add_exactly_one([literal, *(mode.chosen for mode in self.modes_of[item])])
        return literal

    def _move(self, index: int) -> None:
        """A tensor travels where one side makes it and the other reads it."""
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
            for index in self.wiring.entering(self.problem.options[mode.option].covers):
                self.model.add_implication(mode.chosen, ~self.is_made_here(index))

    # --- the board --------------------------------------------------------------------------------------------------

    def _fit_board(self) -> None:
        problem = self.problem
        for (engine, number), used in self.used.items():
            if number:
                self.model.add_implication(used, self.used[engine, number - 1])
            if not problem.engines[engine].spans_regions:
                names = [self.literal() for _ in problem.regions]
                self.region.update({(engine, number, region): name for region, name in enumerate(names)})
                self.model.add(sum(names) == used)
        for kind in range(len(RESOURCE_NAMES)):
            self._limit_resource(kind)
        weights = [problem.options[mode.option].weight_bytes * mode.chosen for mode in self.modes]
        self.model.add(sum(weights) <= math.floor(problem.memory_capacity_bytes))

    def _limit_resource(self, kind: int) -> None:
        is_channels = RESOURCE_NAMES[kind] == "memory_channels"
        budgets = [astuple(region.budget)[kind] for region in self.problem.regions]
        whole = self.problem.memory_channels if is_channels else sum(budgets)
        engines = enumerate(self.problem.engines)
        needs = {engine: _grains_up(astuple(found.resources)[kind]) for engine, found in engines}
        self.model.add(sum(needs[engine] * used for (engine, _), used in self.used.items()) <= _grains_down(whole))
        for number, budget in enumerate([] if is_channels else budgets):
            taken = [needs[engine] * here for (engine, _, region), here in self.region.items() if region == number]
            self.model.add(sum(taken) <= _grains_down(budget))


def _grains_up(amount: float) -> int:
    return math.ceil(amount * RESOURCE_GRAIN - 1e-6)


def _grains_down(amount: float) -> int:
    return math.floor(amount * RESOURCE_GRAIN * (1 + 1e-9) + 1e-6)
