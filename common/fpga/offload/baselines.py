"""The baselines of the search: the greedy plan, with which it also begins, and the plan of a rule of thumb.

Greedy adds the call that shortens the run most, until none does. The rule moves groups that are large, regular, and
intense or fusable.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from common.fpga.offload.effort import Spending
from common.fpga.offload.problem import Instance, Problem, misfit, place
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler, fitting
from common.graphs.grouping import grouped

TRIED = 8  # options of a round whose whole schedule is computed
LEAST_US = 1e-9  # that a call must save
MANY_ITEMS = 200  # from here on no schedules: one takes longer and there are more rounds


def possible_options(problem: Problem, scheduler: Scheduler) -> list[int]:
    """Return the options that fit an empty board with engine and weights and do not wait for their own results."""
    fits = [not misfit(problem, engine) for engine in range(len(problem.engines))]
    return [
        index
        for index, option in enumerate(problem.options)
        if fits[option.engine]
        and option.weight_bytes <= problem.memory_capacity_bytes
        and not scheduler.wiring.waits_for_itself(option.covers)
    ]


def greedy(problem: Problem, budget: Spending | None = None) -> Assignment:
    """Add calls one at a time, each the one that finishes the run earliest, on engines that still fit.

    Each round ranks all options by their saving without overlap, which needs no schedule, and computes the schedule
    for the first few only; on a long network the first one is taken without.
    """
    search = _GreedySearch(problem)
    find = search.best_addition if len(problem.items) <= MANY_ITEMS else search.best_saving
    while (better := find()) is not None and not (budget and budget.is_late):
        search.take(*better)
    instances = sorted({(problem.options[call.option].engine, call.instance) for call in search.calls})
    return Assignment(tuple(search.calls), place(problem, instances) or ())


def extended(plan: Assignment, options: Sequence[int], scheduler: Scheduler, budget: Spending) -> Assignment:
    """Add calls of these options over items that a plan leaves to the host, while one shortens the run.

    Each trial is in the better order of :meth:`Scheduler.ordered`.
    """
    (best_us, best), is_better = scheduler.ordered(plan), True
    while is_better:
        is_better = False
        for index in options:
            for trial in _with_call(best, index, scheduler.problem):
                finish_us, longer = (math.inf, trial) if budget.is_late else scheduler.ordered(trial)
                if finish_us < best_us - LEAST_US:
                    best, best_us, is_better = longer, finish_us, True
                    break
    return best


def _with_call(plan: Assignment, index: int, problem: Problem) -> Iterator[Assignment]:
    """Yield the plan with one more call, on each engine that fits; none if another call computes its items."""
    options, option = problem.options, problem.options[index]
    covered = {item for call in plan.calls for item in options[call.option].covers}
    standing = {(options[call.option].engine, call.instance) for call in plan.calls}
    if covered.isdisjoint(option.covers):
        for number in range(problem.engines[option.engine].max_instances):
            if (longer := fitting(problem, (*plan.calls, KernelCall(index, number)))) is not None:
                yield longer
            if (option.engine, number) not in standing:
                return  # further instances are equal


class _GreedySearch:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.scheduler = Scheduler(problem)
        possible = possible_options(problem, self.scheduler)
        self.calls: list[KernelCall] = []
        self.on_card: set[int] = set()
        self.free_bytes = problem.memory_capacity_bytes
        self.finish_us = self.scheduler.finish_us(Assignment())
        self.fitting: dict[Instance, bool] = {}
        self.options_of = grouped((item, index) for index in possible for item in problem.options[index].covers)
        self.saving_us = {index: self._saving_us(index) for index in possible}
        self.ranked = [(-us, index) for index, us in self.saving_us.items()]
        heapq.heapify(self.ranked)

    def best_addition(self) -> tuple[KernelCall, float] | None:
        """Return the call with the earliest finish and that finish, or None if no call shortens the run."""
        options, free_bytes = self.problem.options, self.free_bytes
        savings = ((-us, index) for index, us in self.saving_us.items() if options[index].weight_bytes <= free_bytes)
        ranked = heapq.nsmallest(TRIED, savings)
        best: tuple[KernelCall, float] | None = None
        for _, index in ranked:
            for call in self._instances(index):
                finish_us = self.scheduler.finish_us(Assignment((*self.calls, call)))
                if finish_us < (best[1] if best else self.finish_us) - LEAST_US:
                    best = call, finish_us
        return best

    def best_saving(self) -> tuple[KernelCall, float] | None:
        """Return the call that saves most if nothing overlaps, on the first engine that fits, or None."""
        while self.ranked and self.ranked[0][0] < 0:
            saving_us, index = heapq.heappop(self.ranked)
            is_current = self.saving_us.get(index) == -saving_us
            if is_current and self.problem.options[index].weight_bytes <= self.free_bytes:
                for call in self._instances(index):
                    return call, self.finish_us
        return None

    def take(self, call: KernelCall, finish_us: float) -> None:
        option = self.problem.options[call.option]
        if (option.engine, call.instance) not in self._standing():
            self.fitting.clear()
        self.calls.append(call)
        self.on_card |= set(option.covers)
        self.free_bytes -= option.weight_bytes
        self.finish_us = finish_us
        self._update_savings(option.covers)

    def _update_savings(self, taken: Sequence[int]) -> None:
        """Remove options over the items just taken, and update options that share a tensor with them."""
        for item in taken:
            for index in self.options_of[item]:
                self.saving_us.pop(index, None)
        wiring, flows = self.scheduler.wiring, self.problem.flows
        touched = {
            item
            for flow in (*wiring.entering(taken), *wiring.leaving(taken))
            for item in (flows[flow].producer, *flows[flow].consumers)
        }
        for index in {index for item in touched if item is not None for index in self.options_of.get(item, ())}:
            if index in self.saving_us:
                self.saving_us[index] = self._saving_us(index)
                heapq.heappush(self.ranked, (-self.saving_us[index], index))

    def _standing(self) -> set[Instance]:
        return {(self.problem.options[call.option].engine, call.instance) for call in self.calls}

    def _instances(self, index: int) -> Iterable[KernelCall]:
        """Yield the call on every engine of its type in the plan, and on one more engine if it fits."""
        engine, standing = self.problem.options[index].engine, self._standing()
        for number in range(self.problem.engines[engine].max_instances):
            instance = (engine, number)
            if instance in standing:
                yield KernelCall(index, number)
                continue
            if instance not in self.fitting:
                self.fitting[instance] = place(self.problem, sorted({*standing, instance})) is not None
            if self.fitting[instance]:
                yield KernelCall(index, number)
            return

    def _saving_us(self, index: int) -> float:
        """Return the time that a call saves if nothing overlaps."""
        option, wiring = self.problem.options[index], self.scheduler.wiring
        flows = dict.fromkeys([*wiring.entering(option.covers), *wiring.leaving(option.covers)])
        moved_us = sum(self._link_us(flow, option.covers) - self._link_us(flow, ()) for flow in flows)
        host_us = sum(self.problem.items[item].host_us for item in option.covers)
        return host_us - option.time_us.likely - option.launch_us.likely - moved_us

    def _link_us(self, index: int, added: Sequence[int]) -> float:
        """Return the link time of a tensor once the items ``added`` are on the card too."""
        flow, on_card = self.problem.flows[index], self.on_card
        if flow.producer in on_card or flow.producer in added:
            leaves = flow.is_output or any(item not in on_card and item not in added for item in flow.consumers)
            return flow.d2h_us.likely + flow.d2h_convert_us.likely if leaves else 0.0
        enters = any(item in on_card or item in added for item in flow.consumers)
        return flow.h2d_us.likely + flow.h2d_convert_us.likely if enters else 0.0


@dataclass(frozen=True, slots=True)
class GroupClass:
    """Groups that could share one kernel, such as all 3x3 convolutions. None is unknown."""

    label: str
    groups: tuple[tuple[int, ...], ...]  # the items of each group
    latency_share: float | None  # share of the host run of all groups together
    energy_share: float | None  # share of its energy
    is_regular: bool  # whether it is a dense contraction with known work
    intensity_flop_per_byte: float | None  # FLOPs over the bytes that cross the borders of the groups
    fused_share: float | None  # share of the unfused traffic that stays within the groups


@dataclass(frozen=True, slots=True)
class Thresholds:
    min_share: float
    min_intensity_flop_per_byte: float
    min_fused_share: float


def apply_rule(problem: Problem, classes: Iterable[GroupClass], thresholds: Thresholds) -> Assignment:
    """Give each class that the rule takes, in order, the fastest engine that still fits.

    The rule ignores transfers, the sum of launches and the schedule. Comparing it with the plan shows what they cost.
    """
    possible = possible_options(problem, Scheduler(problem))
    calls: list[KernelCall] = []
    standing, taken = set[Instance](), set[int]()
    free_bytes = problem.memory_capacity_bytes
    for members in classes:
        groups = [group for group in members.groups if taken.isdisjoint(group)]
        if groups and rule_criteria(members, thresholds).is_taken:
            offers = _rule_offers(problem, possible, groups, standing, free_bytes)
            if (quickest := min(offers, default=None)) is not None:
                _, engine, options = quickest
                calls += [KernelCall(option) for option in options]
                standing.add((engine, 0))
                taken.update(item for group in groups for item in group)
                free_bytes -= sum(problem.options[option].weight_bytes for option in options)
    return Assignment(tuple(calls), place(problem, sorted(standing)) or ())


def _rule_offers(
    problem: Problem,
    possible: Sequence[int],
    groups: Sequence[tuple[int, ...]],
    standing: Set[Instance],
    free_bytes: float,
) -> Iterator[tuple[float, int, list[int]]]:
    """Yield time, engine and options for each engine that computes all groups and fits."""
    for engine in range(len(problem.engines)):
        own = {
            problem.options[index].covers: index
            for index in reversed(possible)
            if problem.options[index].engine == engine
        }
        options = [own[group] for group in groups if group in own]
        chosen = [problem.options[index] for index in options]
        fits_memory = sum(option.weight_bytes for option in chosen) <= free_bytes
        is_complete = len(options) == len(groups)
        if is_complete and fits_memory and place(problem, sorted({*standing, (engine, 0)})) is not None:
            yield sum(option.time_us.likely + option.launch_us.likely for option in chosen), engine, options


@dataclass(frozen=True, slots=True)
class RuleCriteria:
    """What the rule asks of a class."""

    is_large: bool
    is_regular: bool
    is_intense: bool
    is_fusable: bool

    @property
    def is_taken(self) -> bool:
        return self.is_large and self.is_regular and (self.is_intense or self.is_fusable)


def rule_criteria(members: GroupClass, limits: Thresholds) -> RuleCriteria:
    shares = [share for share in (members.latency_share, members.energy_share) if share is not None]
    return RuleCriteria(
        is_large=max(shares, default=0.0) > limits.min_share,
        is_regular=members.is_regular,
        is_intense=(members.intensity_flop_per_byte or 0.0) >= limits.min_intensity_flop_per_byte,
        is_fusable=(members.fused_share or 0.0) >= limits.min_fused_share,
    )
