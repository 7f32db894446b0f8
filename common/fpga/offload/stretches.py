"""The stretch between a fork and its join as a problem of its own; its optimum bounds every plan there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from common.fpga.offload.problem import NONE, Item, OffloadFlow, Option, Problem

MOST_ITEMS = 20  # between fork and join; longer stretches take too long to solve


@dataclass(frozen=True, slots=True)
class Stretch:
    """A fork, its join and the items between.

    ``least_ns`` is the least time from the end of the fork to the end of the join, unless one call covers both.
    """

    fork: int | None
    join: int
    between: frozenset[int]
    least_ns: int = 0


def alone(problem: Problem, options: Sequence[int], stretch: Stretch) -> Problem:
    """Return the stretch as a relaxed problem of its own, whose optimum is a lower bound within the whole problem.

    Tensors from outside are available from the start, on both sides. A call that reaches beyond the join counts with
    its whole time for the items that it covers here. Calls that also cover the fork are left out. Names are empty, so
    that equal stretches are equal problems.
    """
    items = sorted({*stretch.between, stretch.join})
    at = {item: index for index, item in enumerate(items)}
    whole = (problem.options[index] for index in options)
    return replace(
        problem,
        items=tuple(Item("", problem.items[item].host_us) for item in items),
        flows=tuple(_within(flow, at) for flow in problem.flows if flow.producer in at),
        options=tuple(
            _clipped(problem, option, at)
            for option in whole
            if stretch.fork not in option.covers and not at.keys().isdisjoint(option.covers)
        ),
    )


def _within(flow: OffloadFlow, at: dict[int, int]) -> OffloadFlow:
    assert flow.producer is not None
    consumers = tuple(at[item] for item in flow.consumers if item in at)
    return replace(flow, tensor="", producer=at[flow.producer], consumers=consumers, is_output=False)


def _clipped(problem: Problem, option: Option, at: dict[int, int]) -> Option:
    """Restrict an option to the stretch. On an engine that fetches its own instructions it needs no launch here."""
    launch_us = option.launch_us if problem.engines[option.engine].launch_per == "call" else NONE
    covers = tuple(at[item] for item in option.covers if item in at)
    return replace(option, name="", covers=covers, launch_us=launch_us, weight_bytes=0)
