"""Multiply-accumulates of every contraction, in prime sizes with the arithmetic written out, and against loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.onnx_graph.work.registry import Gemm
from tests.support.models.onnx_models import INT8, INT32, UINT8, Typed, weight, work_of

MICROSOFT, NCHWC = "com.microsoft", "com.microsoft.nchwc"


def test_conv_with_bias():
    """(13 + 2·1 - 3)/2 + 1 = 7 rows, (17 + 2·1 - 5)/2 + 1 = 8 columns."""
    work = work_of("Conv", [(2, 3, 13, 17), weight(11, 3, 3, 5), weight(11)], strides=[2, 2], pads=[1, 1, 1, 1])
    outputs = 2 * 11 * 7 * 8
    macs = outputs * 3 * 3 * 5
    assert work.macs == macs == 55_440
    assert work.flops == 2 * macs + outputs
    assert work.gemm == Gemm(1, 2 * 7 * 8, 3 * 3 * 5, 11)
    assert work.input_bytes == 4 * 2 * 3 * 13 * 17
    assert work.weight_bytes == 4 * (11 * 3 * 3 * 5 + 11)
    assert work.output_bytes == 4 * outputs
    assert work.bytes == 4 * (2 * 3 * 13 * 17 + 11 * 3 * 3 * 5 + 11 + outputs)


def test_conv_without_bias_costs_its_products_only():
    work = work_of("Conv", [(1, 3, 13, 17), weight(7, 3, 1, 1)])
    assert (work.macs, work.flops) == (7 * 3 * 13 * 17, 2 * 7 * 3 * 13 * 17)


def test_grouped_conv():
    work = work_of("Conv", [(1, 6, 11, 13), weight(21, 2, 3, 3)], group=3)
    assert work.macs == 21 * (9 * 11) * 2 * 9
    assert work.gemm == Gemm(3, 9 * 11, 2 * 9, 7)


def test_depthwise_conv():
    work = work_of("Conv", [(1, 7, 11, 13), weight(7, 1, 3, 3)], group=7)
    assert work.macs == 7 * 9 * 11 * 9
    assert work.gemm == Gemm(7, 9 * 11, 9, 1)


def test_dilated_conv_spreads_its_taps():
    """A kernel of 3 dilated by 4 spans 9: 13 - 9 + 1 = 5 rows, 17 - 9 + 1 = 9 columns."""
    work = work_of("Conv", [(1, 3, 13, 17), weight(5, 3, 3, 3)], dilations=[4, 4])
    assert work.macs == 5 * 5 * 9 * 3 * 9


@pytest.mark.parametrize(
    ("data", "kernel", "outputs"), [((17,), (5,), 13), ((5, 7, 11), (2, 3, 5), 4 * 5 * 7)], ids=["1-D", "3-D"]
)
def test_conv_of_other_ranks(data, kernel, outputs):
    work = work_of("Conv", [(2, 3, *data), weight(7, 3, *kernel)])
    assert work.macs == 2 * 7 * outputs * 3 * int(np.prod(kernel))


def test_integer_and_quantized_conv():
    x, w = Typed(UINT8, (1, 3, 13, 17)), np.zeros((7, 3, 3, 3), np.int8)
    scale, zero, signed = weight(1), np.zeros(1, np.uint8), np.zeros(1, np.int8)
    macs, outputs = 7 * 11 * 15 * 27, 7 * 11 * 15
    plain = work_of("ConvInteger", [x, w, zero[0:1].reshape(()), signed[0:1]], outputs=[Typed(INT32, None)])
    assert (plain.macs, plain.flops) == (macs, 2 * macs)
    assert plain.output_bytes == 4 * outputs
    operands = [x, scale, zero, w, scale, signed, scale, zero, np.zeros(7, np.int32)]
    operands = [np.reshape(o, ()) if isinstance(o, np.ndarray) and o.shape == (1,) else o for o in operands]
    biased = work_of("QLinearConv", operands, outputs=[Typed(UINT8, None)])
    assert (biased.macs, biased.flops) == (macs, 2 * macs + 3 * outputs)
    assert biased.output_bytes == outputs
    assert biased.weight_bytes == 7 * 27 + 7 * 4 + 3 * (4 + 1)
    assert work_of("QLinearConv", operands[:8], outputs=[Typed(UINT8, None)]).flops == 2 * macs + 2 * outputs


def test_conv_transpose_multiplies_every_input():
    """Extent (5-1)·2 + 3 = 11 by (7-1)·2 + 3 = 15."""
    work = work_of("ConvTranspose", [(2, 6, 5, 7), weight(6, 11, 3, 3), weight(33)], group=3, strides=[2, 2])
    macs = 2 * 6 * 5 * 7 * 11 * 9
    assert work.macs == macs
    assert work.flops == 2 * macs + 2 * 33 * 11 * 15
    assert work.gemm == Gemm(3, 2 * 5 * 7, 2, 11 * 9)


@pytest.mark.parametrize("domain", [MICROSOFT, NCHWC])
def test_fused_conv_adds_and_activates(domain):
    op_type = "FusedConv" if domain == MICROSOFT else "Conv"
    shape = (1, 8, 11, 13)
    operands = [(1, 8, 13, 15), weight(8, 8, 3, 3), weight(8), shape]
    macs, outputs = 8 * 11 * 13 * 8 * 9, 8 * 11 * 13
    fused = work_of(op_type, operands, outputs=[shape], domain=domain, activation="Relu")
    assert (fused.macs, fused.flops) == (macs, 2 * macs + 3 * outputs)
    bare = work_of(op_type, operands[:2], outputs=[shape], domain=domain)
    assert bare.flops == 2 * macs


@pytest.mark.parametrize(("transposed", "left", "right"), [(0, (5, 7), (7, 11)), (1, (7, 5), (11, 7))])
def test_gemm_and_its_transposes(transposed, left, right):
    work = work_of("Gemm", [left, weight(*right), weight(11)], transA=transposed, transB=transposed)
    assert work.macs == 5 * 7 * 11
    assert work.flops == 2 * 5 * 7 * 11 + 5 * 11
    assert work.gemm == Gemm(1, 5, 7, 11)
    assert work.weight_bytes == 4 * (7 * 11 + 11)


def test_gemm_scale_and_activation():
    operands = [(5, 7), weight(7, 11)]
    assert work_of("Gemm", operands).flops == 770
    assert work_of("Gemm", operands, alpha=0.5).flops == 770 + 55
    fused = work_of("FusedGemm", operands, outputs=[(5, 11)], domain=MICROSOFT, activation="Relu", alpha=0.5)
    assert fused.flops == 770 + 55 + 55


@pytest.mark.parametrize(
    ("left", "right", "gemm"),
    [
        ((5, 7), (7, 11), Gemm(1, 5, 7, 11)),
        ((7,), (7, 11), Gemm(1, 1, 7, 11)),
        ((5, 7), (7,), Gemm(1, 5, 7, 1)),
        ((7,), (7,), Gemm(1, 1, 7, 1)),
        ((2, 3, 5, 7), (2, 3, 7, 11), Gemm(6, 5, 7, 11)),
        ((2, 3, 5, 7), (7, 11), Gemm(1, 30, 7, 11)),
        ((3, 5, 7), (1, 7, 11), Gemm(1, 15, 7, 11)),
        ((3, 5, 7), (7,), Gemm(1, 15, 7, 1)),
        ((5, 7), (3, 7, 11), Gemm(3, 5, 7, 11)),
        ((7,), (3, 7, 11), Gemm(3, 1, 7, 11)),
        ((2, 1, 5, 7), (3, 7, 11), Gemm(6, 5, 7, 11)),
        ((0, 5, 7), (0, 7, 11), Gemm(0, 5, 7, 11)),
    ],
)
def test_matmul_broadcasts_as_numpy_does(left, right, gemm):
    work = work_of("MatMul", [left, right])
    assert work.gemm == gemm
    assert work.macs == gemm.batch * gemm.m * gemm.k * gemm.n
    assert work.macs == np.matmul(np.ones(left), np.ones(right)).size * 7
    assert work.flops == 2 * work.macs


def test_matmul_reads_a_broadcast_operand_once():
    work = work_of("MatMul", [(2, 3, 5, 7), weight(7, 11)])
    assert work.weight_bytes == 4 * 7 * 11
    assert work.bytes == 4 * (2 * 3 * 5 * 7 + 7 * 11 + 2 * 3 * 5 * 11)


def test_integer_and_quantized_matmul():
    a, b = Typed(UINT8, (3, 5, 7)), Typed(INT8, (3, 7, 11))
    macs, outputs = 3 * 5 * 7 * 11, 3 * 5 * 11
    plain = work_of("MatMulInteger", [a, b], outputs=[Typed(INT32, None)])
    assert (plain.macs, plain.flops, plain.output_bytes) == (macs, 2 * macs, 4 * outputs)
    scale, zero, signed = np.ones((), np.float32), np.zeros((), np.uint8), np.zeros((), np.int8)
    quantized = work_of("QLinearMatMul", [a, scale, zero, b, scale, signed, scale, zero], outputs=[Typed(UINT8, None)])
    assert (quantized.macs, quantized.flops) == (macs, 2 * macs + 2 * outputs)
    assert quantized.gemm == Gemm(3, 5, 7, 11)


def test_fused_matmul_transposes_and_scales():
    operands, macs = [(3, 7, 5), (3, 11, 7)], 3 * 5 * 7 * 11
    fused = {"outputs": [(3, 5, 11)], "domain": MICROSOFT, "transA": 1, "transB": 1}
    assert work_of("FusedMatMul", operands, **fused).flops == 2 * macs
    scaled = work_of("FusedMatMul", operands, **fused, alpha=0.125)
    assert (scaled.macs, scaled.flops) == (macs, 2 * macs + 3 * 5 * 11)
    assert scaled.gemm == Gemm(3, 5, 7, 11)


extents = st.integers(1, 4)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    spatial=st.lists(st.integers(3, 7), min_size=1, max_size=2),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    pad=st.integers(0, 2),
    group=st.integers(1, 2),
    channels=extents,
    filters=extents,
)
def test_conv_counts_the_products_that_a_loop_makes(spatial, kernel, stride, pad, group, channels, filters):
    """Slide the window over the padded image and count a product for each tap under it."""
    axes = len(spatial)
    work = work_of(
        "Conv",
        [(2, group * channels, *spatial), weight(group * filters, channels, *[kernel] * axes)],
        group=group,
        strides=[stride] * axes,
        pads=[pad] * (2 * axes),
    )
    padded = np.zeros([extent + 2 * pad for extent in spatial])
    windows = np.lib.stride_tricks.sliding_window_view(padded, [kernel] * axes)
    products = windows[tuple(slice(None, None, stride) for _ in spatial)].size
    assert work.macs == 2 * group * filters * channels * products
    assert work.output_bytes == 4 * 2 * group * filters * products // kernel**axes


@settings(max_examples=40, deadline=None)
@given(batch=st.lists(extents, max_size=2), m=extents, k=extents, n=extents, ones=st.integers(0, 3))
def test_matmul_counts_the_products_that_a_loop_makes(batch, m, k, n, ones):
    """An elementwise product over (…, m, k, n) holds each multiplication once."""
    left = [1 if ones & 1 else extent for extent in batch] + [m, k]
    right = [1 if ones & 2 else extent for extent in batch] + [k, n]
    products = np.ones(left)[..., :, :, None] * np.ones(right)[..., None, :, :]
    assert work_of("MatMul", [left, right]).macs == products.size
