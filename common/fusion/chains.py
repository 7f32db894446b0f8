"""Chains of groups in which only the next group reads a result, so that the result need not leave the chip.

A chain is a candidate beside its members. A plan decides which candidates it takes; it takes each group at most once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.fusion.groups import Group
from common.fusion.halo import ChainStage
from common.source_graph import SourceGraph

LONGEST_CHAIN = 4
# Groups of one family can follow each other in a chain: pools pass rows on as convolutions do.
FAMILY = {"conv": "map", "pool": "map", "gemm": "rows"}


def find_chains(
    graph: SourceGraph, groups: Sequence[Group], stages: Mapping[int, ChainStage], longest: int = LONGEST_CHAIN
) -> tuple[tuple[int, ...], ...]:
    """Return every run of two to ``longest`` groups that pass on rows; at least one of them has a contraction.

    Args:
        graph: the source graph.
        groups: the groups of the graph.
        stages: the groups that work row by row; others are in no chain.
        longest: most groups of a chain. A chain holds all its weights or whole maps, so longer ones do not fit anyway.

    Returns:
        Chains as indices of their groups.
    """
    follows = _links(graph, groups, stages)
    chains = []
    for start in range(len(groups)):
        run = [start]
        while len(run) < longest and run[-1] in follows:
            run.append(follows[run[-1]])
            if any(groups[index].kind != "pool" for index in run):
                chains.append(tuple(run))
    return tuple(chains)


def _links(graph: SourceGraph, groups: Sequence[Group], stages: Mapping[int, ChainStage]) -> dict[int, int]:
    """Return, for each group, the only group that reads its result, if its first layer reads it as its operand."""
    owner = {name: index for index, group in enumerate(groups) for name in group.nodes}
    links = {}
    for index, stage in stages.items():
        results = graph.nodes[groups[index].nodes[-1]].outputs
        reader = graph.sole_reader(results[0]) if len(results) == 1 else None
        if reader is None or (after := owner[reader.name]) not in stages or after == index:
            continue
        # A node behind the head adds the result to something else: the window does not slide over it.
        is_read_by_head = graph.position[reader.name] <= graph.position[groups[after].heads[0]]
        fits = (stage.images, stage.out_rows, stage.out_row_elements) == _input_extents(stages[after])
        if is_read_by_head and fits and FAMILY.get(groups[index].kind) == FAMILY.get(groups[after].kind, ""):
            links[index] = after
    return links


def _input_extents(stage: ChainStage) -> tuple[int, int, int]:
    return stage.images, stage.in_rows, stage.in_row_elements
