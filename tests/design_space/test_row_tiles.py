"""Layers in row tiles: against every way to run two of them, executed, and as rows of design_groups."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from common.design_space.groups.axis_tiles import MOST_EXTENT, tile_sizes
from common.design_space.hierarchy.best_schedule import best_schedule
from common.design_space.hierarchy.schedule_rows import group_rows, mapping_rows, staying_bytes
from common.design_space.hierarchy.workload import HierarchyWorkload
from common.design_space.mapping.cost import MappedBatch
from common.design_space.mapping.space import nest_fronts
from common.design_space.mapping.space.loop_chains import nest_chains
from common.design_space.results.design_result import DesignTask
from common.design_space.search.settings import Search
from common.messages.errors import PipelineError
from common.workload.loop_nests import LoopNest
from tests.support.designs.mapped_simulator import run_schedule
from tests.support.designs.row_tiled_models import least_in_row_tiles, window_chain
from tests.support.designs.small_layers import GEMMINI


def machine(words, accumulator_words):
    """Gemmini of 2 x 2 with a scratchpad of few words, whose memories pay for single words."""
    kib = {"scratchpad": words / 1024, "accumulator": 2 * accumulator_words * 4 / 1024}
    sized = GEMMINI.resized(rows=2, columns=2, capacity_kib=kib)
    levels = (replace(level, block_words=1, bytes_per_cycle=None) for level in sized.levels)
    return replace(sized, levels=tuple(levels))


def drawn(seed, **sizes):
    """A chain of windows, and a machine whose scratchpad holds most of its largest map."""
    generator = np.random.default_rng(seed)
    graph, layers, largest = window_chain(generator, **sizes)
    return graph, layers, machine(int(largest * generator.uniform(0.5, 0.95)) + 4, int(generator.choice([4, 16])))


def is_row_tiled(schedule):
    return any(step.option.row_tiles for step in schedule.steps)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3, 4, 5, 7])
def test_no_two_layers_in_row_tiles_are_better(seed):
    graph, layers, hardware = drawn(seed, count=2, most_columns=1, most_channels=1)
    best, least = best_schedule(graph, layers, hardware), least_in_row_tiles(layers, hardware)
    assert best.edp <= least * (1 + 1e-9)
    if is_row_tiled(best):
        assert best.edp == pytest.approx(least)
    assert is_row_tiled(best) == (seed != 3)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "weights"), [(0, 2 + 2), (7, 2 + 3)])
def test_weights_that_stay_are_counted_in_row_tiles_too(seed, weights):
    graph, layers, hardware = drawn(seed, count=2, most_columns=1, most_channels=1)
    best = best_schedule(graph, layers, hardware, weights_stay=True)
    assert all(step.option.row_tiles for step in best.steps)
    assert sum(row["dram_weight_bytes"] + row["dram_beside_bytes"] for row in mapping_rows("d", best, hardware)) == 0
    assert staying_bytes(best, hardware) == weights


class Pressed:
    """Ctrl-C is pressed before the search asks so many times."""

    def __init__(self, times):
        self.times = times

    @property
    def is_interrupted(self):
        self.times -= 1
        return self.times < 0

    def begin(self, bound):
        """Take no note."""

    def hear(self, evaluation_count, most, edp):
        """Take no note."""


@pytest.mark.parametrize(("times", "is_complete"), [(10**6, True), (1, False), (3, False)])
@pytest.mark.parametrize("seed", [0, 7])
def test_evaluations_are_the_mappings_whose_cost_is_computed(seed, times, is_complete, monkeypatch):
    """Weights that may stay ask for a nest in more settings, one after the other: no mapping counts twice."""
    counts = []

    class Counted(MappedBatch):
        def cost(self, *args):
            result = super().cost(*args)
            counts.append(np.size(result.cycles))
            return result

    graph, layers, hardware = drawn(seed, count=2, most_columns=1, most_channels=1)
    monkeypatch.setattr(nest_fronts, "MappedBatch", Counted)
    design = DesignTask("d", hardware, Search(weights_stay=True))
    point = HierarchyWorkload(graph, layers, frozenset({8})).searched(design, Pressed(times)).point
    assert (point["is_complete"], point["evaluation_count"]) == (is_complete, sum(counts))


SEEDS = range(8)


@pytest.mark.slow
def test_row_tiles_are_often_best_and_their_groups_end_where_they_end():
    row_tiled = 0
    for seed in SEEDS:
        graph, layers, hardware = drawn(seed, count=3, most_rows=9, most_columns=3, most_channels=2)
        best = best_schedule(graph, layers, hardware)
        assert run_schedule(graph, best).peak <= hardware.levels[1].capacity_words
        row_tiled += is_row_tiled(best)
        groups, rows = [*best.groups()], [*group_rows("d", best, hardware)]
        assert [step for group in groups for step in group] == [*best.steps]
        for group, row in zip(groups, rows, strict=True):
            together = {step.option.row_tiles for step in group}
            assert len(together) == 1
            tiles = together.pop()
            assert row["tile_row_count"] == (tiles.rows if tiles else None)
            members = [step.option.layer for step in group]
            assert row["layer_count"] == len(set(members))
            if tiles:
                assert set(members) == set(tiles.layers)
            assert row["first_layer"] == layers[members[0]].layer.name
            assert row["last_layer"] == layers[members[-1]].layer.name
        for before, after in pairwise(groups):
            ends = before[-1].option.row_tiles != after[0].option.row_tiles
            assert ends or not after[0].option.places.begin_words
    assert row_tiled >= len(SEEDS) // 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [103, 113])
def test_a_larger_scratchpad_never_hurts(seed):
    graph, layers, hardware = drawn(seed, count=2 + seed % 2, most_rows=9, most_columns=2, most_channels=2)
    words, products = hardware.levels[1].capacity_words, list[float]()
    for factor in (1, 1.4, 2, 3.2, 4.2, 6):
        scratchpad = replace(hardware.levels[1], capacity_kib=int(words * factor) / 1024, slope_pj_per_byte_per_kib=0.0)
        larger = replace(hardware, levels=(hardware.levels[0], scratchpad, *hardware.levels[2:]))
        products.append(best_schedule(graph, layers, larger).edp)
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(products))


def test_the_sizes_of_tiles_are_the_smallest_for_each_number_of_them():
    for extent in range(1, 600):
        assert set(tile_sizes(extent)) == {-(-extent // count) for count in range(1, extent + 1)}
        assert [*tile_sizes(extent)] == sorted(tile_sizes(extent), reverse=True)
    assert len(tile_sizes(MOST_EXTENT)) < 2 * MOST_EXTENT**0.5 + 2


def test_an_extent_that_no_search_can_cut_is_refused_in_a_line():
    with pytest.raises(PipelineError, match=r"cannot cut 2,147,483,648 steps into tiles; .* may have 1,048,576 steps"):
        tile_sizes(2**31)
    with pytest.raises(PipelineError, match="cannot cut 2,147,483,648 steps into tiles"):
        nest_chains(LoopNest(k=8, c=3, p=2**31, q=4, r=3, s=3, stride_p=2), GEMMINI)
