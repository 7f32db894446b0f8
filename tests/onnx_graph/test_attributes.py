"""Reported attributes: what the model says, and the defaults that it leaves out, against the operators' definitions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from common.messages.errors import PipelineError
from common.onnx_graph.attributes import reported_attributes, window
from common.onnx_graph.load import load_model
from common.onnx_graph.malformed import names_model
from tests.support.models.onnx_models import model, weight

MS = "com.microsoft"


@pytest.fixture
def reported(tmp_path):
    """Load a model of one node and return the attributes that are reported of it."""

    def load(op_type, inputs, weights=None, *, outputs="y", opset=17, domain="", dims=None, symbolic=False, **given):
        names = [*inputs, *(weights or {})]
        node = helper.make_node(op_type, names, outputs.split(","), "node", domain=domain, **given)
        proto = model([node], inputs, dict.fromkeys(outputs.split(",")), weights, opset=opset, domains=[MS])
        onnx.save(proto, tmp_path / "m.onnx")
        loaded = load_model(tmp_path / "m.onnx", dims or {}, symbolic=symbolic)
        return reported_attributes(loaded.graph, loaded.graph.by_name["node"], loaded.opsets, loaded.operand_values)

    return load


# --- windows --------------------------------------------------------------------------------------------------------


def test_a_convolution_that_says_nothing_has_no_pads_and_no_dilation(reported):
    assert reported("Conv", {"x": (1, 3, 17, 19)}, {"w": weight(5, 3, 3, 3)}) == {
        "auto_pad": "NOTSET",
        "dilations": [1, 1],
        "pads": [0, 0, 0, 0],
    }


def windows(path, nodes, shape):
    """The windows of a model's nodes, as 02 writes them."""
    proto = model(nodes, {"x": shape}, {"y": None}, {"w": weight(3, 3, 3, 3)}, domains=[MS, "own"])
    onnx.save(proto, path)
    graph = load_model(path, {}).graph
    with names_model(path):
        return [window(graph, node) for node in graph.nodes]


@pytest.mark.parametrize(("op_type", "domain", "shape"), [("Conv", "", None), ("FusedConv", MS, (1, 3, 9, 9))])
@pytest.mark.parametrize("given", [{"strides": [-1, 2**33]}, {"kernel_shape": [3, -3]}])
def test_a_negative_window_names_the_model_and_the_node(tmp_path, op_type, domain, shape, given):
    """ONNX's inference looks neither at a node whose input has no rank nor at one of the runtime's own domain."""
    node = helper.make_node(op_type, ["x", "w"], ["y"], "conv", domain=domain, **given)
    with pytest.raises(PipelineError, match=rf"m\.onnx: node 'conv': not a valid {op_type} \(its kernel_shape or str"):
        windows(tmp_path / "m.onnx", [node], shape)


def test_a_negative_window_of_an_own_operator_is_none(tmp_path):
    node = helper.make_node("Walk", ["x", "w"], ["y"], "walk", domain="own", kernel_shape=[3], strides=[-1])
    assert windows(tmp_path / "m.onnx", [node], (1, 3, 9, 9)) == [([], [], None)]


def test_a_dilated_convolution_keeps_what_it_says(reported):
    given = {"dilations": [2, 5], "pads": [1, 2, 3, 4], "strides": [2, 1], "group": 3}
    found = reported("Conv", {"x": (1, 3, 17, 19)}, {"w": weight(6, 1, 3, 3)}, **given)
    assert found == {"auto_pad": "NOTSET", "dilations": [2, 5], "pads": [1, 2, 3, 4]}


@pytest.mark.parametrize(
    ("auto_pad", "side", "kernel", "stride", "dilation", "pads"),
    [
        ("VALID", 17, 3, 1, 1, [0, 0]),
        ("SAME_UPPER", 17, 3, 1, 1, [1, 1]),
        ("SAME_UPPER", 17, 4, 1, 1, [1, 2]),  # 3 in all
        ("SAME_LOWER", 17, 4, 1, 1, [2, 1]),
        ("SAME_UPPER", 19, 3, 2, 3, [3, 3]),  # ceil(19/2) = 10 steps: 9·2 + 7 - 19 = 6
        ("SAME_LOWER", 17, 1, 5, 1, [0, 0]),  # a stride beyond the window leaves pixels out
    ],
)
def test_pads_are_numbers_whatever_auto_pad_says(reported, auto_pad, side, kernel, stride, dilation, pads):
    given = {"auto_pad": auto_pad, "strides": [stride], "dilations": [dilation]}
    found = reported("Conv", {"x": (1, 3, side)}, {"w": weight(5, 3, kernel)}, **given)
    assert found == {"auto_pad": auto_pad, "dilations": [dilation], "pads": pads}


def test_the_pads_of_an_unbound_extent_are_left_out(reported):
    found = reported("Conv", {"x": (1, 3, "L")}, {"w": weight(5, 3, 3)}, auto_pad="SAME_UPPER", symbolic=True)
    assert found == {"auto_pad": "SAME_UPPER", "dilations": [1]}


@pytest.mark.parametrize(
    ("given", "pads"),
    [
        ({"pads": [1, 0]}, [1, 0]),
        ({"output_shape": [14]}, [2, 1]),  # 2·(8-1) + 3 - 14 = 3; the odd one before, unless SAME_UPPER
        ({"auto_pad": "SAME_UPPER"}, [0, 1]),  # 16 out of 8: 2·7 + 3 - 16 = 1
        ({"auto_pad": "SAME_LOWER"}, [1, 0]),
    ],
)
def test_a_transposed_convolution(reported, given, pads):
    found = reported("ConvTranspose", {"x": (1, 3, 8)}, {"w": weight(3, 5, 3)}, strides=[2], **given)
    assert found == {
        "auto_pad": given.get("auto_pad", "NOTSET"),
        "dilations": [1],
        "output_padding": [0],
        "pads": pads,
    }


def test_a_pool(reported):
    found = reported("AveragePool", {"x": (1, 3, 17, 19)}, kernel_shape=[3, 2], ceil_mode=1)
    assert found == {
        "auto_pad": "NOTSET",
        "ceil_mode": 1,
        "count_include_pad": 0,
        "dilations": [1, 1],
        "pads": [0, 0, 0, 0],
    }


def test_a_quantized_pool_of_the_runtime_has_its_defaults(reported):
    scale = {"s": np.array(0.5, np.float32)}
    found = reported("QLinearAveragePool", {"x": (1, 3, 17)}, scale, domain=MS, kernel_shape=[2])
    assert found["count_include_pad"] == found["ceil_mode"] == found["channels_last"] == 0
    assert found["pads"] == [0, 0]


# --- axes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opset", "given", "axis", "axes"),
    [
        (13, {}, -1, [3]),
        (11, {}, 1, [1, 2, 3]),  # then seen as a matrix, of which a row is everything from the axis on
        (13, {"axis": 1}, 1, [1]),
        (11, {"axis": -2}, -2, [2, 3]),
    ],
)
def test_the_axis_of_a_softmax_depends_on_the_operator_set(reported, opset, given, axis, axes):
    assert reported("Softmax", {"x": (2, 3, 5, 7)}, opset=opset, **given) == {"axis": axis, "axes": axes}


def test_a_normalization_spans_its_axis_and_those_behind(reported):
    scale = {"s": weight(5, 7)}
    found = reported("LayerNormalization", {"x": (2, 3, 5, 7)}, scale, axis=-2)
    assert found == {"axis": -2, "axes": [2, 3]}


def test_the_groups_of_a_group_normalization(reported):
    vectors = {"s": weight(6), "b": weight(6)}
    assert reported("GroupNormalization", {"x": (2, 6, 5)}, vectors, opset=21, num_groups=3) == {"num_groups": 3}
    given = {"groups": 3, "activation": 1, "epsilon": 0.1}
    found = reported("GroupNorm", {"x": (2, 5, 5, 6)}, vectors, domain=MS, **given)
    assert found == {"num_groups": 3, "activation": 1, "channels_last": 1}


@pytest.mark.parametrize(
    ("opset", "given", "axes"),
    [
        (17, {"axes": [-1, 0]}, [2, 0]),
        (17, {}, [0, 1, 2]),
        (18, {"operand": [1, -1]}, [1, 2]),
        (18, {"operand": []}, [0, 1, 2]),
        (18, {"operand": [], "noop_with_empty_axes": 1}, []),
        (18, {"noop_with_empty_axes": 1}, []),
    ],
)
def test_the_axes_of_a_reduction_are_an_attribute_or_an_operand(reported, opset, given, axes):
    operand = given.pop("operand", None)
    weights = {} if operand is None else {"a": np.array(operand, np.int64)}
    found = reported("ReduceMean", {"x": (2, 3, 5)}, weights, opset=opset, **given)
    assert found == {"keepdims": 1, "axes": axes}


def test_axes_that_are_inserted_count_in_the_result(reported):
    axes = {"a": np.array([0, -1], np.int64)}
    assert reported("Unsqueeze", {"x": (2, 3)}, axes) == {"axes": [0, 3]}
    assert reported("Squeeze", {"x": (1, 2, 1)}) == {"axes": [0, 2]}


def test_a_transposition_reverses_the_axes_unless_it_says_otherwise(reported):
    assert reported("Transpose", {"x": (2, 3, 5)}) == {"perm": [2, 1, 0]}
    assert reported("Transpose", {"x": (2, 3, 5)}, perm=[0, 2, 1]) == {"perm": [0, 2, 1]}


def test_operands_that_depend_on_an_unbound_dimension_are_left_out(tmp_path):
    """Pads of which one is the batch, and axes that are constant."""
    nodes = [
        helper.make_node("Shape", ["x"], ["extents"], "shape", end=1),
        helper.make_node("Concat", ["zero", "extents"], ["pads"], "concat", axis=0),
        helper.make_node("Pad", ["x", "pads"], ["padded"], "pad"),
        helper.make_node("Unsqueeze", ["padded", "zero"], ["y"], "unsqueeze"),
    ]
    proto = model(nodes, {"x": ("N",)}, {"y": None}, {"zero": np.array([0])})
    onnx.save(proto, tmp_path / "m.onnx")

    def found(name, dims):
        loaded = load_model(tmp_path / "m.onnx", dims, symbolic=True)
        return reported_attributes(loaded.graph, loaded.graph.by_name[name], loaded.opsets, loaded.operand_values)

    assert found("pad", {"N": 7}) == {"mode": "constant", "pads": [0, 7]}
    assert found("pad", {}) == {"mode": "constant"}
    assert found("unsqueeze", {}) == {"axes": [0]}


# --- heads, products and the rest -----------------------------------------------------------------------------------


def test_the_heads_of_a_grouped_attention(reported):
    inputs = {"q": (1, 5, 48), "k": (1, 5, 16), "v": (1, 5, 16), "pk": (1, 2, 3, 8), "pv": (1, 2, 3, 8)}
    given = {"num_heads": 6, "kv_num_heads": 2, "local_window_size": 128}
    found = reported("GroupQueryAttention", inputs, domain=MS, outputs="y,keys,values", **given)
    assert found == {**given, "do_rotary": 0, "rotary_interleaved": 0, "softcap": 0.0}


def test_the_heads_of_an_attention_with_heads_apart_are_in_its_shapes(reported):
    found = reported("Attention", {"q": (1, 6, 5, 8), "k": (1, 2, 7, 8), "v": (1, 2, 7, 8)}, opset=23)
    assert (found["q_num_heads"], found["kv_num_heads"], found["is_causal"]) == (6, 2, 0)


def test_an_attention_with_projections_has_equal_parts_unless_it_says_otherwise(reported):
    inputs, weights = {"x": (1, 5, 16)}, {"w": weight(16, 48), "b": weight(48)}
    assert reported("Attention", inputs, weights, domain=MS, num_heads=2) == {
        "num_heads": 2,
        "qkv_hidden_sizes": [16, 16, 16],
        "unidirectional": 0,
        "do_rotary": 0,
        "rotary_embedding_dim": 0,
    }
    sizes = [20, 20, 8]
    found = reported("Attention", inputs, weights, domain=MS, num_heads=2, qkv_hidden_sizes=sizes)
    assert found["qkv_hidden_sizes"] == sizes


def test_the_hidden_size_of_a_recurrent_node_is_in_its_weights(reported):
    weights = {"w": weight(1, 20, 3), "r": weight(1, 20, 5)}
    found = reported("LSTM", {"x": (7, 1, 3)}, weights)
    assert found == {"direction": "forward", "layout": 0, "hidden_size": 5}


def test_a_product(reported):
    found = reported("Gemm", {"x": (5, 3)}, {"w": weight(7, 3)}, transB=1, alpha=0.1)
    assert found == {"alpha": 0.1, "beta": 1.0, "transA": 0, "transB": 1}  # 0.1 and not 0.10000000149


def test_what_decides_nothing_is_not_reported(reported):
    assert reported("Relu", {"x": (5, 3)}) == {}
    assert "epsilon" not in reported("LayerNormalization", {"x": (5, 3)}, {"s": weight(3)}, epsilon=0.1)
