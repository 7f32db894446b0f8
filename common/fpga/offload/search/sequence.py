"""Plan a network segment by segment between its gates, for every set of engines that may be best.

For given engines the segments depend on each other only through the side on which each gate is computed, host or card:
a shortest path over the two sides of every gate adds their least times up to a bound of every plan, and their plans to
a plan. Equal segments are solved once. The engines of a plan are among those of one of the largest sets that the board
holds. Such sets are bounded together, as if the board held all their engines, best bound first. Where the engines of
the best path do not fit together, the sets with the most useful one and those without it are bounded apart.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from common.fpga.offload.effort import Spending
from common.fpga.offload.jobs import JobKey
from common.fpga.offload.problem import Instance, Problem, Wiring, misfit, place
from common.fpga.offload.program.passage import NEVER
from common.fpga.offload.program.solver import TOLERANCE
from common.fpga.offload.program.whole import WholeSearch
from common.fpga.offload.schedule import Assignment, KernelCall
from common.fpga.offload.search.segments import NetworkSegment, Part, Parts

LIMITS = (0.02, 0.1, 0.5, 2.5, 12.5)  # deterministic seconds for one segment, round by round
Counts = tuple[int, ...]  # instances that may be used, by engine type
EngineSets = tuple[Counts, ...]
Sides = tuple[bool, bool]  # whether the gates before and after a segment are on the card


@dataclass(frozen=True, slots=True)
class GateStep:
    """A segment between gates on given sides, with the search for its best plan; equal segments share one."""

    part: Part
    search: WholeSearch

    @property
    def lower_ns(self) -> int:
        return self.search.bound_ns

    @property
    def upper_ns(self) -> int:
        return self.search.finish_ns

    def calls(self) -> list[KernelCall]:
        """Return the calls of its plan as calls of the whole problem, without the gate."""
        known, plan = self.part.options, self.search.plan
        inner = [call for call in (plan.calls if plan else ()) if call.option < len(known)]
        return [KernelCall(known[call.option], call.instance) for call in inner]

    def begins(self) -> Iterator[tuple[JobKey, float]]:
        """Yield when the calls and transfers of its plan begin, by their keys in the whole problem."""
        assert self.search.plan is not None
        for (kind, index), (begin_us, _) in self.search.scheduler.spans(self.search.plan).items():
            if kind == "call" and index < len(self.part.options):
                yield ("call", self.part.options[index]), begin_us
            elif kind in ("h2d", "d2h"):
                yield (kind, self.part.flows[index]), begin_us

    def inherit(self, more: GateStep) -> None:
        """Take the bound of the same segment with more engines, and its plan if the engines left are enough for it."""
        if more.search.is_begun and not self.search.is_final:
            self.search.take(self._translated(more), more.search)

    def _translated(self, more: GateStep) -> Assignment | None:
        """Return the plan of the same segment with more engines as a plan of this one, if it is one."""
        if (plan := more.search.plan) is None:
            return None
        at = {whole: index for index, whole in enumerate(self.part.options)}
        known = {index: at.get(whole) for index, whole in enumerate(more.part.options)}
        known[len(more.part.options)] = len(self.part.options)  # the gate
        problem, calls = self.part.problem, []
        for call in plan.calls:
            index = known[call.option]
            if index is None or call.instance >= problem.engines[problem.options[index].engine].max_instances:
                return None
            calls.append(KernelCall(index, call.instance))
        order = plan.order and tuple((kind, known[n] or 0) if kind == "call" else (kind, n) for kind, n in plan.order)
        return Assignment(tuple(calls), order=order)


Table = list[dict[Sides, GateStep]]  # for each segment, by the sides of its gates
StepTime = Callable[[GateStep], int]
LOWER: StepTime = attrgetter("lower_ns")
UPPER: StepTime = attrgetter("upper_ns")


class SequenceSearch:
    """A search over paths and sets of engines.

    ``best_ns`` is the finish of the best plan so far, ``bound_ns`` a lower bound of every plan's finish.
    """

    def __init__(
        self,
        problem: Problem,
        options: Sequence[int],
        segments: Sequence[NetworkSegment],
        wiring: Wiring,
        budget: Spending,
        offer: Callable[[Sequence[KernelCall], Mapping[JobKey, float], int], int],
    ) -> None:
        """Prepare the search.

        ``offer`` takes calls, when calls and transfers begin, and the bound so far. It returns the finish of the best
        plan.
        """
        self.problem, self.segments, self.budget, self.offer = problem, segments, budget, offer
        self.parts = Parts(problem, wiring, options)
        self.searches: dict[int, WholeSearch] = {}
        self.more: dict[Counts, Counts] = {}  # for each set of engines, the one with more that it came from
        self.kin: dict[Problem, list[WholeSearch]] = {}  # searches of segments that differ in the host's times only
        self.tables: dict[Counts, Table] = {}
        self.largest = largest_sets(problem)
        self.best_ns, self.bound_ns, self.limit = offer((), {}, 0), 0, 0.0
        self.has_unfinished = False  # whether more effort for a segment may change the result

    @property
    def has_divisions(self) -> bool:
        """Whether a segment has equal branches."""
        return any(search.is_divided for search in self.searches.values())

    def run(self) -> None:
        """Search until plan and bound meet, every segment on the way is solved, or the budget is spent."""
        for self.limit in LIMITS:
            self.has_unfinished = False
            self._round()
            if self._is_closed(self.bound_ns) or not self.has_unfinished or self.budget.is_spent:
                return

    def _round(self) -> None:
        """Search the sets of engines with ``limit`` for each segment, best bound first.

        At first the sets with the most useful engine are followed until one set is left: so there is a plan early.
        """
        waiting: list[tuple[int, EngineSets]] = []
        dive: tuple[int, EngineSets] | None = (self.bound_ns, self.largest)
        closed_ns = NEVER
        while (dive or waiting) and not self.budget.is_late:
            is_dive, (lower_ns, sets), dive = dive is not None, dive or heapq.heappop(waiting), None
            bound_ns, parts = self._bounded(sets)
            lower_ns = max(lower_ns, bound_ns)
            least_ns = min([lower_ns, *(other_ns for other_ns, _ in waiting[:1])])
            if least_ns < lower_ns and not is_dive:
                heapq.heappush(waiting, (lower_ns, sets))
                continue
            self._raise(min(closed_ns, least_ns))
            if self._is_closed(least_ns):
                return
            if not parts:
                closed_ns, counts = min(closed_ns, lower_ns), _together(sets)
                for time in (LOWER, UPPER):
                    self.best_ns = self.offer(self._calls(counts, time), self._begins(counts, time), self.bound_ns)
                continue
            if is_dive:
                dive, parts = (lower_ns, parts[0]), parts[1:]
            for part in parts:
                heapq.heappush(waiting, (lower_ns, part))
        if not waiting:
            self._raise(closed_ns)

    def _bounded(self, sets: EngineSets) -> tuple[int, tuple[EngineSets, ...]]:
        """Return a bound of several sets of engines together, and the two parts of them that are bounded apart.

        There are no parts where the board holds the engines of the best path, or where one set is left.
        """
        counts, bound_ns = _together(sets), 0
        parts: tuple[EngineSets, ...] = ()
        for limit in (LIMITS[0], self.limit):
            bound_ns = self._refined(counts, limit)
            if parts := self._parts_of(sets, counts):
                self.more.update((_together(part), counts) for part in parts)
                break
        return bound_ns, parts

    def _parts_of(self, sets: EngineSets, counts: Counts) -> tuple[EngineSets, ...]:
        """Return the sets with the engine of the best path that takes over most of the host's time, and the others."""
        used = self._used(counts)
        if place(self.problem, sorted(used)) is not None:
            return ()
        for engine, number in sorted(used, key=used.__getitem__, reverse=True):
            rich = tuple(each for each in sets if each[engine] > number)
            if 0 < len(rich) < len(sets):
                return rich, tuple(each for each in sets if each[engine] <= number)
        return ()

    def _used(self, counts: Counts) -> dict[Instance, float]:
        """Return the engines of the best path, each with the time of the host that its calls take over."""
        used: dict[Instance, float] = {}
        for call in self._calls(counts, LOWER):
            option = self.problem.options[call.option]
            saved_us = sum(self.problem.items[item].host_us for item in option.covers)
            used[option.engine, call.instance] = used.get((option.engine, call.instance), 0.0) + saved_us
        return used

    def _raise(self, bound_ns: int) -> None:
        self.bound_ns = max(self.bound_ns, min(bound_ns, self.best_ns))
        self.best_ns = self.offer((), {}, self.bound_ns)

    def _is_closed(self, lower_ns: int) -> bool:
        return self.best_ns * (1 - TOLERANCE) <= lower_ns

    def _calls(self, counts: Counts, time: StepTime) -> list[KernelCall]:
        return [call for step in shortest(self.tables[counts], time)[1] for call in step.calls()]

    def _begins(self, counts: Counts, time: StepTime) -> dict[JobKey, float]:
        begins: dict[JobKey, float] = {}
        since_us = 0.0
        path = shortest(self.tables[counts], time)[1]
        for step in path if all(step.search.plan for step in path) else []:
            begins |= {key: since_us + begin_us for key, begin_us in step.begins()}
            since_us += step.upper_ns / 1000
        return begins

    def _refined(self, counts: Counts, limit: float) -> int:
        """Return the bound of an engine set, its shortest path solved segment by segment, the widest gap first."""
        table = self._table(counts)
        self._inherit(table, counts)
        while True:
            lower_ns, path = shortest(table, LOWER)
            new = [step.search for step in path if not step.search.is_begun and not step.search.is_final]
            wide = [step for step in path if not step.search.is_final and step.search.spent < limit]
            if self.budget.is_late or self._is_closed(lower_ns) or not (new or (wide and self.budget.left > 0)):
                self.has_unfinished |= any(not step.search.is_final for step in path)
                return lower_ns
            if new:
                for search in dict.fromkeys(new):
                    search.begin(self._nearest_kin(search))
            else:
                max(wide, key=lambda step: step.upper_ns - step.lower_ns).search.refine(limit)

    def _inherit(self, table: Table, counts: Counts) -> None:
        if counts in self.more:
            for steps, known in zip(table, self.tables[self.more[counts]], strict=True):
                for sides in steps:
                    steps[sides].inherit(known[sides])

    def _table(self, counts: Counts) -> Table:
        if counts not in self.tables:
            self.tables[counts] = [dict(self._steps(segment, counts)) for segment in self.segments]
        return self.tables[counts]

    def _steps(self, segment: NetworkSegment, counts: Counts) -> Iterator[tuple[Sides, GateStep]]:
        """Yield the steps over a segment; a gate that no call covers is on the host."""
        for entry_on_card in self._sides(segment.entry):
            for exit_on_card in self._sides(segment.exit):
                part = self.parts.part(segment, counts, entry_on_card, exit_on_card)
                if part is not None:
                    yield (entry_on_card, exit_on_card), GateStep(part, self._search(part))

    def _sides(self, gate: int | None) -> tuple[bool, ...]:
        return (False, True) if gate in self.parts.options_of else (False,)

    def _search(self, part: Part) -> WholeSearch:
        """Return the search of a segment; equal segments share one."""
        if part.number not in self.searches:
            search = WholeSearch(part.problem, range(len(part.problem.options)), self.budget)
            self.searches[part.number] = search
            self.kin.setdefault(_without_times(part.problem), []).append(search)
        return self.searches[part.number]

    def _nearest_kin(self, search: WholeSearch) -> WholeSearch | None:
        """Return the search with a plan whose host's times are nearest, among those that differ in nothing else."""

        def distance_us(other: WholeSearch) -> float:
            pairs = zip(other.problem.items, search.problem.items, strict=True)
            return sum(abs(there.host_us - here.host_us) for there, here in pairs)

        kin = (other for other in self.kin[_without_times(search.problem)] if other.plan is not None)
        return min(kin, key=distance_us, default=None)


def _without_times(problem: Problem) -> Problem:
    return replace(problem, items=tuple(replace(item, host_us=0.0) for item in problem.items))


def largest_sets(problem: Problem) -> EngineSets:
    """Return the sets of engines that the board holds, without those that another one contains."""
    counts: list[Counts] = [()]
    for engine, engine_type in enumerate(problem.engines):
        most = 0 if misfit(problem, engine) else engine_type.max_instances
        longer = ((*begin, number) for begin in counts for number in range(most + 1))
        counts = [each for each in longer if not each[-1] or place(problem, _instances(each)) is not None]
    fitting = set(counts)
    return tuple(each for each in counts if fitting.isdisjoint(_with_one_more(each)))


def _instances(counts: Counts) -> list[Instance]:
    return [(engine, number) for engine, count in enumerate(counts) for number in range(count)]


def _with_one_more(counts: Counts) -> Iterator[Counts]:
    for engine, count in enumerate(counts):
        yield (*counts[:engine], count + 1, *counts[engine + 1 :])


def _together(sets: Sequence[Counts]) -> Counts:
    """Return the engines that any of several sets has."""
    return tuple(map(max, zip(*sets, strict=True)))


Trail = tuple[GateStep, "Trail"] | None  # the last step, and the trail before it


def shortest(table: Table, time: StepTime) -> tuple[int, list[GateStep]]:
    reached: dict[bool, tuple[int, Trail]] = {False: (0, None)}  # by side of the gate: time, and the steps up to it
    for steps in table:
        after: dict[bool, tuple[int, Trail]] = {}
        for (entry, leave), step in steps.items():
            if entry in reached:
                sum_ns, trail = reached[entry][0] + time(step), reached[entry][1]
                if leave not in after or sum_ns < after[leave][0]:
                    after[leave] = sum_ns, (step, trail)
        reached = after
    sum_ns, trail = min(reached.values(), key=lambda end: end[0])
    path = []
    while trail is not None:
        step, trail = trail
        path.append(step)
    return sum_ns, path[::-1]
