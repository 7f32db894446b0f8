"""The stretch between a fork and its join as a problem of its own, whose best plan bounds what any plan needs there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from common.fpga.offload.problem import NONE, Flow, Item, Option, Problem

LONGEST = 20  # items between; more take too long for a bound


@dataclass(frozen=True, slots=True)
class Stretch:
    """Fork, join and the items between; ``least_ns`` pass from one's end to the other's, unless one call has both."""

    fork: int | None
    join: int
    between: frozenset[int]
    least_ns: int = 0


def alone(problem: Problem, options: Sequence[int], stretch: Stretch) -> Problem:
    """Made no harder than it is within the whole: what comes from outside is there at the begin, on both sides.

    Calls that reach beyond the join count for what they cover here, whole as they are. Calls that also cover the fork
    are left out. Nothing has a name, so that equal stretches are equal problems.
    """
    items = sorted({*stretch.between, stretch.join})
    at = {item: index for index, item in enumerate(items)}
    found = (problem.options[index] for index in options)
    return replace(
        problem,
        items=tuple(Item("", problem.items[item].host_us) for item in items),
        flows=tuple(_within(flow, at) for flow in problem.flows if flow.producer in at),
        options=tuple(
            _clipped(problem, option, at)
            for option in found
            if stretch.fork not in option.covers and not at.keys().isdisjoint(option.covers)
        ),
    )


def _within(flow: Flow, at: dict[int, int]) -> Flow:
    assert flow.producer is not None
    consumers = tuple(at[item] for item in flow.consumers if item in at)
    return replace(flow, tensor="", producer=at[flow.producer], consumers=consumers, is_output=False)


def _clipped(problem: Problem, option: Option, at: dict[int, int]) -> Option:
    """The first call on an engine that fetches its instructions may have been entered from the card."""
    launch_us = option.launch_us if problem.engines[option.engine].launch_per == "call" else NONE
    covers = tuple(at[item] for item in option.covers if item in at)
    return replace(option, name="", covers=covers, launch_us=launch_us, weight_bytes=0)
