"""Find the plan with the earliest finish and prove a bound, by OR-Tools CP-SAT and HiGHS, within a budget.

The search has a plan and a bound from its first moment on, and ends once they meet:

1. The greedy plan, and the longest path as a bound.
2. The network segment by segment between its gates (:mod:`common.fpga.offload.search.sequence`).
3. If that leaves a gap, the whole network as one program (:mod:`common.fpga.offload.program.whole`).
4. If the gap is wide, more effort for the segments, first of all if no item is in none; whole choices without an order;
   and smaller segments with more items in none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from common.fpga.offload.baselines import MANY_ITEMS, extended, greedy, possible_options
from common.fpga.offload.effort import Effort, Endless, Spending, Watch
from common.fpga.offload.jobs import JobKey
from common.fpga.offload.problem import Item, Problem, Wiring
from common.fpga.offload.program.choices import nanoseconds
from common.fpga.offload.program.solver import TOLERANCE
from common.fpga.offload.program.whole import WholeSearch
from common.fpga.offload.schedule import Assignment, KernelCall, Scheduler, fitting
from common.fpga.offload.search.segments import LOOSE_SHARE, LOOSER_SHARE, NetworkSegment, segments
from common.fpga.offload.search.sequence import SequenceSearch
from common.intervals import ThreePoint
from common.messages.errors import PipelineError

CLOSE = 0.001  # gap that is close enough on a network of MANY_ITEMS: the whole program takes long to close it
FEW_OPTIONS = 1000  # of a network that is bounded as a whole at first, which is quick
MOST_OPTIONS = 3000  # of a network that is also solved as one program: a larger one takes too much memory
WIDE = 0.005  # gap that is worth more effort
WIDE_EFFORT = 20  # times the effort, for a wide gap
SMALLER_SHARE = 0.25  # of the effort, to find a smaller plan of the same finish
Status = Literal["optimal", "feasible"]


@dataclass(frozen=True, slots=True)
class Solution:
    """The best plan found. No plan finishes before ``bound_us``; ``optimal`` means within two millionths of it.

    ``is_cut_short`` says that the watch ended the search.
    """

    assignment: Assignment
    status: Status
    finish_us: float
    bound_us: float
    is_cut_short: bool = False

    @property
    def gap(self) -> float:
        """Return how much earlier another plan could finish at most, as a share of this plan's finish."""
        return max(0.0, 1 - self.bound_us / self.finish_us) if self.finish_us else 0.0


def require_solvers() -> None:
    """Check that both solvers are installed; PipelineError: one of them is not."""
    try:
        import ortools  # type: ignore[import-untyped, unused-ignore]  # noqa: F401 - only its absence is reported
        import scipy  # noqa: F401
    except ImportError as error:
        raise PipelineError(error.name or "a solver", "is not installed", "pip install -r requirements.txt") from error


def optimize(problem: Problem, effort: Effort | None = None, watch: Watch | None = None) -> Solution:
    """Find the plan that finishes earliest in the likely case; among equals, with fewest engines, then fewest calls.

    A PipelineError says that a solver is not installed.
    """
    require_solvers()
    watch = watch or Endless()
    watch.begin()
    budget = Spending.of(effort or Effort(), len(problem.items), watch)
    search = _PlanSearch(with_joined_stretches(_in_nanoseconds(problem)), budget)
    search.run()
    finish_us = Scheduler(problem).finish_us(search.plan)
    rounding_ns = len(problem.items) + 2 * len(problem.flows) + 1
    is_optimal = nanoseconds(finish_us) * (1 - 2 * TOLERANCE) <= search.whole.bound_ns + rounding_ns
    bound_us = finish_us if is_optimal else min(search.whole.bound_ns / 1000, finish_us)
    status: Status = "optimal" if is_optimal else "feasible"
    watch.end(finish_us, bound_us)
    return Solution(search.plan, status, finish_us, bound_us, search.budget.is_late and not is_optimal)


def _in_nanoseconds(problem: Problem) -> Problem:
    """Round the likely case to whole nanoseconds, in which both solver and scheduler then count."""

    def whole(estimate: ThreePoint, least_ns: int = 0) -> ThreePoint:
        return ThreePoint.exactly(max(least_ns, nanoseconds(estimate.likely)) / 1000)

    items = (replace(item, host_us=nanoseconds(item.host_us) / 1000) for item in problem.items)
    flows = (flow.timed(whole) for flow in problem.flows)
    options = (
        replace(option, time_us=whole(option.time_us, 1), launch_us=whole(option.launch_us))
        for option in problem.options
    )
    return replace(problem, items=tuple(items), flows=tuple(flows), options=tuple(options))


@dataclass
class _Cut:
    """The network cut into segments, with the search over them once it has begun."""

    parts: Sequence[NetworkSegment]
    loose: Sequence[int]  # options over items that are in no segment
    loose_us: float  # time of these items on the host
    search: SequenceSearch | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the segments are all of the network, so that their bound may meet the plan."""
        return len(self.parts) > 1 and not self.loose


class _PlanSearch:
    def __init__(self, problem: Problem, budget: Spending) -> None:
        self.problem, self.budget, self.effort = problem, budget, budget.left
        self.options = possible_options(problem, Scheduler(problem))
        self.whole = WholeSearch(problem, self.options, budget)
        self.cuts: dict[float, _Cut] = {}  # by share of loose items
        self.cut = _Cut((), (), 0.0)  # the one that is searched
        self.whole.offer(Assignment())
        self._tell()

    @property
    def plan(self) -> Assignment:
        assert self.whole.plan is not None
        return self.whole.plan

    def run(self) -> None:
        """Search until plan and bound meet or the budget is spent."""
        self._take_steps(self._steps())
        if self.gap > WIDE:
            self.budget.left += (WIDE_EFFORT - 1) * self.effort
            self._take_steps(self._steps_of_a_wide_gap())
        if len(self.options) <= MOST_OPTIONS and not self.budget.is_late:
            self.budget.left = max(self.budget.left, SMALLER_SHARE * self.effort)
            self.whole.smaller(SMALLER_SHARE * self.effort)

    @property
    def gap(self) -> float:
        return 1 - self.whole.bound_ns / max(1, self.whole.finish_ns)

    def _take_steps(self, steps: Iterator[Callable[[], None]]) -> None:
        for step in steps:
            if self.whole.is_final or self.budget.is_late:
                break
            step()
            self._tell()

    def _steps(self) -> Iterator[Callable[[], None]]:
        whole, count = self.whole, len(self.options)
        at_once = [whole.without_overlap, whole.relaxed]
        yield lambda: whole.offer(greedy(self.problem, self.budget))
        yield from at_once if count <= FEW_OPTIONS else []
        yield self._by_segments
        lack_effort = self.cut.is_complete and self.gap > WIDE and self.budget.is_spent  # the segments get more of it
        if count <= MOST_OPTIONS and not (self._is_close() or lack_effort):
            yield from at_once if count > FEW_OPTIONS else []
            yield lambda: whole.scheduled(self.effort)

    def _steps_of_a_wide_gap(self) -> Iterator[Callable[[], None]]:
        if self.cut.is_complete:
            yield lambda: self._by_segments_with_half(LOOSE_SHARE)
            if self._is_close():
                return
            if self.cut.search is not None and self.cut.search.has_divisions:  # which say more than the whole
                yield self._by_segments
        if len(self.options) <= MOST_OPTIONS:
            yield self.whole.improved
        yield lambda: self._by_segments_with_half(LOOSER_SHARE)
        yield self._by_segments
        yield lambda: self.whole.scheduled(self.budget.left)

    def _by_segments(self, loose_share: float = LOOSE_SHARE) -> None:
        """Search segment by segment, from where an earlier search of them ended."""
        self.cut = self._cut(loose_share)
        if self.cut.parts == self._cut(LOOSE_SHARE).parts:
            self.cut = self._cut(LOOSE_SHARE)
        if len(self.cut.parts) == 1:
            return
        if self.cut.search is None:
            wiring, parts = self.whole.scheduler.wiring, self.cut.parts
            self.cut.search = SequenceSearch(self.problem, self.options, parts, wiring, self.budget, self._take_calls)
        self.cut.search.run()

    def _is_close(self) -> bool:
        return self.gap <= CLOSE and len(self.problem.items) > MANY_ITEMS

    def _by_segments_with_half(self, loose_share: float) -> None:
        """Search segment by segment with half of the effort that is left; a larger share makes smaller segments."""
        kept = self.budget.left / 2
        self.budget.left -= kept
        self._by_segments(loose_share)
        self.budget.left += kept

    def _cut(self, loose_share: float) -> _Cut:
        if loose_share not in self.cuts:
            parts = segments(self.problem, self.whole.scheduler.wiring, self.options, loose_share)
            inside = {item for part in parts for item in part.items}
            loose = [index for index in self.options if not inside.issuperset(self.problem.options[index].covers)]
            items = {item for index in loose for item in self.problem.options[index].covers}
            self.cuts[loose_share] = _Cut(parts, loose, sum(self.problem.items[item].host_us for item in items))
        return self.cuts[loose_share]

    def _take_calls(self, calls: Sequence[KernelCall], begins: Mapping[JobKey, float], bound_ns: int) -> int:
        """Take the calls as a plan if the board holds their engines and weights; return the best finish.

        They are tried first come, first served, in the order in which they begin, and with calls over loose items where
        those can help: they take no more from the host than their time.
        """
        covered = [item for call in calls for item in self.problem.options[call.option].covers]
        fits = fitting(self.problem, calls)
        if fits is not None and len(covered) == len(set(covered)):
            finish_us, plan = self.whole.scheduler.ordered(fits)
            self.whole.offer(plan)
            if begins and math.isfinite(finish_us):
                spans = self.whole.scheduler.spans(plan)
                served = {**{key: begin_us for key, (begin_us, _) in spans.items() if key[0] != "host"}, **begins}
                self.whole.offer(replace(plan, order=tuple(sorted(served, key=served.__getitem__))))
            self.whole.raise_bound(bound_ns)
            if not self.whole.is_final and nanoseconds(finish_us - self.cut.loose_us) < self.whole.finish_ns:
                self.whole.offer(extended(plan, self.cut.loose, self.whole.scheduler, self.budget))
        self.whole.raise_bound(bound_ns)
        self._tell()
        return self.whole.finish_ns

    def _tell(self) -> None:
        self.budget.watch.hear(self.whole.finish_ns / 1000, self.whole.bound_ns / 1000)


def with_joined_stretches(problem: Problem) -> Problem:
    """Return the problem with each stretch of the host's work that nothing on the card can enter as one item.

    Options and tensors keep their numbers, and plans stay plans. An item that no call computes begins when the one
    before it ends, unless it reads what a call may write. If besides no call reads what that one writes, the schedules
    of the two and of one item are equal. A detector has thousands of such items.
    """
    stretches = list(_stretches(problem))
    at = {item: number for number, stretch in enumerate(stretches) for item in stretch}
    flows = []
    for flow in problem.flows:
        producer = None if flow.producer is None else at[flow.producer]
        readers = dict.fromkeys(at[item] for item in flow.consumers)
        consumers = tuple(item for item in readers if item != producer)
        flows.append(replace(flow, producer=producer, consumers=consumers))
    return replace(
        problem,
        items=tuple(_joined([problem.items[item] for item in stretch]) for stretch in stretches),
        flows=tuple(flows),
        options=tuple(replace(option, covers=tuple(at[item] for item in option.covers)) for option in problem.options),
    )


def _stretches(problem: Problem) -> Iterator[list[int]]:
    wiring, flows = Wiring(problem), problem.flows
    may_move = {item for option in problem.options for item in option.covers}
    stretch: list[int] = []
    for item in range(len(problem.items)):
        waits = any(flows[flow].producer in may_move for flow in wiring.read_by[item])
        if stretch:
            last = stretch[-1]
            readers = {last, *(reader for flow in wiring.written_by[last] for reader in flows[flow].consumers)}
            if waits or item in may_move or not may_move.isdisjoint(readers):
                yield stretch
                stretch = []
        stretch.append(item)
    if stretch:
        yield stretch


def _joined(items: list[Item]) -> Item:
    return items[0] if len(items) == 1 else Item("", sum(nanoseconds(item.host_us) for item in items) / 1000)
