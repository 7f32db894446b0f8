"""The least times before and after each item of a problem, on the longest path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from common.fpga.offload.problem import Option, Problem, Wiring
from common.fpga.offload.program.choices import arrival_ns, nanoseconds

NEVER = 1 << 60  # nanoseconds


class Passage:
    """Least times of items in ns."""

    def __init__(self, problem: Problem, wiring: Wiring, options: Iterable[int]) -> None:
        self.problem, self.wiring = problem, wiring
        # Of each item on the host; NEVER if a call must compute it
        self.host = [NEVER if item.is_on_card else nanoseconds(item.host_us) for item in problem.items]
        offered = [problem.options[index] for index in options]
        self.moving = frozenset(item for option in offered for item in option.covers)  # items that a call may compute
        # Of the shortest call of each item; 0 where a call may compute others too, NEVER without one
        self.call = [NEVER] * len(self.host)
        for option in offered:
            call_ns = self.call_ns(option) if len(option.covers) == 1 else 0
            for item in option.covers:
                self.call[item] = min(self.call[item], call_ns)
        # When it is done at the earliest; items that only the host computes are one after the other
        self.done: list[int] = []
        host_ns = 0
        for item, both_ns in enumerate(zip(self.host, self.call, strict=True)):
            made = (self.made_ns(flow) for flow in wiring.read_by[item])
            self.done.append(max([0 if item in self.moving else host_ns, *made]) + min(both_ns))
            host_ns = host_ns if item in self.moving else self.done[item]

    def call_ns(self, option: Option, *, is_launched: bool = False) -> int:
        """Return the time of a call, with its launch if the host launches it in every plan, or ``is_launched``."""
        sources = [self.problem.flows[flow].producer for flow in self.wiring.entering(option.covers)]
        is_always = self.problem.engines[option.engine].launch_per == "call" or option.reads_host or not sources
        is_of_host = any(source is None or source not in self.moving for source in sources)
        launch_ns = nanoseconds(option.launch_us.likely) if is_launched or is_always or is_of_host else 0
        return nanoseconds(option.time_us.likely) + launch_ns

    def made_ns(self, flow: int) -> int:
        producer = self.problem.flows[flow].producer
        return 0 if producer is None else self.done[producer]

    @cached_property
    def rest(self) -> list[tuple[int, int]]:
        """The least time of the run after each item has ended on the host, and on the card."""
        rest = [(0, 0)] * len(self.done)
        for item in reversed(range(len(rest))):
            flows = self.wiring.written_by[item]
            on_host, on_card = (
                max((self.after_ns(flow, rest, side, set()) for flow in flows), default=0) for side in (False, True)
            )
            rest[item] = on_host, on_card
        return rest

    def after_ns(self, index: int, rest: Sequence[tuple[int, int]], on_card: bool, inside: set[int]) -> int:
        """Return the least time of the run after a tensor is written on a side, by its readers not ``inside``."""
        flow = self.problem.flows[index]
        link_ns = arrival_ns(flow, "d2h") if on_card else 0
        after_ns = link_ns if flow.is_output else 0
        for reader in set(flow.consumers) - inside:
            host_ns, card_ns = rest[reader]
            after_ns = max(after_ns, min(link_ns + self.host[reader] + host_ns, self.call[reader] + card_ns))
        return after_ns
