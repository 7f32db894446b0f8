"""Chains of groups whose results are read by the next alone, so that they need not leave the chip.

A chain is a candidate beside its members: which of them are taken, each group once at most, is for a plan to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.fusion.groups import Group
from common.fusion.halo import Stage
from common.source_graph import SourceGraph

LONGEST_CHAIN = 4
# What may follow what: pools pass rows on as convolutions do.
FAMILY = {"conv": "map", "pool": "map", "gemm": "rows"}


def find_chains(
    graph: SourceGraph, groups: Sequence[Group], stages: Mapping[int, Stage], longest: int = LONGEST_CHAIN
) -> tuple[tuple[int, ...], ...]:
    """Every run of two to ``longest`` groups that pass on rows, by their indices, at least one with a contraction.

    Args:
        graph: the source graph.
        groups: what it is divided into.
        stages: groups that work row by row; others are in no chain.
        longest: most groups of a chain. A chain holds all its weights or whole maps, so long ones do not fit anyway.
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


def _links(graph: SourceGraph, groups: Sequence[Group], stages: Mapping[int, Stage]) -> dict[int, int]:
    """The group that a group's result goes to, if to no other and as what its first layer works on."""
    owner = {name: index for index, group in enumerate(groups) for name in group.nodes}
    links = {}
    for index, stage in stages.items():
        results = graph.nodes[groups[index].nodes[-1]].outputs
        reader = graph.sole_reader(results[0]) if len(results) == 1 else None
        if reader is None or (after := owner[reader.name]) not in stages or after == index:
            continue
        # A node behind the head adds the result to something else: it is not what the window slides over.
        is_read_by_head = graph.position[reader.name] <= graph.position[groups[after].heads[0]]
        fits = (stage.images, stage.out_rows, stage.out_row_elements) == _read_by(stages[after])
        if is_read_by_head and fits and FAMILY.get(groups[index].kind) == FAMILY.get(groups[after].kind, ""):
            links[index] = after
    return links


def _read_by(stage: Stage) -> tuple[int, int, int]:
    return stage.images, stage.in_rows, stage.in_row_elements
