"""The times of a plan for CP-SAT: variables, and the constraints that bind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import accumulate
from typing import Any

from common.fpga.offload.problem import Problem, Wiring
from common.fpga.offload.program.choices import Choices, Direction, arrival_ns, nanoseconds
from common.graphs.grouping import grouped

Delays = dict[int, Any]


class Timing:
    """Time variables of a plan."""

    def __init__(self, choices: Choices, horizon_ns: int) -> None:
        self.choices, self.model, self.problem = choices, choices.model, choices.problem
        self.horizon_ns = horizon_ns
        self.done = [self._time() for _ in self.problem.items]  # of each item; those of a call are done together
        self.start = {key: self._time() for key in choices.travels}  # of each transfer, by direction and flow
        self.finish = self._time()  # end of the run
        self.clock: dict[int, Any] = {}  # when the host is free, after an item that may be on the card
        self.crosses: dict[tuple[Direction, int, int], Any] = {}
        self._host_in_order()
        for index in range(len(self.problem.flows)):
            self._carry(index)
        self._join_calls()
        self._join_branches()
        self._hide_calls()
        self._occupy_engines()
        self._occupy_link()

    def _time(self) -> Any:
        return self.model.new_int_var(0, self.horizon_ns, "")

    def _host_in_order(self) -> None:
        clock: Any = 0  # when the host is free, after the items so far
        for index, item in enumerate(self.problem.items):
            done, host_ns, on_host = self.done[index], nanoseconds(item.host_us), self.choices.on_host[index]
            self.model.add(done >= self._work(index))  # an item without inputs has no other row
            if not self.choices.modes_of[index]:
                self.model.add(done >= clock + host_ns)
                clock = done
                continue
            after = self.clock[index] = self._time()
            self.model.add(after >= clock + host_ns * on_host)
            self.model.add(done == after).only_enforce_if(on_host)
            self.model.add(self.finish >= done)
            clock = after
        self.model.add(self.finish >= clock)

    def _work(self, item: int, without: Iterable[int | None] = ()) -> Any:
        """Return the time of an item; calls that also cover one of the items ``without`` do not count."""
        others = set(without)
        host = nanoseconds(self.problem.items[item].host_us) * self.choices.on_host[item]
        calls = [
            mode.duration_ns * mode.chosen
            for mode in self.choices.modes_of[item]
            if others.isdisjoint(self.problem.options[mode.option].covers)
        ]
        return host + sum(calls)

    def link_ns(self, direction: Direction, index: int) -> int:
        """Return how long a tensor occupies its direction of the link."""
        flow = self.problem.flows[index]
        return nanoseconds((flow.h2d_us if direction == "h2d" else flow.d2h_us).likely)

    # --- tensors ----------------------------------------------------------------------------------------------------

    def _carry(self, index: int) -> None:
        """Make the readers of a tensor wait for it and for its transfer."""
        source = self.problem.flows[index].producer
        made: Any = 0 if source is None else self.done[source]
        to_card, to_host = self._to_card(index, made), self._to_host(index, made)
        for item in dict.fromkeys(self.problem.flows[index].consumers):
            delay = to_card.get(item, 0) + to_host.get(item, 0)
            self.model.add(self.done[item] >= made + delay + self._work(item, [source]))

    def _to_card(self, index: int, made: Any) -> Delays:
        """Add the transfer to the card, if an item there may read the tensor, and return the delay of each reader."""
        if ("h2d", index) not in self.start:
            return {}
        start, flow = self.start["h2d", index], self.problem.flows[index]
        self.model.add(start >= made)
        arrives_ns, delays = arrival_ns(flow, "h2d"), {}
        for item in (item for item in dict.fromkeys(flow.consumers) if self.choices.modes_of[item]):
            crosses = self._crosses("h2d", index, item)
            work = self._work(item, [flow.producer])
            self.model.add(self.done[item] >= start + arrives_ns + work).only_enforce_if(crosses)
            delays[item] = arrives_ns * crosses
        return delays

    def _to_host(self, index: int, made: Any) -> Delays:
        """Add the transfer to the host, if it reads or returns the tensor, and return the delay of each reader."""
        if ("d2h", index) not in self.start:
            return {}
        start, flow, travels = self.start["d2h", index], self.problem.flows[index], self.choices.travels["d2h", index]
        self.model.add(start >= made + nanoseconds(flow.d2h_convert_us.likely) * travels)
        link_ns, arrives_ns = self.link_ns("d2h", index), arrival_ns(flow, "d2h")
        if flow.is_output:
            self.model.add(self.finish >= made + arrives_ns * travels)
            self.model.add(self.finish >= start + link_ns).only_enforce_if(travels)
        delays = {}
        for item in dict.fromkeys(flow.consumers):
            crosses = self._crosses("d2h", index, item)
            host_ns = nanoseconds(self.problem.items[item].host_us)
            self.model.add(self.done[item] >= start + link_ns + host_ns).only_enforce_if(crosses)
            delays[item] = arrives_ns * crosses
        return delays

    def _crosses(self, direction: Direction, index: int, item: int) -> Any:
        """Return the literal that is true if a tensor crosses the link for this reader."""
        travels, here = self.choices.travels[direction, index], self.choices.is_made_here(index)
        stays = self.choices.on_host[item]
        crosses = self.crosses[direction, index, item] = self.choices.literal()
        self.model.add_implication(crosses, travels)
        self.model.add_implication(crosses, stays if direction == "d2h" else ~stays)
        self.model.add(crosses >= (stays - here if direction == "d2h" else here - stays))
        return crosses

    # --- exclusive resources ----------------------------------------------------------------------------------------

    def _join_calls(self) -> None:
        for mode in self.choices.modes:
            covers = self.problem.options[mode.option].covers
            for item in covers[:-1]:
                self.model.add(self.done[item] == self.done[covers[-1]]).only_enforce_if(mode.chosen)

    def _join_branches(self) -> None:
        """Require that the work of the host, and of each engine, between a fork and a join fits between them."""
        items, options = self.problem.items, self.problem.options
        for fork, join, between in between_forks(self.problem, self.choices.wiring):
            since: Any = 0 if fork is None else self.done[fork]
            join_time = self._work(join, [fork])
            host = sum(nanoseconds(items[item].host_us) * self.choices.on_host[item] for item in sorted(between))
            self.model.add(self.done[join] >= since + host + join_time)
            inside = (mode for mode in self.choices.modes if between.issuperset(options[mode.option].covers))
            for load in grouped((mode.instance, mode.duration_ns * mode.chosen) for mode in inside).values():
                self.model.add(self.done[join] >= since + sum(load) + join_time)

    def _hide_calls(self) -> None:
        """Let the host wait for the part of a call that its other work does not fill."""
        modes_of, on_host = self.choices.modes_of, self.choices.on_host
        windows = HostWindows(self.problem, self.choices.wiring, [bool(modes) for modes in modes_of])
        host_ns = windows.host_ns
        for item, modes in enumerate(modes_of):
            hidden = [windows.hidden_ns(item, self.problem.options[mode.option].covers) for mode in modes]
            pairs = [(mode.duration_ns - hidden_ns, mode.chosen) for mode, hidden_ns in zip(modes, hidden, strict=True)]
            if any(wait_ns > 0 for wait_ns, _ in pairs):
                opens, closes = windows.opens[item], windows.closes[item]
                since: Any = self.done[opens] if opens >= 0 else 0
                until = self.done[closes] - host_ns[closes] if closes < len(host_ns) else self.finish
                work = sum(host_ns[other] * on_host[other] for other in range(opens + 1, closes))
                self.model.add(until >= since + work + sum(max(0, wait_ns) * chosen for wait_ns, chosen in pairs))

    def _occupy_engines(self) -> None:
        for instance in self.choices.used:
            modes = [mode for mode in self.choices.modes if mode.instance == instance]
            intervals = []
            for mode in modes:
                end = self.done[self.problem.options[mode.option].covers[-1]]
                fixed = self.model.new_optional_fixed_size_interval_var
                intervals.append(fixed(end - mode.duration_ns, mode.duration_ns, mode.chosen, ""))
            self.model.add_no_overlap(intervals)
            self.model.add(self.finish >= sum(mode.duration_ns * mode.chosen for mode in modes))

    def _occupy_link(self) -> None:
        for direction in ("h2d", "d2h"):
            intervals, load = [], []
            for (way, index), start in self.start.items():
                if way == direction:
                    link_ns, travels = self.link_ns(way, index), self.choices.travels[way, index]
                    intervals.append(self.model.new_optional_fixed_size_interval_var(start, link_ns, travels, ""))
                    load.append(link_ns * travels)
            self.model.add_no_overlap(intervals)
            self.model.add(self.finish >= sum(load))


class HostWindows:
    """Windows in which the host can hide a call: between the last item that it must do before, and the first after.

    The host works in order, so a call starts after the former, and the latter starts after the call. Where the host's
    other work between the two is shorter than the call, it waits.
    """

    def __init__(self, problem: Problem, wiring: Wiring, may_move: Sequence[bool]) -> None:
        size = len(problem.items)
        # For each item the last item before it, by tensors, that only the host computes, and the first such item after
        # it; without one, -1 and the number of items
        self.opens, self.closes = [-1] * size, [size] * size
        self.host_ns = [nanoseconds(item.host_us) for item in problem.items]
        self._before_ns = [0, *accumulate(self.host_ns)]
        producers = [{problem.flows[flow].producer for flow in wiring.read_by[item]} - {None} for item in range(size)]
        edges = [(source, item) for item, sources in enumerate(producers) for source in sources if source is not None]
        for source, item in edges:
            self.opens[item] = max(self.opens[item], self.opens[source] if may_move[source] else source)
        for source, item in reversed(edges):
            self.closes[source] = min(self.closes[source], self.closes[item] if may_move[item] else item)

    def hidden_ns(self, item: int, covers: Iterable[int]) -> int:
        """Return how much of a call the host can hide: all that it may do in the item's window, beside the call."""
        begin, end = self.opens[item] + 1, self.closes[item]
        moved_ns = sum(self.host_ns[other] for other in covers if begin <= other < end)
        return self._before_ns[end] - self._before_ns[begin] - moved_ns


MOST_ITEMS = 60  # between fork and join; a longer stretch gives a weak bound


def between_forks(problem: Problem, wiring: Wiring) -> Iterator[tuple[int | None, int, set[int]]]:
    """Yield fork, join and the items between for each pair of them; a fork of None is the start of the run.

    One fork of a join is its immediate dominator: the last item through which all paths to it go (Cooper, Harvey and
    Kennedy 2001, A Simple, Fast Dominance Algorithm). The other forks are later items whose readers' paths first meet
    at the join or after it. No further pair gives a stronger bound. Items are in topological order.
    """
    producers = [{problem.flows[flow].producer for flow in flows} for flows in wiring.read_by]
    sources = [sorted(-1 if source is None else source for source in each) for each in producers]  # -1: a graph input
    readers: list[list[int]] = [[] for _ in sources]
    before, after = [0] * len(sources), [0] * len(sources)
    opens: list[int] = []
    for item, inputs in enumerate(sources):
        opens.append(reduce(partial(_meet, opens, max), inputs) if inputs else -1)
        for source in (source for source in inputs if source >= 0):
            readers[source].append(item)
            before[item] |= before[source] | 1 << source
    closes = [len(sources)] * len(sources)
    for item in reversed(range(len(sources))):
        if readers[item]:
            closes[item] = reduce(partial(_meet, closes, min), readers[item])
        for reader in readers[item]:
            after[item] |= after[reader] | 1 << reader
    for join in (item for item, inputs in enumerate(sources) if len(inputs) > 1):
        last = opens[join]
        forks = (fork for fork in range(last + 1, join) if before[join] >> fork & 1 and len(readers[fork]) > 1)
        for fork in (last, *(fork for fork in forks if closes[fork] >= join)):
            between = before[join] & (after[fork] if fork >= 0 else -1)
            if 0 < between.bit_count() <= MOST_ITEMS:
                yield (None if fork < 0 else fork), join, {item for item in range(join) if between >> item & 1}


def _meet(steps: Sequence[int], farther: Callable[[int, int], int], first: int, second: int) -> int:
    """Return where the paths of two items meet, of which the farther one takes the next step."""
    while first != second:
        if first == farther(first, second):
            first = steps[first]
        else:
            second = steps[second]
    return first
