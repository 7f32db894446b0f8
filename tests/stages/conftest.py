"""Models that several stages run, and what their requests bring."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from models.__main__ import BUILDERS


def saved(name, folder):
    path = folder / f"{name}.onnx"
    path.write_bytes(BUILDERS[name]().SerializeToString())
    return path


@pytest.fixture(scope="session")
def mlp(tmp_path_factory):
    """A model of two matrix products, whose first axis may have any size."""
    return saved("tiny-mlp", tmp_path_factory.mktemp("mlp"))


@pytest.fixture(scope="session")
def cnn(tmp_path_factory):
    """A model that takes images, whose first axis may have any size."""
    return saved("tiny-cnn", tmp_path_factory.mktemp("cnn"))


@pytest.fixture(scope="session")
def tokens(tmp_path_factory):
    """``x [batch, seq, 3]`` times a matrix of 3 × 5: 30 FLOPs per token."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, (3, 5), np.ones(15, np.float32).tolist())
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "seq", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "seq", 5])],
        [weights],
    )
    path = tmp_path_factory.mktemp("tokens") / "tokens.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A folder of JPEG files of different sizes."""
    folder = tmp_path_factory.mktemp("photos")
    for index, (width, height) in enumerate([(97, 61), (61, 97), (211, 199)]):
        noise = np.random.default_rng(index).integers(0, 255, (height, width, 3), np.uint8)
        Image.fromarray(noise).save(folder / f"{index}.jpg")
    return folder
