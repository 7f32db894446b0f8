"""Equal branches between a fork and a join, such as the experts of a mixture, and the ways to compute one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from common.fpga.offload.problem import Problem, Wiring
from common.fpga.offload.program.choices import arrival_ns, nanoseconds
from common.fpga.offload.program.passage import NEVER, Passage
from common.fpga.offload.program.timing import between_forks
from common.graphs.grouping import grouped

FEWEST_EQUAL = 3  # branches whose number is worth more than the branches one by one


@dataclass(frozen=True, slots=True)
class Branch:
    """Items between a fork and a join that no tensor and no call connects with other branches; options by their key."""

    items: tuple[int, ...]
    options: tuple[int, ...]


def equal_branches(problem: Problem, wiring: Wiring, options: Sequence[int]) -> list[Branch]:
    """Return the largest set of branches that differ in the host's times at most; empty if there are too few."""
    best: list[Branch] = []
    may_move = {item for index in options for item in problem.options[index].covers}
    for _, _, between in between_forks(problem, wiring):
        for item in sorted(between - may_move):  # what only the host does before a branch is no part of it
            if between.isdisjoint(problem.flows[flow].producer for flow in wiring.read_by[item]):
                between.remove(item)
        branches = _branches(problem, wiring, options, between)
        for equal in grouped((_kind(problem, wiring, may_move, branch), branch) for branch in branches).values():
            if len(equal) >= FEWEST_EQUAL and _count(equal) > _count(best):
                best = equal
    return best


def _count(branches: Sequence[Branch]) -> int:
    return sum(len(branch.items) for branch in branches)


def _branches(problem: Problem, wiring: Wiring, options: Sequence[int], between: set[int]) -> Iterator[Branch]:
    joined = [option.covers for option in (problem.options[index] for index in options)]
    joined += [(flow.producer, *flow.consumers) for flow in problem.flows if flow.producer in between]
    root = {item: item for item in between}

    def find(item: int) -> int:
        while root[item] != item:
            item = root[item]
        return item

    closed = set(between)
    for items in joined:
        inside = [item for item in items if item in between]
        for item in inside[1:]:
            root[find(item)] = find(inside[0])
    for covers in (problem.options[index].covers for index in options):
        if not between.issuperset(covers):
            closed.difference_update(covers)
    offered = grouped((problem.options[index].covers[0], index) for index in options)
    for group in grouped((find(item), item) for item in sorted(between)).values():
        if closed.issuperset(group) and not offered.keys().isdisjoint(group):
            own = [(_option_key(problem, group, index), index) for item in group for index in offered.get(item, ())]
            yield Branch(tuple(group), tuple(index for _, index in sorted(own)))


def _option_key(problem: Problem, items: Sequence[int], index: int) -> tuple[Any, ...]:
    option = problem.options[index]
    times = nanoseconds(option.time_us.likely), nanoseconds(option.launch_us.likely)
    return tuple(items.index(item) for item in option.covers), option.engine, *times, option.reads_host


def _kind(problem: Problem, wiring: Wiring, may_move: set[int], branch: Branch) -> tuple[Any, ...]:
    """Return what equal branches have in common: all but the host's times, and how much is before and after them."""
    at = {item: place for place, item in enumerate(branch.items)}
    flows = []
    for flow in (problem.flows[index] for item in branch.items for index in wiring.written_by[item]):
        readers = tuple(sorted(at[reader] for reader in set(flow.consumers) if reader in at))
        links_ns = arrival_ns(flow, "h2d"), arrival_ns(flow, "d2h")
        flows.append((at[flow.producer or 0], readers, links_ns))
    reads = [{problem.flows[flow].producer for flow in wiring.read_by[item]} for item in branch.items]
    of_host = [any(source is None or source not in may_move | set(at) for source in sources) for sources in reads]
    on_card = (problem.items[item].is_on_card for item in branch.items)
    places = tuple(zip(on_card, map(bool, reads), of_host, strict=True))
    return places, tuple(sorted(flows)), tuple(_option_key(problem, branch.items, index) for index in branch.options)


# --- ways to compute a branch -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BranchCall:
    """A call of a way, or a step of the host (``option`` and ``engine`` are None), by its place in the branch."""

    covers: tuple[int, ...]
    option: int | None
    engine: int | None


@dataclass(frozen=True, slots=True)
class Visit:
    """A call in the times of its way: how long it takes, and what is at least before and after it, in ns."""

    call: BranchCall
    duration: int
    before: int
    after: int
    is_first: bool  # on the card, of its way


def most_ways(problem: Problem, branch: Branch) -> int:
    """Return at most how many ways a branch has, without making them."""
    begins = Counter(problem.options[index].covers[0] for index in branch.options)
    return prod(1 + begins[item] for item in branch.items)


class Ways:
    """The ways of equal branches: calls and steps of the host; and when each branch can begin at the earliest."""

    def __init__(
        self, problem: Problem, wiring: Wiring, passage: Passage, branches: Sequence[Branch], horizon_ns: int
    ) -> None:
        self.problem, self.wiring, self.passage, self.branches = problem, wiring, passage, branches
        self.items = branches[0].items
        self.at = {item: place for place, item in enumerate(self.items)}
        size = range(len(self.items))
        begins, enters = zip(*(self._enters(branch) for branch in branches), strict=True)
        self.order = sorted(range(len(branches)), key=begins.__getitem__)
        # Of the branches in this order; times before a visit count from there
        self.begins = [begins[branch] for branch in self.order]
        self.enter = [[min(enter[place][side] for enter in enters) for side in (0, 1)] for place in size]
        self.leave = [[min(self._leaves(each, place, side) for each in branches) for side in (0, 1)] for place in size]
        columns = zip(*(branch.items for branch in branches), strict=True)
        self.host_ns = [min(nanoseconds(problem.items[item].host_us) for item in column) for column in columns]
        # The visits of each way that can finish by the horizon, with its least finish after ``begins``
        self.ways: list[tuple[list[Visit], int]] = []
        for calls in self._ways(0, ()):
            visits, path_ns = self._visits(calls)
            if self.begins[0] + path_ns <= horizon_ns:
                self.ways.append((visits, path_ns))

    def _enters(self, branch: Branch) -> tuple[int, list[tuple[int, int]]]:
        """Return when the branch begins, and after that each item on the host and on the card, for what others do."""
        inside, enters, begins = set(branch.items), [], NEVER
        for item in branch.items:
            sources = [self.problem.flows[index].producer for index in self.wiring.read_by[item]]
            is_free = item in self.passage.moving
            host_ns = card_ns = 0 if is_free else self.passage.done[item] - self.passage.host[item]
            for index, source in zip(self.wiring.read_by[item], sources, strict=True):
                if source is None or source not in inside:
                    flow, made_ns = self.problem.flows[index], self.passage.made_ns(index)
                    is_here = source is None or source not in self.passage.moving
                    host_ns = max(host_ns, made_ns)
                    card_ns = max(card_ns, made_ns + (arrival_ns(flow, "h2d") if is_here else 0))
            enters.append((host_ns, card_ns))
            begins = begins if inside.intersection(sources) else min(begins, host_ns)
        return begins, [(host_ns - begins, card_ns - begins) for host_ns, card_ns in enters]

    def _leaves(self, branch: Branch, place: int, side: int) -> int:
        """Return the least time of the run after an item on the host (0) or on the card (1), by readers elsewhere."""
        inside, rest = set(branch.items), self.passage.rest
        flows = self.wiring.written_by[branch.items[place]]
        return max((self.passage.after_ns(flow, rest, bool(side), inside) for flow in flows), default=0)

    def _ways(self, place: int, calls: tuple[BranchCall, ...]) -> Iterator[tuple[BranchCall, ...]]:
        if place == len(self.items):
            yield calls
        elif any(place in call.covers for call in calls):
            yield from self._ways(place + 1, calls)
        else:
            if not self.problem.items[self.items[place]].is_on_card:
                yield from self._ways(place + 1, (*calls, BranchCall((place,), None, None)))
            taken = {other for call in calls for other in call.covers}
            for key, index in enumerate(self.branches[0].options):
                option = self.problem.options[index]
                covers = tuple(self.at[item] for item in option.covers)
                if covers[0] == place and taken.isdisjoint(covers):
                    yield from self._ways(place + 1, (*calls, BranchCall(covers, key, option.engine)))

    def _visits(self, calls: Sequence[BranchCall]) -> tuple[list[Visit], int]:
        call_of = {place: number for number, call in enumerate(calls) for place in call.covers}
        edges = list(self._edges(calls, call_of))
        lengths = [self._length_ns(call, calls, call_of) for call in calls]
        sides = [int(call.option is not None) for call in calls]
        before = [
            max(0, *(self.enter[place][side] for place in call.covers)) for call, side in zip(calls, sides, strict=True)
        ]
        after = [max(self.leave[place][side] for place in call.covers) for call, side in zip(calls, sides, strict=True)]
        for _ in calls:  # calls over several items need not be in an order
            for source, reader, link_ns in edges:
                before[reader] = max(before[reader], before[source] + lengths[source] + link_ns)
                after[source] = max(after[source], link_ns + lengths[reader] + after[reader])
        on_card = [number for number, side in enumerate(sides) if side]
        first = min(on_card, key=lambda number: before[number], default=None)
        visits = [
            Visit(call, lengths[number], before[number], after[number], number == first)
            for number, call in enumerate(calls)
        ]
        return visits, max(visit.before + visit.duration + visit.after for visit in visits)

    def _edges(self, calls: Sequence[BranchCall], call_of: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
        """Yield the calls of which one waits for the other, and how long a tensor between them is on its way."""
        for flow in (self.problem.flows[index] for item in self.items for index in self.wiring.written_by[item]):
            source = call_of[self.at[flow.producer or 0]]
            for reader in {call_of[self.at[item]] for item in flow.consumers if item in self.at} - {source}:
                is_here, stays = calls[source].option is None, calls[reader].option is None
                yield source, reader, 0 if is_here == stays else arrival_ns(flow, "h2d" if is_here else "d2h")

    def _length_ns(self, call: BranchCall, calls: Sequence[BranchCall], call_of: Mapping[int, int]) -> int:
        """Return the time of a call, with its launch where the host launches it whatever other branches do."""
        if call.option is None:
            return self.host_ns[call.covers[0]]
        option = self.problem.options[self.branches[0].options[call.option]]
        sources = [self.problem.flows[index].producer for index in self.wiring.entering(option.covers)]
        feeders = [calls[call_of[self.at[source]]] for source in sources if source in self.at]
        is_of_engine = self.problem.engines[option.engine].launch_per == "engine"
        is_launched = any(
            feeder.option is None or (is_of_engine and feeder.engine != option.engine) for feeder in feeders
        )
        return self.passage.call_ns(option, is_launched=is_launched)
