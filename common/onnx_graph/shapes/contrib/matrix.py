"""Matrix products: with transposed operands, with packed weights, and quantized."""

from __future__ import annotations

from onnx import TensorProto

from common.onnx_graph.attributes import transposed
from common.onnx_graph.shapes.contrib.as_onnx import Likeness, infer_as
from common.onnx_graph.shapes.contrib.registry import OperatorCall, Output, rule

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
