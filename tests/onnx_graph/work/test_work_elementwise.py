"""FLOPs per element, pools, normalisations, moves: prime sizes, written-out arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from common.messages.errors import PipelineError
from common.onnx_graph.work import measure
from common.onnx_graph.work.registry import FORMULAS, formula
from tests.support.models.onnx_models import FLOAT, INT64, UINT8, Typed, load, model, weight, work_of

SHAPE, ELEMENTS = (2, 3, 5, 7), 2 * 3 * 5 * 7


def test_two_formulas_for_one_operator_are_refused():
    with pytest.raises(ValueError, match="two functions for :Relu"):
        formula("Relu")(FORMULAS["", "Relu"])


@pytest.mark.parametrize(
    ("op_type", "flops"),
    [
        ("Relu", 1),
        ("Erf", 1),
        ("Tanh", 1),
        ("LeakyRelu", 2),
        ("Softplus", 2),
        ("Elu", 3),
        ("Sigmoid", 4),
        ("HardSigmoid", 4),
        ("HardSwish", 5),
        ("Softmax", 5),
        ("LogSoftmax", 6),
        ("Hardmax", 1),
    ],
)
def test_unary_operators(op_type, flops):
    work = work_of(op_type, [SHAPE])
    assert (work.macs, work.flops) == (0, flops * ELEMENTS)
    assert work.gemm is None
    assert (work.weight_bytes, work.input_bytes, work.output_bytes) == (0, 4 * ELEMENTS, 4 * ELEMENTS)


def test_binary_operators_broadcast():
    """One FLOP per output; a scalar and a row are read at their own size."""
    work = work_of("Mul", [(5, 1), (2, 3, 1, 7)])
    assert work.flops == 2 * 3 * 5 * 7
    assert work.bytes == 4 * (5 + 2 * 3 * 7 + 2 * 3 * 5 * 7)


def test_the_same_tensor_twice_is_read_once():
    node = helper.make_node("Mul", ["x", "x"], ["y"], name="square")
    graph, nodes = load(model([node], {"x": SHAPE}, {"y": None}))
    work = measure(graph, nodes[0])
    assert work.flops == ELEMENTS
    assert work.read_bytes == {"x": 4 * ELEMENTS}
    assert work.bytes == 2 * 4 * ELEMENTS


@pytest.mark.parametrize(("op_type", "steps"), [("Sum", 2), ("Max", 2), ("Min", 2), ("Mean", 3)])
def test_variadic_operators(op_type, steps):
    work = work_of(op_type, [SHAPE] * 3)
    assert work.flops == steps * ELEMENTS
    assert work.bytes == 4 * 4 * ELEMENTS


def test_batch_normalization_is_one_scale_and_one_shift():
    """Four parameters per channel are read, though they fold to two: they are what the file holds."""
    work = work_of("BatchNormalization", [SHAPE, weight(3), weight(3), weight(3), weight(3)])
    assert (work.flops, work.weight_bytes) == (2 * ELEMENTS, 4 * 4 * 3)


@pytest.mark.parametrize(
    ("op_type", "steps"),
    [("MaxPool", 14), ("AveragePool", 15), ("LpPool", 30)],
)
def test_pools(op_type, steps):
    """15 taps: 14 steps between them, a division for an average; 15 powers, 14 sums and a root for a norm."""
    work = work_of(op_type, [(2, 3, 13, 17)], kernel_shape=[3, 5])
    assert work.flops == steps * 2 * 3 * 11 * 13
    assert work.output_bytes == 4 * 2 * 3 * 11 * 13


@pytest.mark.parametrize(("op_type", "flops"), [("GlobalAveragePool", 1), ("GlobalMaxPool", 1), ("GlobalLpPool", 2)])
def test_global_pools(op_type, flops):
    work = work_of(op_type, [SHAPE])
    assert (work.flops, work.output_bytes) == (flops * ELEMENTS, 4 * 2 * 3)


@pytest.mark.parametrize(("op_type", "flops"), [("ReduceMean", 1), ("ReduceL2", 2), ("ReduceLogSumExp", 3)])
def test_reductions_count_what_they_read(op_type, flops):
    work = work_of(op_type, [SHAPE], axes=[1, 3], keepdims=0)
    assert (work.flops, work.output_bytes) == (flops * ELEMENTS, 4 * 2 * 5)


def test_layer_normalizations():
    plain = work_of("LayerNormalization", [(2, 5, 7), weight(7), weight(7)])
    assert (plain.flops, plain.weight_bytes) == (7 * 70, 4 * 14)
    skip = work_of(
        "SkipLayerNormalization",
        [(2, 5, 7), (2, 5, 7), weight(7), weight(7)],
        outputs=[(2, 5, 7)],
        domain="com.microsoft",
    )
    assert skip.flops == 8 * 70
    assert work_of("Gelu", [(5, 7)], outputs=[(5, 7)], domain="com.microsoft").flops == 5 * 35


def test_quantization():
    scale, zero = np.ones((), np.float32), np.zeros((), np.uint8)
    quantize = work_of("QuantizeLinear", [(5, 7), scale, zero], outputs=[Typed(UINT8, None)])
    assert (quantize.flops, quantize.bytes) == (3 * 35, 4 * 35 + 4 + 1 + 35)
    dequantize = work_of("DequantizeLinear", [Typed(UINT8, (5, 7)), scale, zero])
    assert (dequantize.flops, dequantize.bytes) == (2 * 35, 35 + 4 + 1 + 4 * 35)


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes"),
    [
        ("Reshape", [SHAPE, np.array([6, 35])], {}),
        ("Flatten", [SHAPE], {}),
        ("Squeeze", [(1, 5, 7), np.array([0])], {}),
        ("Unsqueeze", [(5, 7), np.array([0])], {}),
        ("Identity", [SHAPE], {}),
        ("Dropout", [SHAPE], {}),
    ],
)
def test_views_move_nothing(op_type, operands, attributes):
    work = work_of(op_type, operands, **attributes)
    assert work.is_counted
    assert (work.macs, work.flops, work.bytes) == (0, 0, 0)
    assert set(work.read_bytes.values()) == {0}


def test_copies_read_and_write_everything():
    transposed = work_of("Transpose", [SHAPE], perm=[0, 2, 3, 1])
    assert (transposed.flops, transposed.bytes) == (0, 2 * 4 * ELEMENTS)
    concat = work_of("Concat", [(3, 5), (3, 7)], axis=1)
    assert concat.bytes == 2 * 4 * 3 * (5 + 7)
    cast = work_of("Cast", [SHAPE], outputs=[Typed(UINT8, None)], to=UINT8)
    assert cast.bytes == ELEMENTS * (4 + 1)
    split = work_of("Split", [(12, 5)], outputs=[None, None, None])
    assert split.bytes == 2 * 4 * 12 * 5


def test_gather_reads_the_rows_it_returns():
    work = work_of("Gather", [weight(97, 19), Typed(INT64, (2, 5))])
    assert work.weight_bytes == 4 * 2 * 5 * 19
    assert work.input_bytes == 8 * 2 * 5
    assert work.output_bytes == 4 * 2 * 5 * 19


def test_a_row_gathered_twice_comes_from_memory_once():
    work = work_of("Gather", [weight(3, 19), Typed(INT64, (7,))])
    assert (work.weight_bytes, work.output_bytes) == (4 * 3 * 19, 4 * 7 * 19)


def test_slice_and_expand():
    bounds = [np.array([1]), np.array([4]), np.array([0])]
    sliced = work_of("Slice", [(97, 19), *bounds])
    assert (sliced.input_bytes, sliced.output_bytes) == (4 * 3 * 19, 4 * 3 * 19)
    expanded = work_of("Expand", [(1, 19), np.array([5, 19])])
    assert (expanded.input_bytes, expanded.output_bytes) == (4 * 19, 4 * 5 * 19)


def test_an_operator_without_a_formula_has_unknown_work_and_known_bytes():
    work = work_of("MaxRoiPool", [(1, 3, 11, 13), (5, 5)], outputs=[(5, 3, 2, 2)], pooled_shape=[2, 2])
    assert not work.is_counted
    assert (work.macs, work.flops, work.gemm) == (None, None, None)
    assert work.bytes == 4 * (3 * 11 * 13 + 5 * 5 + 5 * 3 * 2 * 2)


@pytest.mark.parametrize("shape", [None, ("rows", 7)])
def test_an_unknown_shape_is_unknown_work_never_zero(shape):
    """The nonzero elements of a tensor are as many as the data says."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"], name="find"),
        helper.make_node("Cast", ["places"], ["cast"], name="cast", to=FLOAT),
        helper.make_node("Relu", ["cast"], ["y"], name="relu"),
    ]
    graph, loaded = load(model(nodes, {"x": (5, 7)}, {"y": shape and (2, None)}))
    work = measure(graph, loaded[2])
    assert work.is_counted
    assert (work.macs, work.flops, work.bytes) == (None, None, None)


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "problem"),
    [
        ("Conv", [(1, 3, 5, 5), weight(7, 3, 3, 3)], {"group": 0}, "attribute group is missing or less than 1"),
        ("Gemm", [(7,), (7, 5)], {}, "Input 0 expected to have rank 2 but has rank 1 .*"),
    ],
)
def test_a_node_that_breaks_its_specification_is_named(op_type, operands, attributes, problem):
    with pytest.raises(PipelineError, match=rf"node 'node': not a valid {op_type} \({problem}\); onnx.checker"):
        work_of(op_type, operands, outputs=[(1, 7, 3, 3)], **attributes)
