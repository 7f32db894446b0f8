"""Samples, transforms, classical models, moves: prime sizes, written-out arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from common.graphs.graph import Graph, Node, Tensor
from common.onnx_graph.work import measure
from tests.support.models.onnx_models import INT64, Typed, weight, work_of

LEARNING = "ai.onnx.ml"
NO_REGION = weight(0)


@pytest.mark.parametrize(("mode", "taps"), [("linear", 2), ("cubic", 4)])
def test_resize_counts_the_taps_of_the_axes_that_change(mode, taps):
    """5 → 10 and 7 → 14: taps² products and one sum less per output; one axis alone has taps."""
    both = work_of("Resize", [(2, 3, 5, 7), NO_REGION, np.array([1, 1, 2, 2], np.float32)], mode=mode)
    assert both.flops == (2 * taps**2 - 1) * 2 * 3 * 10 * 14
    one = work_of("Resize", [(2, 3, 5, 7), NO_REGION, np.array([1, 1, 1, 2], np.float32)], mode=mode)
    assert one.flops == (2 * taps - 1) * 2 * 3 * 5 * 14


def test_nearest_resize_is_a_gather():
    """From 6 × 10 to 3 × 5: a quarter of the input is read."""
    work = work_of("Resize", [(1, 2, 6, 10), NO_REGION, np.array([1, 1, 0.5, 0.5], np.float32)], mode="nearest")
    assert (work.flops, work.input_bytes, work.output_bytes) == (0, 4 * 30, 4 * 30)


def test_blocked_upsample():
    operands, outputs = [(1, 8, 5, 7)], [(1, 8, 10, 14)]
    work = work_of(
        "Upsample", operands, outputs=outputs, domain="com.microsoft.nchwc", scales=[1, 1, 2, 2], mode="linear"
    )
    assert work.flops == 7 * 8 * 10 * 14


def test_samples_of_grids_and_regions():
    grid = work_of("GridSample", [(2, 3, 5, 7), (2, 11, 13, 2)], opset=20, mode="cubic")
    assert grid.flops == (2 * 16 - 1) * 2 * 3 * 11 * 13
    operands = [(2, 3, 13, 17), (5, 4), Typed(INT64, (5,))]
    shape = {"output_height": 2, "output_width": 3, "sampling_ratio": 2}
    aligned = work_of("RoiAlign", operands, **shape)
    assert aligned.flops == (4 * 7 + 4) * 5 * 3 * 2 * 3
    assert work_of("RoiAlign", operands, **shape, mode="max").flops == (4 * 7 + 3) * 5 * 3 * 2 * 3
    adaptive = work_of("RoiAlign", operands, output_height=2, output_width=3)
    assert adaptive.is_counted
    assert adaptive.flops is None
    assert adaptive.output_bytes == 4 * 5 * 3 * 2 * 3


def test_deformable_conv_samples_every_tap():
    """9 taps of 6 channels at 11 × 15 positions: 7 FLOPs each, and one for the mask."""
    operands = [(1, 6, 13, 17), weight(10, 6, 3, 3), (1, 18, 11, 15), weight(10)]
    work = work_of("DeformConv", operands, opset=19)
    macs, samples = 10 * 11 * 15 * 6 * 9, 11 * 15 * 6 * 9
    assert (work.macs, work.flops) == (macs, 2 * macs + 7 * samples + 10 * 11 * 15)
    assert work_of("DeformConv", [*operands, (1, 9, 11, 15)], opset=19).flops == work.flops + samples


def test_local_response_normalization():
    assert work_of("LRN", [(2, 3, 5, 7)], size=5).flops == (5 + 4) * 210


@pytest.mark.parametrize(("points", "rounds"), [(16, 4), (17, 5), (1, 0)])
def test_fourier_transforms(points, rounds):
    """5 · n · ⌈log₂ n⌉ for complex values, half of it for real ones."""
    whole = work_of("DFT", [(3, points, 2)], outputs=[(3, points, 2)], opset=17, axis=1)
    assert (whole.macs, whole.flops) == (0, 3 * 5 * points * rounds)
    real = work_of("DFT", [(3, points, 1)], outputs=[(3, points, 2)], opset=17, axis=1)
    assert real.flops == 3 * (5 * points * rounds // 2)


def test_short_time_fourier_transform():
    """(101 - 16) // 5 + 1 = 18 frames of 16 real values."""
    work = work_of("STFT", [(2, 101, 1), np.array(5), weight(16)], outputs=[(2, 18, 9, 2)])
    assert work.flops == 2 * 18 * (16 + 5 * 16 * 4 // 2)


def eliminate(size: int) -> int:
    """FLOPs of a determinant by elimination, counted one by one."""
    flops = size - 1
    for pivot in range(size):
        for _ in range(pivot + 1, size):
            flops += 1
            flops += sum(2 for _ in range(pivot + 1, size))
    return flops


@pytest.mark.parametrize("size", [1, 2, 5, 7])
def test_determinant(size):
    assert work_of("Det", [(3, size, size)]).flops == 3 * eliminate(size)


def test_linear_models_are_matrix_products():
    """11 samples of 7 features, 3 targets."""
    coefficients, intercepts = [0.5] * 21, [0.0] * 3
    regressor = work_of(
        "LinearRegressor", [(11, 7)], outputs=[(11, 3)], domain=LEARNING, coefficients=coefficients, targets=3
    )
    assert (regressor.macs, regressor.flops) == (11 * 7 * 3, 2 * 11 * 7 * 3)
    classifier = work_of(
        "LinearClassifier",
        [(11, 7)],
        outputs=[Typed(INT64, (11,)), (11, 3)],
        domain=LEARNING,
        coefficients=coefficients,
        intercepts=intercepts,
        post_transform="SOFTMAX",
        classlabels_ints=[0, 1, 2],
    )
    assert classifier.flops == 2 * 11 * 7 * 3 + (1 + 5) * 11 * 3


def test_support_vectors():
    """5 vectors of 7 features, a coefficient each."""
    settings = {"support_vectors": [0.5] * 35, "coefficients": [0.5] * 5, "rho": [0.0], "n_supports": 5}
    work = work_of("SVMRegressor", [(11, 7)], outputs=[(11, 1)], domain=LEARNING, kernel_type="RBF", **settings)
    assert work.macs == 11 * (35 + 5)
    assert work.flops == 2 * work.macs + 11 * (3 * 5 + 1)


def test_scatter_copies_and_a_tensor_scatter_updates_in_place():
    indices = Typed(INT64, (3, 2))
    plain = work_of("ScatterElements", [(97, 19), indices, (3, 2)], opset=18)
    assert (plain.flops, plain.bytes) == (0, 4 * 97 * 19 * 2 + (8 + 4) * 6)
    added = work_of("ScatterElements", [(97, 19), indices, (3, 2)], opset=18, reduction="add")
    assert added.flops == 6
    cache = work_of("TensorScatter", [(2, 97, 19), (2, 5, 19)], opset=24)
    assert (cache.flops, cache.input_bytes, cache.output_bytes) == (0, 4 * 190, 4 * 190)


@pytest.mark.parametrize(
    ("op_type", "settings"), [("RandomNormal", {"shape": [5, 7]}), ("RandomUniform", {"shape": [5, 7]})]
)
def test_random_numbers_are_written(op_type, settings):
    work = work_of(op_type, [], **settings)
    assert (work.flops, work.bytes) == (0, 4 * 35)


def test_a_gather_whose_result_is_unknown_has_no_work_and_unknown_bytes():
    work = work_of("Slice", [(97, 19), Typed(INT64, (1,)), Typed(INT64, (1,))], outputs=[(None, 19)])
    assert (work.macs, work.flops, work.bytes) == (0, 0, None)


MICROSOFT = "com.microsoft"


@pytest.mark.parametrize(
    ("op_type", "operands", "outputs", "attributes", "macs", "other"),
    [
        ("GemmFastGelu", [(5, 7), (7, 11), (11,)], [(5, 11)], {}, 385, 6 * 55),
        ("GemmFloat8", [(5, 7), (7, 11)], [(5, 11)], {}, 385, 2 * 55),
        ("QOrderedMatMul", [(5, 7), (), (7, 11), (), (), (11,)], [(5, 11)], {}, 385, 3 * 55),
        ("MatMulBlockQuantizedFp4Weight", [(2, 5, 7), (97,), (2,)], [(2, 5, 11)], {}, 770, 0),
        ("MatMulBnb4", [(2, 5, 7), (39,), (2,)], [(2, 5, 11)], {"K": 7, "N": 11}, 770, 0),
        (
            "MatMulNBitsMlp",
            [(5, 7), (5, 7), (7,), (11, 1, 8), (11,), "", (11, 1, 8), (11,)],
            [(5, 11)],
            {"K": 7, "N": 11, "activation": "silu"},
            2 * 385,
            (5 + 1) * 55 + (4 + 1) * 35,
        ),
        (
            "MatMulNBitsQkv",
            [(5, 7), "", (7,), (11, 1, 8), (11,), "", (3, 1, 8), (3,), "", (3, 1, 8), (3,)],
            [(5, 11), (5, 3), (5, 3)],
            {"K": 7, "Nq": 11, "Nkv": 3},
            5 * 7 * 17,
            4 * 35,
        ),
        (
            "QOrderedAttention",
            [(2, 5, 14), *[()] * 4, *[(14, 14)] * 3, *[()] * 3, *[(14,)] * 3, *[()] * 3],
            [(2, 5, 14)],
            {"num_heads": 2},
            3 * 10 * 14 * 14 + 100 * 14,
            6 * 100 + 3 * 140 + 2 * (3 * 140 + 100 + 140),
        ),
        (
            "GatedRelativePositionBias",
            [(2, 5, 21), (21,), (1, 3, 5, 5), (7, 8), (8,), (1, 3, 1, 1)],
            [(2, 3, 5, 5)],
            {"num_heads": 3},
            30 * 7 * 8,
            210 + (16 + 12) * 30 + 150,
        ),
        ("NhwcFusedConv", [(1, 13, 17, 3), (7, 3, 3, 3), (7,), (1, 11, 15, 7)], [(1, 11, 15, 7)], {}, 1155 * 27, 2310),
        ("QOrderedGelu", [(5, 7), (), ()], [(5, 7)], {}, 0, 10 * 35),
        ("BiasAdd", [(5, 7), (7,), (5, 7)], [(5, 7)], {}, 0, 2 * 35),
        ("BiasSplitGelu", [(5, 14), (14,)], [(5, 7)], {}, 0, 8 * 35),
        ("SkipGroupNorm", [(1, 5, 5, 8), (8,), (8,), (1, 8)], [(1, 5, 5, 8)], {"activation": 1}, 0, (7 + 1 + 5) * 200),
        ("Rfft", [(3, 16)], [(3, 9, 2)], {"signal_ndim": 1}, 0, 3 * 160),
        ("Irfft", [(3, 9, 2)], [(3, 16)], {"signal_ndim": 1}, 0, 3 * 160),
        ("GemmaRotaryEmbedding", [(2, 5, 7), *[(2, 3, 5, 7)] * 4], [(2, 3, 5, 7)] * 2, {}, 0, 140 + 3 * 420),
    ],
)
def test_operators_that_run_elsewhere(op_type, operands, outputs, attributes, macs, other):
    work = work_of(op_type, operands, outputs=outputs, domain=MICROSOFT, **attributes)
    assert (work.macs, work.flops) == (macs, 2 * macs + other)


def test_affine_grid():
    """Each of two coordinates of 5 × 7 places is two products and two sums."""
    work = work_of("AffineGrid", [(2, 2, 3), np.array([2, 1, 5, 7])], outputs=[(2, 5, 7, 2)], opset=20)
    assert work.flops == 4 * 2 * 5 * 7 * 2


def test_the_parts_of_a_sequence_are_as_large_as_the_whole():
    whole, parts = Tensor("whole", "float32", 32, (12, 5), "input"), Tensor("parts", "float32", 32, None, "activation")
    tensors = {"whole": whole, "parts": parts}
    split = Node("split", "SplitToSequence", "", ("whole",), ("parts",))
    joined = Node("join", "ConcatFromSequence", "", ("parts",), ("whole",))
    for node in (split, joined):
        work = measure(Graph((node,), tensors, ()), node)
        assert (work.flops, work.input_bytes, work.output_bytes) == (0, 240, 240)


def test_a_missing_operand_is_no_traceback():
    """An empty name where the specification wants an operand."""
    node = Node("gather", "Gather", "", ("", "places"), ("rows",))
    tensors = {name: Tensor(name, "int64", 64, (5,), "input") for name in ("places", "rows")}
    work = measure(Graph((node,), tensors, ()), node)
    assert (work.flops, work.bytes) == (0, 80)


def test_normalizer():
    for norm, flops in (("MAX", 2), ("L1", 3), ("L2", 3)):
        assert work_of("Normalizer", [(5, 7)], outputs=[(5, 7)], domain=LEARNING, norm=norm).flops == flops * 35
