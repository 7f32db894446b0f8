"""Smoothed linear layers: a part of the range of each channel of activations moves into the weights.

SmoothQuant (Xiao et al. 2023, arXiv:2211.10438, section 4): X W = (X diag(s)^-1) (diag(s) W), with the scales of
equation 4, s_j = max|X_j|^a / max|W_j|^(1-a). In float nothing changes. In integers, a channel of activations with
outliers no longer decides the step of all the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from common.precision.conversion.float_model import FloatModel, described
from common.runtime.inputs.values import Array, Feeds
from common.runtime.library import ort, silenced

STRENGTH = 0.5  # a: what the authors take for most models (section 5.1)
Layers = Mapping[str, Sequence[onnx.NodeProto]]


def linear_layers(model: onnx.ModelProto) -> dict[str, list[onnx.NodeProto]]:
    """Return the layers that multiply activations by a constant matrix, by the tensor of activations."""
    matrices = {weight.name for weight in model.graph.initializer if len(weight.dims) == 2}
    layers = dict[str, list[onnx.NodeProto]]()
    for node in model.graph.node:
        is_linear = node.op_type == "MatMul" or (node.op_type == "Gemm" and not _attribute(node, "transA"))
        if is_linear and node.input[1] in matrices and node.input[0] not in matrices:
            layers.setdefault(node.input[0], []).append(node)
    return layers


def has_linear_layers(model: FloatModel) -> bool:
    return bool(linear_layers(model.proto()))


def smoothed(model: FloatModel, feeds: Sequence[Feeds], target: Path) -> FloatModel:
    """Write a model with all its linear layers smoothed, and return it.

    A LayerNormalization that only these layers read takes the division into its own scale and bias, as the authors do.
    Elsewhere a Mul divides the activations. Their ranges are those in the runs of ``feeds``.
    """
    proto = model.proto()
    layers = linear_layers(proto)
    weights = {weight.name: numpy_helper.to_array(weight) for weight in proto.graph.initializer}
    normalizations = _normalizations(proto.graph, layers, weights)
    for name, largest in _largest_activations(proto, [*layers], feeds).items():
        scales = _scales(largest, [_largest_weights(node, weights) for node in layers[name]])
        for node in layers[name]:
            wide = weights[node.input[1]] * (scales[None] if _attribute(node, "transB") else scales[:, None])
            node.input[1] = _constant(proto.graph, f"{node.name}/smoothed/weights", wide)
        if name in normalizations:
            before = normalizations[name]
            for place, held in enumerate(before.input[1:], start=1):
                before.input[place] = _constant(proto.graph, f"{name}/smoothed/{place}", weights[held] / scales)
        else:
            _divide(proto.graph, name, layers[name], scales)
    read = {name for node in proto.graph.node for name in _reads(node)}
    kept = [weight for weight in proto.graph.initializer if weight.name in read]
    proto.graph.ClearField("initializer")
    proto.graph.initializer.extend(kept)
    onnx.save(proto, target)
    return described(target)


def _normalizations(graph: onnx.GraphProto, layers: Layers, weights: Mapping[str, Array]) -> dict[str, onnx.NodeProto]:
    """Return the LayerNormalizations over the last axis that only linear layers read, by what they write."""
    readers = Counter(name for node in graph.node for name in _reads(node))
    readers.update(value.name for value in graph.output)
    return {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "LayerNormalization"
        and readers[node.output[0]] == len(layers.get(node.output[0], ()))
        and all(name in weights and weights[name].ndim == 1 for name in node.input[1:])
    }


def _reads(node: onnx.NodeProto) -> list[str]:
    bodies = [attribute.g for attribute in node.attribute if attribute.type == AttributeProto.GRAPH]
    inner = [name for body in bodies for one in body.node for name in _reads(one)]
    return [*node.input, *inner, *(value.name for body in bodies for value in body.output)]


def _largest_activations(model: onnx.ModelProto, names: Sequence[str], feeds: Sequence[Feeds]) -> dict[str, Array]:
    """Return the largest absolute value of each channel (the last axis) in all runs, by tensor."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    declared = {value.name for value in shown.graph.output}
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in declared)
    with silenced():
        session = ort.InferenceSession(shown.SerializeToString(), providers=["CPUExecutionProvider"])
        runs = [[_by_channel(value) for value in session.run([*names], run)] for run in feeds]
    return {name: np.max([run[place] for run in runs], axis=0) for place, name in enumerate(names)}


def _by_channel(values: Array) -> Array:
    largest: Array = np.abs(values.reshape(-1, values.shape[-1])).max(0)
    return largest


def _largest_weights(node: onnx.NodeProto, weights: Mapping[str, Array]) -> Array:
    """Return the largest absolute weight of each channel of activations."""
    held = weights[node.input[1]]
    return _by_channel(held if _attribute(node, "transB") else held.T)


def _scales(activations: Array, weights: Sequence[Array]) -> Array:
    """Return a divisor for each channel; 1 where its activations or its weights are all zero, or not finite."""
    largest = np.max(weights, axis=0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scales = activations**STRENGTH / largest ** (1 - STRENGTH)
    return np.where(np.isfinite(scales) & (scales > 0), scales, 1).astype(np.float32)


def _divide(graph: onnx.GraphProto, name: str, readers: Sequence[onnx.NodeProto], scales: Array) -> None:
    """Divide the activations in front of the layers that read them."""
    divided = f"{name}/smoothed"
    first = next(place for place, node in enumerate(graph.node) if node.name == readers[0].name)
    factors = _constant(graph, f"{divided}/factors", 1 / scales)
    for node in readers:
        node.input[0] = divided
    graph.node.insert(first, helper.make_node("Mul", [name, factors], [divided], divided))


def _constant(graph: onnx.GraphProto, name: str, array: Array) -> str:
    graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return name


def _attribute(node: onnx.NodeProto, name: str) -> Any:
    return next((helper.get_attribute_value(attribute) for attribute in node.attribute if attribute.name == name), 0)
