"""Padded channels of the blocked layout, found in weights that are laid out by hand, and in those of the runtime."""

import importlib
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.onnx_graph.blocked import Padding, paddings
from common.onnx_graph.load import load_model
from tests.support.models.onnx_models import model

stage = importlib.import_module("02_shapes_flops_bytes")
NCHWC = "com.microsoft.nchwc"


def blocked(filters, block):
    """O × I × 1 × 1 filters in the runtime's order: blocks of output and input channels, then both within a block."""
    outputs, inputs = (-(-extent // block) * block for extent in filters.shape)
    padded = np.zeros((outputs, inputs), np.float32)
    padded[: filters.shape[0], : filters.shape[1]] = filters
    lanes = padded.reshape(outputs // block, block, inputs // block, block).transpose(0, 2, 3, 1)
    return lanes.reshape(outputs, inputs, 1, 1)


def found(tmp_path, weight):
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", domain=NCHWC, kernel_shape=[1, 1])
    proto = model([node], {"x": (1, weight.shape[1], 3, 3)}, {"y": None}, {"w": weight}, domains=[NCHWC])
    onnx.save(proto, tmp_path / "m.onnx")
    return paddings(tmp_path / "m.onnx", load_model(tmp_path / "m.onnx", {}).graph)


@pytest.mark.parametrize(
    ("outputs", "inputs", "block"), [(19, 13, 8), (17, 29, 16), (11, 23, 8), (24, 8, 8), (11, 29, 8), (11, 29, 16)]
)
def test_channels_of_zeros_at_the_end_of_the_last_block(tmp_path, outputs, inputs, block):
    weight = blocked(np.random.default_rng(7).standard_normal((outputs, inputs)).astype(np.float32), block)
    assert found(tmp_path, weight) == {"conv": Padding(weight.size, outputs * inputs)}


def test_a_filter_of_zeros_is_not_padding_and_neither_is_a_zero_before_the_last_channel(tmp_path):
    assert found(tmp_path, np.zeros((16, 16, 1, 1), np.float32))["conv"] == Padding(256, 256)
    filters = np.ones((19, 13), np.float32)
    filters[3:11], filters[:, 5] = 0, 0
    assert found(tmp_path, blocked(filters, 8))["conv"].used == 19 * 13


def network():
    """Convolutions of 3, 11 and 19 channels, and one of each channel alone."""
    rng = np.random.default_rng(7)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="alone", group=11, pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "w2"], ["d"], name="second"),
        helper.make_node("GlobalAveragePool", ["d"], ["y"], name="pool"),
    ]
    shapes = {"w0": (11, 3, 3, 3), "w1": (11, 1, 3, 3), "w2": (19, 11, 1, 1)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in shapes.items()
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 7, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("flags", "unit"), [(["--dim", "batch=2"], 2), ([], "*batch")])
def test_both_counts_are_in_a_note(tmp_path, capsys, flags, unit):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(network().SerializeToString(), options, providers=["CPUExecutionProvider"])
    if NCHWC not in {node.domain for node in onnx.load(tmp_path / "optimized.onnx").graph.node}:
        pytest.skip("this processor has no blocked layout")
    assert stage.main(["--model", str(tmp_path / "optimized.onnx"), "--out", str(tmp_path / "out"), *flags]) == 0
    own = 35 * (11 * 27 + 11 * 9 + 19 * 11)
    expected = f"{unit * own:,} without" if unit == 2 else f"{own}{unit} without"
    note = next(line for line in capsys.readouterr().err.splitlines() if "padded to blocks" in line)
    assert expected in note
    counted = int(re.search(r"convolutions: ([\d,]+)", note)[1].replace(",", ""))
    assert counted > own


def test_a_model_without_blocked_nodes_has_no_note(tmp_path, capsys):
    onnx.save(network(), tmp_path / "plain.onnx")
    assert stage.main(["--model", str(tmp_path / "plain.onnx"), "--out", str(tmp_path / "out")]) == 0
    assert "padded" not in capsys.readouterr().err
