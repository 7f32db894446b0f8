"""Products of one row, as a decoder has for each token: use of the array, and weights that stay on the chip.

Expected values are written out by hand from the sizes of Gemmini: 16 x 16 elements, 8 bytes per cycle at DRAM, two
words per cycle and column (32) at the scratchpad.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.design_space.accelerator.hardware import Fanout
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.hierarchy.best_schedule import best_schedule
from common.design_space.hierarchy.model_layers import _model_layer
from common.design_space.hierarchy.physical_floor import physical_floor
from common.design_space.hierarchy.schedule_rows import group_rows, mapping_rows, staying_bytes
from common.design_space.hierarchy.staying_weights import staying_sets
from common.workload.loop_nests import LoopNest
from common.workload.map_layers import MapLayer
from tests.support.designs.layer_graphs import graph_of
from tests.support.designs.mapped_models import window_layer
from tests.support.paths import CONFIGS

GEMMINI = load_hardware("gemmini", CONFIGS / "hardware")
ONE_ROW = LoopNest(k=64, c=96)
BACK = LoopNest(k=96, c=64)
WEIGHTS = 64 * 96
ACTIVATIONS = {"input_bits": 8, "weight_bits": 8, "output_bits": 8, "has_weight": False}  # of a product of two


def scheduled(nests, hardware, *, weights_stay=False):
    """The best schedule of products that follow each other, and its rows."""
    layers = tuple(window_layer(nest, f"t{index}", f"t{index + 1}") for index, nest in enumerate(nests))
    graph = graph_of([layer.layer for layer in layers], {f"t{len(nests)}"})
    schedule = best_schedule(graph, layers, hardware, weights_stay=weights_stay)
    floor = physical_floor(graph, layers, hardware, weights_stay=weights_stay)
    assert floor.edp <= schedule.edp
    return schedule, [*mapping_rows("d", schedule, hardware)]


def test_one_row_fills_a_weight_stationary_array_but_waits_for_its_weights():
    _, [row] = scheduled([ONE_ROW], GEMMINI)
    assert row["array_element_count"] == 16 * 16  # 16 of 64 results by 16 of 96 channels
    assert row["modelled_cycles"] == (WEIGHTS + 96 + 64) / 8  # at DRAM; the array alone takes 24 steps
    assert row["bound_by"] == "dram"
    assert row["array_use_share"] == pytest.approx(WEIGHTS / (788 * 256))


@pytest.mark.parametrize(("rows", "used"), [(1, 16), (5, 5 * 16), (32, 256)])
def test_on_an_array_of_pixels_one_row_uses_one_row(rows, used):
    fanouts = {"accumulator": (Fanout(("P",), "rows"),)}
    levels = (
        replace(level, fanouts=fanouts.get(level.name, level.fanouts), bytes_per_cycle=None) for level in GEMMINI.levels
    )  # no memory limits it
    hardware = replace(GEMMINI, levels=tuple(levels))
    _, [row] = scheduled([replace(ONE_ROW, p=rows)], hardware)
    assert row["array_element_count"] == used
    assert row["bound_by"] == "multipliers"


def test_weights_that_stay_leave_the_scratchpad_as_the_bound():
    schedule, [row] = scheduled([ONE_ROW], GEMMINI, weights_stay=True)
    # Each weight is read once; an input is written once and read for four groups of 16 results.
    assert row["modelled_cycles"] == (WEIGHTS + 96 + 4 * 96) / 32
    assert row["bound_by"] == "scratchpad"
    assert (row["dram_weight_bytes"], row["resident_level"]) == (0, "scratchpad")
    assert "weight" in row["resident_operands"].split()
    assert staying_bytes(schedule, GEMMINI) == WEIGHTS


def test_of_two_products_one_stays_where_the_memory_has_room_for_one():
    hardware = GEMMINI.resized(capacity_kib={"scratchpad": 8})
    schedule, rows = scheduled([ONE_ROW, BACK], hardware, weights_stay=True)
    assert sorted(row["dram_weight_bytes"] for row in rows) == [0, WEIGHTS]
    assert staying_bytes(schedule, hardware) == WEIGHTS
    peak = max(row["resident_tensor_bytes"] for row in rows)
    assert WEIGHTS <= peak <= 8 * 1024
    # What is between the products does not go to DRAM: the input of the first and the result of the second do.
    assert sum(row["dram_input_bytes"] + row["dram_output_bytes"] + row["dram_beside_bytes"] for row in rows) == 96 * 2


def test_weights_that_stay_never_make_a_product_worse():
    for kib in (1, 4, 8, 13, 16):
        hardware = GEMMINI.resized(capacity_kib={"scratchpad": kib})
        alone, _ = scheduled([ONE_ROW, BACK, ONE_ROW], hardware)
        staying, _ = scheduled([ONE_ROW, BACK, ONE_ROW], hardware, weights_stay=True)
        assert staying.edp <= alone.edp


def test_the_largest_weights_stay_first_and_a_memory_without_weights_keeps_none():
    nests = [LoopNest(k=10, c=10), LoopNest(k=20, c=30), LoopNest(k=5, c=8)]
    layers = [window_layer(nest, f"t{index}", f"t{index + 1}") for index, nest in enumerate(nests)]
    sets = staying_sets(layers, GEMMINI.resized(capacity_kib={"scratchpad": 672 / 1024}))
    assert sets == [{1}, {0, 2}, set()]  # rooms of 630, 504, 336 and 168 words for 600, 100 and 40
    tpu = load_hardware("tpu-v1", CONFIGS / "hardware")
    assert staying_sets(layers, tpu) == [set()]


def attention_layer(keys, width, operators):
    """One query over some keys, with operators between its two products that read and write the scores."""
    nests = (LoopNest(c=width, k=keys, **ACTIVATIONS), LoopNest(c=keys, k=width, **ACTIVATIONS))
    reads = {"query": width, "keys": keys * width, "values": keys * width}
    spilled = keys * (2 + 2 * operators)
    macs = sum(nest.macs for nest in nests)
    layer = MapLayer("a", "attention", ("a",), ("MatMul",), nests, 1, macs, 0, reads, {"t": width}, spilled, None)
    return _model_layer(layer, {f"a.{index}": nest for index, nest in enumerate(nests)})


@pytest.mark.parametrize("operators", [1, 3])
def test_the_scores_of_one_token_do_not_go_through_memory(operators):
    keys, width = 128, 64
    layer = attention_layer(keys, width, operators)
    graph = graph_of([layer.layer], {"t"})
    alone = best_schedule(graph, (layer,), GEMMINI, keeps=False)
    kept = best_schedule(graph, (layer,), GEMMINI)
    words = [sum(row["dram_bytes"] for row in group_rows("d", schedule, GEMMINI)) for schedule in (alone, kept)]
    compulsory = 2 * width + 2 * keys * width  # query and result, keys and values
    assert words == [compulsory + (2 + 2 * operators) * keys, compulsory]
    assert kept.edp < alone.edp
    assert [row["resident_operands"] for row in mapping_rows("d", kept, GEMMINI)] == ["output", "input"]
    small = GEMMINI.resized(capacity_kib={"scratchpad": 2 * keys / 1024})  # no room beside the scores for any tile
    assert sum(row["dram_bytes"] for row in group_rows("d", best_schedule(graph, (layer,), small), small)) == words[0]


def test_products_of_two_activations_have_no_weights_that_stay():
    layers = [window_layer(replace(ONE_ROW, has_weight=False), "t0", "t1")]
    assert staying_sets(layers, GEMMINI) == [set()]
