"""Stretches of the host's work that nothing on the card can enter: each is one item of a smaller, equal problem.

An item that no call computes begins when the one before it ends, unless it reads what a call may write. If besides no
call reads what that one writes, nothing can tell the two from one item. A detector has thousands of such items.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from common.fpga.offload.choices import nanoseconds
from common.fpga.offload.problem import Item, OffloadFlow, Problem, Wiring


def with_joined_stretches(problem: Problem) -> Problem:
    """Return the problem with each stretch as one item; its options and tensors keep their numbers, and its plans."""
    stretches = list(_stretches(problem))
    at = {item: number for number, stretch in enumerate(stretches) for item in stretch}
    return replace(
        problem,
        items=tuple(_joined([problem.items[item] for item in stretch]) for stretch in stretches),
        flows=tuple(_moved(flow, at) for flow in problem.flows),
        options=tuple(replace(option, covers=tuple(at[item] for item in option.covers)) for option in problem.options),
    )


def _stretches(problem: Problem) -> Iterator[list[int]]:
    wiring, flows = Wiring(problem), problem.flows
    may_move = {item for option in problem.options for item in option.covers}
    stretch: list[int] = []
    for item in range(len(problem.items)):
        waits = any(flows[flow].producer in may_move for flow in wiring.read_by[item])
        if stretch and (waits or item in may_move or not may_move.isdisjoint(_readers(problem, wiring, stretch[-1]))):
            yield stretch
            stretch = []
        stretch.append(item)
    if stretch:
        yield stretch


def _readers(problem: Problem, wiring: Wiring, item: int) -> set[int]:
    return {item, *(reader for flow in wiring.written_by[item] for reader in problem.flows[flow].consumers)}


def _joined(items: list[Item]) -> Item:
    return items[0] if len(items) == 1 else Item("", sum(nanoseconds(item.host_us) for item in items) / 1000)


def _moved(flow: OffloadFlow, at: dict[int, int]) -> OffloadFlow:
    producer = None if flow.producer is None else at[flow.producer]
    readers = dict.fromkeys(at[item] for item in flow.consumers)
    return replace(flow, producer=producer, consumers=tuple(item for item in readers if item != producer))
