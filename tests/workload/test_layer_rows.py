from __future__ import annotations

from dataclasses import astuple
from random import Random
from typing import Any

import numpy as np
import pytest
from onnx import helper

from common.graphs.source_graph import build
from common.workload.layer_rows import READERS, layers_by_node
from common.workload.layers import Convolution, Layer, Matmul, Pointwise, Pooling, Rowwise
from models.__main__ import BUILDERS
from tests.support.models.onnx_models import INT8, INT32, UINT8, Typed, model, weight
from tests.support.tables.fpga import edge_row
from tests.support.tables.source import SIZES, source_rows

# The others differ in size only, and take long to build.
LIGHT = [name for name in BUILDERS if name.startswith("tiny")] + ["resnet50", "squeezenet"]


def layers_of(
    op_type: str, operands: list[Any], output: Any = None, *, domain: str = "", outputs: int = 1, **attributes: Any
) -> tuple[Layer, ...] | None:
    """Layers of one node: a shape is an input, an array a weight, a text another operand's name or nothing."""
    names = [spec if isinstance(spec, str) else f"x{index}" for index, spec in enumerate(operands)]
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(op_type, names, results, name="node", domain=domain, **attributes)
    proto = model(
        [node],
        {f"x{i}": spec for i, spec in enumerate(operands) if not isinstance(spec, np.ndarray | str)},
        dict.fromkeys(results, output),
        {f"x{i}": spec for i, spec in enumerate(operands) if isinstance(spec, np.ndarray)},
        opset=23 if op_type == "Attention" else 17,
        domains=[domain] if domain else [],
    )
    return layers_by_node(*source_rows(proto))["node"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_layers_count_the_macs_that_the_table_counts(name):
    rows, graph = source_rows(BUILDERS[name](), **SIZES)
    layers = layers_by_node(rows, graph)
    compared = 0
    for row in rows:
        found = layers[row["source_node"]]
        if found is not None and row["macs"] is not None:
            macs = sum(layer.macs for layer in found if isinstance(layer, Convolution | Matmul))
            assert row["macs"] == (row["execution_count"] or 1) * macs, row["source_node"]
            compared += 1
    assert compared


def test_convolution_has_its_window():
    operands = [(2, 3, 13, 17), weight(7, 3, 3, 5)]
    (layer,) = layers_of("Conv", operands, strides=[2, 3], dilations=[1, 1], pads=[1, 2, 1, 2])
    # out: (13 + 2 − 3) / 2 + 1 = 7 and ⌊(17 + 4 − 5) / 3⌋ + 1 = 6
    assert layer == Convolution(2, 3, 13, 17, 7, 7, 6, 3, 5, 2, 3)
    assert layer.macs == 2 * 7 * (7 * 6) * 3 * (3 * 5)
    assert layer.as_matmul() == Matmul(2 * 7 * 6, 3 * 3 * 5, 7)


def test_a_window_has_its_dilation():
    (layer,) = layers_of("Conv", [(2, 3, 13, 17), weight(7, 3, 3, 3)], dilations=[2, 3])
    # out: 13 − 2·2 = 9 and 17 − 3·2 = 11
    assert layer == Convolution(2, 3, 13, 17, 7, 9, 11, 3, 3, dilation_height=2, dilation_width=3)
    (line,) = layers_of("Conv", [(2, 3, 17), weight(7, 3, 3)], dilations=[5])
    assert line == Convolution(2, 3, 1, 17, 7, 1, 7, 1, 3, axes=1, dilation_width=5)
    (pool,) = layers_of("MaxPool", [(2, 3, 13, 17)], kernel_shape=[3, 2], strides=[2, 3], dilations=[2, 5])
    # out: ⌊(13 − 5) / 2⌋ + 1 = 5 and ⌊(17 − 6) / 3⌋ + 1 = 4
    assert pool == Pooling(2, 3, 13, 17, 5, 4, 3, 2, 2, 3, dilation_height=2, dilation_width=5)


def test_depthwise_convolution():
    (layer,) = layers_of("Conv", [(2, 7, 13, 11), weight(7, 1, 3, 3)], group=7)
    assert layer == Convolution(2, 7, 13, 11, 7, 11, 9, 3, 3, groups=7)
    assert layer.is_depthwise
    assert layer.macs == 2 * 7 * 11 * 9 * 3 * 3


def test_one_axis_is_a_row_and_three_are_folded_into_two():
    (line,) = layers_of("Conv", [(2, 3, 17), weight(7, 3, 5)], strides=[2])
    assert line == Convolution(2, 3, 1, 17, 7, 1, 7, 1, 5, 1, 2, axes=1)
    (video,) = layers_of("Conv", [(2, 3, 5, 13, 11), weight(7, 3, 2, 3, 5)], strides=[1, 2, 1])
    # out: 4 × 6 × 7
    assert video == Convolution(2, 3, 5 * 13, 11, 7, 4 * 6, 7, 2 * 3, 5, 2, 1, axes=3)
    assert video.macs == 2 * 7 * (4 * 6 * 7) * 3 * (2 * 3 * 5)


def test_transposed_convolution_has_its_channels_the_other_way_round():
    (layer,) = layers_of("ConvTranspose", [(2, 6, 5, 7), weight(6, 5, 3, 3)], strides=[2, 2], group=2)
    # out: (5 − 1)·2 + 3 = 11 and (7 − 1)·2 + 3 = 15; 5 channels for each of two groups
    assert layer == Convolution(2, 6, 5, 7, 10, 11, 15, 3, 3, 2, 2, groups=2, is_transposed=True)
    assert layer.macs == 2 * (5 * 7) * 6 * 5 * (3 * 3)


def test_quantized_convolution_has_its_weight_as_the_fourth_operand():
    kernel, scale, zero = np.ones((7, 3, 3, 3), np.int8), np.array(0.5, np.float32), np.array(3, np.uint8)
    operands = [Typed(UINT8, (2, 3, 13, 11)), scale, zero, kernel, scale, np.array(0, np.int8), scale, zero]
    (layer,) = layers_of("QLinearConv", operands, Typed(UINT8, None))
    assert layer == Convolution(2, 3, 13, 11, 7, 11, 9, 3, 3)


def test_integer_convolution():
    operands = [Typed(UINT8, (2, 3, 13, 11)), np.ones((7, 3, 3, 3), np.int8)]
    assert layers_of("ConvInteger", operands, Typed(INT32, None)) == (Convolution(2, 3, 13, 11, 7, 11, 9, 3, 3),)


def test_channels_that_are_last_are_found_by_the_weight():
    operands = [(2, 13, 11, 3), weight(7, 3, 3, 3)]
    (layer,) = layers_of("NhwcConv", operands, (2, 11, 9, 7), domain="com.microsoft")
    assert layer == Convolution(2, 3, 13, 11, 7, 11, 9, 3, 3)


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "expected"),
    [
        ("MatMul", [(2, 5, 7), weight(7, 11)], {}, Matmul(10, 7, 11, 1, has_weight=True)),
        ("MatMul", [(2, 5, 7), (2, 7, 11)], {}, Matmul(5, 7, 11, 2, has_weight=False)),
        ("MatMul", [(7, 7), "x0"], {}, Matmul(7, 7, 7, 1, has_weight=False)),
        # W·X is Xᵀ·Wᵀ seen from the other side
        ("MatMul", [weight(5, 7), (7, 11)], {}, Matmul(11, 7, 5, 1, has_weight=True)),
        ("Gemm", [(5, 7), weight(11, 7), weight(11)], {"transB": 1}, Matmul(5, 7, 11, 1, has_weight=True)),
        ("Gemm", [(7, 5), (11, 7), weight(11)], {"transA": 1, "transB": 1}, Matmul(5, 7, 11, 1, has_weight=False)),
        ("Gemm", [(7, 7), "x0", weight(7)], {}, Matmul(7, 7, 7, 1, has_weight=False)),
        ("Einsum", [(5, 7), weight(7, 11)], {"equation": "ij,jk->ik"}, Matmul(5, 7, 11, 1, has_weight=True)),
    ],
)
def test_products(op_type, operands, attributes, expected):
    assert layers_of(op_type, operands, **attributes) == (expected,)


def test_quantized_product_that_shares_its_scales():
    scale, zero = np.array(0.5, np.float32), np.array(0, np.int8)
    operands = [Typed(INT8, (5, 7)), scale, zero, np.ones((7, 11), np.int8), "x1", "x2", "x1", "x2"]
    assert layers_of("QLinearMatMul", operands, Typed(INT8, None)) == (Matmul(5, 7, 11, has_weight=True),)
    operands[3] = Typed(INT8, (7, 11))
    assert layers_of("QLinearMatMul", operands, Typed(INT8, None)) == (Matmul(5, 7, 11, has_weight=False),)


def test_pools():
    (layer,) = layers_of("MaxPool", [(2, 3, 13, 17)], kernel_shape=[3, 5], strides=[2, 3])
    assert layer == Pooling(2, 3, 13, 17, 6, 5, 3, 5, 2, 3)
    (layer,) = layers_of("GlobalAveragePool", [(2, 3, 13, 17)])
    assert layer == Pooling(2, 3, 13, 17, 1, 1, 13, 17, 13, 17, op_type="GlobalAveragePool")


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "expected"),
    [
        ("Softmax", [(2, 3, 5, 7)], {}, Rowwise("Softmax", 30, 7)),
        ("Softmax", [(2, 3, 5, 7)], {"axis": 1}, Rowwise("Softmax", 70, 3)),
        ("Softmax", [(2, 3, 5, 7)], {"axis": -2}, Rowwise("Softmax", 42, 5)),
        ("LayerNormalization", [(2, 5, 7), weight(7), weight(7)], {}, Rowwise("LayerNormalization", 10, 7)),
        ("LayerNormalization", [(2, 5, 7), weight(5, 7)], {"axis": 1}, Rowwise("LayerNormalization", 2, 35)),
        ("InstanceNormalization", [(2, 3, 5, 7), weight(3), weight(3)], {}, Rowwise("InstanceNormalization", 6, 35)),
        ("ReduceMean", [(2, 3, 5, 7)], {"axes": [2, 3]}, Rowwise("ReduceMean", 6, 35)),
    ],
)
def test_rows(op_type, operands, attributes, expected):
    assert layers_of(op_type, operands, **attributes) == (expected,)


def test_a_softmax_before_operator_set_13_spans_all_axes_behind_its_own():
    node = helper.make_node("Softmax", ["x"], ["y"], name="node", axis=2)
    rows, graph = source_rows(model([node], {"x": (2, 3, 5, 7)}, {"y": (2, 3, 5, 7)}, {}, opset=11))
    assert layers_by_node(rows, graph)["node"] == (Rowwise("Softmax", 6, 35),)


def test_a_row_of_a_group_normalization_is_a_group_of_channels():
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], name="node", num_groups=3)
    weights = {"s": weight(6), "b": weight(6)}
    rows, graph = source_rows(model([node], {"x": (2, 6, 5, 7)}, {"y": (2, 6, 5, 7)}, weights, opset=21))
    assert layers_by_node(rows, graph)["node"] == (Rowwise("GroupNormalization", 6, 2 * 5 * 7),)


def test_skip_normalization_has_its_scale_as_the_third_operand():
    operands = [(2, 5, 7), (2, 5, 7), weight(7), weight(7)]
    found = layers_of("SkipLayerNormalization", operands, (2, 5, 7), domain="com.microsoft")
    assert found == (Rowwise("SkipLayerNormalization", 10, 7),)


def test_element_wise_work_and_movement():
    assert layers_of("Add", [(2, 5, 7), (2, 5, 7)]) == (Pointwise("Add", 70, 2, 7),)
    assert layers_of("Relu", [(2, 5, 7)]) == (Pointwise("Relu", 70, 1, 7),)
    assert layers_of("Transpose", [(2, 5, 7)], perm=[0, 2, 1]) == (Pointwise("Transpose", 70, 1, 5),)


def test_a_view_computes_nothing_and_unknown_extents_are_unknown():
    assert layers_of("Flatten", [(2, 5, 7)]) == ()
    assert layers_of("Relu", [("N", 5)]) is None
    assert layers_of("TopK", [(2, 7), np.array([3])], outputs=2) is None


def test_attention_with_heads_apart():
    found = layers_of("Attention", [(2, 3, 5, 7), (2, 3, 11, 7), (2, 3, 11, 13)])
    assert found == (
        Matmul(5, 7, 11, 6, has_weight=False),
        Rowwise("Softmax", 30, 11),
        Matmul(5, 11, 13, 6, has_weight=False),
    )


def test_attention_with_packed_heads_has_their_number_as_an_attribute():
    """Queries of 3 heads of 7, keys of 7 and values of 13; with one head of keys and values they share it."""
    expected = (
        Matmul(5, 7, 11, 6, has_weight=False),
        Rowwise("Softmax", 30, 11),
        Matmul(5, 11, 13, 6, has_weight=False),
    )
    operands = [(2, 5, 21), (2, 11, 21), (2, 11, 39)]
    assert layers_of("Attention", operands, q_num_heads=3, kv_num_heads=3) == expected
    operands = [(2, 5, 21), (2, 11, 7), (2, 11, 13)]
    assert layers_of("Attention", operands, q_num_heads=3, kv_num_heads=1) == (
        Matmul(15, 7, 11, 2, has_weight=False),  # the queries of three heads are rows against the keys of one
        Rowwise("Softmax", 30, 11),
        Matmul(15, 11, 13, 2, has_weight=False),
    )
    operands = [(2, 5, 21), (2, 11, 21), (2, 11, 39)]
    found = layers_of("MultiHeadAttention", operands, (2, 5, 39), domain="com.microsoft", num_heads=3)
    assert found == expected


def test_attention_with_projections_of_its_own_is_unknown():
    operands = [(2, 5, 21), weight(21, 63), weight(63)]
    assert layers_of("Attention", operands, (2, 5, 21), domain="com.microsoft", num_heads=3) is None


def test_attention_over_a_cache_meets_past_and_new_keys():
    past = (2, 3, 13, 7)
    operands = [(2, 3, 5, 7), (2, 3, 11, 7), (2, 3, 11, 7), "", past, past]
    assert layers_of("Attention", operands, outputs=3) == (
        Matmul(5, 7, 24, 6, has_weight=False),
        Rowwise("Softmax", 30, 24),
        Matmul(5, 24, 7, 6, has_weight=False),
    )


@pytest.mark.parametrize("is_packed", [False, True])
def test_grouped_queries_are_rows_against_the_valid_keys_of_their_group(is_packed):
    """6 heads share the keys of 2: 3 rows for a token; of a buffer of 32 keys, 11 are valid."""
    apart = [(1, 1, 6 * 8), (1, 1, 2 * 8), (1, 1, 2 * 8)]
    operands = [(1, 1, 10 * 8), "", ""] if is_packed else apart
    buffer = (1, 2, 32, 8)
    operands += [buffer, buffer, np.array([10], np.int32), np.array(11, np.int32)]
    heads = {"num_heads": 6, "kv_num_heads": 2}
    found = layers_of("GroupQueryAttention", operands, outputs=3, domain="com.microsoft", **heads)
    assert found == (
        Matmul(3, 8, 11, 2, has_weight=False),
        Rowwise("Softmax", 6, 11),
        Matmul(3, 11, 8, 2, has_weight=False),
    )


SHAPES = (None, [], [0], [1], [7], [1, 3], [3, 0, 5], [1, 7, 13, 17], [7, 7, 3, 3], [0, 7, 13, 17], ["N", 7], [1] * 5)
VALUES = (None, 0, 1, -1, 7, "x", [], [0], [1, 1], [-9], ["a"], [[1]], {"a": 1})


def odd_row(seed: int) -> dict[str, Any]:
    """A row of which each cell may be right, and none need agree with another."""
    choose = Random(seed).choice
    counts = {f"{axis}_count": choose((None, 0, 1, 7)) for axis in ("batch", "m", "k", "n")}
    keys = ("dilations", "axes", "num_groups", "num_heads", "q_num_heads", "channels_last")
    return {
        "source_node": "node",
        "op_type": choose(sorted(READERS)),
        "domain": "",
        "input_shapes": [choose(SHAPES) for _ in range(choose((0, 1, 2, 3, 4)))],
        "output_shapes": [choose(SHAPES) for _ in range(choose((0, 1, 2)))],
        "kernel_shape": choose(([], [3, 3], [0, 1], ["k"], [3])),
        "strides": choose(([], [2, 2], [0, 1], ["s"], [3])),
        "groups": choose((None, 0, 1, 7)),
        "attributes": {key: choose(VALUES) for key in keys},
        "macs": choose((None, 0, 343)),
        "execution_count": choose((None, 0, 1)),
        **counts,
    }


def test_rows_that_do_not_agree_with_themselves_have_no_layer():
    """Tables may come from another program, and 02 keeps what a model says."""
    tensors = [("x", "", "node"), ("w", "", "node"), ("y", "node", "")]
    edges = [edge_row(*ends, 28) for ends in tensors]
    for seed in range(3000):
        row = odd_row(seed)
        layers = layers_by_node([row], build({"node": row["op_type"]}, edges))["node"]
        for layer in layers or ():
            assert min(size for size in astuple(layer) if type(size) is int) >= 0, (seed, row)
