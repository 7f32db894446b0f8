"""Models of one node for ONNX Runtime: their operands, their session, and the tensors that a shape rule sees."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from common.graphs.graph import Tensor
from common.onnx_graph.shapes.types import dtype_name, element_bits

MICROSOFT, NCHWC = "com.microsoft", "com.microsoft.nchwc"
RNG = np.random.default_rng(7)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 255, shape, dtype=np.uint8)


def f16(*shape: int) -> np.ndarray:
    return f32(*shape).astype(np.float16)


def i32(values: Any) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def i64(values: Any) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def ids(high: int, *shape: int, dtype: Any = np.int64) -> np.ndarray:
    return RNG.integers(0, high, shape, dtype=dtype)


def element_type(array: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)


def node_of(
    op_type: str, operands: Sequence[Any], outputs: Collection[int], domain: str = "", **attributes: Any
) -> onnx.NodeProto:
    """The node of operands x0, x1 … (None: left out) and of those outputs y0, y1 … that are asked for."""
    inputs = ["" if operand is None else f"x{index}" for index, operand in enumerate(operands)]
    names = [f"y{index}" if index in outputs else "" for index in range(max(outputs) + 1)]
    return helper.make_node(op_type, inputs, names, "node", domain=domain, **attributes)


def tensors_of(operands: Sequence[Any]) -> list[Tensor | None]:
    def tensor(index: int, array: np.ndarray) -> Tensor:
        code = element_type(array)
        return Tensor(f"x{index}", dtype_name(code), element_bits(code), array.shape, "input")

    return [None if operand is None else tensor(i, np.asarray(operand)) for i, operand in enumerate(operands)]


def session_of(
    node: onnx.NodeProto,
    operands: Sequence[Any],
    *,
    inputs: Collection[str],
    opset: int = 20,
    declared: dict[int, int] | None = None,
) -> ort.InferenceSession:
    """The CPU provider with the node as it is; the operands that are no ``inputs`` are weights.

    ``declared`` are the element types of outputs that the runtime cannot infer, by position.
    """
    arrays = {f"x{index}": np.asarray(operand) for index, operand in enumerate(operands) if operand is not None}
    fed = [helper.make_tensor_value_info(name, element_type(arrays[name]), arrays[name].shape) for name in inputs]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items() if name not in inputs]
    outputs = [_declared(name, (declared or {}).get(index)) for index, name in enumerate(node.output) if name]
    graph = helper.make_graph([node], "one node", fed, outputs, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1), helper.make_opsetid(NCHWC, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _declared(name: str, output_type: int | None) -> onnx.ValueInfoProto:
    if output_type is None:
        return helper.make_empty_tensor_value_info(name)
    return helper.make_tensor_value_info(name, output_type, None)
