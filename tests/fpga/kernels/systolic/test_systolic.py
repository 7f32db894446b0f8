"""The systolic array's model: written-out arithmetic, loops that count, and what AutoSA's authors measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.files.configuration import Section
from common.files.yaml_file import load_yaml
from common.fpga.device.resources import Resources, total
from common.fpga.kernels.estimate import TimeScatter, widened
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.systolic.array import SystolicArray, build_array, fold_cycles
from common.fpga.kernels.systolic.array_models import (
    SERVES,
    ArrayTiming,
    ClockClosure,
    array_resources,
    cell_resources,
    dsp_count,
    read_systolic,
    terms,
)
from common.fpga.kernels.systolic.tiling import (
    Buffer,
    Operands,
    Tile,
    bank,
    buffers,
    double_buffered_cycles,
    operands,
    tile_traffic,
    with_room_for,
)
from common.intervals import ThreePoint
from common.messages.errors import ConfigurationError
from common.workload.layers import Convolution, Matmul, Pointwise, Rowwise
from common.workload.tasks import Task
from tests.support.kernels.dataflow_kernels import COSTS
from tests.support.paths import ROOT

CONFIG = ROOT / "configs" / "systolic_rtl.yaml"
MODELS = read_systolic(Section.of_file(CONFIG))
PLAIN = ArrayTiming(1.0, 1.0, 0.0)  # the equations alone
TWICE = TimeScatter(ThreePoint(2.0, 1.0, 0.5), 0.4, 0.1, 5)  # within a factor of two
# Four U250 banks of DDR4-2400 behind 512-bit ports; three of them are what AutoSA's designs use.
DDR4 = MemoryPorts(3, 512, 300, 3, 19.2e9, ThreePoint(0.6, 0.8, 0.9), 0.0)
SQUARE = Tile(120, 120, 64)
FAST = MemoryPorts(1, 1 << 20, 100, 1, 1e18, ThreePoint(1, 1, 1), 0.0)


def array(rows, cols, simd, tile, *, precision="int8", ports=FAST, schedule="overlapped"):
    held = buffers((rows, cols, simd), precision, tile)
    nothing = Resources()
    return SystolicArray(
        rows, cols, simd, precision, tile, held, ports, nothing, nothing, PLAIN, TWICE, schedule=schedule
    )


def gemm(m, k, n, precision="int8", **more):
    return Task("t", "gemm", (Matmul(m, k, n, **more),), precision, 0, 0, 0)


# --- folds ------------------------------------------------------------------------------------------------------------


def test_simple_folds_by_hand():
    # 7 x 5, K = 11 at 3 per cycle is 4 steps: 14 + 5 + 4 - 2 cycles, six times.
    assert fold_cycles(7, 5, 4, 6, "simple") == 6 * 21


def test_overlapped_folds_by_hand():
    assert fold_cycles(7, 5, 13, 6, "overlapped") == 14 + 5 + 13 - 2 + 5 * 13
    assert fold_cycles(7, 5, 4, 6, "overlapped") == 14 + 5 + 4 - 2 + 5 * 7  # seven sums leave a column one by one
    # ceil(7 / 3) = 3 cycles to leave, fewer than the 4 steps
    assert fold_cycles(7, 5, 4, 6, "overlapped", sums_per_cycle=3) == 7 + 3 + 5 + 4 - 2 + 5 * 4


def wavefront(rows, cols, steps):
    """One fold, element by element: operands arrive from neighbours, sums leave at the bottom one per column."""
    done = max(r + c + k for r in range(rows) for c in range(cols) for k in range(steps))
    return done + 1 + rows


@given(st.integers(2, 9), st.integers(2, 9), st.integers(1, 12))
def test_one_fold_is_what_a_wavefront_counts(rows, cols, steps):
    assert fold_cycles(rows, cols, steps, 1, "simple") == wavefront(rows, cols, steps)
    assert fold_cycles(rows, cols, steps, 1, "overlapped") == wavefront(rows, cols, steps)


@given(st.integers(2, 16), st.integers(2, 16), st.integers(1, 99), st.integers(1, 30))
def test_overlap_never_takes_longer(rows, cols, steps, folds):
    both = [fold_cycles(rows, cols, steps, folds, name) for name in ("simple", "overlapped")]
    assert both[1] <= both[0]
    assert both[1] >= folds * steps


def test_the_orientation_is_the_one_that_fills_the_array():
    wide = array(4, 32, 1, SQUARE)
    (turned,) = wide.products(gemm(32, 64, 4))
    assert turned.is_transposed
    assert (turned.matmul.m, turned.matmul.k, turned.matmul.n) == (4, 64, 32)
    assert wide.array_cycles(turned.matmul) == 8 + 32 + 64 - 2  # one fold
    assert wide.array_cycles(Matmul(32, 64, 4)) == 8 + 32 + 64 - 2 + 7 * 64
    (straight,) = wide.products(gemm(4, 64, 32))
    assert not straight.is_transposed


# --- tiles ------------------------------------------------------------------------------------------------------------


def ranges(whole, step):
    return [(start, min(start + step, whole)) for start in range(0, whole, step)]


def walk(matmul, tile, is_rows_outside):
    """Element counts loaded and stored when the tiles are walked with k innermost and the last tile is kept."""
    rows, cols, deep = ranges(matmul.m, tile.rows), ranges(matmul.n, tile.cols), ranges(matmul.k, tile.depth)
    outer = product(rows, cols) if is_rows_outside else ((i, j) for j, i in product(cols, rows))
    steps = [(i, j, k) for i, j in outer for k in deep]
    size = lambda first, second: (first[1] - first[0]) * (second[1] - second[0])  # noqa: E731
    before = [(None, None, None), *steps]
    pairs = list(pairwise(before))
    a = sum(size(i, k) for (was_i, _, was_k), (i, _, k) in pairs if (i, k) != (was_i, was_k))
    b = sum(size(k, j) for (_, was_j, was_k), (_, j, k) in pairs if (k, j) != (was_k, was_j))
    return a, b, matmul.m * matmul.n


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.tuples(*[st.integers(1, 23)] * 3), st.tuples(*[st.integers(1, 9)] * 3))
def test_tile_traffic_is_what_walking_the_tiles_counts(extents, tile):
    matmul, held = Matmul(*extents), Tile(*tile)
    parts = Operands(matmul.m * matmul.k, matmul.k * matmul.n, matmul.m * matmul.n)
    outer_loop, found = tile_traffic(matmul, held, parts)
    walked = {"rows": sum(walk(matmul, held, True)), "columns": sum(walk(matmul, held, False))}
    assert found.total == min(walked.values()) == walked[outer_loop]


def pipeline(matmul, tile, compute, bytes_per_cycle):
    """Every step by itself: while it computes, the next operands come, and the last tile's sums go in equal parts."""
    tiles = list(product(ranges(matmul.m, tile.rows), ranges(matmul.n, tile.cols)))
    deep = ranges(matmul.k, tile.depth)
    steps = [(i, j, k) for i, j in tiles for k in deep]
    extent = lambda pair: pair[1] - pair[0]  # noqa: E731
    load = [(extent(i) + extent(j)) * extent(k) / bytes_per_cycle for i, j, k in steps]
    store = [extent(i) * extent(j) / bytes_per_cycle for i, j in tiles]
    cycles = load[0] + store[-1]
    for at, (i, j, k) in enumerate(steps):
        before = at // len(deep) - 1
        moved = (load[at + 1] if at + 1 < len(steps) else 0) + (store[before] / len(deep) if before >= 0 else 0)
        cycles += max(compute(extent(i), extent(j), extent(k)), moved)
    return cycles


@pytest.mark.parametrize("bytes_per_cycle", [0.37, 2.0, 1000.0])
@pytest.mark.parametrize("extents", [(53, 97, 71), (52, 96, 70), (130, 23, 31)])
def test_double_buffered_cycles_are_those_of_a_step_by_step_pipeline(extents, bytes_per_cycle):
    matmul, tile = Matmul(*extents), Tile(13, 10, 12)
    rows, cols, deep = ceil(matmul.m / 13), ceil(matmul.n / 10), ceil(matmul.k / 12)
    assert deep > 1  # with one tile along k there is reuse that the pipeline above does not know
    traffic = Operands(matmul.m * matmul.k * cols, matmul.k * matmul.n * rows, matmul.m * matmul.n)

    def compute(m, n, k):
        return ceil(m / 3) * ceil(n / 5) * k

    found = double_buffered_cycles(
        matmul, tile, traffic, compute, lambda read, written: (read + written) / bytes_per_cycle
    )
    # The model pairs a step with its own loads, not with the next one's: up to 7 % where edges are
    # ragged and loads and folds take equally long.
    assert found == pytest.approx(pipeline(matmul, tile, compute, bytes_per_cycle), rel=0.08)


def test_one_tile_loads_computes_and_stores_in_turn():
    matmul = Matmul(7, 11, 5)
    found = double_buffered_cycles(
        matmul,
        Tile(8, 8, 16),
        Operands(77, 55, 35),
        lambda m, n, k: 1000 * m + 100 * n + k,
        lambda read, written: read + 3 * written,
    )
    assert found == (77 + 55) + (7000 + 500 + 11) + 3 * 35


# --- estimates --------------------------------------------------------------------------------------------------------


def test_a_product_by_hand():
    # 5 x 3 of 2 per cycle, one tile. Turned, eight channels are its rows: ceil(8/5) * ceil(11/3) = 8 folds of
    # ceil(13/2) = 7 steps (more than 5 to drain). First eleven lines enter, three groups of two at a time, so in three
    # pieces each, then weights, in seven steps of two folds, and constants. Last leave eleven pixels, three channels at
    # a time. The array fills and drains once: 10 + 3 - 2. Not turned it takes 22 + 21 + 1, 9 * 7 and 33 cycles.
    found = array(5, 3, 2, Tile(20, 12, 16)).estimate(gemm(11, 13, 8))
    assert found.cycles.likely == pytest.approx(11 * 3 + 7 * 2 + 1 + 8 * 7 + 11 * 3 + 11)
    assert found.flops == 2 * 11 * 13 * 8
    assert found.moved_bytes == 11 * 13 + 13 * 8 + 11 * 8
    assert found.time_us.likely == pytest.approx(found.cycles.likely / 100)


def test_draining_sets_the_pace_of_flat_products():
    # K = 2 at one product per cycle: two steps, but a column of five sums takes five cycles to leave. Before, 20 lines
    # enter, two steps of four folds of weights, and the constants; behind, 20 pixels leave in four parts each.
    engine = array(5, 5, 1, Tile(20, 20, 16))
    assert engine.estimate(gemm(20, 2, 20)).cycles.likely == pytest.approx(20 + 8 + 1 + 16 * 5 + 20 * 4 + 13)
    simple = replace(engine, schedule="simple")
    assert simple.estimate(gemm(20, 2, 20)).cycles.likely == pytest.approx(20 + 8 + 1 + 16 * (10 + 5 + 2 - 2) + 20 * 4)


def test_a_wide_drain_gives_more_sums_per_cycle():
    assert array(4, 4, 1, Tile(8, 8, 8)).sums_per_cycle == 1
    assert array(4, 4, 64, Tile(8, 8, 64)).sums_per_cycle == 64 * 8 // 32
    assert array(4, 4, 8, Tile(8, 8, 8), precision="fp32").sums_per_cycle == 8


def test_depthwise_convolution_uses_one_column():
    """Seven groups of one channel: each is a product with one column, so 1/C of the array computes."""
    depthwise = Convolution(1, 7, 15, 15, 7, 13, 13, 3, 3, groups=7)
    task = Task("t", "conv", (depthwise,), "int8", 0, 0, 0)
    found = array(13, 5, 1, Tile(26, 20, 16)).estimate(task)
    # 169 rows are 13 folds in seven tiles, the last of one fold. A tile of two folds computes for 2 x 13 cycles, its 26
    # windows enter one by one, and so do its results leave. The first one of a channel waits for nine steps of weights
    # and for the constants. At the end one more tile leaves, and then the last one; the array fills and drains once.
    turned = sum(FAST.duplex_cycles(size, size) for size in (7 * 15 * 15, 7 * 13 * 13))  # both maps
    assert found.cycles.likely == pytest.approx(7 * (9 + 1 + 7 * 26) + 26 + 13 + (26 + 5 - 2) + turned)
    assert found.flops == 2 * 169 * 9 * 7


def test_convolution_reads_its_input_and_not_the_gathered_matrix():
    layer = Convolution(1, 11, 23, 19, 3, 23, 19, 3, 3)
    whole = operands(layer, 2, Tile(23 * 19, 8, 8))
    assert whole.a == 11 * 23 * 19 * 2
    banded = operands(layer, 2, Tile(4 * 19, 8, 8))  # four rows at a time, each band with two rows more
    assert banded.a == 11 * 23 * 19 * 2 * (4 + 2) / 4
    assert (whole.b, whole.c) == (11 * 9 * 3 * 2, 23 * 19 * 3 * 2)
    pointwise = Convolution(1, 11, 46, 38, 3, 23, 19, stride_height=2, stride_width=2)
    assert operands(pointwise, 1, Tile(23 * 19, 8, 8)).a == 23 * 19 * 11  # a quarter of the input


def test_memory_decides_where_a_product_reads_much_and_computes_little():
    found = array(4, 64, 16, SQUARE, ports=DDR4).estimate(gemm(1, 4096, 4096))
    assert found.bound == "memory"
    attained = found.moved_bytes / (found.time_us.likely * 1e-6)
    assert 0.8 * 57.6e9 < attained < 57.6e9


def test_a_group_reads_what_it_needs_beside_its_operands():
    layer = Matmul(64, 64, 64)
    alone = Task("t", "gemm", (layer,), "int8", 64 * 64, 64 * 64, 64 * 64)
    residual = replace(alone, layers=(layer, Pointwise("Add", 64 * 64, 2)), read_bytes=2 * 64 * 64)
    engine = array(8, 8, 1, Tile(64, 64, 64))
    assert engine.estimate(alone).moved_bytes == 3 * 64 * 64
    assert engine.estimate(residual).moved_bytes == 4 * 64 * 64


@pytest.mark.parametrize(
    ("kernel", "stride", "side", "read"),
    [
        (3, 1, 8, 8 * 8 * (4 + 2) / 4),  # bands of four rows read two more each
        (1, 2, 16, 8 * 8),  # a stride of two reads one pixel of four
    ],
)
def test_a_residual_is_read_once_however_often_the_window_reads_its_input(kernel, stride, side, read):
    """By hand: 16 channels of 8 x 8 results from ``side``-wide maps, a residual of 16 channels, and 16 results."""
    layer = Convolution(1, 16, side, side, 16, 8, 8, kernel, kernel, stride_height=stride, stride_width=stride)
    weights, pixels = 16 * 16 * kernel**2, 8 * 8
    inputs = 16 * side**2
    alone = Task("t", "conv", (layer,), "int8", weights, inputs, 16 * pixels)
    added = replace(alone, layers=(layer, Pointwise("Add", 16 * pixels, 2)), read_bytes=inputs + 16 * pixels)
    engine = array(8, 8, 1, Tile(32, 16, 16 * kernel**2))
    assert engine.estimate(alone).moved_bytes == weights + 16 * read + 16 * pixels
    assert engine.estimate(added).moved_bytes == weights + 16 * read + 2 * 16 * pixels


def test_chain_moves_only_its_border_and_must_fit():
    layers = (Matmul(64, 32, 16), Pointwise("Relu", 1024), Matmul(64, 16, 8))
    chain = Task("t", "chain", layers, "int8", 640, 2048, 512, on_chip_bytes=4000)
    engine = array(8, 8, 1, Tile(64, 64, 64))
    assert engine.buffer_bytes == 2 * 128 * 64
    found = engine.estimate(chain)
    assert found.moved_bytes == 640 + 2048 + 512
    assert found.cycles.likely == pytest.approx(8 * 2 * 32 + 8 * 1 * 16 + 2 * 22)
    assert engine.estimate(replace(chain, on_chip_bytes=2 * 128 * 64 + 1)) is None
    assert engine.estimate(replace(chain, on_chip_bytes=0)) is None  # nothing keeps what lies between


@pytest.mark.parametrize(
    "task",
    [
        gemm(8, 8, 8, "fp32"),
        Task("t", "pointwise", (Pointwise("Relu", 64),), "int8", 0, 64, 64),
        Task("t", "attention", (Matmul(8, 8, 8), Rowwise("Softmax", 8, 8), Matmul(8, 8, 8)), "int8", 0, 64, 64),
    ],
)
def test_what_the_array_cannot_compute(task):
    assert array(4, 4, 1, Tile(8, 8, 8)).estimate(task) is None


sizes = st.tuples(st.integers(2, 20), st.integers(2, 20), st.sampled_from([1, 2, 4, 8]))
extents = st.tuples(*[st.integers(1, 300)] * 3)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(sizes, extents, st.integers(0, 2))
def test_more_work_never_takes_less_time(size, extent, which):
    engine = array(*size, SQUARE, ports=DDR4)
    more = list(extent)
    more[which] += size[0] * size[1] * size[2]
    few, many = (engine.estimate(gemm(*sides)) for sides in (extent, more))
    assert many.time_us.likely >= few.time_us.likely * (1 - 1e-9)


@settings(max_examples=150, deadline=None)
@given(sizes, extents)
def test_no_estimate_beats_its_roofs(size, extent):
    engine = array(*size, SQUARE, ports=DDR4)
    found = engine.estimate(gemm(*extent))
    assert found.cycles.likely >= found.flops / 2 / engine.peak_macs_per_cycle
    assert found.time_us.likely * 1e-6 >= found.moved_bytes / 57.6e9
    assert found.moved_bytes >= extent[0] * extent[1] + extent[1] * extent[2] + extent[0] * extent[2]
    worst, likely, best = found.time_us.cases
    assert worst >= likely >= best > 0


@settings(max_examples=100, deadline=None)
@given(sizes, extents)
def test_a_faster_memory_never_harms(size, extent):
    slow = array(*size, SQUARE, ports=replace(DDR4, channel_bytes_per_s=4e9))
    fast = replace(slow, ports=DDR4)
    assert fast.estimate(gemm(*extent)).time_us.likely <= slow.estimate(gemm(*extent)).time_us.likely


# --- resources --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "precision", "macs_per_dsp", "expected"),
    [
        ((13, 16, 8), "fp32", 0.2, 13 * 16 * 8 * 5),  # AutoSA: 8,320
        ((16, 14, 8), "fp32", 0.2, 8960),  # AutoSA's convolution
        ((24, 8, 64), "int8", 2, 6144),  # AutoSA's int8 array
        ((7, 5, 1), "int16", 1, 35),
        ((7, 5, 1), "int8", 2, 7 * 3),
        ((6, 5, 1), "int4", 4, 3 * 3),
        ((7, 5, 1), "int4", 4, 4 * 3 - 1),  # the single product in the corner is made of LUTs
        ((7, 5, 3), "bf16", 0.5, 7 * 5 * 3 * 2),
        ((7, 5, 8), "int8", 3, 7 * 5 * 3),  # a DSP58 adds three products along k
    ],
)
def test_dsp_by_hand(size, precision, macs_per_dsp, expected):
    assert dsp_count(*size, precision, macs_per_dsp) == expected


def test_terms_are_products_of_what_grows():
    assert terms("int16", 5, 7) == {"one": 1, "col": 7, "row": 5, "row_col": 35}
    assert set(terms("int8", 4, 4)) == {"one", "col", "odd_col", "row", "row_col", "row_odd_col"}
    odd = terms("int4", 5, 7)
    assert odd["odd_row_odd_col"] == 1 and odd["row_odd_col"] == 5 and odd["odd_row_col"] == 7
    assert not terms("int4", 4, 7)["odd_row_col"]


def test_flip_flops_of_a_cell_are_those_of_the_verilog():
    """int16: a sum of 48 bits and the operands that go on, 16 bits each; overlapped, a second sum and its mark."""
    simple, overlapped = (MODELS.fits["int16", name, "ff"].coefficients for name in ("simple", "overlapped"))
    assert simple["row_col"] == pytest.approx(48 + 16 + 16, rel=1e-3)
    assert overlapped["row_col"] == pytest.approx(2 * 48 + 16 + 16 + 1, rel=1e-3)


def test_every_fit_was_held_against_unseen_sizes():
    for fit in MODELS.fits.values():
        assert fit.fit_count > len(fit.coefficients)
        assert fit.held_out_count >= 10
        assert 0 <= fit.worst_error < 0.02


def test_cells_of_a_floating_point_array_by_hand():
    """Products and elements: 5 x 3 elements of 2 are 30 products and 15 elements."""
    found = cell_resources((5, 3, 2), "fp32", MODELS)
    assert found.lut == 30 * 420 + 15 * 360
    assert found.ff == 30 * 660 + 15 * 860


def test_published_arrays_give_their_own_logic_back():
    """AutoSA, 13 x 16 elements of 8 products, and Vitis BLAS, 16 x 16 of one: 803,752 and 250,679 LUT."""
    assert cell_resources((13, 16, 8), "fp32", MODELS).lut == pytest.approx(803_752, rel=0.06)
    assert cell_resources((16, 16, 1), "fp32", MODELS).lut == pytest.approx(250_679, rel=0.25)
    assert cell_resources((13, 16, 8), "fp32", MODELS).ff == pytest.approx(1_325_480, rel=0.06)


def test_banks_by_hand():
    assert bank(9, 0) == Resources()
    assert bank(15, 64) == Resources(lut=8 * 3)  # 7 + 7 + 1 bits
    assert bank(36, 512) == Resources(bram36=0.5)
    assert bank(8, 2048) == Resources(bram36=0.5)  # as 9 x 2048
    assert bank(64, 1000) == Resources(bram36=2)  # 4 blocks of 18 x 1024


def test_buffers_by_hand():
    # 4 x 3 of 2 int8: 8 banks of 16 bits. a: 2 * 5 folds * 8 steps = 80 deep, one 18 Kb block each; b: 2 * 2 * 8 = 32
    # deep, LUT RAM of 3 groups of 7 bits. Sums: 5 * 2 in LUT RAM of 32 bits. Results: 20 * 2 deep, 8 bits.
    found = buffers((4, 3, 2), "int8", Tile(20, 6, 16))
    assert total(held.resources for held in found) == Resources(lut=3 * 24 + 4 * 3 * 40 + 3 * 16, bram36=4 * 0.5)


def test_a_dsp58_has_the_operators_of_fp32_inside():
    """6 elements of 5 products: what is left of 420 LUT and 660 FF without an `add` and a `multiply` of 349 and 355."""
    hard = cell_resources((2, 3, 5), "fp32", MODELS, is_hard_float=True)
    soft = cell_resources((2, 3, 5), "fp32", MODELS)
    assert hard == Resources(6 * (5 * (420 - 349) + 360), 6 * (5 * (660 - 355) + 860))
    operators = COSTS.of(add=1, multiply=1)
    assert (soft.lut - hard.lut, soft.ff - hard.ff) == (30 * operators.lut, 30 * operators.ff)
    on_dsp58 = build_array((8, 8, 8), "fp32", DDR4, 1, MODELS)
    assert on_dsp58.resources.dsp == 512
    assert build_array((8, 8, 8), "fp32", DDR4, 0.2, MODELS).bare.lut - on_dsp58.bare.lut == pytest.approx(512 * 349)


def test_ultraram_has_one_shape():
    """72 bits by 4096 words, whatever is asked for (UG573)."""
    assert bank(72, 4096, "ultra") == Resources(uram=1)
    assert bank(73, 4096, "ultra") == Resources(uram=2)
    assert bank(8, 1, "ultra") == Resources(uram=1)
    assert bank(128, 4097, "ultra") == Resources(uram=4)


A, B = Buffer("a", 12, 128, 512), Buffer("b", 24, 128, 512)


def test_a_chain_is_kept_in_ultraram_where_there_is_room():
    """36 banks of 128 bits: two UltraRAM each, 4096 deep, hold 36 x 4096 x 16 bytes; in blocks, 36 x 512 x 16."""
    roomy = Resources(lut=1e6, bram36=1000, uram=1000)
    a, b = with_room_for((A, B), 2_000_000, roomy)
    assert {a.memory, b.memory} == {"UltraRAM"}
    assert total(each.resources for each in (a, b)) == Resources(uram=72)
    assert a.content_bytes + b.content_bytes == 36 * 4096 * 16
    a, b = with_room_for((A, B), 36 * 512 * 16, roomy)  # the tile's own room suffices: the least share wins
    assert (a.kind, b.kind) != ("ultra", "ultra") or 72 / 1000 <= 36 * 2 / 1000


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(kept=st.integers(0, 10**7), bram=st.integers(0, 2000), uram=st.integers(0, 1000))
def test_memories_stay_within_their_share_and_no_other_way_keeps_more(kept, bram, uram):
    """Every way is tried here: both operands, in blocks of one to eight times the depth, or in UltraRAM."""
    room = Resources(lut=1e6, bram36=bram, uram=uram)
    found = with_room_for((A, B), kept, room)
    shapes = ((2, 0, 512), (4, 0, 1024), (7.5, 0, 2048), (15, 0, 4096), (0, 2, 4096))  # of a bank: blocks, ultra, words
    kept_by_way = []
    for of_a, of_b in product(shapes, shapes):
        blocks, ultra = (12 * of_a[kind] + 24 * of_b[kind] for kind in (0, 1))
        if blocks <= 0.8 * bram and ultra <= 0.8 * uram:
            kept_by_way.append(min(kept, 16 * (12 * of_a[2] + 24 * of_b[2])))
    needed = total(each.resources for each in found)
    if kept_by_way:
        assert needed.bram36 <= 0.8 * bram and needed.uram <= 0.8 * uram
        assert min(kept, sum(each.content_bytes for each in found)) == max(kept_by_way)
    else:
        assert found == (A, B)


def test_without_a_budget_buffers_are_as_deep_as_the_tile():
    plain = build_array((16, 16, 8), "int8", DDR4, 2, MODELS)
    roomy = build_array(
        (16, 16, 8), "int8", DDR4, 2, MODELS, kept_bytes=10**6, room=Resources(1e6, 1e6, 1000, 500, 5000)
    )
    assert plain.buffer_bytes == 2 * (plain.tile.rows + plain.tile.cols) * plain.tile.depth
    assert roomy.buffer_bytes >= 10**6 > plain.buffer_bytes
    assert roomy.resources.uram > 0 == plain.resources.uram


def test_deeper_elements_take_more_of_everything():
    flat, deep = (cell_resources((8, 8, simd), "int8", MODELS) for simd in (1, 4))
    assert deep.lut - flat.lut == 64 * 3 * 19
    # By hand: a product has 16 bits; 17 bits for two columns go down and twice 8 bits to the right, but not out of the
    # last row and the last two columns. The edges have some registers more, which skew the operands.
    inside = 3 * (64 * 16 + 56 * 17 / 2 + 48 * 8)
    assert inside < deep.ff - flat.ff < 1.1 * inside


@pytest.mark.parametrize(
    ("precision", "size", "lut", "ff"),
    [
        *(("int16", (8, 8, 4), 13226, 14262), ("int8", (8, 8, 4), 7832, 12206), ("int4", (8, 8, 4), 5129, 9182)),
        *(("int16", (6, 7, 5), 10322, 10686), ("int8", (6, 7, 5), 6023, 9067), ("int4", (6, 7, 5), 3893, 6855)),
        ("int8", (8, 4, 16), 11746, 18031),
    ],
)
def test_cells_of_several_products_are_those_that_yosys_counted(precision, size, lut, ff):
    cells = cell_resources(size, precision, MODELS)
    assert cells.lut == pytest.approx(lut, rel=0.05)
    assert cells.ff == pytest.approx(ff, rel=0.002)


def test_build_array_asks_for_its_ports():
    engine = build_array((16, 16, 8), "int8", DDR4, 2, MODELS)
    assert engine.name == "systolic-16x16x8-int8" and engine.kind == "systolic" and engine.clock_mhz == 300
    assert engine.resources.memory_channels == 3
    assert engine.resources.dsp == 16 * 8 * 8
    assert engine.ports.word_cycles == pytest.approx(1 / MODELS.timing.port_share)
    bare = array_resources((16, 16, 8), "int8", engine.buffers, DDR4, 2, replace(MODELS, control=Resources()))
    assert engine.bare == bare + MODELS.control
    assert engine.resources == engine.bare.scaled(MODELS.design_factors)


def test_an_unknown_key_of_the_configuration_is_refused():
    content = load_yaml(CONFIG)
    content["fits"]["int8"]["simple"]["lut"]["coefficients"]["odd_row"] = 1.0
    with pytest.raises(ConfigurationError, match=r"fits.int8.simple.lut.coefficients.odd_row"):
        read_systolic(Section(CONFIG, content))


# --- what was measured ------------------------------------------------------------------------------------------------

# AutoSA on an Alveo U250 (its repository's examples): array, format, DSPs per product, tile, clock, work, the kernel
# time in ms, and how far the model may be. The last two were not floorplanned.
AUTOSA = {
    "fp32 13x16x8": ((13, 16, 8), "fp32", 0.2, Tile(260, 256, 512), 300, Matmul(1040, 1024, 1024), 2.32357, 0.07),
    "int8 24x8x64": ((24, 8, 64), "int8", 2.0, Tile(264, 256, 64), 300, Matmul(1056, 1024, 1024), 0.302619, 0.14),
    "convolution 16x14x8": (
        *((16, 14, 8), "fp32", 0.2, Tile(64, 56 * 14, 64 * 9), 265),
        *(Convolution(1, 512, 58, 58, 512, 56, 56, 3, 3), 15.865, 0.11),
    ),
    "fp32 at 146 MHz": ((13, 16, 8), "fp32", 0.2, Tile(260, 256, 512), 146, Matmul(1040, 1024, 1024), 5.487, 0.1),
    "int8 at 136 MHz": ((24, 8, 64), "int8", 2.0, Tile(264, 256, 64), 136, Matmul(1056, 1024, 1024), 0.759, 0.03),
}


@pytest.mark.parametrize("name", AUTOSA)
def test_measured_arrays(name):
    size, precision, macs_per_dsp, tile, clock, layer, measured_ms, limit = AUTOSA[name]
    task = Task("t", "gemm", (layer,), precision, 0, 0, 0)
    for held in (tile, None):  # with the published tile, and with that of a plan
        engine = build_array(
            size, precision, replace(DDR4, clock_mhz=clock), macs_per_dsp, MODELS, held, serves="product"
        )
        found = engine.estimate(task)
        assert found.time_us.likely / 1e3 == pytest.approx(measured_ms, rel=limit)
        assert found.bound == "compute"
        assert found.time_us.optimistic <= measured_ms * 1e3 <= found.time_us.pessimistic


def test_a_call_takes_its_instructions_and_waits_for_operands():
    engine = array(5, 3, 2, Tile(20, 12, 16))
    plain = engine.estimate(gemm(11, 13, 8)).cycles.likely
    calls = replace(engine, timing=replace(PLAIN, call_cycles=700.0))
    assert calls.estimate(gemm(11, 13, 8)).cycles.likely == pytest.approx(plain + 700)
    waits = replace(engine, timing=replace(PLAIN, array_share=0.01))
    assert waits.estimate(gemm(11, 13, 8)).cycles.likely == pytest.approx(11 * 13 * 8 / 30 / 0.01)


def test_the_interval_is_a_factor_above_what_no_array_beats():
    """A factor of two on either side; but no array beats its multipliers."""
    small, large = (array(4, 4, 1, SQUARE).estimate(gemm(*[side] * 3)) for side in (5, 480))
    assert small.time_us.pessimistic == pytest.approx(2 * small.time_us.likely)
    assert small.time_us.optimistic == pytest.approx(small.time_us.likely / 2)
    assert large.cycles.optimistic == pytest.approx(480**3 / 16)
    assert large.cycles.likely / 2 < large.cycles.optimistic


# --- clock ------------------------------------------------------------------------------------------------------------


def test_clock_by_regions_and_density():
    one = {is_dense: ThreePoint.exactly(0.9 - 0.1 * is_dense) for is_dense in (False, True)}
    closure = ClockClosure(0.5, one, 0.5, ThreePoint(0.2, 0.6, 1.0))
    assert closure.share(0.49).likely == 0.9
    assert closure.share(0.5).likely == 0.8
    assert closure.share(0.9, 2).cases == (0.2, 0.5, 1.0)
    assert closure.share(0.1, 3).cases == (0.2, 0.25, 1.0)
    assert closure.share(0.1, 4).cases == (0.125, 0.125, 1.0)


def test_the_likely_clock_falls_with_the_regions():
    """HPCC's products on the U280's three regions closed at 236 and at 100 MHz of 300, AutoSA's at 136 to 300."""
    shares = [MODELS.clock.share(0.45, regions) for regions in (1, 2, 3, 4)]
    likely = [share.likely for share in shares]
    assert likely == sorted(set(likely), reverse=True)
    assert 300 * likely[2] == pytest.approx(236, abs=2)
    assert all(share.pessimistic <= 100 / 300 + 0.001 and share.optimistic == 1 for share in shares[1:])


def test_clock_and_design_add_up_as_squares():
    """ln 2 and ln 4: the reach is sqrt(1 + 4) ln 2; on the other side ln 2 and nothing."""
    found = widened(ThreePoint(2.0, 1.0, 0.5), ThreePoint(0.25, 1.0, 1.0))
    assert found.pessimistic == pytest.approx(2**5**0.5)
    assert (found.likely, found.optimistic) == pytest.approx((1.0, 0.5))


def test_an_array_at_its_closing_clock():
    engine = array(8, 8, 1, SQUARE, ports=DDR4)
    slow = replace(engine, ports=engine.ports.closing(ThreePoint(0.4, 0.8, 1.0)))
    task = gemm(480, 480, 480)
    assert slow.clock_mhz == pytest.approx(0.8 * 300)
    assert slow.estimate(task).time_us.likely == pytest.approx(engine.estimate(task).time_us.likely / 0.8, rel=1e-4)
    assert slow.estimate(task).time_us.pessimistic > 2 * slow.estimate(task).time_us.likely


def test_the_fastest_case_is_that_of_the_fastest_clock():
    """No case beats the multipliers; but they are faster where the clock is."""
    engine = array(4, 4, 1, SQUARE)
    fast = replace(engine, ports=replace(engine.ports, clock_factors=ThreePoint(0.5, 1.0, 1.25)))
    task = gemm(480, 480, 480)
    assert engine.estimate(task).time_us.optimistic == pytest.approx(480**3 / 16 / 100)
    assert fast.estimate(task).time_us.optimistic == pytest.approx(480**3 / 16 / 125)


def test_a_network_takes_longer_than_a_product_on_the_same_array():
    """Published networks attain half of an array's peak, tuned products nine tenths."""
    product, network = (build_array((16, 16, 8), "int8", DDR4, 2, MODELS, serves=serves) for serves in SERVES)
    task = Task("t", "gemm", (Matmul(1024, 1024, 1024),), "int8", 0, 0, 0)
    times = [engine.estimate(task).time_us for engine in (product, network)]
    assert 1.2 < times[1].likely / times[0].likely < 1.4
    assert times[1].pessimistic / times[1].likely > 2 > times[0].pessimistic / times[0].likely


def test_resources_in_three_cases():
    bands = {"lut": ThreePoint(3.0, 1.5, 0.5)}
    bare = Resources(lut=100, dsp=16)
    engine = replace(
        array(4, 4, 1, SQUARE), bare=bare, array_bands={"lut": ThreePoint(2.0, 1.0, 0.5)}, design_bands=bands
    )
    assert engine.resource_cases == {"lut": ThreePoint(300, 150, 50)}
    assert engine.array_cases == {"lut": ThreePoint(200, 100, 50)}
