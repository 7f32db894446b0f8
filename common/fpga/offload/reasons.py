"""Reasons why each option is or is not in a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from common.fpga.offload.problem import Problem, misfit, place, shortfall
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler, instance_name


class Reasons:
    """Reasons for the options of a problem; an option that fits is scheduled to see how it would change the finish."""

    def __init__(self, problem: Problem, plan: Assignment) -> None:
        self.problem, self.plan = problem, plan
        self.scheduler = Scheduler(problem)
        self.finish_us = self.scheduler.finish_us(plan)
        self.instance_of = {call.option: call.instance for call in plan.calls}
        self.misfits = [misfit(problem, engine) for engine in range(len(problem.engines))]
        self.weight_bytes = sum(problem.options[call.option].weight_bytes for call in plan.calls)

    def of(self, index: int) -> str:
        """Return why an option is or is not in the plan."""
        option = self.problem.options[index]
        engine = self.problem.engines[option.engine]
        if index in self.instance_of:
            return f"computed by {instance_name(self.problem, option.engine, self.instance_of[index])}"
        if lacking := self.misfits[option.engine]:
            return f"{engine.name} needs more {lacking} than the board has"
        if option.weight_bytes > self.problem.memory_capacity_bytes:
            return "its weights exceed the memory of the card"
        if self.scheduler.wiring.waits_for_itself(option.covers):
            return "a path leaves its items and comes back: it would wait for its own results"
        rivals = [call for call in self.plan.calls if not self._covers(call).isdisjoint(option.covers)]
        if any(self._covers(call) != set(option.covers) for call in rivals):
            names = ", ".join(self.problem.options[call.option].name for call in rivals)
            return f"its items are computed in {names}"
        return self._when_forced(index, rivals)

    def _covers(self, call: KernelCall) -> set[int]:
        return set(self.problem.options[call.option].covers)

    def _when_forced(self, index: int, rivals: Sequence[KernelCall]) -> str:
        """Force the option into the plan, in place of the calls that compute its items now, and compare the finish."""
        option = self.problem.options[index]
        others = [call for call in self.plan.calls if call not in rivals]
        standing = {(self.problem.options[call.option].engine, call.instance) for call in others}
        if place(self.problem, sorted({*standing, (option.engine, 0)})) is None:
            lacking = shortfall(self.problem, sorted({*standing, (option.engine, 0)})) or "room in any one region"
            names = ", ".join(instance_name(self.problem, *instance) for instance in sorted(standing))
            return f"{self.problem.engines[option.engine].name} does not fit beside {names}: {lacking}"
        weights = self.weight_bytes + option.weight_bytes
        weights -= sum(self.problem.options[call.option].weight_bytes for call in rivals)
        if weights > self.problem.memory_capacity_bytes:
            return "its weights do not fit beside those of the plan"
        return self._compare([*others, KernelCall(index)], rivals)

    def _compare(self, calls: Sequence[KernelCall], rivals: Sequence[KernelCall]) -> str:
        change_us = self.scheduler.finish_us(Assignment(tuple(calls))) - self.finish_us
        if math.isinf(change_us):
            return "it and another call of the plan would wait for each other"
        instead = f" instead of {self.problem.options[rivals[0].option].name}" if rivals else ""
        if change_us < -1e-3:
            # Possible only if the plan is not proved optimal.
            return f"would finish {-change_us:.1f} us earlier{instead}; the search ended before it tried this"
        return f"would finish {change_us:.1f} us later{instead}"
