"""Matrix products: with transposed operands, with packed weights, and quantized."""

from __future__ import annotations

from onnx import TensorProto

from common.graph import Dim, Shape
from common.onnx_graph.shapes.contrib.as_onnx import Likeness, infer_as
from common.onnx_graph.shapes.contrib.registry import OperatorCall, Output, rule, whole_numbers

MATMUL = Likeness("MatMul", (0, 1))


def transposed(shape: Shape, *, matrix: bool, batch: bool) -> Shape:
    """Return the shape of a FusedMatMul's operand as MatMul reads it.

    ``batch`` moves the first axis before the last (A of shape K×batch×…×M); ``matrix`` swaps the last two after that.
    """
    if shape is None or len(shape) < 2:
        return shape
    if batch:
        shape = (*shape[1:-1], shape[0], shape[-1])
    return (*shape[:-2], shape[-1], shape[-2]) if matrix else shape


@rule("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul", "SparseToDenseMatMul")
def fused_matmul(call: OperatorCall) -> list[Output]:
    """MatMul of transposed operands."""
    flags = {side: {"matrix": f"trans{side}", "batch": f"transBatch{side}"} for side in "AB"}
    shapes = {
        index: transposed(call.shape(index), **{key: bool(call.attribute(name, 0)) for key, name in names.items()})
        for index, names in enumerate(flags.values())
    }
    return infer_as(call, Likeness("MatMul", (0, 1), typed_by=1), shapes=shapes)


@rule("MatMulInteger16")
def matmul_integer16(call: OperatorCall) -> list[Output]:
    """MatMul of 16-bit integers into 32-bit ones."""
    [output] = infer_as(call, MATMUL)
    return [(TensorProto.INT32, output[1] if output else None)]


@rule("QGemm")
def qgemm(call: OperatorCall) -> list[Output]:
    """Gemm of operands 0 and 3; without an output zero point the result stays in the scale's float type."""
    return infer_as(call, Likeness("Gemm", (0, 3), typed_by=8 if call.has(8) else 1))


@rule("GemmFloat8")
def gemm_float8(call: OperatorCall) -> list[Output]:
    """Gemm into the type of the attribute ``dtype`` (default float)."""
    [output] = infer_as(call, Likeness("Gemm", (0, 1)))
    return [(call.integer("dtype", TensorProto.FLOAT), output[1] if output else None)]


def _columns(call: OperatorCall, count: Dim) -> Output:
    """Operand 0 with ``count`` columns in its last axis."""
    shape = call.shape(0)
    return call.element_type(0), None if not shape else (*shape[:-1], count)


@rule("MatMulNBits")
def matmul_nbits(call: OperatorCall) -> list[Output]:
    """Return A · B for a packed B of K×N."""
    return [_columns(call, call.integer("N"))]


@rule("MatMulBnb4")
def matmul_bnb4(call: OperatorCall) -> list[Output]:
    """Return A · Bᵀ for a packed B of N×K, or A · B where ``transB`` is 0 (the backward pass)."""
    return [_columns(call, call.integer("N" if call.attribute("transB", 1) else "K"))]


@rule("MatMulFpQ4")
def matmul_fpq4(call: OperatorCall) -> list[Output]:
    """A · B for a packed B whose shape is the value of operand 2."""
    shape = call.value(2)
    return [_columns(call, whole_numbers(shape)[1] if shape is not None and shape.shape == (2,) else None)]


@rule("MatMulNBitsQkv")
def matmul_nbits_qkv(call: OperatorCall) -> list[Output]:
    """Three products of one normalized input with packed weights, and the input with the skip added."""
    keys = call.integer("Nkv")
    return [_columns(call, call.integer("Nq")), _columns(call, keys), _columns(call, keys), call.same(0)]


@rule("MatMulNBitsMlp")
def matmul_nbits_mlp(call: OperatorCall) -> list[Output]:
    """Return a gated pair of products with packed weights, and the input with the skip added."""
    return [_columns(call, call.integer("N")), call.same(0)]
