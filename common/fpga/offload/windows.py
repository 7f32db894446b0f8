"""When the host can hide a call: between the last item that it must do before, and the first that it must do after.

The host works in order. So a call of an item starts after the one, and the other starts after the call. What the host
does meanwhile lies between the two. Where that is shorter than the call, the host waits for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from common.fpga.offload.choices import nanoseconds
from common.fpga.offload.problem import Problem, Wiring


class HostWindows:
    """Windows of items in the host's order.

    Attributes:
        opens: for each item the last item before it, by tensors, that only the host computes; -1 without one.
        closes: for each item the first such item after it; the number of items without one.
        host_ns: time of each item on the host.
    """

    def __init__(self, problem: Problem, wiring: Wiring, may_move: Sequence[bool]) -> None:
        size = len(problem.items)
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
        own_ns = sum(self.host_ns[other] for other in covers if begin <= other < end)
        return self._before_ns[end] - self._before_ns[begin] - own_ns
