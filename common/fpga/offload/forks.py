"""Forks and joins of branches: for every join, its immediate dominator (the fork) and the items between."""

from __future__ import annotations

from collections.abc import Iterator

from common.fpga.offload.problem import Problem, Wiring

MOST_ITEMS = 60  # between fork and join; a longer stretch gives a weak bound


def between_forks(problem: Problem, wiring: Wiring) -> Iterator[tuple[int | None, int, set[int]]]:
    """Yield fork, join and the items between for every join; a fork of None is the start of the run.

    The fork is the immediate dominator of the join (Cooper, Harvey and Kennedy 2001, A Simple, Fast Dominance
    Algorithm). Items are in topological order, so one pass is enough.
    """
    producers = [_producers(problem, wiring, item) for item in range(len(problem.items))]
    parents: list[int] = []
    for item, sources in enumerate(producers):
        parents.append(_meet(parents, sources) if sources else -1)
        if len(sources) > 1:
            fork = parents[item]
            if between := _ancestors_after(producers, item, fork):
                yield (None if fork < 0 else fork), item, between


def _producers(problem: Problem, wiring: Wiring, item: int) -> list[int]:
    """Return the items that this item reads from; -1 stands for a graph input."""
    sources = {problem.flows[flow].producer for flow in wiring.read_by[item]}
    return sorted(-1 if source is None else source for source in sources)


def _meet(parents: list[int], sources: list[int]) -> int:
    common = sources[0]
    for source in sources[1:]:
        other = source
        while common != other:
            if common > other:
                common = parents[common]
            else:
                other = parents[other]
    return common


def _ancestors_after(producers: list[list[int]], join: int, fork: int) -> set[int]:
    between: set[int] = set()
    waiting = [source for source in producers[join] if source > fork]
    while waiting and len(between) <= MOST_ITEMS:
        item = waiting.pop()
        if item not in between:
            between.add(item)
            waiting += [source for source in producers[item] if source > fork]
    return between if len(between) <= MOST_ITEMS else set()
