"""Every operator of ONNX and of ONNX Runtime is counted, or is named here with the reason why it is not."""

from __future__ import annotations

from collections import Counter
from functools import cache

import onnx.defs
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from common.graphs.expressions import at, dimension
from common.graphs.graph import Graph, Node, Tensor
from common.graphs.operators import MICROSOFT, NCHWC, NHWC
from common.onnx_graph.work import measure
from common.onnx_graph.work.registry import FORMULAS

TREES = "the depth that a sample reaches depends on its values"
REGIONS = "the size of a region is a value"
PACKED = "the length of each packed sequence is a value"
SPARSE = "values decide which scores are computed"
SEARCH = "runs a decoder until a token ends it"
TRAINING = "trains a model"
UNWRITTEN = "no exporter writes it into a model that is run"
FOREIGN = "belongs to another accelerator and is opaque here"
NOT_COUNTED = {
    ("", "NonMaxSuppression"): "how many boxes are compared depends on their scores",
    ("", "ImageDecoder"): "decodes a compressed file",
    ("", "MaxRoiPool"): REGIONS,
    ("", "GRUUnit"): "a leftover without a specification",
    ("", "DisentangledAttention_TRT"): FOREIGN,
    ("", "EfficientNMS_TRT"): FOREIGN,
    ("", "MultilevelCropAndResize_TRT"): FOREIGN,
    ("", "PyramidROIAlign_TRT"): FOREIGN,
    ("ai.onnx.ml", "TreeEnsemble"): TREES,
    ("ai.onnx.ml", "TreeEnsembleClassifier"): TREES,
    ("ai.onnx.ml", "TreeEnsembleRegressor"): TREES,
    ("", "NegativeLogLikelihoodLoss"): TRAINING,
    ("", "SoftmaxCrossEntropyLoss"): TRAINING,
    **dict.fromkeys(
        (("ai.onnx.preview.training", name) for name in ("Adagrad", "Adam", "Gradient", "Momentum")), TRAINING
    ),
    (MICROSOFT, "IsAllFinite"): TRAINING,
    ("", "GivenTensorFill"): UNWRITTEN,
    ("", "Crop"): UNWRITTEN,
    ("", "DynamicSlice"): UNWRITTEN,
    **dict.fromkeys(((MICROSOFT, name) for name in ("BiasDropout", "BitmaskDropout", "BitmaskBiasDropout")), TRAINING),
    (MICROSOFT, "TorchEmbedding"): TRAINING,
    (MICROSOFT, "ExpandDims"): UNWRITTEN,
    (MICROSOFT, "MatMulFpQ4"): UNWRITTEN,
    (MICROSOFT, "AttnLSTM"): UNWRITTEN,
    (MICROSOFT, "BifurcationDetector"): UNWRITTEN,
    (MICROSOFT, "DequantizeBFP"): UNWRITTEN,
    (MICROSOFT, "MaxpoolWithMask"): UNWRITTEN,
    (MICROSOFT, "MulInteger"): UNWRITTEN,
    (MICROSOFT, "QuantizeBFP"): UNWRITTEN,
    (MICROSOFT, "ReduceSumInteger"): UNWRITTEN,
    (MICROSOFT, "SampleOp"): UNWRITTEN,
    (MICROSOFT, "WordConvEmbedding"): UNWRITTEN,
    (MICROSOFT, "BeamSearch"): SEARCH,
    (MICROSOFT, "GreedySearch"): SEARCH,
    (MICROSOFT, "Sampling"): SEARCH,
    (MICROSOFT, "WhisperBeamSearch"): SEARCH,
    (MICROSOFT, "DecoderAttention"): "whether keys are projected or come from the cache is a value",
    (MICROSOFT, "DynamicSparseAttention"): SPARSE,
    (MICROSOFT, "LongformerAttention"): SPARSE,
    (MICROSOFT, "QOrderedLongformerAttention"): SPARSE,
    (MICROSOFT, "SparseAttention"): SPARSE,
    (MICROSOFT, "SparseAttentionIndexer"): SPARSE,
    (MICROSOFT, "PackedSparseAttentionIndexer"): SPARSE,
    (MICROSOFT, "SparsePagedAttention"): SPARSE,
    (MICROSOFT, "SparseToDenseMatMul"): "the sparse operand stores as many elements as it has, whatever its shape",
    (MICROSOFT, "PackedAttention"): PACKED,
    (MICROSOFT, "PackedMultiHeadAttention"): PACKED,
    (MICROSOFT, "PagedAttention"): PACKED,
    (MICROSOFT, "GatedDeltaNet"): PACKED,
    (MICROSOFT, "EPContext"): FOREIGN,
    (MICROSOFT, "Snpe"): FOREIGN,
}


@cache
def operators() -> frozenset[tuple[str, str]]:
    """What ONNX specifies and what ONNX Runtime adds."""
    schemas = (*onnx.defs.get_all_schemas(), *runtime.get_all_operator_schema())
    return frozenset((schema.domain, schema.name) for schema in schemas)


def test_every_operator_is_counted_or_named_with_a_reason(record_property):
    counted, named = operators() & set(FORMULAS), operators() & set(NOT_COUNTED)
    tally = Counter(domain for domain, _ in counted), Counter(domain for domain, _ in named)
    record_property("counted and not counted by domain", str(tally))
    print(f"counted {len(counted)} of {len(operators())}: {dict(tally[0])}; not counted: {dict(tally[1])}")
    assert sorted(operators() - counted - named) == []
    assert sorted(counted & named) == []


def test_every_formula_and_every_exception_is_of_an_operator():
    """A formula under a misspelt name would never be found, and its operator would go uncounted."""
    assert sorted(set(FORMULAS) - operators()) == []
    assert sorted(set(NOT_COUNTED) - operators()) == []


def test_what_an_optimized_graph_is_made_of_is_counted():
    assert {domain for domain, _ in NOT_COUNTED}.isdisjoint({NCHWC, NHWC})
    assert sum(domain == NCHWC for domain, _ in FORMULAS) == 8


# --- symbolic dimensions ---------------------------------------------------------------------------------------------

B, L = dimension("batch"), dimension("length")
BINDING = {"batch": 3, "length": 17}
# operator, domain, operand shapes, output shapes, attributes; operands are int8 where QLinear or MatMulInteger
SYMBOLIC = [
    ("Conv", "", [(B, 6, L, L), (15, 2, 3, 3), (15,)], [(B, 15, L - 2, L - 2)], {"group": 3}),
    ("Conv", NCHWC, [(B, 8, L, L), (16, 8, 3, 3), (16,)], [(B, 16, L - 2, L - 2)], {"activation": b"Relu"}),
    ("Conv", NHWC, [(B, L, L, 6), (15, 6, 3, 3)], [(B, L - 2, L - 2, 15)], {}),
    ("ConvTranspose", "", [(B, 6, L), (6, 5, 2), (5,)], [(B, 5, 2 * L)], {"strides": [2]}),
    ("DeformConv", "", [(B, 6, L, L), (15, 6, 3, 3), (B, 18, L, L)], [(B, 15, L, L)], {}),
    ("CausalConvWithState", MICROSOFT, [(B, 6, L), (6, 1, 4)], [(B, 6, L), (B, 6, 3)], {}),
    ("MatMul", "", [(B, 1, L, 7), (5, 7, L)], [(B, 5, L, L)], {}),
    ("MatMul", "", [(B, L, 7), (7, 11)], [(B, L, 11)], {}),
    ("FusedMatMul", MICROSOFT, [(B, 7, L), (B, 7, L)], [(B, L, L)], {"transA": 1, "alpha": 0.5}),
    ("Gemm", "", [(B, 7), (11, 7), (11,)], [(B, 11)], {"transB": 1}),
    ("Einsum", "", [(B, L, 7), (7, 11)], [(B, L, 11)], {"equation": b"...k, kn -> ...n"}),
    ("MatMulNBits", MICROSOFT, [(B, L, 64), (11, 2, 16), (22,)], [(B, L, 11)], {"K": 64, "N": 11, "block_size": 32}),
    ("MoE", MICROSOFT, [(B, L, 8), (B * L, 5), (5, 12, 8), "", (5, 8, 12)], [(B, L, 8)], {"k": 2}),
    ("LSTM", "", [(L, B, 7), (2, 44, 7), (2, 44, 11), (2, 88)], [(L, 2, B, 11)], {"direction": b"bidirectional"}),
    ("Attention", "", [(B, L, 42), (B, L, 21), (B, L, 33)], [(B, L, 66)], {"q_num_heads": 6, "kv_num_heads": 3}),
    ("Attention", MICROSOFT, [(B, L, 14), (14, 42), (42,)], [(B, L, 14)], {"num_heads": 2}),
    ("MultiHeadAttention", MICROSOFT, [(B, L, 14), (B, 19, 14), (B, 19, 14)], [(B, L, 14)], {"num_heads": 2}),
    (
        "GroupQueryAttention",
        MICROSOFT,
        [(B, 1, 32), (B, 1, 16), (B, 1, 16), (B, 2, L - 1, 8), (B, 2, L - 1, 8), (B,), (1,)],
        [(B, 1, 32), (B, 2, L, 8), (B, 2, L, 8)],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
    ),
    ("LinearAttention", "", [(B, L, 42), (B, L, 21), (B, L, 33)], [(B, L, 66)], {"q_num_heads": 6, "kv_num_heads": 3}),
    ("RotaryEmbedding", "", [(B, 6, L, 8), (97, 4), (97, 4), (B, L)], [(B, 6, L, 8)], {}),
    (
        "EmbedLayerNormalization",
        MICROSOFT,
        [(B, L), (B, L), (97, 8), (19, 8), (2, 8), (8,), (8,)],
        [(B, L, 8), (B,)],
        {},
    ),
    ("FlexAttention", "ai.onnx.preview", [(B, 6, L, 7), (B, 6, 11, 7), (B, 6, 11, 13)], [(B, 6, L, 13)], {}),
    (
        "DecoderMaskedMultiHeadAttention",
        MICROSOFT,
        [*[(B, 1, 14)] * 3, "", "", (B, 2, L, 7), (B, 2, L, 7), (1,)],
        [(B, 1, 14)],
        {"num_heads": 2, "past_present_share_buffer": 1},
    ),
    (
        "DecoderMaskedSelfAttention",
        MICROSOFT,
        [(B, 1, 14), (14, 42), (42,), "", (2, B, 2, L, 7), "", (1,)],
        [(B, 1, 14)],
        {"num_heads": 2, "past_present_share_buffer": 1},
    ),
    (
        "MRotaryEmbedding",
        MICROSOFT,
        [(B, L, 24), (3, B, L), (97, 2), (97, 2)],
        [(B, L, 24)],
        {"rotary_embedding_dim": 4, "num_heads": 3},
    ),
    ("QLinearWhere", MICROSOFT, [(B, L), (B, L), (), (), (L,), (), (), (), ()], [(B, L)], {}),
    ("QLinearConvTranspose", NHWC, [(B, L, 6), (), (), (6, 5, 2), (), (), (), ()], [(B, 2 * L, 5)], {"strides": [2]}),
    ("ConvTranspose", NHWC, [(B, L, 6), (6, 5, 2), (5,)], [(B, 2 * L, 5)], {"strides": [2]}),
    (
        "QEmbedLayerNormalization",
        MICROSOFT,
        [(B, L), (B, L), (97, 8), (19, 8), (2, 8), (8,), (8,)],
        [(B, L, 8), (B,)],
        {},
    ),
    ("STFT", "", [(B, L, 1), (), "", ()], [(B, L // 5, 16, 2)], {"onesided": 0}),
    ("Gather", "", [(97, 19), (B, L)], [(B, L, 19)], {}),
    ("Softmax", "", [(B, L, L)], [(B, L, L)], {}),
    ("SkipLayerNormalization", MICROSOFT, [(B, L, 8), (B, L, 8), (8,), (8,)], [(B, L, 8)], {}),
    ("Resize", "", [(B, 3, L, L), "", (4,)], [(B, 3, 2 * L, 2 * L)], {"mode": b"linear"}),
    ("GridSample", "", [(B, 3, L, L), (B, 5, 7, 2)], [(B, 3, 5, 7)], {}),
    ("Det", "", [(B, L, L)], [(B,)], {}),
    ("QLinearAdd", MICROSOFT, [(B, L), (), (), (L,), (), (), (), ()], [(B, L)], {}),
    ("GatherBlockQuantized", MICROSOFT, [(97, 32), (B, L), (97, 2)], [(B, L, 64)], {"bits": 4}),
]


def measured(op_type, domain, operands, outputs, attributes, binding):
    """Work of a node whose shapes are what the binding makes of them."""
    tensors = {}
    for letter, shapes in (("x", operands), ("y", outputs)):
        for index, shape in enumerate(shapes):
            if not isinstance(shape, str):
                bound = tuple(at(dim, binding) if binding else dim for dim in shape)
                held = at(L, binding) if binding else L  # read where an operand is a length
                tensors[f"{letter}{index}"] = Tensor(f"{letter}{index}", "int8", 8, bound, "activation", held)
    inputs = tuple("" if isinstance(shape, str) else f"x{index}" for index, shape in enumerate(operands))
    node = Node("node", op_type, domain, inputs, tuple(f"y{index}" for index in range(len(outputs))), attributes)
    return measure(Graph((node,), tensors, ()), node)


@pytest.mark.parametrize("case", SYMBOLIC, ids=lambda case: f"{case[1]}:{case[0]}".strip(":"))
def test_symbolic_counts_become_the_numbers(case):
    """A formula over symbols, and then bound, is the formula over numbers."""
    symbolic, numeric = measured(*case, {}), measured(*case, BINDING)
    for name in ("macs", "flops", "weight_bytes", "input_bytes", "output_bytes", "bytes"):
        expression, number = getattr(symbolic, name), getattr(numeric, name)
        assert isinstance(number, int), name
        assert at(expression, BINDING) == number, name
    assert numeric.bytes > 0
    if numeric.gemm:
        gemm = numeric.gemm
        assert gemm.batch * gemm.m * gemm.k * gemm.n == numeric.macs
