"""Gates of a network: items that everything else comes before or after; they cut it into segments.

A segment between two gates is a problem of its own, given on which side of the link each gate is. Its least time,
summed over all segments, bounds every plan. A few short items beside a gate do not keep it from being one: such a loose
item is in no segment, so that the bound lacks its time. Two towers that the host computes one after the other are cut
in this way, though the card may begin the second one early.
"""

from __future__ import annotations

import heapq
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from common.fpga.offload.problem import Problem, Wiring

LOOSE_SHARE = 0.01  # of the host's time: most that the bound may lack
MOST_BESIDE = 200  # items beside a gate
LARGE = 24  # items that a call can compute, in a segment that is worth loose items


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
        loss_us: about what a bound lacks without each item: its time on the host, or in its shortest call.
        before: the items that must be done before each item starts.
        after: the items that start only when it is done.
    """

    def __init__(self, problem: Problem, wiring: Wiring, options: Sequence[int]) -> None:
        self.items = problem.items
        self.covers = [problem.options[index].covers for index in options]
        self.loss_us = [item.host_us for item in problem.items]
        for option in (problem.options[index] for index in options):
            for item in option.covers:
                self.loss_us[item] = min(self.loss_us[item], option.time_us.likely + option.launch_us.likely)
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

    def gates(self) -> Sequence[int]:
        """Return the gates: each comes after the last, no call spans it, and all beside it is loose."""
        beside = {item: mask for item in self._unspanned() if (mask := self._beside(item)).bit_count() <= MOST_BESIDE}
        cuts = _Cuts(beside, self.loss_us, [item in self.may_move for item in range(len(self.items))])
        left_us = LOOSE_SHARE * sum(item.host_us for item in self.items)
        while (cheapest := cuts.cheapest()) is not None and cheapest[0] <= left_us:
            cost_us, gate = cheapest
            if self._is_ordered(cuts.gates, gate):
                left_us -= cost_us
                cuts.take(gate)
        return cuts.gates

    def _is_ordered(self, gates: Sequence[int], gate: int) -> bool:
        """Return whether an item comes after the gates before it and before those after it."""
        at = bisect(gates, gate)
        return all(self.before[gate] >> other & 1 for other in gates[:at][-1:]) and all(
            self.after[gate] >> other & 1 for other in gates[at:][:1]
        )

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


class _Cuts:
    """Gates found so far, and what each further one would cost: the loss of the items beside it that are not loose."""

    def __init__(self, beside: Mapping[int, int], loss_us: Sequence[float], may_move: Sequence[bool]) -> None:
        self.beside, self.loss_us = beside, loss_us
        self.moving = [0, *accumulate(may_move)]  # items before each one that a call can compute
        self.gates: list[int] = []
        self.loose = 0
        self.held: dict[int, list[int]] = {}  # for each item, the gates that it is beside
        for gate, mask in beside.items():
            for item in _bits(mask):
                self.held.setdefault(item, []).append(gate)
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
        """Add a gate; what is beside it becomes loose, and other gates become cheaper."""
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
