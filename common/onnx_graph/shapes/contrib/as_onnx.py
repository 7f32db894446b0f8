"""Contrib operators that equal an ONNX operator with its operands in another order, or whose outputs equal an operand.

For the first kind, ONNX's own inference is used. Matrix products (transposed, packed, quantized) are mostly of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import onnx
from onnx import TensorProto, TypeProto, helper

from common.graphs.graph import Shape
from common.graphs.operators import MICROSOFT, ONNX
from common.onnx_graph.attributes import transposed
from common.onnx_graph.malformed import INVALID
from common.onnx_graph.shapes.contrib.registry import OperatorCall, Output, UnfitError, rule

ALL = tuple(range(32))  # all operands in their own order


@dataclass(frozen=True, slots=True)
class Likeness:
    """The ONNX operator behind a contrib operator.

    ``operands`` are the contrib operator's operands in the order of the ONNX operator; ``typed_by`` is the operand
    whose element type the output has, unless ``element_type`` says which. ``version`` is the operator set whose
    definition fits.
    """

    op_type: str
    operands: tuple[int, ...] = ALL
    typed_by: int = 0
    element_type: int | None = None
    version: int = onnx.defs.onnx_opset_version()


LIKENESSES: dict[str, Likeness] = {
    "FusedConv": Likeness("Conv", (0, 1)),
    "FusedGemm": Likeness("Gemm", (0, 1)),
    "GatherND": Likeness("GatherND", (0, 1)),
    "GemmFastGelu": Likeness("MatMul", (0, 1)),
    "GridSample": Likeness("GridSample", (0, 1)),
    "DynamicQuantizeMatMul": Likeness("MatMul", (0, 1)),
    "MatMulInteger16": Likeness("MatMul", (0, 1), element_type=TensorProto.INT32),
    "MatMulIntegerToFloat": Likeness("MatMul", (0, 1), typed_by=2),
    "QLinearAdd": Likeness("Add", (0, 3)),
    "QLinearMul": Likeness("Mul", (0, 3)),
    "QLinearReduceMean": Likeness("ReduceMean", (0,), version=13),
    "QLinearWhere": Likeness("Where", (0, 1, 4), typed_by=1),
    "ComplexMul": Likeness("Mul", (0, 1)),
    "ComplexMulConj": Likeness("Mul", (0, 1)),
}

# Operators whose outputs have the types and shapes of these operands, by domain. In ONNX's own: experimental operators
# of early ONNX that the runtime still has, its copies between devices, an operator whose first version (operator set
# 18) is a function without inference, and Dropout, whose mask has no shape before operator set 12.
SAME: dict[tuple[str, tuple[int, ...]], str] = {
    (MICROSOFT, (0,)): "BiasAdd BiasGelu BiasSoftmax BranchwiseRMSNorm DecoderAttention FastGelu GatedAdd GatedRMSNorm "
    "Gelu GroupNorm HyperConnectionPostMix Inverse LongformerAttention MRotaryEmbedding MoE QLinearLeakyRelu "
    "QLinearSigmoid QLinearSoftmax QMoE QOrderedGelu QOrderedLayerNormalization QOrderedLongformerAttention QuickGelu "
    "RotaryEmbedding ScaledSiLU Trilu",
    (MICROSOFT, (0, 0)): "EngramGate SkipGroupNorm",
    (MICROSOFT, (0, 3)): "LinearAttentionGate",
    (MICROSOFT, (0, 4)): "VarlenCausalConvWithState",
    (MICROSOFT, (1,)): "NGramRepeatBlock",
    (MICROSOFT, (1, 3)): "GemmaRotaryEmbedding",
    (ONNX, (0,)): "Affine GroupNormalization ImageScaler MemcpyFromHost MemcpyToHost ParametricSoftplus Scale "
    "ScaledTanh ThresholdedRelu",
    (ONNX, (0, 0)): "Dropout",
}


def infer_as(
    call: OperatorCall,
    likeness: Likeness,
    *,
    shapes: Mapping[int, Shape] | None = None,
    attributes: Mapping[str, object] | None = None,
) -> list[Output]:
    """Infer the node as an ONNX operator, with other shapes (by the contrib operator's index) or attributes."""
    schema = onnx.defs.get_schema(likeness.op_type, likeness.version, "")
    indices = [index for index in likeness.operands if index < len(call.operands)]
    node = _onnx_node(call, schema, indices, attributes)
    given = {} if shapes is None else shapes
    types = {
        f"x{index}": _type(schema, position, call.element_type(index), given.get(index, call.shape(index)))
        for position, index in enumerate(indices)
        if call.has(index)
    }
    values = {f"x{index}": call.value(index) for index in indices}
    data = {name: onnx.numpy_helper.from_array(value) for name, value in values.items() if value is not None}
    try:
        opsets = [helper.make_opsetid("", likeness.version)]
        inferred = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=opsets)
    except INVALID as error:
        raise UnfitError from error
    element_type = likeness.element_type or call.element_type(likeness.typed_by)
    return [(element_type, _shape(inferred[name])) if name in inferred else None for name in node.output]


def _onnx_node(
    call: OperatorCall, schema: onnx.defs.OpSchema, indices: Sequence[int], attributes: Mapping[str, object] | None
) -> onnx.NodeProto:
    inputs = [f"x{index}" if call.has(index) else "" for index in indices]
    count = min(len(call.node.output), schema.max_output)
    node = helper.make_node(schema.name, inputs, [f"y{index}" for index in range(count)])
    if attributes is None:
        node.attribute.extend(attribute for attribute in call.node.attribute if attribute.name in schema.attributes)
    else:
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    return node


def _type(schema: onnx.defs.OpSchema, position: int, element_type: int, shape: Shape) -> TypeProto:
    """Return the operand's type for ONNX: float where the ONNX operator allows it, whatever the contrib one has."""
    parameter = schema.inputs[min(position, len(schema.inputs) - 1)]
    stand_in = TensorProto.FLOAT if "tensor(float)" in parameter.types else element_type or TensorProto.INT64
    return helper.make_tensor_type_proto(stand_in, shape)


def _shape(inferred: TypeProto) -> Shape:
    tensor = inferred.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)


def _same_as(call: OperatorCall, operands: tuple[int, ...]) -> list[Output]:
    return [call.same(index) for index in operands]


for _op_type, _likeness in LIKENESSES.items():
    rule(_op_type)(partial(infer_as, likeness=_likeness))
for (_domain, _operands), _names in SAME.items():
    rule(*_names.split(), domains=(_domain,))(partial(_same_as, operands=_operands))


# --- matrix products --------------------------------------------------------------------------------------------------

# Attributes with the numbers of columns of products with packed weights; a further output is the input plus the skip.
PACKED_COLUMNS = {"MatMulNBits": ("N",), "MatMulNBitsMlp": ("N",), "MatMulNBitsQkv": ("Nq", "Nkv", "Nkv")}


@rule("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul")
def fused_matmul(call: OperatorCall) -> list[Output]:
    """Infer a MatMul of transposed operands."""
    operands = ((index, side, call.shape(index)) for index, side in enumerate("AB"))
    shapes = {index: shape and transposed(shape, side, call.attribute) for index, side, shape in operands}
    return infer_as(call, Likeness("MatMul", (0, 1), typed_by=1), shapes=shapes)


@rule("QGemm")
def qgemm(call: OperatorCall) -> list[Output]:
    """Infer a Gemm of operands 0 and 3; without an output zero point the result has the scale's float type."""
    return infer_as(call, Likeness("Gemm", (0, 3), typed_by=8 if call.has(8) else 1))


@rule("GemmFloat8")
def gemm_float8(call: OperatorCall) -> list[Output]:
    """Infer a Gemm into the type of the attribute ``dtype`` (default float)."""
    return infer_as(call, Likeness("Gemm", (0, 1), element_type=call.integer("dtype", TensorProto.FLOAT)))


def _columns(call: OperatorCall, attribute: str) -> Output:
    """Return operand 0 with another number of columns in its last axis."""
    shape, count = call.shape(0), call.integer(attribute)
    return call.element_type(0), None if not shape else (*shape[:-1], count)


@rule(*PACKED_COLUMNS)
def packed_products(call: OperatorCall) -> list[Output]:
    return [*(_columns(call, name) for name in PACKED_COLUMNS[call.node.op_type]), call.same(0)]


@rule("MatMulBnb4")
def matmul_bnb4(call: OperatorCall) -> list[Output]:
    """Return A · Bᵀ for a packed B of N×K, or A · B where ``transB`` is 0 (the backward pass)."""
    return [_columns(call, "N" if call.attribute("transB", 1) else "K")]


@rule("CDist")
def cdist(call: OperatorCall) -> list[Output]:
    """Return the distances between the rows of two matrices."""
    return [(call.element_type(0), (call.dims(0, 2)[0], call.dims(1, 2)[0]))]
