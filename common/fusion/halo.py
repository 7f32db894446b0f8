"""Layers that pass bands of rows on without leaving the chip: which rows a band needs, and what has to be held for it.

A map is cut into bands of full rows. So there is a halo in one direction only, and what is read or written lies in one
piece. Fused layers can compute the rows where bands overlap again, or keep them (Alwani et al., MICRO 2016,
"Fused-layer CNN accelerators", section III: D = S·D' + K − S, with reuse or with recomputation). Here they are kept:
K − S rows cost a few kilobytes, computing them again costs multiply-accumulates in every band and the more, the deeper
the chain is; :func:`recomputed_share` says how many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

# Positions of a band: enough to fill the rows of an array that passes over it.
FEWEST_POSITIONS = 64


@dataclass(frozen=True, slots=True)
class Stage:
    """One layer of a chain as rows of a map. A matrix product is a map of one column whose window is one row.

    ``window_rows`` is what the kernel spans: (K − 1) · dilation + 1.
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


def rows_read(stage: Stage, rows: int) -> int:
    """Rows of the input that consecutive rows of the output are made of, S·(D' − 1) + K, padding being no row."""
    return min(stage.in_rows, (rows - 1) * stage.stride_rows + stage.window_rows)


def rows_computed(stages: Sequence[Stage], band_rows: int) -> list[int]:
    """Rows of each stage's output that one band of the last one's rests on: the pyramid of Alwani et al."""
    rows = [min(band_rows, stages[-1].out_rows)]
    for stage in reversed(stages[1:]):
        rows.append(rows_read(stage, rows[-1]))
    return rows[::-1]


def rows_held(stages: Sequence[Stage], band_rows: int) -> list[int]:
    """Rows of each tensor between two stages that are alive at once when overlaps are kept.

    In a band each stage makes only the rows that are new, D' of the last one and ∏S·D' of those before. With the K − S
    rows kept of the band before, S·D' − S + K rows of its input are there. A window below its stride keeps none.
    """
    fresh, held = min(band_rows, stages[-1].out_rows), []
    for stage in reversed(stages[1:]):
        made = min(stage.in_rows, fresh * stage.stride_rows)
        held.append(max(made, rows_read(stage, fresh)))
        fresh = made
    return held[::-1]


def recomputed_share(stages: Sequence[Stage], band_rows: int) -> float:
    """Multiply-accumulates beyond those of the layers if overlaps are computed in every band; 0.25 is a quarter more.

    All bands are taken to be as tall as the inner ones, so it is exact without padding and else slightly above.
    """
    bands = ceil(stages[-1].out_rows / band_rows)
    rows = rows_computed(stages, band_rows)
    computed = sum(stage.macs * bands * made / stage.out_rows for stage, made in zip(stages, rows, strict=True))
    return computed / sum(stage.macs for stage in stages) - 1.0


@dataclass(frozen=True, slots=True)
class Holding:
    """How a chain is run, and what it holds on the chip; ``weight_bytes`` is 0 where weights pass by once."""

    band_rows: int
    band_count: int
    buffer_bytes: int
    weight_bytes: int

    @property
    def bytes(self) -> int:
        """All that the chain needs beside the buffers of its engine."""
        return self.buffer_bytes + self.weight_bytes


def hold(stages: Sequence[Stage], element_bits: int, weight_bytes: int, *, keeps_input: bool = False) -> Holding:
    """The cheaper of two ways to read every weight only once: few rows and all weights held, or whole maps.

    Args:
        stages: the layers of the chain.
        element_bits: width of a stored activation.
        weight_bytes: of all its layers.
        keeps_input: whether the chain's end adds what its beginning read (a residual block).
    """
    banded, whole = _banded(stages, element_bits, weight_bytes, keeps_input), _whole(stages, element_bits, keeps_input)
    return min(banded, whole, key=lambda holding: holding.bytes)


def _banded(stages: Sequence[Stage], element_bits: int, weight_bytes: int, keeps_input: bool) -> Holding:
    last = stages[-1]
    band_rows = min(last.out_rows, ceil(FEWEST_POSITIONS / last.out_row_positions))
    elements = sum(
        rows * stage.in_row_elements for rows, stage in zip(rows_held(stages, band_rows), stages[1:], strict=True)
    )
    if keeps_input:  # from the oldest row that is still to be added to the newest that the first layer has read
        lag = band_rows + sum(stage.window_rows - 1 for stage in stages)
        elements += min(lag, stages[0].in_rows) * stages[0].in_row_elements
    band_count = last.images * ceil(last.out_rows / band_rows)
    return Holding(band_rows, band_count, ceil(elements * element_bits / 8), weight_bytes)


def _whole(stages: Sequence[Stage], element_bits: int, keeps_input: bool) -> Holding:
    """One layer after the other over all images: what it reads and what it writes are there at once."""
    maps = [0, *(stage.images * stage.in_rows * stage.in_row_elements for stage in stages[1:]), 0]
    elements = max(before + after for before, after in pairwise(maps))
    if keeps_input:
        elements += stages[0].images * stages[0].in_rows * stages[0].in_row_elements
    return Holding(stages[-1].out_rows, 1, ceil(elements * element_bits / 8), 0)
