"""Equal branches between a fork and a join, such as the experts of a mixture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from common.fpga.offload.problem import Problem, Wiring
from common.fpga.offload.program.choices import chain_ns, nanoseconds
from common.fpga.offload.program.timing import between_forks

FEWEST_EQUAL = 3  # branches whose number is worth more than the branches one by one


@dataclass(frozen=True, slots=True)
class Branch:
    """Items between a fork and a join that no tensor and no call connects with other branches; options by their key."""

    items: tuple[int, ...]
    options: tuple[int, ...]


def equal_branches(problem: Problem, wiring: Wiring, options: Sequence[int]) -> list[Branch]:
    """Return the largest set of branches that differ in the host's times at most; empty if there are too few."""
    best: list[Branch] = []
    may_move = {item for index in options for item in problem.options[index].covers}
    for _, _, between in between_forks(problem, wiring):
        for item in sorted(between - may_move):  # what only the host does before a branch is no part of it
            if between.isdisjoint(problem.flows[flow].producer for flow in wiring.read_by[item]):
                between.remove(item)
        kinds = defaultdict[Any, list[Branch]](list)
        for branch in _branches(problem, wiring, options, between):
            kinds[_kind(problem, wiring, may_move, branch)].append(branch)
        for equal in kinds.values():
            if len(equal) >= FEWEST_EQUAL and _count(equal) > _count(best):
                best = equal
    return best


def _count(branches: Sequence[Branch]) -> int:
    return sum(len(branch.items) for branch in branches)


def _branches(problem: Problem, wiring: Wiring, options: Sequence[int], between: set[int]) -> Iterator[Branch]:
    joined = [option.covers for option in (problem.options[index] for index in options)]
    joined += [(flow.producer, *flow.consumers) for flow in problem.flows if flow.producer in between]
    root = {item: item for item in between}

    def find(item: int) -> int:
        while root[item] != item:
            item = root[item]
        return item

    closed = set(between)
    for items in joined:
        inside = [item for item in items if item in between]
        for item in inside[1:]:
            root[find(item)] = find(inside[0])
    for covers in (problem.options[index].covers for index in options):
        if not between.issuperset(covers):
            closed.difference_update(covers)
    groups = defaultdict[int, list[int]](list)
    for item in sorted(between):
        groups[find(item)].append(item)
    offered = defaultdict[int, list[int]](list)
    for index in options:
        offered[problem.options[index].covers[0]].append(index)
    for group in groups.values():
        if closed.issuperset(group) and any(offered[item] for item in group):
            own = [(_option_key(problem, group, index), index) for item in group for index in offered[item]]
            yield Branch(tuple(group), tuple(index for _, index in sorted(own)))


def _option_key(problem: Problem, items: Sequence[int], index: int) -> tuple[Any, ...]:
    option = problem.options[index]
    times = nanoseconds(option.time_us.likely), nanoseconds(option.launch_us.likely)
    return tuple(items.index(item) for item in option.covers), option.engine, *times, option.reads_host


def _kind(problem: Problem, wiring: Wiring, may_move: set[int], branch: Branch) -> tuple[Any, ...]:
    """Return what equal branches have in common: all but the host's times, and how much is before and after them."""
    at = {item: place for place, item in enumerate(branch.items)}
    flows = []
    for flow in (problem.flows[index] for item in branch.items for index in wiring.written_by[item]):
        readers = tuple(sorted(at[reader] for reader in set(flow.consumers) if reader in at))
        links_ns = chain_ns(flow.h2d_us, flow.h2d_convert_us), chain_ns(flow.d2h_us, flow.d2h_convert_us)
        flows.append((at[flow.producer or 0], readers, links_ns))
    reads = [{problem.flows[flow].producer for flow in wiring.read_by[item]} for item in branch.items]
    of_host = [any(source is None or source not in may_move | set(at) for source in sources) for sources in reads]
    on_card = (problem.items[item].is_on_card for item in branch.items)
    places = tuple(zip(on_card, map(bool, reads), of_host, strict=True))
    return places, tuple(sorted(flows)), tuple(_option_key(problem, branch.items, index) for index in branch.options)
