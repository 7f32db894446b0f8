"""Chains of windows with maps larger than the memory on the chip, and every way to run two of them in row tiles."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np

from common.design_space.mapping.cost import cost, stream_cost
from common.design_space.mapping.placement import Placement
from common.design_space.mapping.traffic import Nests
from common.workload.loop_nests import LoopNest
from tests.support.designs.every_chain import every_chain
from tests.support.designs.layer_graphs import graph_of
from tests.support.designs.mapped_models import window_layer


def window_chain(generator, count, most_rows=12, most_columns=5, most_channels=3):
    """A chain of windows, and the words of its largest map between two layers."""
    rows, columns = int(generator.integers(most_rows - 4, most_rows + 1)), int(generator.integers(1, most_columns + 1))
    channels, layers = int(generator.integers(1, min(most_channels, 2) + 1)), []
    for index in range(count):
        taps = min(int(generator.integers(1, 4)), rows)
        stride = int(generator.integers(1, 3)) if index and rows > 6 else 1
        nest = LoopNest(k=int(generator.integers(1, most_channels + 1)), c=channels, p=(rows - taps) // stride + 1,
                        q=columns, r=taps, stride_p=stride, height=rows, width=columns)  # fmt: skip
        layers.append(window_layer(nest, f"t{index - 1}" if index else "in", f"t{index}"))
        rows, channels = nest.p, nest.k
    largest = max(max(layer.layer.writes.values()) for layer in layers[:-1])
    return graph_of([layer.layer for layer in layers], {f"t{count - 1}"}), layers, largest


def least_in_row_tiles(layers, hardware):
    """The least product of two layers in row tiles, of any rows of the result and any resident weights; None if none.

    Energies and cycles of each layer are those of every mapping of its nest, in the room that the row tiles leave.
    """
    first, second = (next(iter(layer.nests.values())) for layer in layers)
    room, least = hardware.levels[1].capacity_words, None
    line = first.q * first.k  # words of a row of the map between the two
    for size in range(1, second.p):
        ends = [*range(size, second.p, size), second.p]
        starts = [0, *ends[:-1]]
        needed = [(end - 1) * second.stride_p + second.r for end in ends]
        needed[-1] = first.p  # the last row tile computes the rows that no window reads too
        computed = np.diff([0, *needed])
        begins = [min(start * second.stride_p, before) for start, before in zip(starts, [0, *needed], strict=False)]
        held = max(need - begin for need, begin in zip(needed, begins, strict=True)) * line
        for stays in product((False, True), repeat=2):
            weights = [nest.elements["weight"] * stay for nest, stay in zip((first, second), stays, strict=True)]
            resident, total = held + sum(weights), np.zeros((1, 2))
            if resident > room:
                continue
            for words in filter(None, weights):
                loaded = stream_cost(((float(words),), (float(words),), (), ()), 0, hardware)
                total = total + np.array([loaded.cycles, loaded.energy_pj])
            for at, (nest, rows) in enumerate(((first, computed), (second, np.diff([0, *ends])))):
                on_chip = {"output" if at == 0 else "input"} | ({"weight"} if stays[at] else set())
                for count in rows[rows > 0]:
                    points = _points(nest, int(count), frozenset(on_chip), resident, hardware)
                    total = None if total is None or points is None else _pareto(total, points)
            if total is not None:
                product_of = float((total[:, 0] * total[:, 1]).min())
                least = product_of if least is None else min(least, product_of)
    return least


@cache
def _points(nest, rows, on_chip, resident, hardware):
    part = LoopNest(k=nest.k, c=nest.c, p=rows, q=nest.q, r=nest.r, stride_p=nest.stride_p)
    found = []
    for mappings in every_chain(part, hardware):
        result = cost(mappings, Nests.of([part]), hardware, placement=Placement(on_chip))
        fits = result.fits & (result.needed_words[1] + resident <= hardware.levels[1].capacity_words)
        if "output" in on_chip:
            fits &= result.reads[1]["output"] == 0
        found.append(np.stack([result.cycles, result.energy_pj], axis=-1)[fits])
    points = np.concatenate(found)
    return _pareto(np.zeros((1, 2)), points) if len(points) else None


def _pareto(total, points):
    sums = (total[:, None] + points[None]).reshape(-1, 2)
    sums = sums[np.lexsort((sums[:, 1], sums[:, 0]))]
    falls = np.minimum.accumulate(sums[:, 1])
    return sums[np.concatenate([[True], falls[1:] < falls[:-1]])]
