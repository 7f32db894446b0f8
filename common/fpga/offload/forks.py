"""Where branches part and meet again: for every join, the latest item on all ways to it, and what lies between."""

from __future__ import annotations

from collections.abc import Iterator

from common.fpga.offload.problem import Problem, Wiring

LONGEST = 60  # items between; a longer stretch says little about any one of them


def between_forks(problem: Problem, wiring: Wiring) -> Iterator[tuple[int | None, int, set[int]]]:
    """Fork, join, and the items between, which come after the one and before the other; None is the begin of the run.

    The fork is the immediate dominator of the join (Cooper, Harvey and Kennedy 2001, a fast dominance algorithm:
    items stand in topological order, so one pass finds them all).
    """
    makers = [_makers(problem, wiring, item) for item in range(len(problem.items))]
    parents: list[int] = []
    for item, sources in enumerate(makers):
        parents.append(_meet(parents, sources) if sources else -1)
        if len(sources) > 1:
            fork = parents[item]
            if between := _ancestors_after(makers, item, fork):
                yield (None if fork < 0 else fork), item, between


def _makers(problem: Problem, wiring: Wiring, item: int) -> list[int]:
    """Items that this one waits for; -1 stands for a graph input."""
    sources = {problem.flows[flow].producer for flow in wiring.read_by[item]}
    return sorted(-1 if source is None else source for source in sources)


def _meet(parents: list[int], sources: list[int]) -> int:
    """The last common dominator."""
    found = sources[0]
    for source in sources[1:]:
        one, other = found, source
        while one != other:
            if one > other:
                one = parents[one]
            else:
                other = parents[other]
        found = one
    return found


def _ancestors_after(makers: list[list[int]], join: int, fork: int) -> set[int]:
    found: set[int] = set()
    waiting = [source for source in makers[join] if source > fork]
    while waiting and len(found) <= LONGEST:
        item = waiting.pop()
        if item not in found:
            found.add(item)
            waiting += [source for source in makers[item] if source > fork]
    return found if len(found) <= LONGEST else set()
