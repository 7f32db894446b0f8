"""ResNet-50 as it is built: counted, checked and run."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from models.__main__ import main
from models.classifiers.resnet import build_resnet50


@pytest.fixture(scope="module")
def model():
    return build_resnet50()


def parameters(model):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


@pytest.mark.slow
def test_parameters_by_arithmetic(model):
    """Convolutions, two per channel of every BatchNorm, and the classifier; two running statistics per channel."""
    convolutions, channels = 64 * 3 * 7 * 7, 64
    inputs = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        wide = 4 * width
        for block in range(blocks):
            convolutions += width * inputs + width * width * 9 + wide * width + (wide * inputs if block == 0 else 0)
            channels += width + width + wide + (wide if block == 0 else 0)
            inputs = wide
    assert channels == 26_560
    trainable = convolutions + 2 * channels + 1000 * 2048 + 1000
    assert trainable == 25_557_032
    sizes = {name: array.size for name, array in parameters(model).items()}
    running = sum(size for name, size in sizes.items() if "running" in name)
    assert running == 2 * channels == 53_120
    assert sum(sizes.values()) - running == trainable


def test_nodes_by_operator(model):
    found = Counter(node.op_type for node in model.graph.node)
    blocks = 3 + 4 + 6 + 3
    convolutions = 1 + 3 * blocks + 4  # stem, three a block, four projections
    assert found == {
        "Conv": convolutions,
        "BatchNormalization": convolutions,
        "Relu": 1 + 3 * blocks,
        "Add": blocks,
        "MaxPool": 1,
        "GlobalAveragePool": 1,
        "Flatten": 1,
        "Gemm": 1,
    }
    assert found.total() == 175


@pytest.mark.slow
def test_multiply_accumulates_from_the_shapes(model):
    inferred = onnx.shape_inference.infer_shapes(build_resnet50(batch=1), strict_mode=True)
    shape = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.graph.value_info, *inferred.graph.output)
    }
    weights = parameters(model)
    macs = sum(
        int(np.prod(shape[node.output[0]])) * int(np.prod(weights[node.input[1]].shape[1:]))
        for node in inferred.graph.node
        if node.op_type in ("Conv", "Gemm")
    )
    assert macs == 4_089_184_256
    assert shape["output"] == [1, 1000]


@pytest.mark.slow
def test_the_checker_and_the_versions_that_the_runtime_takes(model):
    onnx.checker.check_model(model, full_check=True)
    assert (model.ir_version, model.opset_import[0].version) == (7, 12)
    dims = [dim.dim_value or dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["N", 3, 224, 224]


def test_names_are_unique_and_follow_the_exporter(model):
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    assert names[0] == "/conv1/Conv"
    assert "/layer1/layer1.0/downsample/downsample.0/Conv" in names
    assert "layer4.2.bn3.running_var" in parameters(model)


@pytest.mark.slow
def test_activations_stay_finite_and_alive(model):
    """Logits within two decades of the input, and different ones for two images."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    images = np.random.default_rng(7).standard_normal((2, 3, 224, 224), dtype=np.float32)
    (logits,) = session.run(None, {"input": images})
    assert logits.shape == (2, 1000)
    assert np.isfinite(logits).all()
    assert 1 < logits.std() < 100
    assert np.abs(logits[0] - logits[1]).max() > 1e-3


@pytest.mark.slow
def test_one_seed_gives_one_model_and_another_seed_another():
    first, again, other = (build_resnet50(seed=seed, image=32).SerializeToString() for seed in (3, 3, 5))
    assert first == again
    assert first != other


def test_an_unusable_command_line_is_one_line(capsys):
    for words in (["\x1b" + "n" * 5000, "m.onnx"], ["tiny-mlp"], ["tiny-mlp", "m.onnx", "--seed", "-7"]):
        with pytest.raises(SystemExit) as caught:
            main(words)
        (line,) = capsys.readouterr().err.splitlines()
        assert caught.value.code == 2 and line.startswith("python -m models: error: ") and line.isprintable()
        assert len(line) < 1200
