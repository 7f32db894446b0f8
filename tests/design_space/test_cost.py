"""The cost of mapped nests against loops that are walked step by step, and against sums written out by hand."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.arrays import NUMPY, torch_namespace
from common.design_space.mapping.cost import Figures, cost
from common.design_space.mapping.mappings import Mappings, parse_mappings
from common.design_space.mapping.traffic import Nesting, Nests
from common.workload.loop_nests import LOOPS, LoopNest
from tests.support.paths import ROOT

GEMMINI = load_hardware("gemmini", ROOT / "configs" / "hardware")
MOVERS = {"weight": "GKCRS", "input": "NGCPQRS", "output": "NGKPQ"}


def nest(stride=1, dilation=1, **extents):
    return LoopNest(
        **{"groups" if loop == "G" else loop.lower(): extent for loop, extent in extents.items()},
        stride_p=stride,
        stride_q=stride,
        dilation_r=dilation,
        dilation_s=dilation,
    )


def of_text(text, **extents):
    return cost(parse_mappings([text], GEMMINI), Nests.of([nest(**extents)]), GEMMINI)


# --- by hand --------------------------------------------------------------------------------------------------------


def test_a_matrix_product_by_hand():
    # out[7, 10] = in[7, 15] @ weight[15, 10]: columns of weights in blocks of five, rows of the input one by one.
    result = of_text("L3[WIO] K2 P7 - L2[WI] N1 K5X - L1[O] C5 C3X - L0[W] N1", P=7, C=15, K=10)
    dram, scratchpad, accumulator, registers = range(4)
    # P, the innermost loop outside, leaves the weights in place: they come once. Each input comes for both K steps.
    assert result.reads[dram] == {"weight": 150, "input": 2 * 105, "output": 0}
    assert result.writes[dram] == {"output": 70}
    # Inside, C5 replaces the one weight in each register at every step, again for each of the seven rows.
    assert result.reads[scratchpad]["weight"] == result.writes[registers]["weight"] == 7 * 150
    assert result.reads[scratchpad]["input"] == 7 * 15 * 10 / 5  # a word serves five columns
    assert result.reads[registers]["weight"] == 7 * 15 * 10
    assert result.writes[accumulator]["output"] == 7 * 15 * 10 / 3  # three rows add up before they are written
    assert result.compute_cycles == 2 * 7 * 5
    assert result.cycles == max(2 * 7 * 5, math.ceil((150 + 210 + 70) / 8))
    # Energy: MAC, then blocks of 64 words at DRAM and of 16 at the scratchpad, accumulator words, register words.
    energy = 1050 * 0.5608 + (192 + 256 + 128) * 100
    energy += (math.ceil(150 / 16) + math.ceil(210 / 16) + math.ceil(1050 / 16) + math.ceil(210 / 16)) * 16 * 3.70664
    energy += (350 + 350 + 70 - 70) * (0.1005 * 2 + 1.94) + (1050 + 1050) * 0.48746172
    assert result.energy_pj == pytest.approx(energy)


def test_partial_sums_are_spilled_and_brought_back():
    result = of_text("L3[WIO] C3 P5 - L2[WI] N1 K2X - L1[O] N1 - L0[W] N1", P=5, C=3, K=2)
    assert result.writes[0]["output"] == 3 * 10  # each of three partial sums
    assert result.reads[0]["output"] == 2 * 10  # nothing stands there before the first


def test_a_halo_is_kept_by_the_innermost_loop_alone():
    inner = of_text("L3[WIO] Q2 P4 - L2[WI] N1 - L1[O] R3 S3 P2 Q3 - L0[W] N1", P=8, Q=6, R=3, S=3)
    # Tiles of 4 rows by 5 columns; four tiles per column of tiles overlap by two rows.
    assert inner.reads[0]["input"] == 2 * (4 + 3 * 2) * 5
    outer = of_text("L3[WIO] P4 Q2 - L2[WI] N1 - L1[O] R3 S3 P2 Q3 - L0[W] N1", P=8, Q=6, R=3, S=3)
    assert outer.reads[0]["input"] == 4 * 4 * (5 + 3)


def test_a_halo_is_brought_again_where_another_loop_is_the_innermost():
    result = of_text("L3[WIO] P4 K5 - L2[WI] N1 - L1[O] R3 P2 - L0[W] N1", P=8, R=3, K=5)
    assert result.reads[0]["input"] == 4 * 4  # K is the innermost loop outside: it finds the whole tile in place


def test_a_tile_that_does_not_divide_its_loop_is_smaller_at_the_end():
    # 7 rows in tiles of 3: 3, 3 and 1; 10 channels over 4 columns: 4, 4 and 2.
    result = of_text("L3[WIO] K3 P3 - L2[WI] N1 K4X - L1[O] P3 C2 - L0[W] N1", P=7, C=2, K=10)
    assert result.writes[0]["output"] == 70
    assert result.reads[0]["weight"] == 20
    assert result.reads[0]["input"] == 14 * 3
    assert result.compute_cycles == 3 * 3 * 3 * 2
    assert result.needed_words[1] == 4 * 2 + 3 * 2


@pytest.mark.parametrize(("scratchpad_bytes", "fits"), [(72, True), (71, False)])
def test_a_level_holds_one_tile_of_each_of_its_operands(scratchpad_bytes, fits):
    mapping, shape = parse_mappings(["L3[WIO] K2 - L2[WI] N1 - L1[O] C8 P8 - L0[W] N1"], GEMMINI), nest(K=2, C=8, P=8)
    sized = GEMMINI.resized(capacity_kib={"scratchpad": scratchpad_bytes / 1024})
    assert cost(mapping, Nests.of([shape]), sized).fits == [fits]


def test_a_level_that_holds_nothing_of_an_operand_is_passed_by():
    result = of_text("L3[WIO] K2 - L2[WI] N1 - L1[O] C3 - L0[W] N1", K=2, C=3)
    assert set(result.reads[1]) == {"weight", "input"}
    assert set(result.reads[2]) == {"output"}


# --- step by step ---------------------------------------------------------------------------------------------------


def tile_points(operand, origin, tile, shape):
    """The words of one tile; the input as Timeloop sees it, a rectangle without holes. The last tile may be smaller."""
    bounds = {loop: (at * tile[loop], min((at + 1) * tile[loop], shape.bounds[loop])) for loop, at in origin.items()}
    if any(bounds[loop][0] >= bounds[loop][1] for loop in MOVERS[operand]):
        return set()
    if operand != "input":
        axes = [range(*bounds[loop]) for loop in MOVERS[operand]]
    else:
        axes = [range(*bounds[loop]) for loop in "NGC"]
        for output, tap, stride, dilation in (
            ("P", "R", shape.stride_p, shape.dilation_r),
            ("Q", "S", shape.stride_q, shape.dilation_s),
        ):
            first, last = (bounds[output][end] * stride + bounds[tap][end] * dilation for end in (0, 1))
            axes.append(range(first, last - stride - dilation + 1))
    return set(itertools.product(*axes))


def walked_fills(operand, level, levels, shape):
    """Words that enter the tile of a level without fan-outs above it, by walking all loops outside."""
    outside = [(loop, steps) for number in range(level) for loop, steps in levels[number]]
    inside = [pair for number in range(level, len(levels)) for pair in levels[number]]
    tile = {loop: math.prod(steps for other, steps in inside if other == loop) for loop in LOOPS}
    running = [index for index, (_, steps) in enumerate(outside) if steps > 1]
    before, words, previous, old = None, 0, None, set()
    for position in itertools.product(*(range(steps) for _, steps in outside)):
        origin = dict.fromkeys(LOOPS, 0)
        for (loop, steps), index in zip(outside, position, strict=True):
            origin[loop] = origin[loop] * steps + index
        here = tuple(origin[loop] for loop in MOVERS[operand])
        if here == before:
            previous = position
            continue
        points = tile_points(operand, origin, tile, shape)
        is_kept = operand == "input" and previous and all(position[i] == previous[i] for i in running[:-1])
        kept = old if is_kept else set()
        words += len(points - kept)
        before, old, previous = here, points, position
    return words


loops = st.lists(st.tuples(st.sampled_from(LOOPS), st.integers(2, 3)), max_size=2, unique_by=lambda pair: pair[0])


@pytest.mark.slow
@settings(max_examples=80)
@given(st.lists(loops, min_size=4, max_size=4), st.integers(1, 3), st.integers(1, 2), st.integers(0, 1))
def test_fills_are_those_of_loops_that_are_walked(levels, stride, dilation, missing):
    """Also where factors do not divide their loop, and cover one iteration that it does not have."""
    covered = {loop: math.prod(s for level in levels for other, s in level if other == loop) for loop in LOOPS}
    extents = {loop: extent - (missing if extent > 3 else 0) for loop, extent in covered.items()}
    shape = nest(stride, dilation, **extents)
    temporal = np.ones((1, 4, len(LOOPS)))
    order = np.zeros((1, 4, len(LOOPS)), dtype=int)
    for number, level in enumerate(levels):
        named = [LOOPS.index(loop) for loop, _ in level][::-1]
        order[0, number] = [*named, *(loop for loop in range(len(LOOPS)) if loop not in named)]
        for loop, steps in level:
            temporal[0, number, LOOPS.index(loop)] = steps
    nesting = Nesting.of(Nests.of([shape]), Mappings(temporal, np.ones_like(temporal), order), NUMPY)
    for operand in MOVERS:
        for level in range(1, 4):
            expected = walked_fills(operand, level, levels, shape)
            assert nesting.fills(operand, level)[0] == pytest.approx(expected)


# --- the same in PyTorch --------------------------------------------------------------------------------------------

TEXTS = [
    "L3[WIO] P14 Q7 K8 C2 - L2[WI] N1 K4X - L1[O] K2 R3 S3 Q4 C8 C4X - L0[W] P2",
    "L3[WIO] C4 K4 Q28 P7 - L2[WI] N1 K8X - L1[O] S3 R3 K2 C16 P2 - L0[W] P2",
    "L3[WIO] K16 S3 C8 - L2[WI] N1 K4X - L1[O] R3 Q28 P14 C8X - L0[W] P2",
]
SHAPE = nest(stride=2, P=28, Q=28, K=64, C=64, R=3, S=3)


def test_pytorch_counts_the_same():
    pytest.importorskip("torch", reason="comes with requirements-torch.txt")
    torch = torch_namespace()
    mappings = parse_mappings(TEXTS, GEMMINI)
    other = Mappings(*(torch.asarray(array) for array in (mappings.temporal, mappings.spatial, mappings.order)))
    ours = cost(mappings, Nests.of([SHAPE]), GEMMINI)
    theirs = cost(other, Nests.of([SHAPE], torch), GEMMINI, xp=torch)
    assert theirs.cycles.numpy() == pytest.approx(ours.cycles)
    assert theirs.energy_pj.numpy() == pytest.approx(ours.energy_pj)
    assert (theirs.fits.numpy() == ours.fits).all()


def test_the_gradient_is_the_difference_quotient():
    pytest.importorskip("torch", reason="comes with requirements-torch.txt")
    torch = torch_namespace()
    mappings = parse_mappings(TEXTS, GEMMINI)
    nests = Nests.of([SHAPE], torch)
    temporal = torch.asarray(mappings.temporal).requires_grad_()
    spatial, order = torch.asarray(mappings.spatial), torch.asarray(mappings.order)

    def moved_words(steps):  # which nothing rounds up
        result = cost(Mappings(steps, spatial, order), nests, GEMMINI, xp=torch)
        return sum(words for level in (*result.reads, *result.writes) for words in level.values())

    moved_words(temporal).sum().backward()
    moved = [
        (row, level, loop)
        for row, level, loop in itertools.product(range(3), range(3), range(len(LOOPS)))
        if mappings.temporal[row, level, loop] > 1 and level == 0
    ]
    assert len(moved) == 11
    for place in moved:
        ends = []
        for sign in (1, -1):
            steps = temporal.detach().clone()
            steps[place] += sign * 1e-5
            ends.append(float(moved_words(steps)[place[0]]))
        assert float(temporal.grad[place]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)


def test_sizes_may_differ_from_mapping_to_mapping():
    small = GEMMINI.resized(rows=8, columns=8, capacity_kib={"scratchpad": 16, "accumulator": 8})
    mappings = parse_mappings(TEXTS[:2], GEMMINI)
    both = cost(mappings, Nests.of([SHAPE]), GEMMINI, Figures.of([GEMMINI, small]))
    assert both.cycles[0] == cost(mappings, Nests.of([SHAPE]), GEMMINI).cycles[0]
    assert both.energy_pj[1] == cost(mappings, Nests.of([SHAPE]), small).energy_pj[1]
    assert both.energy_pj[0] != both.energy_pj[1]


def test_a_level_without_a_bandwidth_never_limits():
    slow = replace(GEMMINI, levels=tuple(replace(level, bytes_per_cycle=None) for level in GEMMINI.levels))
    result = cost(parse_mappings(TEXTS, GEMMINI), Nests.of([SHAPE]), slow)
    assert (result.cycles == result.compute_cycles).all()


def test_a_batch_may_have_several_axes():
    mappings = parse_mappings(TEXTS, GEMMINI)
    shapes = [SHAPE, nest(P=28, Q=28, K=64, C=64, R=3, S=3), nest(P=28, Q=28, K=64, C=64, R=3, S=3, dilation=2)]
    pairs = Mappings(*(np.stack([array, array[::-1]]) for array in vars(mappings).values()))  # [restart, layer, …]
    both = cost(pairs, Nests.of(shapes), GEMMINI)
    for restart, order in enumerate(([0, 1, 2], [2, 1, 0])):
        one = cost(Mappings(*(array[order] for array in vars(mappings).values())), Nests.of(shapes), GEMMINI)
        assert (both.cycles[restart] == one.cycles).all()
        assert (both.energy_pj[restart] == one.energy_pj).all()


def test_a_level_whose_bandwidth_never_limits_has_a_derivative():
    """Steps and copies change the cycles of such a level by nothing, not by infinity over infinity."""
    pytest.importorskip("torch", reason="comes with requirements-torch.txt")
    torch = torch_namespace()
    assert any(level.bytes_per_cycle is None for level in GEMMINI.levels)
    mappings = parse_mappings(TEXTS, GEMMINI)
    factors = [torch.asarray(array).requires_grad_() for array in (mappings.temporal, mappings.spatial)]
    order = torch.asarray(mappings.order)
    cost(Mappings(*factors, order), Nests.of([SHAPE], torch), GEMMINI, xp=torch).cycles.sum().backward()
    assert all(factor.grad.isfinite().all() for factor in factors)
    assert factors[0].grad.any()
