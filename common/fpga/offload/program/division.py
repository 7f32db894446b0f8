"""A bound of the finish from how many of several equal branches take which way, and not which ones.

Eight equal experts can be divided over a dozen engines in millions of ways, which a solver of the whole program tries
one by one, but in few if only their numbers count. Each plan has such numbers, and each way, the calls and steps of the
host of one branch, has its own times before and after each of its calls. So each engine works no longer than the run,
less the least time before and after the calls in any set of its own (the heads and tails of Carlier 1982, EJOR 11; the
sets of Jackson's preemptive schedule). The least finish for which there are numbers is a bound, and a plan takes ways
in these numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from common.fpga.offload.effort import Spending
from common.fpga.offload.problem import Instance, Problem, Wiring
from common.fpga.offload.program.branches import Visit, Ways, equal_branches, most_ways
from common.fpga.offload.program.choices import fit_board, nanoseconds
from common.fpga.offload.program.passage import NEVER, Passage
from common.fpga.offload.program.solver import minimized
from common.fpga.offload.schedule import KernelCall

MOST_TRIED = 4000  # ways of a branch, with those that take longer than a known plan
MOST_WAYS = 400  # ways of a branch, without them


@dataclass(frozen=True, slots=True)
class BranchDivision:
    """A bound in ns of all plans within the horizon, and the calls of the branches in numbers that reach it."""

    bound_ns: int
    is_proved: bool
    calls: tuple[KernelCall, ...]
    items: frozenset[int]


def division(
    problem: Problem, wiring: Wiring, options: Sequence[int], horizon_ns: int, budget: Spending, limit: float
) -> BranchDivision | None:
    """Return the bound of the largest set of equal branches; None if there are too few, or too many ways."""
    branches = equal_branches(problem, wiring, options)
    if not branches or most_ways(problem, branches[0]) > MOST_TRIED:
        return None
    passage = Passage(problem, wiring, options)
    ways = Ways(problem, wiring, passage, branches, horizon_ns)
    if len(ways.ways) > MOST_WAYS:
        return None
    return _Numbers(problem, passage, ways, horizon_ns).solved(budget, limit)


class _Numbers:
    """The program: how many branches take each way, and on which engine each of their calls is."""

    def __init__(self, problem: Problem, passage: Passage, ways: Ways, horizon_ns: int) -> None:
        from ortools.sat.python import cp_model

        self.problem, self.passage, self.given, self.count = problem, passage, ways, len(ways.branches)
        self.horizon_ns = horizon_ns
        self.model = cp_model.CpModel()
        self.finish = self.model.new_int_var(0, horizon_ns, "")
        self.ways = [self.model.new_int_var(0, self.count, "") for _ in ways.ways]
        self.model.add(sum(self.ways) == self.count)
        self.used: dict[Instance, Any] = {}
        # By engine, None for the host: its visits, how many branches pay each, and the number of the way.
        self.served: dict[Instance | None, list[tuple[Visit, Any, int]]] = defaultdict(list)
        for number, (visits, path_ns) in enumerate(ways.ways):
            self.model.add(self.finish >= ways.begins[0] + path_ns).only_enforce_if(self._is_any([self.ways[number]]))
            for visit in visits:
                self._serve(number, visit)
        self._begin()
        for instance, served in self.served.items():
            self._occupy(instance, served)
        fit_board(self.model, problem, self.used)
        self.model.minimize(self.finish)

    def _is_any(self, numbers: Sequence[Any]) -> Any:
        """Return a literal that is true if one of the numbers is not 0."""
        literal = self.model.new_bool_var("")
        self.model.add(sum(numbers) <= self.count * len(numbers) * literal)
        for number in numbers:
            self.model.add(number <= self.count * literal)
        return literal

    def _serve(self, way: int, visit: Visit) -> None:
        if visit.call.engine is None:
            self.served[None].append((visit, self.ways[way], way))
            return
        engine, numbers = visit.call.engine, []
        for instance in ((engine, index) for index in range(self.problem.engines[engine].max_instances)):
            numbers.append(self.model.new_int_var(0, self.count, ""))
            self.served[instance].append((visit, numbers[-1], way))
        self.model.add(sum(numbers) == self.ways[way])

    def _begin(self) -> None:
        """Let engines begin with different branches; the host begins each of them in its turn."""
        self.first: dict[Instance, list[Any]] = {}
        for instance, served in self.served.items():
            if instance is None:
                continue
            self.used[instance] = self._is_any([number for _, number, _ in served])
            opens = self._is_any([number for visit, number, _ in served if visit.is_first])
            self.first[instance] = [self.model.new_bool_var("") for _ in self.given.begins]
            self.model.add(sum(self.first[instance]) == opens)
        for rank in range(self.count):
            self.model.add(sum(chosen[rank] for chosen in self.first.values()) <= 1)

    def _occupy(self, instance: Instance | None, served: Sequence[tuple[Visit, Any, int]]) -> None:
        """Require that each set of calls with the most before or after them fits between those times."""
        before = sorted({visit.before for visit, *_ in served})
        after = sorted({visit.after for visit, *_ in served})
        sets = [[each for each in served if each[0].before >= least] for least in before]
        sets += [[each for each in served if each[0].after >= least] for least in after[1:]]
        for chosen in sets:
            least_ns = min(visit.before for visit, *_ in chosen)
            rest_ns = self.given.begins[0] + least_ns + min(visit.after for visit, *_ in chosen)
            work = sum(visit.duration * number for visit, number, _ in chosen)
            if instance is not None:
                work += self._later(instance, chosen, least_ns)
            self.model.add(self.finish >= rest_ns + work).only_enforce_if(self._is_any([n for _, n, _ in chosen]))
        if instance is None:
            inside = {item for branch in self.given.branches for item in branch.items}
            others = [item for item in range(len(self.problem.items)) if item not in inside]
            stays = (self.problem.items[item] for item in others if item not in self.passage.moving)
            stays_ns = sum(nanoseconds(item.host_us) for item in stays)
            self.model.add(self.finish >= stays_ns + sum(visit.duration * number for visit, number, _ in served))
        elif instance[1]:  # equal engines
            fewer = self.served[instance[0], instance[1] - 1]
            loads = [sum(visit.duration * number for visit, number, _ in each) for each in (fewer, served)]
            self.model.add(loads[0] >= loads[1])

    def _later(self, instance: Instance, chosen: Sequence[tuple[Visit, Any, int]], least_ns: int) -> Any:
        """Return how much later than the first branch the engine begins, as far as its other calls allow."""
        others = (visit.before for visit, *_ in chosen if not visit.is_first)
        most_ns = min(others, default=NEVER) - least_ns
        begins = self.given.begins
        later = zip(begins, self.first[instance], strict=True)
        return sum(min(begin - begins[0], most_ns) * literal for begin, literal in later)

    def solved(self, budget: Spending, limit: float) -> BranchDivision:
        answer = minimized(self.model, budget, limit, linear_rows=1)  # fewer than in other searches
        items = frozenset(item for branch in self.given.branches for item in branch.items)
        if answer.solver is None:
            bound_ns = self.horizon_ns if answer.is_proved else answer.bound  # no plan finishes by the horizon
            return BranchDivision(bound_ns, answer.is_proved, (), items)
        return BranchDivision(answer.bound, answer.is_proved, tuple(self._calls(answer.solver)), items)

    def _calls(self, solver: Any) -> Iterator[KernelCall]:
        """Yield calls in these numbers, for the branches that begin first the ways with the longest paths."""
        left: dict[tuple[int, Visit], list[int]] = defaultdict(list)
        for instance, served in self.served.items():
            for visit, number, way in served:
                left[way, visit] += [instance[1] if instance else 0] * solver.value(number)
        ways = [way for way, number in enumerate(self.ways) for _ in range(solver.value(number))]
        ways.sort(key=lambda way: -self.given.ways[way][1])
        for branch, way in zip((self.given.branches[index] for index in self.given.order), ways, strict=True):
            for visit in self.given.ways[way][0]:
                if visit.call.option is not None:
                    yield KernelCall(branch.options[visit.call.option], left[way, visit].pop())
