"""Machines of configs/hardware against figures that were published for them, without a search that takes long."""

import pytest

from benchmarks.designs.gemmini_tiles import product_tile, software_cycles, window_tile
from benchmarks.designs.machines import Compared, eyeriss, figures, machine, product, sized
from common.design_space.accelerator.hardware import NothingFitsError
from common.design_space.mapping.dataflow import respects
from common.design_space.mapping.mappings import parse_mappings
from common.workload.loop_nests import LoopNest

EYERISS = [*eyeriss(figures()["eyeriss"])]


@pytest.mark.parametrize("layer", figures()["eyeriss"]["layers"], ids=lambda layer: layer["name"])
def test_the_published_mappings_of_eyeriss_keep_to_its_dataflow(layer):
    assert respects(parse_mappings([layer["mapping"]], machine("eyeriss")), machine("eyeriss")).all()


@pytest.mark.parametrize("row", EYERISS, ids=lambda row: f"{row.name} {row.quantity}")
def test_eyeriss_is_estimated_as_it_was_measured(row):
    assert row.is_within, (row.ours, row.published)


def test_the_dram_traffic_of_eyeriss_is_the_published_one_to_a_tenth():
    ratios = [row.ratio for row in EYERISS if row.quantity == "dram_mb"]
    assert len(ratios) == 5
    assert max(abs(ratio - 1) for ratio in ratios) < 0.1


@pytest.mark.slow
def test_a_matrix_product_on_the_tpu_is_bound_by_its_weights():
    row = figures()["products"][0]
    compared = product(row)
    assert compared.is_within
    # Each weight of 34 GB/s does one multiply-accumulate for each of the batch.
    assert compared.ours == pytest.approx(2 * row["batch"] * 34e9 * 1e-12, rel=0.02)


def test_sizes_of_a_figure_change_array_memories_and_bandwidth():
    sizes = {"rows": 8, "columns": 4, "kib": {"convolution_buffer": 128}, "bytes_per_cycle": {"dram": 1}}
    other = sized(machine("nvdla"), sizes)
    assert (other.array.rows, other.array.columns, other.levels[0].bytes_per_cycle) == (8, 4, 1)
    assert other.level("convolution_buffer").capacity_kib == 128


def test_gemminis_own_software_takes_these_tiles():
    """By hand, from the rules of gemmini.h: half of 256 KiB is 8,192 rows of 16 words, half of 64 KiB 512 rows."""
    gemmini = sized(machine("gemmini"), {"kib": {"scratchpad": 256, "accumulator": 64}}).with_rtl()
    # 784 x 4 x 4 blocks: five of rows fit 32 blocks of sums beside four of columns, and so do eight.
    assert product_tile((12544, 64, 64), gemmini) == (8 * 16, 4 * 16, 4 * 16)
    # Four images of 7 x 7 are 196 sums of a block of kernels, so two blocks fit. 13 blocks of channels take 13 x 4 x 81
    # rows of inputs and 2 x 9 x 208 of weights, 7,956 in all; one channel more would take 8,298.
    nest = LoopNest(n=4, k=512, c=512, p=7, q=7, r=3, s=3)
    assert window_tile(nest, gemmini) == (4, 7, 7, 32, 3, 3, 208)
    assert software_cycles(LoopNest(k=64, c=64, p=56, q=56), gemmini, 4) > 12544 * 64 * 64 / 256


def test_where_no_tile_of_gemminis_software_fits_it_is_told():
    """Half of 16 words is half a row of the scratchpad."""
    gemmini = sized(machine("gemmini"), {"kib": {"scratchpad": 16 / 1024, "accumulator": 64}})
    with pytest.raises(NothingFitsError, match="a tile of ones does not fit the memories of gemmini"):
        window_tile(LoopNest(k=16, c=16, p=7, q=7, r=3, s=3), gemmini)


def test_a_ratio_outside_of_its_limits_is_told():
    assert not Compared("m", "n", "q", published=2.0, ours=5.0, within=[1.0, 2.0], trust="recalled").is_within
