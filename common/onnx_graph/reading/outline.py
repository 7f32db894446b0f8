"""The graph of a model file without its weights, for viewers: named as in the tables, and valid ONNX.

A weight is stored as a sparse tensor without a single value where it has an axis, and as a zero where it has none. So
its type and its shape stay, and the checker has nothing to complain about.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import helper

from common.messages.errors import PipelineError
from common.onnx_graph.malformed import INVALID, names_model
from common.onnx_graph.reading.naming import every_node, expand
from common.onnx_graph.reading.scan import scan
from common.onnx_graph.reading.stripping import PAYLOADS, strip_weights
from common.onnx_graph.reading.validity import require_valid
from common.onnx_graph.shapes.inference import imported_opsets
from common.onnx_graph.shapes.regions import with_bodies

NODE_METADATA_VERSION = 10  # of the IR: the first that has metadata_props at nodes (onnx/onnx.proto)
SPARSE_CONSTANT_OPSET = 11  # https://onnx.ai/onnx/operators/onnx__Constant.html
SCOPES = "pkg.torch.onnx.name_scopes"  # torch.onnx writes it: the modules around a node, and the node, outermost first
Tensors = onnx.AttributeProto.TENSOR, onnx.AttributeProto.TENSORS
SparseTensors = onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS


@dataclass(frozen=True, slots=True)
class Outline:
    """A model without weights, its functions inlined, its nodes named as in op_metrics; scopes are module paths."""

    model: onnx.ModelProto
    model_id: str
    scopes: Mapping[str, tuple[str, ...]]


def outline(path: Path, model_id: str = "") -> Outline:
    """Return the graph of the model at ``path``; a file of another identity than the given one is a PipelineError."""
    scanned = scan(path)
    if model_id and scanned.model_id != model_id:
        raise PipelineError(path, "has changed since <op_metrics> read it")
    try:
        model, _ = expand(scanned.model)
    except INVALID as error:
        raise PipelineError(path, f"its local functions cannot be inlined ({str(error).splitlines()[0]})") from error
    with names_model(path):
        require_valid(path, model)
    scopes = {node.name: scope for node in every_node(model.graph.node) if (scope := _scope(node))}
    strip_weights(model)
    return Outline(model, scanned.model_id, scopes)


def annotated(content: Outline, nodes: Mapping[str, Mapping[str, str]], model: Mapping[str, str]) -> bytes:
    """Return an outline, which is changed, as an ONNX file with texts in its ``metadata_props``."""
    proto = content.model
    proto.ir_version = max(proto.ir_version, NODE_METADATA_VERSION)
    has_sparse_constants = imported_opsets(proto).get("", 0) >= SPARSE_CONSTANT_OPSET
    helper.set_model_props(proto, dict(model))
    for node in every_node(proto.graph.node):
        for key, value in nodes.get(node.name, {}).items():
            node.metadata_props.add(key=key, value=value)
        for attribute in node.attribute:
            _complete_attribute(attribute, may_be_sparse=has_sparse_constants and node.op_type == "Constant")
    for graph in with_bodies(proto.graph):
        _complete_initializers(graph)
    return bytes(proto.SerializeToString(deterministic=True))


def _scope(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the module path that the exporter left at a node; none if it cannot be read."""
    text = next((entry.value for entry in node.metadata_props if entry.key == SCOPES), "[]")
    try:
        names = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    are_texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(name for name in names if name) if are_texts else ()


def _complete_initializers(graph: onnx.GraphProto) -> None:
    tensors = [*graph.initializer]
    for sparse in graph.sparse_initializer:
        sparse.CopyFrom(_without_values(sparse.values, sparse.dims))
    graph.ClearField("initializer")
    for tensor in tensors:
        if _is_stripped(tensor) and tensor.dims:
            graph.sparse_initializer.append(_without_values(tensor, tensor.dims))
        else:
            graph.initializer.append(_with_zeros(tensor))


def _complete_attribute(attribute: onnx.AttributeProto, *, may_be_sparse: bool) -> None:
    if attribute.type in SparseTensors:
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            sparse.CopyFrom(_without_values(sparse.values, sparse.dims))
    elif attribute.type in Tensors:
        if may_be_sparse and attribute.HasField("t") and _is_stripped(attribute.t) and attribute.t.dims:
            empty = _without_values(attribute.t, attribute.t.dims)
            attribute.CopyFrom(helper.make_attribute("sparse_value", empty))
        else:
            for tensor in [attribute.t] if attribute.HasField("t") else attribute.tensors:
                _with_zeros(tensor)
    elif attribute.type == onnx.AttributeProto.FLOAT and not attribute.HasField("f"):
        attribute.f = 0.0
    elif attribute.type == onnx.AttributeProto.STRING and not attribute.HasField("s"):
        attribute.s = b""


def _is_stripped(tensor: onnx.TensorProto) -> bool:
    return bool(math.prod(tensor.dims)) and not any(len(getattr(tensor, name)) for name in PAYLOADS)


def _without_values(tensor: onnx.TensorProto, dims: Iterable[int]) -> onnx.SparseTensorProto:
    values = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0])
    indices = onnx.TensorProto(data_type=onnx.TensorProto.INT64, dims=[0])
    return onnx.SparseTensorProto(values=values, indices=indices, dims=dims)


def _with_zeros(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """Return the tensor, with zeros (or empty texts) if it was stripped."""
    if _is_stripped(tensor):
        count = math.prod(tensor.dims)
        if tensor.data_type == onnx.TensorProto.STRING:
            tensor.string_data.extend([b""] * count)
        else:
            tensor.raw_data = bytes(count * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    return tensor
