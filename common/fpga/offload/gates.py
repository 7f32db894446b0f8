"""Gates of a network: items that everything else comes before or after; they cut it into segments.

A segment between two gates is a problem of its own, given on which side of the link each gate is. Its least time,
summed over all segments, bounds every plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from common.fpga.device.resources import Resources
from common.fpga.offload.problem import NONE, EngineType, Item, LaunchRule, OffloadFlow, Option, Problem, Wiring

LOOSE_SHARE = 0.01  # of the host's time: items that may be in no segment
MANY_GATES = 16  # that an item obstructs which may be in no segment; the branch of a block obstructs fewer
MOST_BESIDE = 200  # items beside a gate


@dataclass(frozen=True, slots=True)
class NetworkSegment:
    """Items after one gate, up to and with the next; None is the start or the end of the run."""

    entry: int | None
    exit: int | None
    items: tuple[int, ...]


def segments(problem: Problem, wiring: Wiring, options: Sequence[int]) -> list[NetworkSegment]:
    """Cut a problem at its gates. Items between two gates that depend on none or lead to none are in no segment."""
    order = _Order(problem, wiring, options)
    gates = [None, *order.gates(), None]
    found: list[NetworkSegment] = []
    for entry, leave in pairwise(gates):
        segment = NetworkSegment(entry, leave, order.between(entry, leave))
        if found and not order.may_move.intersection((found[-1].entry, *found[-1].items, *segment.items)):
            segment = NetworkSegment(found[-1].entry, leave, found.pop().items + segment.items)  # one step of the host
        found.append(segment)
    return found


class _Order:
    """Which items come before which, as sets of bits: by tensors, and by the order of items that only the host can do.

    Attributes:
        may_move: items that a call can compute.
        before: the items that must be done before each item starts.
        after: the items that start only when it is done.
    """

    def __init__(self, problem: Problem, wiring: Wiring, options: Sequence[int]) -> None:
        self.items = problem.items
        self.covers = [problem.options[index].covers for index in options]
        self.may_move = {item for covers in self.covers for item in covers}
        size, last_on_host = len(problem.items), None
        self.before, self.after = [0] * size, [0] * size
        sources: list[set[int]] = []
        for item in range(size):
            found = {problem.flows[flow].producer for flow in wiring.read_by[item]}
            if item not in self.may_move:
                found.add(last_on_host)
                last_on_host = item
            sources.append({source for source in found if source is not None})
            for source in sources[item]:
                self.before[item] |= self.before[source] | 1 << source
        for item in reversed(range(size)):
            for source in sources[item]:
                self.after[source] |= self.after[item] | 1 << item

    def gates(self) -> Iterator[int]:
        """Yield the gates: each comes after the last, no call spans it, and all beside it is loose."""
        candidates = {item: self._beside(item) for item in self._unspanned()}
        beside = {item: mask for item, mask in candidates.items() if mask.bit_count() <= MOST_BESIDE}
        tight, last = ~self._loose(beside.values()), None
        for item, mask in beside.items():
            if not mask & tight and (last is None or self.before[item] >> last & 1):
                last = item
                yield item

    def _unspanned(self) -> Iterator[int]:
        """Yield the items such that no call covers one of them or before together with one after."""
        opened = [0] * len(self.items)  # calls that begin at the item, less those that end there
        for covers in self.covers:
            opened[covers[0]] += 1
            opened[covers[-1]] -= 1
        spanning = accumulate(opened)
        yield from (item for item, calls in enumerate(spanning) if not calls)

    def _beside(self, item: int) -> int:
        """Return the items that come neither before nor after."""
        return ((1 << len(self.items)) - 1) & ~(self.before[item] | self.after[item] | 1 << item)

    def _loose(self, beside: Iterable[int]) -> int:
        """Return short items beside many gates, in no segment: those that obstruct most gates for their time, first."""
        counts = Counter(item for mask in beside for item in _bits(mask))
        obstructs = {item: count for item, count in counts.items() if count >= MANY_GATES}
        left_us, loose = LOOSE_SHARE * sum(item.host_us for item in self.items), 0
        for item in sorted(obstructs, key=lambda item: (self.items[item].host_us / obstructs[item], item)):
            left_us -= self.items[item].host_us
            if left_us < 0:
                break
            loose |= 1 << item
        return loose

    def between(self, entry: int | None, leave: int | None) -> tuple[int, ...]:
        """Return the items after one gate, up to and with the next."""
        inside = (1 << len(self.items)) - 1
        if entry is not None:
            inside &= self.after[entry]
        if leave is not None:
            inside &= self.before[leave] | 1 << leave
        return tuple(_bits(inside))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _least(rule: LaunchRule) -> LaunchRule:
    """Return the rule of a part, in which nobody knows on which engine the gate before it is: it bounds from below."""
    return "entry" if rule == "engine" else rule


@dataclass(frozen=True, slots=True)
class Part:
    """A segment as a relaxed problem of its own, and what its options and tensors are in the whole problem.

    Equal problems have equal numbers.
    """

    problem: Problem
    number: int
    options: tuple[int, ...]
    flows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Form:
    """A segment between gates on the host, with every option: what equal segments have in common, under a number."""

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
        self.options_of: dict[int, list[int]] = {}
        for index in options:
            for item in problem.options[index].covers:
                self.options_of.setdefault(item, []).append(index)
        self.forms: dict[NetworkSegment, _Form] = {}
        self.numbers: dict[Problem, int] = {}
        self.known: dict[
            tuple[int, tuple[int, ...], bool, bool, bool], tuple[Problem, int, tuple[int, ...]] | None
        ] = {}

    def part(
        self, segment: NetworkSegment, counts: Sequence[int], entry_on_card: bool, exit_on_card: bool
    ) -> Part | None:
        """Return a segment between gates on the given sides, for so many engines of each type; None if it cannot be."""
        form = self._form(segment)
        has_exit = segment.exit is not None
        key = form.number, tuple(counts), has_exit, entry_on_card, exit_on_card
        if key not in self.known:
            made = _between(form.problem, counts, has_exit, entry_on_card, exit_on_card)
            self.known[key] = None if made is None else (made[0], self._number(made[0]), made[1])
        if (known := self.known[key]) is None:
            return None
        problem, number, kept = known
        return Part(problem, number, tuple(form.options[index] for index in kept), form.flows)

    def _number(self, problem: Problem) -> int:
        return self.numbers.setdefault(problem, len(self.numbers))

    def _form(self, segment: NetworkSegment) -> _Form:
        if segment not in self.forms:
            whole, at = self.problem, {item: index for index, item in enumerate(segment.items)}
            items = tuple(Item("", whole.items[item].host_us) for item in segment.items)
            offered = tuple(dict.fromkeys(index for item in segment.items for index in self.options_of.get(item, ())))
            options = tuple(self._option(index, at, segment.entry) for index in offered)
            flows = dict(self._flows(segment, at))
            problem = replace(whole, items=items, flows=tuple(flows.values()), options=options)
            self.forms[segment] = _Form(problem, self._number(problem), offered, tuple(flows))
        return self.forms[segment]

    def _option(self, index: int, at: dict[int, int], entry: int | None) -> Option:
        option = self.problem.options[index]
        sources = [self.problem.flows[flow].producer for flow in self.wiring.entering(option.covers)]
        is_launched = self.problem.engines[option.engine].launch_per == "call" or not sources or entry is None
        if not is_launched:  # on an engine that fetches its own instructions
            is_launched = any(source in at or source == entry for source in sources)
        covers = tuple(at[item] for item in option.covers if item in at)
        launch_us = option.launch_us if is_launched else NONE
        return replace(option, name="", covers=covers, launch_us=launch_us, weight_bytes=0)

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
    engines = [
        replace(engine, max_instances=count if index in used else 1, launch_per=_least(engine.launch_per))
        for index, (engine, count) in enumerate(zip(form.engines, counts, strict=True))
    ]
    if entry_on_card:  # the gate itself is the first item
        items.insert(0, Item("", 0.0, is_on_card=True))
        flows = tuple(_after_gate(flow) for flow in flows)
        options = [replace(option, covers=tuple(item + 1 for item in option.covers)) for option in options]
        options.append(Option("", (0,), len(engines), NONE, NONE, 0))
        engines.append(EngineType("", Resources(), spans_regions=True))
    made = replace(form, items=tuple(items), flows=flows, engines=tuple(engines), options=tuple(options))
    return made, tuple(kept)


def _after_gate(flow: OffloadFlow) -> OffloadFlow:
    """Return the tensor with the gate as item 0, which writes what the segment finds at its start."""
    producer = 0 if flow.producer is None else flow.producer + 1
    return replace(flow, producer=producer, consumers=tuple(item + 1 for item in flow.consumers))
