"""Work of ONNX Runtime's own operators: the runtime runs each node, so that operands and outputs are of real shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.graphs.graph import Graph, Node, Tensor
from common.graphs.operators import MICROSOFT
from common.onnx_graph.symbols.lengths import longest
from common.onnx_graph.work import Work, measure
from common.onnx_graph.work.registry import Gemm

CHANCE = np.random.default_rng(7)


def real(*shape: int) -> np.ndarray:
    return CHANCE.standard_normal(shape).astype(np.float32)


def whole(*shape: int, dtype: type = np.uint8, below: int = 3) -> np.ndarray:
    return CHANCE.integers(0, below, shape).astype(dtype)


SCALE, ZERO = np.float32(0.5).reshape(()), np.uint8(1).reshape(())


def tensor(name: str, array: np.ndarray, kind: str) -> Tensor:
    return Tensor(name, str(array.dtype), 8 * array.dtype.itemsize, array.shape, kind, longest(array))


def run(op_type: str, operands: Sequence[np.ndarray | None], outputs: int = 1, **attributes: Any) -> Work:
    """Run one node of ``com.microsoft`` and count it by the shapes of what went in and came out."""
    domain = attributes.pop("domain", MICROSOFT)
    names = ["" if array is None else f"x{index}" for index, array in enumerate(operands)]
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], domain=domain, **attributes)
    given = {name: np.asarray(array) for name, array in zip(names, operands, strict=True) if name}
    graph = helper.make_graph(
        [node],
        "one",
        [],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    for value in graph.output:
        value.ClearField("type")
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    answers = session.run(None, {})
    tensors = {name: tensor(name, array, "weight") for name, array in given.items()}
    tensors |= {f"y{i}": tensor(f"y{i}", array, "output") for i, array in enumerate(answers)}
    plain = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    counted = Node("node", op_type, domain, tuple(names), tuple(node.output), plain)
    return measure(Graph((counted,), tensors, tuple(node.output)), counted)


# --- matrix products ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "flags"),
    [
        ((3, 5, 7), (3, 7, 11), {}),
        ((3, 7, 5), (3, 11, 7), {"transA": 1, "transB": 1}),
        ((5, 3, 7), (7, 3, 11), {"transBatchA": 1, "transBatchB": 1}),
        ((7, 3, 5), (11, 3, 7), {"transBatchA": 1, "transBatchB": 1, "transA": 1, "transB": 1}),
    ],
)
def test_fused_matmul_takes_its_operands_in_any_order(left, right, flags):
    work = run("FusedMatMul", [real(*left), real(*right)], alpha=0.5, **flags)
    assert work.gemm == Gemm(3, 5, 7, 11)
    assert (work.macs, work.flops) == (3 * 5 * 7 * 11, 2 * 3 * 5 * 7 * 11 + 3 * 5 * 11)
    assert work.output_bytes == 4 * 3 * 5 * 11


def test_matmul_of_packed_weights():
    """K = 37 in blocks of 16 takes 3 blocks of 8 bytes for each of 11 columns."""
    packed, scales, zeros = whole(11, 3, 8), real(33), whole(11 * 2)
    work = run("MatMulNBits", [real(2, 5, 37), packed, scales, zeros], K=37, N=11, bits=4, block_size=16)
    macs = 2 * 5 * 37 * 11
    assert work.gemm == Gemm(1, 10, 37, 11)
    assert (work.macs, work.flops, work.dequantized) == (macs, 2 * macs, 37 * 11)
    assert work.bytes == 4 * 2 * 5 * 37 + 11 * 24 + 4 * 33 + 22 + 4 * 2 * 5 * 11


def test_a_row_times_packed_weights_costs_what_it_costs_unpacked():
    """Dequantizing is apart: a decoder's token has two FLOPs per weight, not four. Half a byte each, and the scales."""
    packed, scales = whole(11, 2, 16), real(22)
    work = run("MatMulNBits", [real(1, 1, 64), packed, scales], K=64, N=11, bits=4, block_size=32)
    plain = run("FusedMatMul", [real(1, 1, 64), real(64, 11)])
    assert (work.macs, work.flops) == (plain.macs, plain.flops) == (64 * 11, 2 * 64 * 11)
    assert (work.dequantized, plain.dequantized) == (64 * 11, 0)
    assert work.bytes - plain.bytes == 64 * 11 // 2 + 4 * 22 - 4 * 64 * 11


def test_dynamically_quantized_matmul():
    operands = [real(3, 5, 7), whole(7, 11, dtype=np.int8), SCALE, np.int8(0).reshape(()), real(11)]
    work = run("DynamicQuantizeMatMul", operands)
    macs, outputs = 3 * 5 * 7 * 11, 3 * 5 * 11
    assert (work.macs, work.flops) == (macs, 2 * macs + 5 * 3 * 5 * 7 + 3 * outputs)
    assert work.bytes == 4 * 105 + 77 + 4 + 1 + 44 + 4 * outputs


def test_integer_matmul_to_float():
    operands = [whole(5, 7), whole(7, 11), SCALE, SCALE, ZERO, ZERO, real(11)]
    work = run("MatMulIntegerToFloat", operands)
    assert (work.macs, work.flops) == (385, 2 * 385 + 3 * 55)


def test_quantized_gemm():
    operands = [whole(7, 5), SCALE, ZERO, whole(11, 7), SCALE, ZERO, whole(11, dtype=np.int32), SCALE, ZERO]
    work = run("QGemm", operands, transA=1, transB=1)
    assert work.gemm == Gemm(1, 5, 7, 11)
    assert (work.macs, work.flops) == (385, 2 * 385 + 3 * 55)
    assert work.output_bytes == 55


def test_experts():
    """13 tokens visit 2 of 5 experts each: all 5 are read; one token alone reads the weights of 2."""
    hidden, inner = 8, 12
    weights = [real(5, inner, hidden), None, real(5, hidden, inner)]
    work = run("MoE", [real(13, hidden), real(13, 5), *weights], k=2)
    macs = 13 * 2 * 2 * hidden * inner
    assert (work.macs, work.flops) == (macs, 2 * macs + 5 * 13 * 5 + 2 * 2 * 13 * hidden)
    assert work.bytes == 4 * (2 * 13 * hidden + 13 * 5 + 2 * 5 * hidden * inner)
    single = run("MoE", [real(1, hidden), real(1, 5), *weights], k=2)
    assert single.bytes == 4 * (2 * hidden + 5 + 2 * 2 * hidden * inner)


# --- attention ------------------------------------------------------------------------------------------------------


def test_attention_with_projection():
    """Batch 2, length 5, hidden 14, 2 heads: the projection, then 5 queries by 5 keys of 7 values."""
    work = run("Attention", [real(2, 5, 14), real(14, 42), real(42)], num_heads=2)
    projection, scores = 2 * 5 * 14 * 42, 2 * 2 * 5 * 5
    assert work.macs == projection + scores * (7 + 7)
    assert work.flops == 2 * work.macs + 6 * scores + 2 * 5 * 42


def test_attention_with_projection_and_past():
    operands = [real(2, 5, 14), real(14, 42), real(42), None, real(2, 2, 2, 11, 7)]
    work = run("Attention", operands, outputs=2, num_heads=2, unidirectional=1)
    projection, scores = 2 * 5 * 14 * 42, 2 * 2 * 5 * (5 + 11)
    assert work.macs == projection + scores * 14
    assert work.flops == 2 * work.macs + 7 * scores + 2 * 5 * 42
    assert work.output_bytes == 4 * (2 * 5 * 14 + 2 * 2 * 2 * 16 * 7)


def test_quantized_attention():
    operands = [whole(2, 5, 14), whole(14, 42), real(42), SCALE, SCALE, None, ZERO, ZERO]
    work = run("QAttention", operands, num_heads=2)
    scores = 2 * 2 * 5 * 5
    assert work.macs == 2 * 5 * 14 * 42 + scores * 14
    assert work.flops == 2 * work.macs + 6 * scores + (1 + 2) * 2 * 5 * 42


def test_multi_head_attention_across_sequences():
    """5 queries, 11 keys, 2 heads of 7; values of 13."""
    work = run("MultiHeadAttention", [real(3, 5, 14), real(3, 11, 14), real(3, 11, 26)], num_heads=2)
    scores = 3 * 2 * 5 * 11
    assert (work.macs, work.flops) == (scores * (7 + 13), 2 * scores * 20 + 6 * scores)
    assert work.gemm is None


def test_multi_head_attention_over_cached_keys():
    keys = [real(3, 2, 11, 7), real(3, 2, 11, 7)]
    work = run("MultiHeadAttention", [real(3, 5, 14), *keys], num_heads=2)
    assert work.macs == 3 * 2 * 5 * 11 * 14
    past = run("MultiHeadAttention", [real(3, 5, 14)] * 3 + [None] * 3 + keys, outputs=3, num_heads=2)
    assert past.macs == 3 * 2 * 5 * (5 + 11) * 14


def test_multi_head_attention_over_a_shared_buffer():
    """Operand 8 says how much of the past is valid: 10 of a buffer of 16; a new key is written beside them."""
    rows = {"query": (2, 1, 14), "key": (2, 1, 14), "value": (2, 1, 14), "past": (2, 2, 16, 7), "out": (2, 1, 14)}
    tensors = {name: Tensor(name, "float32", 32, shape, "activation") for name, shape in rows.items()}
    tensors["values"] = tensors["present"] = tensors["presents"] = tensors["past"]
    tensors["length"] = Tensor("length", "int32", 32, (1,), "activation", 10)
    names = ("query", "key", "value", "", "", "", "past", "values", "length")
    node = Node("node", "MultiHeadAttention", MICROSOFT, names, ("out", "present", "presents"), {"num_heads": 2})
    work = measure(Graph((node,), tensors, ("out",)), node)
    scores = 2 * 2 * 1 * 11
    assert (work.macs, work.flops) == (scores * (7 + 7), 2 * scores * 14 + 6 * scores)
    assert work.input_bytes == 4 * (3 * 28 + 1 + 2 * 2 * 2 * 10 * 7)
    assert work.output_bytes == 4 * (28 + 2 * 2 * 2 * 1 * 7)


@pytest.mark.parametrize("packed", [False, True])
def test_group_query_attention(packed):
    """4 heads share 2 of keys; one new token after 11: 12 keys of 8."""
    query, key = real(3, 1, 32), real(3, 1, 16)
    parts = [np.concatenate([query, key, key], 2), None, None] if packed else [query, key, key]
    lengths, total = np.full(3, 11, np.int32), np.full(1, 12, np.int32)
    past = [real(3, 2, 11, 8), real(3, 2, 11, 8)]
    work = run("GroupQueryAttention", [*parts, *past, lengths, total], outputs=3, num_heads=4, kv_num_heads=2)
    scores = 3 * 4 * 12
    assert (work.macs, work.flops) == (scores * 16, 2 * scores * 16 + 7 * scores)


def test_linear_attention():
    """3 query heads of 8 over 3 states of 8 × 5 at 11 tokens: update and readout; a delta rule retrieves as well."""
    operands = [real(2, 11, 24), real(2, 11, 24), real(2, 11, 15)]
    heads = {"q_num_heads": 3, "kv_num_heads": 3}
    plain = run("LinearAttention", operands, outputs=2, update_rule="linear", **heads)
    assert plain.macs == 2 * 11 * 3 * 8 * 5 * 2
    assert plain.flops == 2 * plain.macs + 2 * 11 * 3 * 5
    delta = run("LinearAttention", [*operands, None, None, real(2, 11, 3)], outputs=2, update_rule="delta", **heads)
    assert delta.macs == 2 * 11 * 3 * 8 * 5 * 3


def test_rotary_embedding_reads_the_rows_of_its_positions():
    """Batch 2, 5 tokens, 3 heads of 8: 10 rows of 4 from tables of 97."""
    operands = [real(2, 5, 24), whole(2, 5, dtype=np.int64, below=97), real(97, 4), real(97, 4)]
    work = run("RotaryEmbedding", operands)
    assert work.flops == 3 * 2 * 5 * 24
    assert work.weight_bytes == 4 * 2 * 5 * 24 + 8 * 10 + 2 * 4 * 10 * 4


# --- convolutions, normalisations, element-wise ---------------------------------------------------------------------


def test_fused_conv():
    operands = [real(1, 6, 13, 17), real(10, 3, 3, 5), real(10), real(1, 10, 11, 13)]
    work = run("FusedConv", operands, group=2, activation="Relu")
    macs, outputs = 10 * 11 * 13 * 3 * 15, 10 * 11 * 13
    assert (work.macs, work.flops) == (macs, 2 * macs + 3 * outputs)


def test_conv_transpose_with_dynamic_pads():
    operands = [real(1, 3, 5, 7), real(3, 11, 3, 3), np.zeros(4, np.int64), real(11)]
    work = run("ConvTransposeWithDynamicPads", operands, strides=[2, 2])
    macs = 5 * 7 * 3 * 11 * 9
    assert (work.macs, work.flops) == (macs, 2 * macs + 11 * 11 * 15)


def test_quantized_conv_with_channels_last():
    operands = [whole(1, 13, 17, 6), SCALE, ZERO, whole(10, 3, 3, 5), SCALE, ZERO, SCALE, ZERO]
    work = run("QLinearConv", [*operands, whole(10, dtype=np.int32)], group=2, channels_last=1)
    macs, outputs = 11 * 13 * 10 * 3 * 15, 11 * 13 * 10
    assert work.gemm == Gemm(2, 11 * 13, 3 * 15, 5)
    assert (work.macs, work.flops) == (macs, 2 * macs + 3 * outputs)


def test_causal_conv():
    work = run("CausalConvWithState", [real(2, 6, 11), real(6, 1, 4), real(6)], outputs=2, activation="silu")
    assert work.macs == 2 * 6 * 11 * 4
    assert work.gemm == Gemm(6, 2 * 11, 4, 1)
    assert work.flops == 2 * work.macs + (1 + 5) * 2 * 6 * 11


def test_embed_layer_norm_reads_the_rows_of_its_tokens():
    """2 × 5 tokens of 8: 10 word rows of 97, 5 position rows of 19, both segment rows; positions are shared."""
    ids = [whole(2, 5, dtype=np.int32), whole(2, 5, dtype=np.int32, below=2)]
    tables = [real(97, 8), real(19, 8), real(2, 8), real(8), real(8)]
    work = run("EmbedLayerNormalization", [*ids, *tables], outputs=2)
    assert work.flops == (7 + 2) * 2 * 5 * 8
    assert work.weight_bytes == 2 * 4 * 10 + 4 * 8 * (10 + 5 + 2 + 1 + 1)


def test_gather_of_packed_rows():
    """10 of 97 rows of 32 elements in 4 bits: 16 bytes and 2 scales each."""
    operands = [whole(97, 16), whole(2, 5, dtype=np.int64, below=97), real(97, 2)]
    work = run("GatherBlockQuantized", operands, bits=4, block_size=16, quantize_axis=1, gather_axis=0)
    assert work.output_bytes == 4 * 10 * 32
    assert work.weight_bytes == 10 * 16 + 8 * 10 + 4 * 10 * 2
    assert (work.flops, work.dequantized) == (0, 10 * 32)


@pytest.mark.parametrize("op_type", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_skip_norms_add_a_bias(op_type):
    rms = op_type == "SkipSimplifiedLayerNormalization"
    scales = [real(7)] if rms else [real(7), real(7)]
    operands = [real(2, 5, 7), real(2, 5, 7), *scales]
    assert run(op_type, operands).flops == ((4 if rms else 7) + 1) * 70
    assert run(op_type, [*operands, real(7)]).flops == ((4 if rms else 7) + 2) * 70


def test_quantized_elementwise_operators_cost_what_they_stand_for():
    """Dequantize each operand (2), compute, quantize the output (3)."""
    a, b = [whole(3, 5, 7), SCALE, ZERO], [whole(7), SCALE, ZERO]
    assert run("QLinearAdd", [*a, *b, SCALE, ZERO]).flops == 2 * (105 + 7) + 105 + 3 * 105
    assert run("QLinearSigmoid", [*a, SCALE, ZERO]).flops == (2 + 4 + 3) * 105
    assert run("QLinearLeakyRelu", [*a, SCALE, ZERO], alpha=0.5).flops == (2 + 2 + 3) * 105
    assert run("QLinearSoftmax", [*a, SCALE, ZERO], opset=13).flops == (2 + 5 + 3) * 105
    concat = run("QLinearConcat", [SCALE, ZERO, *a, whole(3, 11, 7), SCALE, ZERO], axis=1)
    assert concat.flops == (2 + 3) * 3 * 16 * 7
    pooled = run("QLinearGlobalAveragePool", [whole(2, 3, 5, 7), SCALE, ZERO, SCALE, ZERO])
    assert pooled.flops == (2 + 1) * 210 + 3 * 6
    average = run("QLinearAveragePool", [whole(1, 3, 5, 7), SCALE, ZERO, SCALE, ZERO], kernel_shape=[3, 3])
    assert average.flops == 2 * 105 + (9 + 3) * 3 * 3 * 5


@pytest.mark.parametrize(
    ("op_type", "operands", "flops"),
    [
        ("Gelu", [(5, 7)], 5 * 35),
        ("BiasGelu", [(5, 7), (7,)], 6 * 35),
        ("FastGelu", [(5, 7), (7,)], 6 * 35),
        ("FastGelu", [(5, 7)], 5 * 35),
        ("QuickGelu", [(5, 7)], 5 * 35),
        ("Inverse", [(3, 5, 5)], 2 * 3 * 125),
        ("CDist", [(5, 7), (11, 7)], 55 * 3 * 7),
        ("GridSample", [(2, 3, 5, 7), (2, 11, 13, 2)], 7 * 2 * 3 * 11 * 13),
    ],
)
def test_other_operators(op_type, operands, flops):
    arrays = [real(*shape) if isinstance(shape, tuple) else shape for shape in operands]
    assert run(op_type, arrays).flops == flops


def test_dynamically_quantized_lstm_has_transposed_weights():
    """Inputs 3, hidden 7: weights (directions, inputs, 4 · 7) and (directions, 7, 4 · 7)."""
    weights = [whole(1, 3, 28), whole(1, 7, 28), real(1, 56), None, None, None, None]
    scales = [real(1), np.zeros(1, np.uint8), real(1), np.zeros(1, np.uint8)]
    work = run("DynamicQuantizeLSTM", [real(5, 2, 3), *weights, *scales], outputs=3, hidden_size=7)
    steps = 5 * 2
    assert work.macs == steps * 4 * 7 * (3 + 7)
    assert work.flops == 2 * work.macs + steps * 7 * (22 + 4) + 5 * steps * 10 + 2 * steps * 2 * 28


def test_group_query_attention_turns_and_reads_the_rows_of_its_positions():
    """4 + 2 heads of 16 of one token in 3 sequences; 3 rows of 8 from tables of 97."""
    query, key, past = real(3, 1, 64), real(3, 1, 32), real(3, 2, 11, 16)
    lengths, total = np.full(3, 11, np.int32), np.full(1, 12, np.int32)
    operands = [query, key, key + 1, past, past + 1, lengths, total, real(97, 8), real(97, 8)]
    work = run("GroupQueryAttention", operands, outputs=3, num_heads=4, kv_num_heads=2, do_rotary=1)
    scores = 3 * 4 * 12
    assert work.flops == 2 * scores * 32 + 7 * scores + 3 * 3 * 16 * (4 + 2)
    assert work.weight_bytes == 4 * (3 * 64 + 2 * 3 * 32 + 2 * 3 * 2 * 11 * 16 + 3 + 1 + 2 * 3 * 8)


def test_hyper_connections():
    """5 tokens of 3 streams of 7."""
    pre = run("HyperConnectionPreMix", [real(5, 3, 7), real(5, 3)])
    assert pre.flops == 2 * 5 * 3 * 7 + 5 * 7
    post = run("HyperConnectionPostMix", [real(5, 3, 7), real(5, 7), real(5, 3), real(5, 3, 3)])
    assert post.flops == 2 * 5 * 3 * 7 + 2 * 5 * 3 * 3 * 7
    assert run("HyperConnectionPostMix", [real(5, 3, 7), real(5, 7), real(5, 3)]).flops == 2 * 5 * 3 * 7


def test_engram_gate():
    operands = [real(2, 5, 3, 7), real(2, 5, 3, 7), real(2, 5, 7), real(3, 7), real(3, 7)]
    assert run("EngramGate", operands).flops == (4 + 4 + 2 + 1) * 210 + 9 * 30
    assert run("EngramGate", [*operands, real(3, 7)], outputs=2).flops == (4 + 4 + 2 + 1 + 4) * 210 + 9 * 30


@pytest.mark.parametrize(
    ("op_type", "shapes", "flops", "attributes"),
    [
        ("GatedAdd", [(5, 7), (5, 7), (5, 1)], 2 * 35, {}),
        ("GatedRMSNorm", [(5, 7), (7,), (5, 7)], (4 + 5 + 1) * 35, {}),
        ("GatedRMSNorm", [(5, 7), (7,), (5, 7)], (4 + 4 + 1) * 35, {"activation": "sigmoid"}),
        ("BranchwiseRMSNorm", [(5, 3, 7), (7,)], 4 * 105, {}),
        ("LinearAttentionGate", [(2, 5, 3), (3,), (3,)], 4 * 30, {}),
        ("ScaledSiLU", [(5, 7)], 6 * 35, {}),
        ("DynamicTimeWarping", [(5, 7)], 3 * 35, {}),
    ],
)
def test_fused_elementwise_operators(op_type, shapes, flops, attributes):
    assert run(op_type, [real(*shape) for shape in shapes], **attributes).flops == flops


def test_crop_and_resize():
    operands = [real(2, 3, 11, 13), real(5, 4), whole(5, dtype=np.int32, below=2), np.array([3, 7], np.int32)]
    assert run("CropAndResize", operands).flops == 7 * 5 * 3 * 3 * 7


def test_quantized_experts():
    """Hidden 16, inner 32, 3 experts of int4: 2 visits of each of 5 tokens; every weight dequantized once."""
    weights = [whole(3, 32, 8), real(3, 32), None, whole(3, 16, 16), real(3, 16)]
    work = run("QMoE", [real(5, 16), real(5, 3), *weights], k=2, expert_weight_bits=4)
    per_expert = 2 * 16 * 32
    assert work.macs == 5 * 2 * per_expert
    assert work.flops == 2 * work.macs + 5 * 15 + 2 * 2 * 80
    assert work.dequantized == 3 * per_expert
