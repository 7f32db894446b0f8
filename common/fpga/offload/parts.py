"""Segments of a network as problems of their own, whose optimum bounds the time from gate to gate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from common.fpga.device.resources import Resources
from common.fpga.offload.gates import NetworkSegment
from common.fpga.offload.problem import NONE, EngineType, Item, LaunchRule, OffloadFlow, Option, Problem, Wiring


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
