"""A graph as a model file without weights."""

from __future__ import annotations

import onnx
from onnx import helper

from common.graph import Graph, Tensor
from common.onnx_graph.shapes.types import element_type


def graph_bytes(graph: Graph) -> bytes:
    """Return a graph as a model file: nodes without attributes, and the types and shapes of all tensors."""
    inputs = [tensor for tensor in graph.tensors.values() if tensor.kind == "input"]
    outputs = [graph.tensors[name] for name in graph.outputs]
    ends = {tensor.name for tensor in (*inputs, *outputs)}
    inner = [tensor for tensor in graph.tensors.values() if tensor.name not in ends]
    nodes = [
        helper.make_node(node.op_type, node.inputs, node.outputs, name=node.name, domain=node.domain)
        for node in graph.nodes
    ]
    proto = helper.make_graph(nodes, "executed", _values(inputs), _values(outputs), value_info=_values(inner))
    domains = dict.fromkeys(node.domain for node in graph.nodes)
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid(domain, 1) for domain in domains])
    return bytes(model.SerializeToString(deterministic=True))


def _values(tensors: list[Tensor]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(tensor.name, element_type(tensor.dtype), tensor.shape) for tensor in tensors]
