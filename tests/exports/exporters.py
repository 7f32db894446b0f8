"""The two exporters of ``torch.onnx``, and what ONNX Runtime really makes of an exported graph."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch

from tests.exports.architectures import ARCHITECTURES, Binding, Subject

# TorchScript; torch.export with attention in pieces; torch.export with the Attention operator of opset 23.
EXPORTERS = ("script-17", "dynamo-20", "dynamo-23")


def export(architecture: str, size: str, exporter: str, folder: Path) -> Path:
    """Write ``model.onnx`` to a folder: TorchScript's with its weights inside, the other's with a side file."""
    torch.manual_seed(7)
    subject = ARCHITECTURES[architecture].build(ARCHITECTURES[architecture].sizes[size])
    subject.module.eval()
    path, opset = folder / "model.onnx", int(exporter.split("-")[1])
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # that a size becomes a constant, that an exporter is old
        if exporter.startswith("script"):
            _script(subject, path, opset)
        else:
            _dynamo(subject, path, opset)
    return path


def _script(subject: Subject, path: Path, opset: int) -> None:
    torch.onnx.export(
        subject.module,
        tuple(subject.inputs.values()),
        path,
        dynamo=False,
        opset_version=opset,
        input_names=list(subject.inputs),
        output_names=list(subject.outputs) or None,
        dynamic_axes=dict(subject.axes),
    )


def _dynamo(subject: Subject, path: Path, opset: int) -> None:
    torch.onnx.export(
        subject.module,
        tuple(subject.inputs.values()),
        path,
        dynamo=True,
        verbose=False,
        opset_version=opset,
        input_names=list(subject.inputs),
        output_names=list(subject.outputs) or None,
        dynamic_shapes=(tuple(subject.axes[name] for name in subject.inputs),),
        external_data=True,
    )


def real_shapes(path: Path, binding: Binding) -> dict[str, tuple[int, ...]]:
    """The shape of every node output, as ONNX Runtime makes it when it runs the graph as it is written.

    Each tensor gets a Shape node, whose few numbers are returned in its place: all the tensors of a full-size model
    would not fit into memory together.
    """
    model = onnx.load(path, load_external_data=False)
    names = [name for node in model.graph.node for name in node.output if name]
    del model.graph.output[:]
    for index, name in enumerate(names):
        model.graph.node.append(onnx.helper.make_node("Shape", [name], [f"shape of {index}"], f"shape node {index}"))
        model.graph.output.append(
            onnx.helper.make_tensor_value_info(f"shape of {index}", onnx.TensorProto.INT64, [None])
        )
    probed = path.with_name("probed.onnx")  # beside the side file that holds the weights
    onnx.save(model, probed)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(probed, options, providers=["CPUExecutionProvider"])
    made = session.run([f"shape of {index}" for index in range(len(names))], feeds(session, binding))
    probed.unlink()
    return {name: tuple(shape.tolist()) for name, shape in zip(names, made, strict=True)}


def feeds(session: ort.InferenceSession, binding: Binding) -> dict[str, np.ndarray]:
    """An array for each input: tokens of id 1 and masks that mask nothing, or random numbers."""
    random = np.random.default_rng(7)
    arrays = {}
    for value in session.get_inputs():
        shape = [binding[dim] if isinstance(dim, str) else dim for dim in value.shape]
        is_real = value.type == "tensor(float)"
        arrays[value.name] = random.standard_normal(shape, np.float32) if is_real else np.ones(shape, np.int64)
    return arrays
