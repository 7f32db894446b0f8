"""Find the plan with the earliest finish: OR-Tools CP-SAT for plans, HiGHS for a lower bound, both deterministic.

The search ends after the first step that proves a plan optimal:

1. Find the best plan without overlap (CP-SAT without time): a shortest path with cut costs, which is quick.
2. Bound the finish by the linear rows of the whole program (HiGHS). On a chain-like network plan and bound meet.
3. Improve the bound by the exact time of each stretch between a fork and its join (by steps 1, 2 and 4), and on a long
   network improve the plan, window by window.
4. Solve the whole program from that plan and that bound (CP-SAT).
5. Where the finish is proved optimal, reach it with fewer engines, then with fewer calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from common.errors import PipelineError
from common.fpga.offload.choices import Choices, nanoseconds
from common.fpga.offload.forks import between_forks
from common.fpga.offload.greedy import greedy, possible_options
from common.fpga.offload.problem import Problem
from common.fpga.offload.relaxation import TOLERANCE, lower_bound
from common.fpga.offload.schedule import Assignment, Scheduler
from common.fpga.offload.solver import Effort, best_choices, best_schedule
from common.fpga.offload.stretches import MOST_ITEMS, Stretch, alone
from common.fpga.offload.timing import Timing
from common.fpga.offload.windows import WINDOW, window_by_window
from common.intervals import ThreePoint

STRETCH_SHARE = 0.3  # of the whole effort, for the program of one stretch
Status = Literal["optimal", "feasible"]


@dataclass(frozen=True, slots=True)
class Solution:
    """The best plan found. No plan finishes before ``bound_us``; ``optimal`` means within two millionths of it."""

    assignment: Assignment
    status: Status
    finish_us: float
    bound_us: float

    @property
    def gap(self) -> float:
        """Return how much earlier another plan could finish at most, as a share of this plan's finish."""
        return max(0.0, 1 - self.bound_us / self.finish_us) if self.finish_us else 0.0


def require_solvers() -> None:
    """Check that both solvers are installed.

    Raises:
        PipelineError: one of them is not.
    """
    try:
        import ortools  # noqa: F401 - imported here so that only their absence is reported
        import scipy  # noqa: F401
    except ImportError as error:
        raise PipelineError(error.name or "a solver", "is not installed", "pip install -r requirements.txt") from error


def optimize(problem: Problem, effort: Effort | None = None) -> Solution:
    """Find the plan that finishes earliest in the likely case; among equals, with fewest engines, then fewest calls.

    Raises:
        PipelineError: a solver is not installed.
    """
    require_solvers()
    plan, bound_ns = _PlanSearch(_in_nanoseconds(problem), effort or Effort()).run()
    finish_us = Scheduler(problem).run(plan).finish_us
    rounding_ns = len(problem.items) + 2 * len(problem.flows) + 1
    is_optimal = nanoseconds(finish_us) * (1 - 2 * TOLERANCE) <= bound_ns + rounding_ns
    bound_us = finish_us if is_optimal else min(bound_ns / 1000, finish_us)
    return Solution(plan, "optimal" if is_optimal else "feasible", finish_us, bound_us)


def _in_nanoseconds(problem: Problem) -> Problem:
    """Round the likely case to whole nanoseconds, in which both solver and scheduler then count."""

    def whole(estimate: ThreePoint, least_ns: int = 0) -> ThreePoint:
        return ThreePoint.exactly(max(least_ns, nanoseconds(estimate.likely)) / 1000)

    items = (replace(item, host_us=nanoseconds(item.host_us) / 1000) for item in problem.items)
    flows = (
        replace(
            flow,
            h2d_us=whole(flow.h2d_us),
            d2h_us=whole(flow.d2h_us),
            h2d_convert_us=whole(flow.h2d_convert_us),
            d2h_convert_us=whole(flow.d2h_convert_us),
        )
        for flow in problem.flows
    )
    options = (
        replace(option, time_us=whole(option.time_us, 1), launch_us=whole(option.launch_us))
        for option in problem.options
    )
    return replace(problem, items=tuple(items), flows=tuple(flows), options=tuple(options))


class _PlanSearch:
    def __init__(self, problem: Problem, effort: Effort) -> None:
        self.problem, self.effort = problem, effort
        self.scheduler = Scheduler(problem)
        self.options = possible_options(problem, self.scheduler)

    def run(self, *, has_stretches: bool = True) -> tuple[Assignment, int]:
        """Return the best plan and a lower bound of the finish in nanoseconds."""
        plan = self._first_plan()
        timing = Timing(Choices(self.problem, self.options), self._finish_ns(plan))
        bound_ns = lower_bound(timing.model, timing.finish)
        if not self._meets(plan, bound_ns) and has_stretches:
            plan, bound_ns = self._by_stretches(timing, plan)
        if self._meets(plan, bound_ns):
            return self._smaller(timing, plan), bound_ns
        timing.model.add(timing.finish >= bound_ns)
        timing.model.minimize(timing.finish)
        answer = best_schedule(timing, plan, self.scheduler, self.effort)
        if answer.plan is not None:
            plan = min(plan, answer.plan, key=self._finish_ns)
        if not answer.is_proved:
            return plan, max(bound_ns, answer.bound)
        return self._smaller(timing, plan), self._finish_ns(plan)

    def _by_stretches(self, timing: Timing, plan: Assignment) -> tuple[Assignment, int]:
        """Improve the bound by the stretches between forks and joins, and on a long network the plan by windows."""
        stretches = self._stretches()
        for stretch in stretches:
            timing.bound_stretch(stretch)
        bound_ns = lower_bound(timing.model, timing.finish)
        if len(self.problem.items) > 2 * WINDOW and not self._meets(plan, bound_ns):
            plan = window_by_window(self.problem, self.options, plan, self.scheduler, self.effort, stretches)
        return plan, bound_ns

    def _stretches(self) -> list[Stretch]:
        """Return every stretch shorter than the whole with the bound of its own program; equal stretches share one."""
        known: dict[Problem, int] = {}
        stretches = []
        small = replace(self.effort, deterministic_limit=STRETCH_SHARE * self.effort.deterministic_limit)
        for fork, join, between in between_forks(self.problem, self.scheduler.wiring):
            stretch = Stretch(fork, join, frozenset(between))
            if len(between) <= MOST_ITEMS and len(between) + 1 < len(self.problem.items):
                part = alone(self.problem, self.options, stretch)
                if part not in known:
                    known[part] = _PlanSearch(part, small).run(has_stretches=False)[1]
                stretches.append(replace(stretch, least_ns=known[part]))
        return stretches

    def _first_plan(self) -> Assignment:
        choices = Choices(self.problem, self.options)
        most = (len(choices.used) + 1) * (len(choices.on_host) + 1)
        choices.model.minimize(choices.serial_ns() * most + _size(choices))
        serial = best_choices(choices, self.effort).plan
        plans = [greedy(self.problem), *([serial] if serial and self.scheduler.can_run(serial) else [])]
        return min(plans, key=self._finish_ns)

    def _smaller(self, timing: Timing, plan: Assignment) -> Assignment:
        """Reach the same finish with fewer engines, then fewer calls, by a short search.

        A plan without overlap is already the smallest: the first step minimises its size too.
        """
        if self.scheduler.run(plan).is_serial:
            return plan
        timing.model.add(timing.finish <= self._finish_ns(plan))
        timing.model.minimize(_size(timing.choices))
        short = replace(self.effort, deterministic_limit=self.effort.deterministic_limit / 4)
        return best_schedule(timing, plan, self.scheduler, short).plan or plan

    def _finish_ns(self, plan: Assignment) -> int:
        return nanoseconds(self.scheduler.run(plan).finish_us)

    def _meets(self, plan: Assignment, bound_ns: int) -> bool:
        return self._finish_ns(plan) * (1 - 2 * TOLERANCE) <= bound_ns + 1


def _size(choices: Choices) -> Any:
    """Combine the number of engines, then of calls, into one objective."""
    calls = sum(mode.chosen for mode in choices.modes)
    return sum(choices.used.values()) * (len(choices.on_host) + 1) + calls
