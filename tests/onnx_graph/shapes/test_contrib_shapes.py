"""Shape rules of contrib operators against what ONNX Runtime's CPU provider really returns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as bindings

from common.graphs.graph import Tensor
from common.onnx_graph.shapes.contrib import contrib_outputs
from common.onnx_graph.shapes.contrib.registry import RULES
from common.onnx_graph.shapes.types import dtype_name
from common.onnx_graph.shapes.types import element_type as element_type_of
from tests.support.models.contrib_attention_cases import ATTENTION
from tests.support.models.contrib_cases import (
    BLOCKED,
    CONVOLUTION,
    ELEMENTWISE,
    MATRIX,
    QUANTIZED,
    QX,
    STRUCTURE,
    Case,
    quantized,
)
from tests.support.models.one_node import MICROSOFT, element_type, f32, i32, i64, ids, session_of, tensors_of

CASES = [*ELEMENTWISE, *QUANTIZED, *MATRIX, *CONVOLUTION, *BLOCKED, *ATTENTION, *STRUCTURE]


def run(case: Case) -> dict[str, np.ndarray]:
    """The node's outputs by name; every operand but operand 0 is a weight."""
    session = session_of(case.node, case.operands, inputs=["x0"], opset=case.opset, declared=case.declared)
    names = [name for name in case.node.output if name]
    return dict(zip(names, session.run(names, {"x0": np.asarray(case.operands[0])}), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_rule_agrees_with_the_runtime(case: Case) -> None:
    node = case.node
    try:
        real = {name: (element_type(array), array.shape) for name, array in run(case).items()}
    except bindings.Fail as error:
        if "not yet supported on this hardware" not in str(error):
            raise
        pytest.skip("the runtime has no kernel for this processor")
    expected = [real.get(name) for name in node.output]

    with_values = contrib_outputs(node, tensors_of(case.operands), case.value)
    without = contrib_outputs(node, tensors_of(case.operands), {}.get)

    assert with_values is not None and without is not None
    if not case.unknowable:
        assert with_values == expected
        assert (without == expected) != case.needs_value
    for told in (with_values, without):
        assert [output and output[0] for output in told] == [output and output[0] for output in expected]
        assert all(_agrees(*pair) for pair in zip(told, expected, strict=True))


def _agrees(told: Any, real: Any) -> bool:
    """Whether every dimension that is told is the real one."""
    if told is None or real is None or told[1] is None:
        return told is real or told is not None
    return len(told[1]) == len(real[1]) and all(
        one in (None, other) for one, other in zip(told[1], real[1], strict=True)
    )


# --- what cannot be executed: the definition, by hand ---------------------------------------------------------------

# No exporter writes these into a model that is run.
UNWRITTEN = {
    *("AttnLSTM", "BifurcationDetector", "Crop", "DynamicSlice", "ExpandDims", "MatMulFpQ4", "MaxpoolWithMask"),
    *("SampleOp", "SparseToDenseMatMul", "WordConvEmbedding"),
}
NOT_EXECUTED = {
    "BeamSearch": "runs a decoder with caches",
    "GreedySearch": "runs a decoder with caches",
    "MemcpyFromHost": "only between devices",
    "MemcpyToHost": "only between devices",
    "Sampling": "runs a decoder with caches",
    "SparseAttention": "the caches must share a buffer",
    "WhisperBeamSearch": "runs a decoder with caches",
}


def without_values(op_type: str, *operands: Any, domain: str = MICROSOFT, outputs: int = 1, **attributes: Any) -> Any:
    case = Case(op_type, operands, attributes, outputs, domain)
    return contrib_outputs(case.node, tensors_of(case.operands), {}.get)


def with_values(op_type: str, *operands: Any, outputs: int = 1, **attributes: Any) -> Any:
    case = Case(op_type, operands, attributes, outputs)
    return contrib_outputs(case.node, tensors_of(case.operands), case.value)


def test_every_operator_of_the_cpu_provider_has_a_rule_and_is_executed_or_excused() -> None:
    known = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas()}
    kernels = {
        (kernel.domain, kernel.op_name)
        for kernel in bindings.get_all_opkernel_def()
        if kernel.provider == "CPUExecutionProvider"
    }
    contrib = kernels - known
    assert len(contrib) > 90
    assert {op_type for _, op_type in contrib - RULES.keys()} == UNWRITTEN
    executed = {(case.domain, case.op_type) for case in CASES}
    assert {op_type for _, op_type in contrib - executed} - UNWRITTEN == NOT_EXECUTED.keys()


def test_searches_return_as_many_tokens_as_the_greatest_length() -> None:
    prompt = ids(7, 2, 5, dtype=np.int32)
    beam = with_values("BeamSearch", prompt, i32(17), None, i32(4), i32(3), f32(1), outputs=3, vocab_size=11)
    assert beam == [(6, (2, 3, 17)), (1, (2, 3)), (1, (12, 2, 4, 11))]
    assert with_values("GreedySearch", prompt, i32(17)) == [(6, (2, 17))]
    assert with_values("Sampling", prompt, i32(17), outputs=2, vocab_size=11) == [(6, (2, 17)), (1, (2, 11))]
    assert without_values("Sampling", prompt, i32(17), outputs=2) == [(6, (2, None)), (1, (2, None))]


def test_packed_attention() -> None:
    assert without_values("MultiHeadAttention", f32(2, 5, 3, 3, 4), num_heads=3) == [(1, (2, 5, 12))]
    assert without_values("MultiHeadAttention", f32(2, 5, 12), f32(2, 7, 3, 2, 4), num_heads=3) == [(1, (2, 5, 12))]
    assert without_values("PackedAttention", f32(11, 7), f32(7, 36), f32(36), num_heads=3) == [(1, (11, 12))]
    assert without_values("PackedMultiHeadAttention", f32(11, 3, 3, 4), num_heads=3) == [(1, (11, 12))]
    caches = f32(2, 2, 32, 8), f32(2, 2, 32, 8)
    sparse = without_values(
        "SparseAttention", f32(2, 8, 32), f32(2, 8, 16), f32(2, 8, 16), *caches, outputs=3, num_heads=4, kv_num_heads=2
    )
    assert sparse == [(1, (2, 8, 32)), (1, (2, 2, 32, 8)), (1, (2, 2, 32, 8))]


def test_caches_in_a_shared_buffer_do_not_grow() -> None:
    operands = f32(2, 1, 12), f32(12, 36), f32(36), None, f32(2, 2, 3, 11, 4), None, i32([5])
    shared = without_values("Attention", *operands, outputs=2, num_heads=3, past_present_share_buffer=1)
    assert shared == [(1, (2, 1, 12)), (1, (2, 2, 3, 11, 4))]
    assert without_values("Attention", *operands, outputs=2, num_heads=3) == [shared[0], (1, (2, 2, 3, 12, 4))]


def test_recurrent_states_in_a_window() -> None:
    attention = {"q_num_heads": 6, "kv_num_heads": 3, "state_window": 5}
    state = without_values("LinearAttention", f32(2, 7, 24), f32(2, 7, 12), f32(2, 7, 21), outputs=2, **attention)
    assert state == [(1, (2, 7, 42)), (1, (5, 2, 3, 4, 7))]
    state = without_values("CausalConvWithState", f32(2, 5, 11), f32(5, 1, 3), outputs=2, state_window=7)
    assert state == [(1, (2, 5, 11)), (1, (7, 2, 5, 2))]


def test_channels_last_domain_transposes_the_first_operand_and_the_output() -> None:
    nhwc = "com.ms.internal.nhwc"
    image, kernel = f32(1, 11, 13, 3), f32(5, 3, 2, 3)
    assert without_values("Conv", image, kernel, domain=nhwc, strides=[2, 1]) == [(1, (1, 5, 11, 5))]
    assert without_values("NhwcFusedConv", image, kernel, strides=[2, 1]) == [(1, (1, 5, 11, 5))]
    assert without_values("DepthToSpace", f32(1, 5, 7, 12), domain=nhwc, blocksize=2) == [(1, (1, 10, 14, 3))]
    assert without_values("GlobalMaxPool", image, domain=nhwc) == [(1, (1, 1, 1, 3))]


def test_operators_without_a_cpu_kernel() -> None:
    assert without_values("BiasSplitGelu", f32(2, 5, 14), f32(14)) == [(1, (2, 5, 7))]
    assert without_values("Rfft", f32(3, 11), onesided=1) == [(1, (3, 6, 2))]
    assert without_values("Irfft", f32(3, 6, 2), onesided=1) == [(1, (3, 10))]
    assert without_values("GemmFloat8", f32(3, 5), f32(7, 5), transB=1, dtype=16) == [(16, (3, 7))]
    assert without_values("QLinearReduceMean", *quantized(3, 5, 7), *QX, axes=[1]) == [(2, (3, 1, 7))]
    packed = without_values("RemovePadding", f32(2, 5, 11), i32([3, 4]), outputs=4)
    assert packed == [(1, (None, 11)), (6, (2, 5)), (6, (3,)), (6, (1,))]
    assert without_values("RestorePadding", f32(7, 11), i32(np.ones((2, 5)))) == [(1, (2, 5, 11))]
    assert with_values("RelativePositionBias", f32(17, 3), i64([5]), i64([7])) == [(1, (1, 3, 5, 7))]
    qkv = without_values("MatMulNBitsQkv", f32(2, 5, 48), outputs=4, Nq=24, Nkv=12)
    assert qkv == [(1, (2, 5, 24)), (1, (2, 5, 12)), (1, (2, 5, 12)), (1, (2, 5, 48))]


def test_the_names_of_element_types_lead_back_to_them() -> None:
    for value in set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}:
        assert element_type_of(dtype_name(value)) == value
    assert element_type_of("complex256") == TensorProto.UNDEFINED


# --- the unknown ----------------------------------------------------------------------------------------------------


def test_an_operator_without_a_rule() -> None:
    assert contrib_outputs(helper.make_node("Gelu", ["x"], ["y"], domain="my.own"), [None], {}.get) is None
    assert contrib_outputs(helper.make_node("EPContext", ["x"], ["y"], domain=MICROSOFT), [None], {}.get) is None


@pytest.mark.parametrize("case", CASES, ids=str)
def test_unknown_operands_give_no_wrong_shape(case: Case) -> None:
    """Of operands of unknown rank, of unknown dimensions, and of another rank than the operator takes."""
    node, known = case.node, tensors_of(case.operands)
    told = contrib_outputs(node, known, {}.get)
    for blurred in (_without_shape, _without_dimensions, _with_another_rank):
        answer = contrib_outputs(node, [tensor and blurred(tensor) for tensor in known], {}.get)
        assert answer is not None and told is not None
        assert len(answer) == len(node.output)
        if blurred is not _with_another_rank:
            assert all(_agrees(*pair) for pair in zip(answer, told, strict=True) if pair[0])


def _without_shape(tensor: Tensor) -> Tensor:
    return replace(tensor, shape=None)


def _without_dimensions(tensor: Tensor) -> Tensor:
    return replace(
        tensor, shape=None if tensor.shape is None else ("batch", None, None, None, None)[: len(tensor.shape)]
    )


def _with_another_rank(tensor: Tensor) -> Tensor:
    return replace(tensor, shape=(2, 3, *(tensor.shape or ())))


def test_a_symbolic_dimension_is_unknown_and_the_others_survive() -> None:
    query = Tensor("x0", "float16", 16, ("batch", 5, 48), "input")
    weights = Tensor("x1", "float16", 16, (48, 36), "weight")
    node = helper.make_node("Attention", ["x0", "x1"], ["y"], domain=MICROSOFT, num_heads=3)
    assert contrib_outputs(node, [query, weights], {}.get) == [(TensorProto.FLOAT16, (None, 5, 12))]
