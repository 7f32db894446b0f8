"""Cycles of Gemmini's RTL: what a tile takes, by hand, and the fit to rows that were made up."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.designs import gemmini_rtl
from common.design_space.accelerator.hardware import RtlCosts
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.dosa_rows import estimate, read_rows
from common.design_space.mapping.gemmini_rtl import rtl_cycles
from common.design_space.mapping.mappings import parse_mappings
from common.design_space.mapping.traffic import Nests
from common.workload.loop_nests import LoopNest
from tests.support.paths import CONFIGS

GEMMINI = load_hardware("gemmini", CONFIGS / "hardware")
NOTHING = dict.fromkeys(RtlCosts.__dataclass_fields__, 0.0)


def cycles(text, shape, **costs):
    return float(rtl_cycles(parse_mappings([text], GEMMINI), Nests.of([shape]), RtlCosts(**NOTHING | costs))[0])


WINDOW = LoopNest(k=40, c=80, p=12, q=12, r=3, s=3)
TILED = "L3[WIO] P4 K2 Q2 - L2[WI] N1 K5X - L1[O] K4 R3 S3 Q6 C10 C8X - L0[W] P3"
TILES = 4 * 2 * 2  # tiles of 3 x 6 outputs, 20 of 40 channels, all 80 inputs; 8 x 8 is the array that holds 5 x 8


@pytest.mark.parametrize(
    ("part", "count"),
    [
        ("window_command_cycles", 1),
        ("product_command_cycles", 0),
        ("row_cycles", 5 * 8 * 2 + 9 * 80),  # 80 channels of an input are two requests, 20 of a weight are one
        ("byte_cycles", 5 * 8 * 80 + 9 * 80 * 20),
        ("block_cycles", 3 * 10 * 9 * 6),  # three blocks of outputs, ten of inputs; three outputs in one instruction
        ("pixel_cycles", 3 * 10 * 9 * 18),
        ("weight_row_cycles", 3 * 10 * 9 * 8),
    ],
)
def test_the_parts_of_a_convolution(part, count):
    assert cycles(TILED, WINDOW, **{part: 7.0}) == pytest.approx(7 * TILES * count)


def test_the_slowest_part_of_a_tile_counts():
    load = 5 * 8 * 80 + 9 * 80 * 20
    assert cycles(TILED, WINDOW, byte_cycles=1.0, window_command_cycles=load - 1.0) == TILES * load
    assert cycles(TILED, WINDOW, byte_cycles=1.0, window_command_cycles=load + 1.0) == TILES * (load + 1)
    assert cycles(TILED, WINDOW, pixel_cycles=10.0, byte_cycles=1.0) == TILES * 10 * 3 * 10 * 9 * 18


def test_maps_are_square_and_an_even_window_has_one_more_output():
    flat = LoopNest(k=4, c=4, p=12, q=3, r=2, s=2)
    text = "L3[WIO] P4 - L2[WI] N1 K4X - L1[O] R2 S2 Q3 P3 C4X - L0[W] N1"
    assert cycles(text, flat, window_command_cycles=1.0) == 5 * 5  # 13 x 13 outputs in tiles of 3 x 3
    odd = LoopNest(k=4, c=4, p=12, q=3, r=3, s=3, stride_p=2, stride_q=2)
    assert cycles(text.replace("R2 S2", "R3 S3"), odd, window_command_cycles=1.0) == 4 * 4


def test_a_product_counts_its_tile_in_blocks_of_the_array():
    shape = LoopNest(k=64, c=96, p=32)
    text = "L3[WIO] K2 C2 P2 - L2[WI] N1 K4X - L1[O] K8 C12 P16 C4X - L0[W] N1"
    # Tiles of 16 x 32 x 48 elements are 1 x 2 x 3 blocks of 4 x 4; the layer is 8 x 16 x 24 blocks.
    tiles = 8 * 8 * 8
    assert cycles(text, shape, product_command_cycles=1.0) == tiles
    assert cycles(text, shape, window_command_cycles=1.0) == 0
    assert cycles(text, shape, block_cycles=1.0) == tiles * 6
    assert cycles(text, shape, pixel_cycles=1.0) == tiles * 4 * 6
    assert cycles(text, shape, weight_row_cycles=1.0) == tiles * 6 * 4
    assert cycles(text, shape, byte_cycles=1.0) == tiles * (4 * 12 + 12 * 8)
    assert cycles(text, shape, row_cycles=1.0) == tiles * (4 + 12)


def rows(count=60):
    """Layers of several sizes in tiles of several sizes, drawn."""
    generator, lines = np.random.default_rng(11), []
    for _ in range(count):
        k, c, p = (2 ** generator.integers(2, 6, 3)).tolist()
        k_out, c_out, p_out = (2 ** generator.integers(0, 4, 3)).tolist()
        window = int(generator.choice([1, 3]))
        mapping = f"L3[WIO] K{k_out} C{c_out} P{p_out} Q{p_out} - L2[WI] N1 K4X - L1[O] K{k // 4} "
        mapping += f"R{window} S{window} C{c // 4} Q{p} P{p} C4X - L0[W] N1"
        lines.append([window, window, p * p_out, p * p_out, c * c_out, k * k_out, 1, 1, 1, mapping])
    names = [f"prob.{name}" for name in ("R", "S", "P", "Q", "C", "K", "N", "Wstride", "Hstride")]
    return pd.DataFrame(lines, columns=[*names, "mapping.mapping"])


@pytest.mark.slow
def test_the_fit_finds_the_costs_that_made_the_rows(monkeypatch):
    monkeypatch.setattr(gemmini_rtl, "EVALUATIONS", 600)
    table = rows()
    large = GEMMINI.resized(capacity_kib={"accumulator": 4096, "scratchpad": 4096})
    mapped = read_rows(table, large)
    measured = gemmini_rtl.modelled(mapped, RtlCosts(300.0, 100.0, 2.0, 0.25, 1.0, 1.5, 0.5))
    known = np.arange(len(table)) % 2 == 0
    cycles = gemmini_rtl.modelled(mapped, gemmini_rtl.fitted(mapped, measured, known))
    assert np.abs(cycles / measured - 1)[~known].mean() < 0.1
    _, error, rank = gemmini_rtl.line("made up", cycles, measured)
    assert error == pytest.approx(np.abs(cycles / measured - 1).mean())
    assert rank > 0.99


def test_an_estimate_has_the_cycles_of_the_rtl_where_its_costs_are_known():
    table = rows(4)
    large = GEMMINI.resized(capacity_kib={"accumulator": 4096, "scratchpad": 4096})
    estimates = estimate(read_rows(table, large), large)
    mapped = read_rows(table, large)
    assert (estimates["rtl_cycles"] == np.rint(gemmini_rtl.modelled(mapped, GEMMINI.rtl))).all()
    assert load_hardware("u280", CONFIGS / "hardware").rtl is None


def test_the_comparison_without_rows_says_so(tmp_path, capsys):
    assert gemmini_rtl.main(["--rows", str(tmp_path / "none")]) == 0
    assert "nothing is compared" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not gemmini_rtl.ROWS.is_file(), reason="DOSA's rows are not there")
def test_the_rtl_is_met_on_rows_that_were_not_fitted(capsys):
    assert gemmini_rtl.main([]) == 0
    assert "above" not in capsys.readouterr().out
