"""Which convolutions the runtime takes into its blocked layout, and what becomes of a normalization there."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.graphs.operators import NCHWC

SIZE = 9
KERNEL = (3, 3)


def executed(nodes, weights, channels, *, are_inputs=False, folder):
    """The operators of the graph that the runtime executes, with their domains."""
    graph = helper.make_graph(
        [helper.make_node(kind, reads.split(), [writes], **attributes) for kind, reads, writes, attributes in nodes],
        "layout",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, channels, SIZE, SIZE))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    if are_inputs:
        graph.input.extend(helper.make_tensor_value_info(name, 1, array.shape) for name, array in weights.items())
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder / "executed.onnx")
    options.log_severity_level = 3
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [(node.op_type, node.domain) for node in onnx.load(folder / "executed.onnx").graph.node]


def values(*shape):
    return np.random.default_rng(5).uniform(0.5, 1, shape).astype(np.float32)


def is_blocked(channels, folder, *, groups=1, are_inputs=False):
    nodes = [("Conv", "x w", "y", {"pads": [1] * 4, "group": groups})]
    weights = {"w": values(32, channels // groups, *KERNEL)}
    ran = executed(nodes, weights, channels, are_inputs=are_inputs, folder=folder)
    return ("Conv", NCHWC) in ran


@pytest.fixture
def folder(tmp_path):
    if not is_blocked(16, tmp_path):
        pytest.skip("the runtime knows no vector units of this processor, so it has no blocked layout")
    return tmp_path


@pytest.mark.parametrize(("channels", "expected"), [(3, True), (16, True), (17, False), (18, False), (20, True)])
def test_channels_must_be_a_multiple_of_4(channels, expected, folder):
    assert is_blocked(channels, folder) == expected


def test_channels_of_groups_must_fill_blocks(folder):
    assert is_blocked(32, folder, groups=2)
    assert not is_blocked(24, folder, groups=2)


def test_weights_must_be_constants(folder):
    assert not is_blocked(16, folder, are_inputs=True)


def test_a_normalization_that_no_convolution_takes_becomes_one(folder):
    parts = {name: values(16) for name in "gbmv"}
    nodes = [
        ("Conv", "x w", "c", {"pads": [1] * 4}),
        ("Relu", "c", "r", {}),
        ("BatchNormalization", "r g b m v", "n", {}),
        ("Conv", "n u", "y", {"pads": [1] * 4}),
    ]
    ran = executed(nodes, {**parts, "w": values(16, 16, *KERNEL), "u": values(16, 16, *KERNEL)}, 16, folder=folder)
    assert ran.count(("Conv", NCHWC)) == 3
    assert "BatchNormalization" not in {kind for kind, _ in ran}
