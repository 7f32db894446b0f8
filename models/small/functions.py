"""A small model with local functions (``model.functions``), which newer exporters write for repeated modules."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from models.graph_builder import FLOAT, Dim, GraphBuilder

OPSET = 17
DOMAIN = "local"
FEATURES, HIDDEN, OUTPUTS = 13, 29, 11


def build_tiny_functions(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """A function of MatMul, Add and a second function called twice: (batch, 13) to (batch, 11)."""
    builder = GraphBuilder("tiny-functions", seed=seed)
    x = "input"
    for layer, (rows, columns) in enumerate(((FEATURES, HIDDEN), (HIDDEN, OUTPUTS))):
        values = builder.random.standard_normal((rows, columns), dtype=np.float32) / np.float32(np.sqrt(rows))
        weight = builder.weight(f"layer{layer}.weight", values)
        bias = builder.weight(f"layer{layer}.bias", builder.random.normal(0, 0.1, columns).astype(np.float32))
        output = "output" if layer else None
        x = builder.node("Dense", [x, weight, bias], f"layer{layer}", output=output, domain=DOMAIN, slope=0.1)
    inputs, outputs = {"input": (FLOAT, (batch, FEATURES))}, {"output": (FLOAT, (batch, OUTPUTS))}
    return builder.model(inputs, outputs, opset=OPSET, domains={DOMAIN: 1}, functions=[_leaky(), _dense()])


def _dense() -> onnx.FunctionProto:
    """Leaky(x · weight + bias); the slope is passed on."""
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["product"], name="MatMul"),
        helper.make_node("Add", ["product", "bias"], ["shifted"], name="Add"),
        _with_slope(helper.make_node("Leaky", ["shifted"], ["y"], name="Leaky", domain=DOMAIN), "slope"),
    ]
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(DOMAIN, "Dense", ["x", "weight", "bias"], ["y"], nodes, imports, ["slope"])


def _leaky() -> onnx.FunctionProto:
    nodes = [_with_slope(helper.make_node("LeakyRelu", ["x"], ["y"], name="LeakyRelu"), "alpha")]
    return helper.make_function(DOMAIN, "Leaky", ["x"], ["y"], nodes, [helper.make_opsetid("", OPSET)], ["slope"])


def _with_slope(node: onnx.NodeProto, name: str) -> onnx.NodeProto:
    """Give the node an attribute that takes the function's own attribute ``slope``."""
    node.attribute.add(name=name, type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    return node
