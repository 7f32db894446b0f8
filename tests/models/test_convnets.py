"""DenseNet-121 as it is built: counted, checked and run."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from models.classifiers.densenet121 import build_densenet121, build_tiny_densenet


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return build_densenet121(batch=1)


@pytest.mark.slow
def test_parameters_by_arithmetic(model: onnx.ModelProto) -> None:
    convolutions, normed, channels = 64 * 3 * 7 * 7, 64, 64
    for number, layers in enumerate((6, 12, 24, 16)):
        for _ in range(layers):
            convolutions += 128 * channels + 32 * 128 * 9
            normed += channels + 128
            channels += 32
        if number < 3:
            convolutions += channels // 2 * channels
            normed += channels
            channels //= 2
    normed += channels
    trainable = convolutions + 2 * normed + channels * 1000 + 1000
    assert (channels, trainable) == (1024, 7_978_856)
    sizes = {tensor.name: int(np.prod(tensor.dims)) for tensor in model.graph.initializer}
    running = sum(size for name, size in sizes.items() if "running" in name)
    assert running == 2 * normed == 83_648
    assert sum(sizes.values()) - running == trainable


def test_nodes_by_operator(model: onnx.ModelProto) -> None:
    layers = 6 + 12 + 24 + 16
    assert Counter(node.op_type for node in model.graph.node) == {
        "Conv": 121 - 1,  # the 121st layer is the classifier
        "Gemm": 1,
        "BatchNormalization": 1 + 2 * layers + 3 + 1,
        "Relu": 1 + 2 * layers + 3 + 1,
        "Concat": layers + 4,
        "MaxPool": 1,
        "AveragePool": 3,
        "GlobalAveragePool": 1,
        "Flatten": 1,
    }


def test_multiply_accumulates_from_the_shapes(model: onnx.ModelProto) -> None:
    """By the table of the paper: 112², then 56², 28², 14² and 7² pixels; a transition convolves before it pools."""
    expected, channels, side = 112**2 * 64 * 3 * 49, 64, 56
    for number, layers in enumerate((6, 12, 24, 16)):
        for _ in range(layers):
            expected += side**2 * (128 * channels + 32 * 128 * 9)
            channels += 32
        if number < 3:
            expected += side**2 * channels * channels // 2
            channels, side = channels // 2, side // 2
    expected += 1024 * 1000
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    shape = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.value_info, *inferred.output)
    }
    weights = {tensor.name: list(tensor.dims) for tensor in inferred.initializer}
    macs = sum(
        int(np.prod(shape[node.output[0]])) * int(np.prod(weights[node.input[1]][1:]))
        for node in inferred.node
        if node.op_type in ("Conv", "Gemm")
    )
    assert macs == expected == 2_834_161_664


def test_names_follow_the_exporter(model: onnx.ModelProto) -> None:
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    assert {
        "/features/conv0/Conv",
        "/features/denseblock3/denselayer24/conv2/Conv",
        "/features/transition2/pool/AveragePool",
    } <= set(names)
    weights = {tensor.name for tensor in model.graph.initializer}
    assert {"features.denseblock1.denselayer1.norm1.running_var", "features.transition3.conv.weight"} <= weights


@pytest.mark.slow
def test_it_is_valid_and_its_logits_are_finite_and_alive(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(7)
    first, second = (
        session.run(None, {"input": random.standard_normal((1, 3, 224, 224), dtype=np.float32)})[0] for _ in range(2)
    )
    assert first.shape == (1, 1000)
    assert np.isfinite(first).all()
    assert 0.1 < first.std() < 100
    assert np.abs(first - second).max() > 1e-3


def test_the_small_one_has_the_same_parts() -> None:
    model = build_tiny_densenet(batch=2)
    found = Counter(node.op_type for node in model.graph.node)
    assert (found["Conv"], found["Concat"], found["AveragePool"]) == (1 + 2 * (2 + 3) + 1, 2 + 3 + 2, 1)
