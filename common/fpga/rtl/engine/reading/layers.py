"""The operators that are read, and the layers of a model."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from common.fpga.rtl.engine.network import EngineNetwork
from common.fpga.rtl.engine.reading import maps, parts, row_work
from common.fpga.rtl.engine.reading.reader import Finish, Operator, Reader

FUNCTIONS = "Abs Div Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Mul Neg Pow Selu Sigmoid Softplus Sqrt Sub Tanh"
OPERATORS: Mapping[str, Operator] = {
    "QuantizeLinear": Reader.quantize,
    "DequantizeLinear": Reader.dequantize,
    "Constant": Reader.constant,
    "Conv": maps.conv,
    "Gemm": maps.gemm,
    "MatMul": row_work.matmul,
    "GlobalAveragePool": maps.global_average_pool,
    "AveragePool": maps.average_pool,
    "MaxPool": maps.max_pool,
    "GlobalMaxPool": maps.global_max_pool,
    "ReduceMean": row_work.mean,
    "Relu": row_work.relu,
    "Clip": row_work.clip,
    "Add": row_work.add,
    "Flatten": maps.flatten,
    "Squeeze": parts.regroup,
    "Unsqueeze": parts.regroup,
    "Slice": parts.slice_,
    "Split": parts.split,
    "Gather": parts.gather,
    "Concat": parts.concat,
    "Identity": parts.same,
    "Dropout": parts.same,
    "Reshape": row_work.reshape,
    "Transpose": row_work.transpose,
    "Softmax": row_work.softmax,
    "LayerNormalization": row_work.normalization,
    **dict.fromkeys(FUNCTIONS.split(), row_work.function),
}
FINISHES: Mapping[str, Finish] = {
    "sums": maps.finish_sums,
    "maximum": maps.finish_maximum,
    "added": maps.finish_addition,
    "multiplied": maps.finish_multiplied,
    "joined": parts.finish_joined,
    "heads": row_work.finish_heads,
    "softmax": row_work.finish_rows,
    "normalization": row_work.finish_rows,
    "function": row_work.finish_function,
}


def layers_of(model: onnx.ModelProto) -> EngineNetwork:
    """Return the layers of a model whose shapes are known, with a batch of one.

    Raises:
        PipelineError: the model has an operator, or an arrangement of operators, that the engine does not compute.
    """
    return Reader(onnx.shape_inference.infer_shapes(model), FINISHES).network(OPERATORS)


def of_one_sample(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with a batch of one, as the engine takes it: samples follow one after the other."""
    constants = {each.name for each in model.graph.initializer}  # old models name them among the inputs
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim[: value.name not in constants]:
            dim.dim_value = 1
    return bound(model, {})


def bound(model: onnx.ModelProto, dimensions: Mapping[str, int]) -> onnx.ModelProto:
    """Return a model with the shapes that follow from sizes of its symbolic dimensions."""
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dimensions:
                dim.dim_value = dimensions[dim.dim_param]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    model.graph.ClearField("value_info")
    return onnx.shape_inference.infer_shapes(model)
