"""Chains of executed nodes that the runtime could have fused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.bottlenecks.executed_nodes import ExecutedGraph
from common.bottlenecks.rules import Chain


def matches(graph: ExecutedGraph, chain: Chain, *, is_open: bool) -> Iterator[tuple[str, ...]]:
    """Yield the nodes of each match, in the order of the chain.

    Each node reads the one before it. What a node of the chain computes, only later nodes of the chain may read, except
    the results of the last one. A later node reads nothing else that another node computes, unless ``is_open``.
    """
    for name in graph.nodes:
        for path in _paths(graph, (name,), chain):
            if _is_closed(graph, path, is_open=is_open):
                yield path
                break


def _paths(graph: ExecutedGraph, path: tuple[str, ...], chain: Chain) -> Iterator[tuple[str, ...]]:
    if graph.types[path[-1]] not in chain[len(path) - 1]:
        return
    if len(path) == len(chain):
        yield path
        return
    for reader in dict.fromkeys(graph.readers[path[-1]]):
        yield from _paths(graph, (*path, reader), chain)


def _is_closed(graph: ExecutedGraph, path: Sequence[str], *, is_open: bool) -> bool:
    inside = set(path)
    return (
        len(inside) == len(path)
        and all(inside.issuperset(graph.readers[node]) and node not in graph.returning for node in path[:-1])
        and (is_open or all(inside.issuperset(graph.writers[node]) for node in path[1:]))
    )
