"""A yardstick and a first plan: add the call that shortens the run most, until none does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from common.fpga.offload.placing import Instance, misfit, place
from common.fpga.offload.problem import Problem
from common.fpga.offload.schedule import Assignment, Call, Scheduler

TRIED = 8  # candidates of a round whose whole timeline is computed


def possible_options(problem: Problem, scheduler: Scheduler) -> list[int]:
    """Options whose engine fits an empty board, whose weights fit its memory, and that do not wait for themselves."""
    fits = [not misfit(problem, engine) for engine in range(len(problem.engines))]
    return [
        index
        for index, option in enumerate(problem.options)
        if fits[option.engine]
        and option.weight_bytes <= problem.memory_capacity_bytes
        and not scheduler.wiring.waits_for_itself(option.covers)
    ]


def greedy(problem: Problem) -> Assignment:
    """Add one call after another, each the one with the best decrease of the finish, on engines that still fit.

    A round ranks all calls by what they save if nothing overlaps, which takes no timeline, and computes the timeline of
    the first few only.
    """
    search = _Search(problem)
    while (better := search.best_addition()) is not None:
        search.take(*better)
    instances = sorted({(problem.options[call.option].engine, call.instance) for call in search.calls})
    return Assignment(tuple(search.calls), place(problem, instances) or ())


class _Search:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.scheduler = Scheduler(problem)
        self.possible = possible_options(problem, self.scheduler)
        self.calls: list[Call] = []
        self.on_card: set[int] = set()
        self.free_bytes = problem.memory_capacity_bytes
        self.finish_us = self.scheduler.finish_us([])
        self.fitting: dict[Instance, bool] = {}

    def best_addition(self) -> tuple[Call, float] | None:
        """The call with the earliest finish, if that is earlier than now."""
        ranked = sorted((-self._saving_us(index), index) for index in self._open_options())
        best: tuple[Call, float] | None = None
        for _, index in ranked[:TRIED]:
            for call in self._instances(index):
                finish_us = self._finish_us([*self.calls, call])
                if finish_us < (best[1] if best else self.finish_us) - 1e-9:
                    best = call, finish_us
        return best

    def take(self, call: Call, finish_us: float) -> None:
        """Add a call for good."""
        option = self.problem.options[call.option]
        if (option.engine, call.instance) not in self._standing():
            self.fitting.clear()
        self.calls.append(call)
        self.on_card |= set(option.covers)
        self.free_bytes -= option.weight_bytes
        self.finish_us = finish_us

    def _finish_us(self, calls: Sequence[Call]) -> float:
        try:
            return self.scheduler.finish_us(calls)
        except ValueError:  # calls that wait for each other
            return float("inf")

    def _open_options(self) -> Iterable[int]:
        for index in self.possible:
            option = self.problem.options[index]
            if option.weight_bytes <= self.free_bytes and self.on_card.isdisjoint(option.covers):
                yield index

    def _standing(self) -> set[Instance]:
        return {(self.problem.options[call.option].engine, call.instance) for call in self.calls}

    def _instances(self, index: int) -> Iterable[Call]:
        """On every engine of its type that stands there, and on one more if that fits."""
        engine, standing = self.problem.options[index].engine, self._standing()
        for number in range(self.problem.engines[engine].max_instances):
            instance = (engine, number)
            if instance in standing:
                yield Call(index, number)
                continue
            if instance not in self.fitting:
                self.fitting[instance] = place(self.problem, sorted({*standing, instance})) is not None
            if self.fitting[instance]:
                yield Call(index, number)
            return

    def _saving_us(self, index: int) -> float:
        """What a call saves if all that takes time happens one after the other."""
        option, wiring = self.problem.options[index], self.scheduler.wiring
        flows = dict.fromkeys([*wiring.entering(option.covers), *wiring.leaving(option.covers)])
        after = self.on_card | set(option.covers)
        moved_us = sum(self._link_us(flow, after) - self._link_us(flow, self.on_card) for flow in flows)
        host_us = sum(self.problem.items[item].host_us for item in option.covers)
        return host_us - option.time_us.likely - option.launch_us.likely - moved_us

    def _link_us(self, index: int, on_card: set[int]) -> float:
        """What a tensor costs on the link, where these items are on the card."""
        flow = self.problem.flows[index]
        if flow.producer in on_card:
            leaves = flow.is_output or any(item not in on_card for item in flow.consumers)
            return flow.d2h_us.likely + flow.d2h_convert_us.likely if leaves else 0.0
        enters = any(item in on_card for item in flow.consumers)
        return flow.h2d_us.likely + flow.h2d_convert_us.likely if enters else 0.0
