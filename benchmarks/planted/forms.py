"""Other forms of a model: as the runtime has optimized it, in fp16, and with quantized operands (QDQ)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

SCALE = 1 / 64  # of quantized tensors: what is beyond 2 is cut off, in a model and its twin alike
CONVERTED = ("Conv", "MatMul", "Gemm")


def as_built(model: onnx.ModelProto) -> onnx.ModelProto:
    return model


def optimized(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph that the runtime makes of a model before it chooses layouts."""
    with TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        options.log_severity_level = 3
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def in_halves(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in fp16, as an exporter writes it: every fp32 tensor, and what operators turn into fp32."""
    half = onnx.ModelProto()
    half.CopyFrom(model)
    scales = {name for node in half.graph.node if node.op_type == "Resize" for name in node.input[1:]}  # fp32 always
    for held in half.graph.initializer:
        if held.data_type == TensorProto.FLOAT and held.name not in scales:
            narrow = numpy_helper.to_array(held).astype(np.float16)
            held.CopyFrom(numpy_helper.from_array(narrow, held.name))
    for one in (*half.graph.input, *half.graph.output):
        if one.type.tensor_type.elem_type == TensorProto.FLOAT:
            one.type.tensor_type.elem_type = TensorProto.FLOAT16
    for attribute in (one for node in half.graph.node for one in node.attribute if one.name == "to"):
        attribute.i = TensorProto.FLOAT16 if attribute.i == TensorProto.FLOAT else attribute.i
    return half


def quantized(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose contractions in fp32 have operands that were quantized to int8 and dequantized."""
    made = onnx.shape_inference.infer_shapes(model)
    graph = made.graph
    types = {held.name: held.data_type for held in graph.initializer}
    known = (*graph.input, *graph.value_info, *graph.output)
    types |= {one.name: one.type.tensor_type.elem_type for one in known}
    scale, zero = "qdq_scale", "qdq_zero"
    made.graph.initializer.extend(
        [
            numpy_helper.from_array(np.array(SCALE, np.float32), scale),
            numpy_helper.from_array(np.array(0, np.int8), zero),
        ]
    )
    nodes, done = list[onnx.NodeProto](), dict[str, str]()
    for node in made.graph.node:
        if node.op_type in CONVERTED:
            for place, name in enumerate(node.input[:2]):
                if types.get(name) != TensorProto.FLOAT:
                    continue
                if name not in done:
                    done[name], short = f"{name}_dq", f"{name}_q"
                    nodes += [
                        helper.make_node("QuantizeLinear", [name, scale, zero], [short], short),
                        helper.make_node("DequantizeLinear", [short, scale, zero], [done[name]], done[name]),
                    ]
                node.input[place] = done[name]
        nodes.append(node)
    copies = [*nodes]
    del made.graph.node[:]
    made.graph.node.extend(copies)
    return made


FORMS: Mapping[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = MappingProxyType(
    {"as built": as_built, "optimized": optimized, "fp16": in_halves, "QDQ": quantized}
)
