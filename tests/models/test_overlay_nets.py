"""The networks that overlay engines are measured with: parameters and work against the literature, and run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from models.classifiers.inception_v1 import build_inception_v1
from models.classifiers.mobilenet_v1 import build_mobilenet_v1
from models.classifiers.resnet import build_resnet18
from models.classifiers.squeezenet import build_squeezenet
from models.classifiers.vgg16 import build_vgg16

Builder = Callable[..., onnx.ModelProto]
# Trainable parameters as the literature and torchvision, Keras (MobileNet) and BVLC (Inception) count them; M
# multiply-accumulates of one image as the papers and the vendor's model zoo have them, and with how many digits.
KNOWN = [
    (build_resnet18, 11_689_512, 1814, 1),
    (build_vgg16, 138_357_544, 15470, 10),
    (build_mobilenet_v1, 4_231_976, 569, 1),
    (build_inception_v1, 6_998_552, 1580, 10),
    (build_squeezenet, 1_235_496, 388, 1),
]


@pytest.mark.parametrize(("build", "parameters", "macs_m", "digit"), KNOWN)
def test_parameters_and_work(build: Builder, parameters: int, macs_m: int, digit: int) -> None:
    model = build(batch=1, has_weights=False)
    sizes = {tensor.name: int(np.prod(tensor.dims)) for tensor in model.graph.initializer}
    assert sum(size for name, size in sizes.items() if "running" not in name) == parameters
    assert abs(macs_of(model) / 1e6 - macs_m) <= digit


def macs_of(model: onnx.ModelProto) -> int:
    """By onnx's own shape inference: elements of the result times weights of one of them."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    shape = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.value_info, *inferred.output)
    }
    weights = {tensor.name: list(tensor.dims) for tensor in inferred.initializer}
    return sum(
        int(np.prod(shape[node.output[0]])) * int(np.prod(weights[node.input[1]][1:]))
        for node in inferred.node
        if node.op_type in ("Conv", "Gemm")
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [build_resnet18, build_mobilenet_v1, build_inception_v1, build_squeezenet],
    ids=lambda build: build.__name__,
)
def test_they_run_and_tell_images_apart(build: Builder) -> None:
    session = ort.InferenceSession(build(image=64).SerializeToString(), providers=["CPUExecutionProvider"])
    images = np.random.default_rng(1).standard_normal((3, 3, 64, 64), dtype=np.float32)
    scores = session.run(None, {"input": images})[0]
    assert scores.shape == (3, 1000)
    assert np.isfinite(scores).all()
    assert (scores.std(axis=0) > 0).mean() > 0.5


@pytest.mark.slow
def test_vgg_runs_on_a_small_image() -> None:
    """32 pixels leave one: the first linear layer has 512 inputs and not 25,088."""
    model = build_vgg16(batch=1, image=32)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    scores = session.run(None, {"input": np.ones((1, 3, 32, 32), np.float32)})[0]
    assert scores.shape == (1, 1000)
    assert np.isfinite(scores).all()


def test_without_weights_only_shapes_are_written() -> None:
    full, light = build_squeezenet(batch=1), build_squeezenet(batch=1, has_weights=False)
    assert light.ByteSize() < full.ByteSize() / 50
    assert [tuple(tensor.dims) for tensor in light.graph.initializer] == [
        tuple(tensor.dims) for tensor in full.graph.initializer
    ]
    assert [node.name for node in light.graph.node] == [node.name for node in full.graph.node]


def test_a_projection_stands_where_the_shape_changes() -> None:
    names = [node.name for node in build_resnet18(batch=1, has_weights=False).graph.node]
    assert [name for name in names if "downsample.0" in name] == [
        f"/layer{stage}/layer{stage}.0/downsample/downsample.0/Conv" for stage in (2, 3, 4)
    ]
