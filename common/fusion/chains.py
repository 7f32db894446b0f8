"""Chains of groups in which only the next group reads a result, so that the result need not leave the chip.

Both a chain and its member groups are candidates. A plan takes each group at most once, alone or in a chain.

A map is cut into bands of full rows. So there is a halo in one direction only, and each band is one contiguous piece of
memory. Fused layers can either recompute the rows where bands overlap, or keep them (Alwani et al., MICRO 2016,
"Fused-layer CNN accelerators", section III: D = S·D' + K − S, with reuse or with recomputation). Here they are kept:
K − S rows cost a few kilobytes. Recomputation costs multiply-accumulates in every band, and more of them the deeper the
chain is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from common.fusion.groups import Group
from common.graphs.source_graph import SourceGraph

LONGEST_CHAIN = 4
# Groups of one family can follow each other in a chain: pools pass rows on as convolutions do.
FAMILY = {"conv": "map", "pool": "map", "gemm": "rows"}


def find_chains(
    graph: SourceGraph, groups: Sequence[Group], stages: Mapping[int, ChainStage], longest: int = LONGEST_CHAIN
) -> tuple[tuple[int, ...], ...]:
    """Return every run of two to ``longest`` groups that pass on rows; at least one of them has a contraction.

    Groups without a stage do not work row by row and are in no chain. A chain holds all its weights or whole maps, so a
    longer chain would not fit.
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
        read = stages[after]
        taken = (read.images, read.in_rows, read.in_row_elements)
        fits = (stage.images, stage.out_rows, stage.out_row_elements) == taken
        if is_read_by_head and fits and FAMILY.get(groups[index].kind) == FAMILY.get(groups[after].kind, ""):
            links[index] = after
    return links


# Positions of a band: enough to fill the rows of an array.
FEWEST_POSITIONS = 64


@dataclass(frozen=True, slots=True)
class ChainStage:
    """One layer of a chain as rows of a map. A matrix product is a map of one column whose window is one row.

    ``window_rows`` is the span of the kernel: (K − 1) · dilation + 1.
    """

    images: int
    in_rows: int
    in_row_elements: int
    out_rows: int
    out_row_elements: int
    out_row_positions: int
    window_rows: int
    stride_rows: int
    macs: int


def rows_read(stage: ChainStage, rows: int) -> int:
    """Return the input rows that consecutive output rows need: S·(D' − 1) + K, padding not counted."""
    return min(stage.in_rows, (rows - 1) * stage.stride_rows + stage.window_rows)


def rows_held(stages: Sequence[ChainStage], band_rows: int) -> list[int]:
    """Return how many rows of each tensor between two stages are alive at once when overlaps are kept.

    In each band a stage computes only new rows: D' in the last stage, ∏S·D' in those before. Together with the K − S
    rows kept from the previous band, S·D' − S + K rows of its input are alive. A window below its stride keeps none.
    """
    fresh, held = min(band_rows, stages[-1].out_rows), []
    for stage in reversed(stages[1:]):
        made = min(stage.in_rows, fresh * stage.stride_rows)
        held.append(max(made, rows_read(stage, fresh)))
        fresh = made
    return held[::-1]


@dataclass(frozen=True, slots=True)
class Holding:
    """How a chain runs, and what it holds on the chip; ``weight_bytes`` is 0 where weights are streamed once."""

    band_rows: int
    band_count: int
    buffer_bytes: int
    weight_bytes: int

    @property
    def bytes(self) -> int:
        """On-chip bytes that the chain needs beside the buffers of its engine."""
        return self.buffer_bytes + self.weight_bytes


def hold(stages: Sequence[ChainStage], element_bits: int, weight_bytes: int, *, keeps_input: bool = False) -> Holding:
    """Return the cheaper of two ways to read every weight only once: hold few rows and all weights, or whole maps.

    With ``keeps_input`` the end of the chain adds the input of its beginning (a residual block).
    """
    banded, whole = _banded(stages, element_bits, weight_bytes, keeps_input), _whole(stages, element_bits, keeps_input)
    return min(banded, whole, key=lambda holding: holding.bytes)


def _banded(stages: Sequence[ChainStage], element_bits: int, weight_bytes: int, keeps_input: bool) -> Holding:
    last = stages[-1]
    band_rows = min(last.out_rows, ceil(FEWEST_POSITIONS / last.out_row_positions))
    elements = sum(
        rows * stage.in_row_elements for rows, stage in zip(rows_held(stages, band_rows), stages[1:], strict=True)
    )
    if keeps_input:  # from the oldest row that is still to be added to the newest row that the first layer has read
        lag = band_rows + sum(stage.window_rows - 1 for stage in stages)
        elements += min(lag, stages[0].in_rows) * stages[0].in_row_elements
    band_count = last.images * ceil(last.out_rows / band_rows)
    return Holding(band_rows, band_count, ceil(elements * element_bits / 8), weight_bytes)


def _whole(stages: Sequence[ChainStage], element_bits: int, keeps_input: bool) -> Holding:
    """Run one layer after the other over all images: the input and the output of a layer are alive at once."""
    maps = [0, *(stage.images * stage.in_rows * stage.in_row_elements for stage in stages[1:]), 0]
    elements = max(read + written for read, written in pairwise(maps))
    if keeps_input:
        elements += stages[0].images * stages[0].in_rows * stages[0].in_row_elements
    return Holding(stages[-1].out_rows, 1, ceil(elements * element_bits / 8), 0)
