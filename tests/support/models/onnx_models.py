"""Models of one node or a few, written to a file and loaded as a stage loads them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from common.graphs.graph import Graph, Node
from common.onnx_graph.load import load_model
from common.onnx_graph.work import Work, measure

FLOAT, UINT8, INT8, INT32, INT64 = (
    TensorProto.FLOAT,
    TensorProto.UINT8,
    TensorProto.INT8,
    TensorProto.INT32,
    TensorProto.INT64,
)
IR_VERSION = 8
Shape = Sequence[int | str | None] | None


@dataclass(frozen=True)
class Typed:
    """A tensor of another element type than float32."""

    element_type: int
    shape: Shape


def value(name: str, spec: Typed | Shape) -> onnx.ValueInfoProto:
    """Declare a tensor: float32 unless typed."""
    typed = spec if isinstance(spec, Typed) else Typed(FLOAT, spec)
    return helper.make_tensor_value_info(name, typed.element_type, typed.shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Typed | Shape],
    outputs: Mapping[str, Typed | Shape],
    weights: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    domains: Sequence[str] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """Assemble a model; weights become initializers with their data."""
    graph = helper.make_graph(
        nodes,
        "test",
        [value(name, spec) for name, spec in inputs.items()],
        [value(name, spec) for name, spec in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    made = helper.make_model(graph, opset_imports=imports, functions=functions)
    made.ir_version = IR_VERSION
    return made


def work_of(
    op_type: str,
    operands: Sequence[Typed | Shape | np.ndarray | str],
    *,
    outputs: Sequence[Typed | Shape] = (None,),
    domain: str = "",
    opset: int = 17,
    **attributes: Any,
) -> Work:
    """Count one node: a shape is an input ``x0, x1, …``, an array a weight, the empty text an absent operand.

    Output shapes that are None are inferred.
    """
    names = ["" if isinstance(spec, str) else f"x{index}" for index, spec in enumerate(operands)]
    node = helper.make_node(
        op_type, names, [f"y{index}" for index in range(len(outputs))], name="node", domain=domain, **attributes
    )
    proto = model(
        [node],
        {f"x{i}": spec for i, spec in enumerate(operands) if not isinstance(spec, np.ndarray | str)},
        {f"y{i}": spec for i, spec in enumerate(outputs)},
        {f"x{i}": spec for i, spec in enumerate(operands) if isinstance(spec, np.ndarray)},
        opset=opset,
        domains=[domain] if domain else [],
    )
    graph, loaded = load(proto)
    return measure(graph, loaded[0])


def load(proto: onnx.ModelProto, **dimensions: int) -> tuple[Graph, tuple[Node, ...]]:
    """The graph and nodes of a model that goes through a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(proto, path)
        graph = load_model(path, dimensions).graph
    return graph, graph.nodes


def weight(*shape: int) -> np.ndarray:
    """A float32 initializer."""
    return np.zeros(shape, np.float32)
