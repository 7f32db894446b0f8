"""Search for the best plan of a problem as one program: CP-SAT for plans, HiGHS for a lower bound.

Each step can be the last, because the search ends once a plan meets the bound:

1. Find the best plan without overlap (CP-SAT without time): a shortest path with cut costs, which is quick.
2. Bound the finish by the linear rows of the whole program (HiGHS). On a chain-like network plan and bound meet.
3. Solve the whole program from that plan and that bound (CP-SAT).
4. If the finish is proved optimal, reach it with fewer engines, then with fewer calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from common.fpga.offload.effort import Spending
from common.fpga.offload.problem import Problem
from common.fpga.offload.program.choices import Choices, nanoseconds
from common.fpga.offload.program.division import BranchDivision, division
from common.fpga.offload.program.passage import NEVER, Passage
from common.fpga.offload.program.solver import (
    TOLERANCE,
    Answer,
    best_assignment,
    best_choices,
    best_schedule,
    lower_bound,
)
from common.fpga.offload.program.timing import Timing
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler, fitting

QUICK = 0.2  # deterministic seconds for a plan without overlap
DIVISIONS = 0.1, 0.5  # likewise for a bound of equal branches: a plan of the first makes the second quicker
FEW_NODES, MANY_NODES = 30, 200  # of a search for whole choices without an order
HORIZONS = (1.05, 1.2, 1.5, 2.0, 3.0)  # of such searches for another plan


class WholeSearch:
    """A search for the best plan of a problem."""

    def __init__(self, problem: Problem, options: Sequence[int], budget: Spending) -> None:
        self.problem, self.options, self.budget = problem, options, budget
        self.scheduler = Scheduler(problem)
        self.plan: Assignment | None = None  # the best so far
        passage = Passage(problem, self.scheduler.wiring, options)
        self.finish_ns = NEVER  # of this plan
        self.bound_ns = max(passage.done, default=0)  # a lower bound of every plan's finish
        self.is_begun = self.is_bounded = False  # whether it has looked for a first plan, and for a bound
        self.is_divided = False  # whether it has equal branches
        self.is_assigned = False  # whether the best choices without an order are known
        self.is_final = False  # whether a longer search would change neither plan nor bound
        self.spent = 0.0  # the largest limit of a search with all overlap so far

    def offer(self, plan: Assignment | None) -> None:
        """Take a plan if it is the best so far."""
        finish_us = math.inf if plan is None else self.scheduler.finish_us(plan)
        if math.isfinite(finish_us) and nanoseconds(finish_us) < self.finish_ns:
            self.plan, self.finish_ns = plan, nanoseconds(finish_us)
        self._judge()

    def raise_bound(self, bound_ns: int) -> None:
        """Take a bound if it is the best so far."""
        self.bound_ns = max(self.bound_ns, bound_ns)
        self._judge()

    def begin(self, kin: WholeSearch | None = None) -> None:
        """Find a first plan and a bound: without a solver if there is only one step to decide, or from its kin."""
        self.is_begun = True
        if self._is_one_step():
            self._try_all()
        elif kin is not None:
            self.learn(kin)
        else:
            self.bounded()

    def learn(self, kin: WholeSearch) -> None:
        """Take plan and bound of a problem that differs in the host's times only.

        A plan finishes earlier here by no more than the host's items that it keeps are shorter here. A plan that keeps
        an item as long as the best finish is no better than that.
        """
        self.offer(kin.plan)
        pairs = zip(kin.problem.items, self.problem.items, strict=True)
        times = [(nanoseconds(there.host_us), nanoseconds(here.host_us)) for there, here in pairs]
        shorter_ns = sum(max(0, there - here) for there, here in times if here < self.finish_ns)
        self.raise_bound(min(self.finish_ns, kin.bound_ns - shorter_ns))

    def take(self, plan: Assignment | None, more: WholeSearch) -> None:
        """Take the bound of the same problem with more engines, and its plan if it is one of this problem.

        With that plan the search is as far as the other one: fewer engines narrow the gap by little.
        """
        self.offer(plan)
        if plan is not None:
            self.is_begun, self.spent = True, max(self.spent, more.spent)
        self.raise_bound(more.bound_ns)
        self.is_final |= more.is_final and more.plan is None

    def bounded(self) -> None:
        for step in (self.without_overlap, self.relaxed, self.divided):
            if not self.is_final and not self.budget.is_late:
                step()
        self.is_bounded = not self.budget.is_spent

    def refine(self, limit: float) -> None:
        """Take the next step to a narrower gap."""
        if not self.is_bounded:
            self.bounded()
            return
        if self.spent and not (self.is_assigned or self.budget.is_late):
            self.assigned(MANY_NODES)
        if not (self.is_final or self.budget.is_late):
            self.scheduled(limit)

    def without_overlap(self) -> None:
        """Find the best plan without overlap, of equal ones the smallest."""
        choices = Choices(self.problem, self.options)
        most = (len(choices.used) + 1) * (len(choices.on_host) + 1)
        choices.model.minimize(choices.serial_ns() * most + _size(choices))
        answer = best_choices(choices, self.budget, QUICK)
        self.offer(answer.plan)
        self._refuse(answer)

    def relaxed(self) -> None:
        timing = self._timing()
        self.raise_bound(lower_bound(timing.model, timing.finish, self.budget))

    def divided(self) -> None:
        """Bound the finish by how many of several equal branches take which way, and try a plan with these numbers.

        Where they are most of the problem, whole choices without an order would try their divisions one by one.
        """
        for limit in DIVISIONS:
            horizon_ns = self.finish_ns if self.plan is not None else _longest_ns(self.problem)
            found = division(self.problem, self.scheduler.wiring, self.options, horizon_ns, self.budget, limit)
            if found is None:
                return
            self.is_divided = True
            moving = {item for index in self.options for item in self.problem.options[index].covers}
            self.is_assigned |= 2 * len(found.items) > len(moving) and found.bound_ns >= self.bound_ns
            self._offer_division(found)
            self.raise_bound(found.bound_ns)
            if found.is_proved or self.budget.is_late:
                return

    def _offer_division(self, found: BranchDivision) -> None:
        """Offer its calls with those of the best plan that compute other items."""
        known = self.plan.calls if self.plan else ()
        others = [call for call in known if found.items.isdisjoint(self.problem.options[call.option].covers)]
        plan = fitting(self.problem, (*others, *found.calls))
        if found.calls and plan is not None:
            self.offer(self.scheduler.ordered(plan)[1])

    def improved(self) -> None:
        """Search for integer choices without an order, with several latest ends: each leads to another plan."""
        for factor in HORIZONS:
            if not (self.is_final or self.is_assigned or self.budget.is_spent):
                self.assigned(FEW_NODES, factor)

    def assigned(self, nodes: int, horizon: float = 1.0) -> None:
        """Search for integer choices without an order: a bound on the finish with all overlap, and calls for a plan.

        ``horizon`` is the latest end of all times, as a multiple of the finish of the best plan.
        """
        answer = best_assignment(self._timing(horizon), self.budget, nodes)
        self.is_assigned = answer.is_proved
        if answer.plan is not None:
            self.offer(answer.plan)
            self.offer(self.scheduler.ordered(answer.plan)[1])
        self._refuse(answer)
        self.raise_bound(answer.bound)

    def scheduled(self, limit: float) -> None:
        """Search with all overlap, and for a smaller plan where the finish is proved."""
        self.spent = limit
        timing = self._timing()
        timing.model.add(timing.finish >= self.bound_ns)
        timing.model.minimize(timing.finish)
        answer = best_schedule(timing, self.plan, self.scheduler, self.budget, limit)
        self.offer(answer.plan)
        self._refuse(answer)
        is_best = answer.is_proved and answer.plan is not None
        self.raise_bound(self.finish_ns if is_best else answer.bound)

    def smaller(self, limit: float) -> None:
        """Reach the same finish with fewer engines, then fewer calls, by a short search.

        A plan without overlap is already the smallest: the first step minimises its size too.
        """
        if self.plan is None or not self.is_final or self.scheduler.run(self.plan).is_serial:
            return
        timing = self._timing()
        timing.model.minimize(_size(timing.choices))
        smallest = best_schedule(timing, self.plan, self.scheduler, self.budget, limit).plan
        if smallest is not None and nanoseconds(self.scheduler.finish_us(smallest)) <= self.finish_ns:
            self.plan = smallest

    def _is_one_step(self) -> bool:
        """Return whether no two calls, and no two transfers, can wait for each other, so that nothing is ordered."""
        items, flows = self.problem.items, self.problem.flows
        is_single = len(items) == 1 or (len(items) == 2 and items[0].is_on_card)
        sides = ([bool(flow.consumers) for flow in flows], [flow.is_output for flow in flows])
        return not self.problem.options or (is_single and all(sum(side) <= 1 for side in sides))

    def _try_all(self) -> None:
        choices: list[list[KernelCall | None]] = [[] if item.is_on_card else [None] for item in self.problem.items]
        for option in self.options:
            choices[self.problem.options[option].covers[0]].append(KernelCall(option))
        for calls in product(*choices):
            self.offer(Assignment(tuple(call for call in calls if call is not None)))
        self.raise_bound(self.finish_ns)

    def _timing(self, horizon: float = 1.0) -> Timing:
        """Return the program of all plans that finish within ``horizon`` times the finish of the best so far."""
        horizon_ns = round(horizon * self.finish_ns) if self.plan is not None else _longest_ns(self.problem)
        return Timing(Choices(self.problem, self.options), horizon_ns)

    def _refuse(self, answer: Answer) -> None:
        if answer.plan is None and answer.is_proved and self.plan is None:
            self.bound_ns, self.is_final = NEVER, True

    def _judge(self) -> None:
        if self.plan is not None and self.finish_ns * (1 - 2 * TOLERANCE) <= self.bound_ns + 1:
            self.is_final = True


def _size(choices: Choices) -> Any:
    """Combine the number of engines, then of calls, into one objective."""
    calls = sum(mode.chosen for mode in choices.modes)
    return sum(choices.used.values()) * (len(choices.on_host) + 1) + calls


def _longest_ns(problem: Problem) -> int:
    """Return a time by which every plan could finish: all work one after the other."""
    links = [time for flow in problem.flows for time in flow.times_us]
    calls = [time for option in problem.options for time in (option.time_us, option.launch_us)]
    host_us = sum(item.host_us for item in problem.items)
    return nanoseconds(host_us + sum(time.likely for time in [*links, *calls])) + len(problem.options)
