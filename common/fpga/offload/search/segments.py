"""Cut a network into segments at its gates: items before or after which everything else comes.

A segment is a problem of its own if it is given on which side of the link each gate is. The sum of the least times of
all segments bounds every plan. A gate may have a few short items beside it, which are called loose. A loose item is in
no segment, so the bound lacks its time. Two towers that the host computes one after the other are cut in this way,
although the card may begin the second one early. With more loose items, segments are smaller and are solved sooner.
Neither few nor many loose items give the better bound on every network.
"""

from __future__ import annotations

import heapq
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from common.fpga.device.resources import Resources
from common.fpga.offload.problem import NONE, EngineType, Item, LaunchRule, OffloadFlow, Option, Problem, Wiring
from common.graphs.grouping import grouped

LOOSE_SHARE = 0.015  # of the host's time: most that the bound may lack
LOOSER_SHARE = 0.1  # likewise, where the segments of the former leave a wide gap
RETURN_SHARE = 1e-4  # likewise: least for which gates are taken back
MOST_BESIDE = 200  # items beside a gate
LARGE = 24  # items that a call can compute, in a segment that is worth loose items


@dataclass(frozen=True, slots=True)
class NetworkSegment:
    """Items after one gate, up to and with the next; None is the start or the end of the run."""

    entry: int | None
    exit: int | None
    items: tuple[int, ...]


def segments(
    problem: Problem, wiring: Wiring, options: Sequence[int], loose_share: float = LOOSE_SHARE
) -> list[NetworkSegment]:
    """Cut a problem at its gates. Items between two gates that depend on none or lead to none are in no segment.

    ``loose_share`` is the largest share of the host's time that the bound may lack.
    """
    order = _Order(problem, wiring, options)
    gates = [None, *order.gates(loose_share), None]
    cut: list[NetworkSegment] = []
    for entry, leave in pairwise(gates):
        segment = NetworkSegment(entry, leave, order.between(entry, leave))
        if cut and not order.may_move.intersection((cut[-1].entry, *cut[-1].items, *segment.items)):
            segment = NetworkSegment(cut[-1].entry, leave, cut.pop().items + segment.items)  # one step of the host
        cut.append(segment)
    return cut


class _Order:
    """Which items come before which, as sets of bits: by tensors, and by the order of items that only the host does."""

    def __init__(self, problem: Problem, wiring: Wiring, options: Sequence[int]) -> None:
        self.items = problem.items
        self.covers = [problem.options[index].covers for index in options]
        # About the time that a bound lacks without each item: on the host, or in its shortest call
        self.loss_us = [item.host_us for item in problem.items]
        self.host_us = problem.host_only_us
        for option in (problem.options[index] for index in options):
            for item in option.covers:
                self.loss_us[item] = min(self.loss_us[item], option.time_us.likely + option.launch_us.likely)
        self.may_move = {item for covers in self.covers for item in covers}  # items that a call can compute
        self.moving = sum(1 << item for item in self.may_move)
        size, last_on_host = len(problem.items), None
        # The items that must be done before each item starts, and those that start only when it is done
        self.before, self.after = [0] * size, [0] * size
        sources: list[set[int]] = []
        for item in range(size):
            producers = {problem.flows[flow].producer for flow in wiring.read_by[item]}
            if item not in self.may_move:
                producers.add(last_on_host)
                last_on_host = item
            sources.append({producer for producer in producers if producer is not None})
            for source in sources[item]:
                self.before[item] |= self.before[source] | 1 << source
        for item in reversed(range(size)):
            for source in sources[item]:
                self.after[source] |= self.after[item] | 1 << item

    def gates(self, loose_share: float) -> Sequence[int]:
        """Return the gates: each comes after the last, no call spans it, and all beside it is loose."""
        beside = {item: mask for item in self._unspanned() if (mask := self._beside(item)).bit_count() <= MOST_BESIDE}
        cuts = _Cuts(beside, self.loss_us, [item in self.may_move for item in range(len(self.items))])
        left_us = loose_share * self.host_us
        while (cheapest := cuts.cheapest()) is not None and cheapest[0] <= left_us:
            cost_us, gate = cheapest
            if self._is_ordered(cuts.gates, gate):
                left_us -= cost_us
                cuts.take(gate)
        return self._without_costly(cuts.gates, beside)

    def _without_costly(self, gates: Sequence[int], beside: Mapping[int, int]) -> Sequence[int]:
        """Remove gates if loose items then return to a segment that is still small, those with the most time first."""
        ends = [None, *gates, None]
        while (best := max(self._mergers(ends, beside), default=None)) is not None:
            _, first, last = best
            del ends[first + 1 : last]
        return [gate for gate in ends if gate is not None]

    def _mergers(self, ends: Sequence[int | None], beside: Mapping[int, int]) -> Iterator[tuple[float, int, int]]:
        """Yield the loss that returns if a small segment reaches from one gate to another, and their places."""
        for first, entry in enumerate(ends[:-2]):
            loose = 0
            for last in range(first + 2, len(ends)):
                loose |= beside[ends[last - 1] or 0]
                inside = self._mask(entry, ends[last])
                if (inside & self.moving).bit_count() > LARGE:
                    break
                back_us = sum(self.loss_us[item] for item in _bits(inside & loose))
                if back_us > RETURN_SHARE * self.host_us:
                    yield back_us, first, last

    def _is_ordered(self, gates: Sequence[int], gate: int) -> bool:
        """Return whether an item comes after the gates before it and before those after it."""
        at = bisect(gates, gate)
        is_after = all(self.before[gate] >> other & 1 for other in gates[:at][-1:])
        return is_after and all(self.after[gate] >> other & 1 for other in gates[at:][:1])

    def _unspanned(self) -> Iterator[int]:
        """Yield the items such that no call covers one of them or before together with one after."""
        opened = [0] * len(self.items)  # calls that begin at the item, less those that end there
        for covers in self.covers:
            opened[covers[0]] += 1
            opened[covers[-1]] -= 1
        yield from (item for item, calls in enumerate(accumulate(opened)) if not calls)

    def _beside(self, item: int) -> int:
        return ((1 << len(self.items)) - 1) & ~(self.before[item] | self.after[item] | 1 << item)

    def between(self, entry: int | None, leave: int | None) -> tuple[int, ...]:
        return tuple(_bits(self._mask(entry, leave)))

    def _mask(self, entry: int | None, leave: int | None) -> int:
        inside = (1 << len(self.items)) - 1
        if entry is not None:
            inside &= self.after[entry]
        if leave is not None:
            inside &= self.before[leave] | 1 << leave
        return inside


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class _Cuts:
    """Gates so far, and the cost of each further gate: the loss of the items beside it that are not loose yet."""

    def __init__(self, beside: Mapping[int, int], loss_us: Sequence[float], may_move: Sequence[bool]) -> None:
        self.beside, self.loss_us = beside, loss_us
        self.moving = [0, *accumulate(may_move)]  # items before each one that a call can compute
        self.gates: list[int] = []
        self.loose = 0
        # For each item, the gates that it is beside
        self.held = grouped((item, gate) for gate, mask in beside.items() for item in _bits(mask))
        self.cost_us = {gate: sum(loss_us[item] for item in _bits(mask)) for gate, mask in beside.items()}
        self.waiting = [(cost_us, gate) for gate, cost_us in self.cost_us.items()]
        heapq.heapify(self.waiting)

    def cheapest(self) -> tuple[float, int] | None:
        """Return the cheapest gate that is left, with its cost; one that costs something must cut a large segment."""
        while self.waiting:
            cost_us, gate = heapq.heappop(self.waiting)
            is_current = cost_us == self.cost_us[gate] and not self.loose >> gate & 1
            if is_current and (not self.beside[gate] & ~self.loose or self._cuts_large(gate)):
                return cost_us, gate
        return None

    def _cuts_large(self, gate: int) -> bool:
        at = bisect(self.gates, gate)
        begin, end = [0, *self.gates][at], [*self.gates, len(self.moving) - 1][at]
        return self.moving[end] - self.moving[begin] > LARGE

    def take(self, gate: int) -> None:
        """Add a gate; its neighbours become loose, and other gates become cheaper."""
        self.gates.insert(bisect(self.gates, gate), gate)
        new = self.beside[gate] & ~self.loose
        self.loose |= new
        cheaper = set[int]()
        for item in _bits(new):
            for other in self.held[item]:
                self.cost_us[other] -= self.loss_us[item]
                cheaper.add(other)
        for other in cheaper - {gate}:
            heapq.heappush(self.waiting, (self.cost_us[other], other))


@dataclass(frozen=True, slots=True)
class Part:
    """A segment as a relaxed problem, with its options and tensors in the whole one; equal parts share a number."""

    problem: Problem
    number: int
    options: tuple[int, ...]
    flows: tuple[int, ...]


class Parts:
    """Segments as problems of their own, whose optimum bounds the time from gate to gate within the whole problem.

    Tensors from elsewhere than the gate are on both sides from the start, and what leaves the segment is not awaited.
    Names are empty, so that equal segments are equal problems.
    """

    def __init__(self, problem: Problem, wiring: Wiring, options: Sequence[int]) -> None:
        self.problem, self.wiring = problem, wiring
        self.options_of = grouped((item, index) for index in options for item in problem.options[index].covers)
        self.forms: dict[NetworkSegment, Part] = {}  # between gates on the host, with every option
        self.numbers: dict[Problem, int] = {}
        self.known: dict[tuple[Any, ...], tuple[Problem, int, tuple[int, ...]] | None] = {}

    def part(
        self, segment: NetworkSegment, counts: Sequence[int], entry_on_card: bool, exit_on_card: bool
    ) -> Part | None:
        """Return a segment between gates on the given sides, for so many engines of each type; None if it cannot be."""
        if segment not in self.forms:
            self.forms[segment] = self._form(segment)
        form = self.forms[segment]
        has_exit = segment.exit is not None
        key = form.number, tuple(counts), has_exit, entry_on_card, exit_on_card
        if key not in self.known:
            between = _between(form.problem, counts, has_exit, entry_on_card, exit_on_card)
            self.known[key] = between and (between[0], self._number(between[0]), between[1])
        if (known := self.known[key]) is None:
            return None
        problem, number, kept = known
        return Part(problem, number, tuple(form.options[index] for index in kept), form.flows)

    def _number(self, problem: Problem) -> int:
        return self.numbers.setdefault(problem, len(self.numbers))

    def _form(self, segment: NetworkSegment) -> Part:
        at = {item: index for index, item in enumerate(segment.items)}
        items = tuple(Item("", self.problem.items[item].host_us) for item in segment.items)
        offered = tuple(dict.fromkeys(index for item in segment.items for index in self.options_of.get(item, ())))
        options = tuple(self._option(index, at, segment.entry) for index in offered)
        flows = dict(self._flows(segment, at))
        problem = replace(self.problem, items=items, flows=tuple(flows.values()), options=options)
        return Part(problem, self._number(problem), offered, tuple(flows))

    def _option(self, index: int, at: dict[int, int], entry: int | None) -> Option:
        option = self.problem.options[index]
        sources = [self.problem.flows[flow].producer for flow in self.wiring.entering(option.covers)]
        is_launched = self.problem.engines[option.engine].launch_per == "call" or not sources or entry is None
        reads_host = False
        if not is_launched:  # on an engine that fetches its own instructions
            outside = [source for source in sources if source not in at and source != entry]
            # A tensor from outside the segment may be an input of the graph, or written by the host alone.
            reads_host = any(source not in self.options_of for source in outside)
            is_launched = reads_host or len(outside) < len(sources)
        covers = tuple(at[item] for item in option.covers if item in at)
        launch_us = option.launch_us if is_launched else NONE
        return replace(option, name="", covers=covers, launch_us=launch_us, weight_bytes=0, reads_host=reads_host)

    def _flows(self, segment: NetworkSegment, at: dict[int, int]) -> Iterator[tuple[int, OffloadFlow]]:
        read = dict.fromkeys(flow for item in segment.items for flow in self.wiring.read_by[item])
        written = dict.fromkeys(flow for item in segment.items for flow in self.wiring.written_by[item])
        if segment.entry is not None and segment.exit is None:  # what the gate returns at the end of the run
            written |= dict.fromkeys(self.wiring.written_by[segment.entry])
        for index in read | written:
            flow = self.problem.flows[index]
            if flow.producer in at or flow.producer == segment.entry:
                consumers = tuple(at[item] for item in flow.consumers if item in at)
                producer = at.get(flow.producer) if flow.producer is not None else None
                is_output = flow.is_output and segment.exit is None
                yield index, replace(flow, tensor="", producer=producer, consumers=consumers, is_output=is_output)


def _between(
    form: Problem, counts: Sequence[int], has_exit: bool, entry_on_card: bool, exit_on_card: bool
) -> tuple[Problem, tuple[int, ...]] | None:
    """Return the problem of a segment between gates on the given sides, and which options of its form it has."""
    items, flows, last = list(form.items), form.flows, len(form.items) - 1
    kept = [index for index, option in enumerate(form.options) if counts[option.engine]]
    if has_exit and exit_on_card:
        if not any(last in form.options[index].covers for index in kept):
            return None
        items[-1] = replace(items[-1], is_on_card=True)
    elif has_exit:
        kept = [index for index in kept if last not in form.options[index].covers]
    options = [form.options[index] for index in kept]
    used = {option.engine for option in options}
    engines = []
    for index, (engine, count) in enumerate(zip(form.engines, counts, strict=True)):
        # Nobody knows on which engine the gate before the segment is: "entry" bounds "engine" from below.
        rule: LaunchRule = "entry" if engine.launch_per == "engine" else engine.launch_per
        engines.append(replace(engine, max_instances=count if index in used else 1, launch_per=rule))
    if entry_on_card:  # the gate itself is the first item
        items.insert(0, Item("", 0.0, is_on_card=True))
        flows = tuple(
            replace(
                flow,
                producer=0 if flow.producer is None else flow.producer + 1,
                consumers=tuple(item + 1 for item in flow.consumers),
            )
            for flow in flows
        )
        options = [replace(option, covers=tuple(item + 1 for item in option.covers)) for option in options]
        options.append(Option("", (0,), len(engines), NONE, NONE, 0))
        engines.append(EngineType("", Resources(), spans_regions=True))
    problem = replace(form, items=tuple(items), flows=flows, engines=tuple(engines), options=tuple(options))
    return problem, tuple(kept)
