"""A model in float, ready to be quantized: its nodes have the names of all tables, batch normalizations are folded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, version_converter

from common.messages.errors import PipelineError
from common.onnx_graph.reading.naming import expand
from common.runtime.library import ort, path_text, silenced
from common.runtime.sessions.session import reason_of

PREPARED = "float.onnx"
LEAST_IR = 4  # before that, a weight had to be an input, too (ONNX, docs/IR.md); the converter still asks for it
LEAST_OPSET = 13  # scales per channel, and bfloat16 (ONNX, docs/Changelog.md)
MOST_BYTES = 2**31 - 2**20  # of one protobuf message, less the graph
# Contractions that engines of a board compute in few bits and that the quantizer knows; others stay in float.
QUANTIZED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.UNDEFINED)
# These would give a product another name or type, and no table would know it.
KEPT_APART = ("MatMulAddFusion", "ConstantSharing")


def _with_new_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of an opset that has all formats; the given model if it cannot be converted."""
    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), LEAST_OPSET)
    if opset >= LEAST_OPSET:
        return model
    model.ir_version = max(model.ir_version, LEAST_IR)
    try:
        return version_converter.convert_version(model, LEAST_OPSET)
    except Exception:  # the converter raises what it likes; formats that need a new opset then say so
        return model


@dataclass(frozen=True, slots=True)
class FloatModel:
    """A prepared model."""

    path: Path
    nodes: tuple[str, ...]  # contractions that can be quantized, by name
    tensors: dict[str, frozenset[str]]  # operands and results of each node
    op_types: dict[str, str]

    def proto(self) -> onnx.ModelProto:
        return onnx.load(self.path)


def float_model(path: Path, folder: Path) -> FloatModel:
    """Prepare a model in a folder, as the quantizer of the runtime requires (its documentation, "Pre-processing").

    A PipelineError says that the model is too large, or the runtime refuses it.
    """
    prepared = folder / PREPARED
    try:
        model, _ = expand(_with_new_operators(onnx.load(path)))
        if model.ByteSize() > MOST_BYTES:
            raise PipelineError(path, "its weights take more than 2 GB, which the quantizer does not take")
        _optimize(model, prepared, {})
    except PipelineError:
        raise
    except Exception as error:  # the runtime raises a dozen unrelated types
        raise PipelineError(path, f"ONNX Runtime refuses it ({reason_of(error)})") from error
    return described(prepared)


def _optimize(model: onnx.ModelProto, target: Path, sizes: Mapping[str, int]) -> None:
    """Write what the runtime makes of a model before it chooses kernels; ``sizes`` are of dynamic dimensions."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = path_text(target)
    for name, size in sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    content = model.SerializeToString()
    with silenced():
        ort.InferenceSession(content, options, ["CPUExecutionProvider"], disabled_optimizers=[*KEPT_APART])


def write_single(model: FloatModel, target: Path) -> None:
    """Write a prepared model with a batch of one, in which shapes that depended on the batch are constants."""
    proto = model.proto()
    firsts = [dim.dim_param for value in proto.graph.input for dim in value.type.tensor_type.shape.dim[:1]]
    _optimize(proto, target, {name: 1 for name in firsts if name})


def described(path: Path) -> FloatModel:
    """Return a model that is prepared, with the contractions that can be quantized."""
    graph = onnx.load(path, load_external_data=False).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}
    types = {weight.name: weight.data_type for weight in graph.initializer} | types
    exact = {name for name, element in types.items() if element not in FLOATS}  # no format changes their products
    tensors = {node.name: frozenset((*node.input, *node.output)) for node in graph.node}
    op_types = {node.name: node.op_type for node in graph.node}
    chosen = (name for name, op_type in op_types.items() if op_type in QUANTIZED and not exact & tensors[name])
    return FloatModel(path, tuple(chosen), tensors, op_types)
