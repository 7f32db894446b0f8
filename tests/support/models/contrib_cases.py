"""Calls of contrib operators that ONNX Runtime's CPU provider can execute, with prime extents where it allows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tests.support.models.one_node import MICROSOFT, NCHWC, RNG, f16, f32, i32, i64, ids, node_of, u8


@dataclass(frozen=True)
class Case:
    """One node: operands in order (None: left out), attributes, how many outputs it is asked for."""

    op_type: str
    operands: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int | tuple[int, ...] = 1
    domain: str = MICROSOFT
    needs_value: bool = False  # the shape depends on an operand's value
    unknowable: bool = False  # it depends on all the data
    opset: int = 21
    declared: dict[int, int] = field(default_factory=dict)  # element types that the runtime cannot infer
    label: str = ""

    def __str__(self) -> str:
        return "-".join(part for part in (self.domain.rpartition(".")[2], self.op_type, self.label) if part)

    @property
    def node(self) -> onnx.NodeProto:
        wanted = range(self.outputs) if isinstance(self.outputs, int) else self.outputs
        return node_of(self.op_type, self.operands, wanted, self.domain, **self.attributes)

    def value(self, name: str) -> np.ndarray:
        return np.asarray(self.operands[int(name[1:])])


SCALE, ZERO, ZERO_SIGNED = np.float32(0.1), np.uint8(3), np.int8(3)
QX = (SCALE, ZERO)


def quantized(*shape: int) -> tuple[Any, Any, Any]:
    return u8(*shape), SCALE, ZERO


ELEMENTWISE = [
    Case("BiasGelu", (f32(3, 5, 7), f32(7))),
    Case("FastGelu", (f32(3, 5, 7), f32(7))),
    Case("Gelu", (f32(3, 5, 7),)),
    Case("QuickGelu", (f32(3, 5, 7),)),
    Case("ScaledSiLU", (f32(3, 5, 7),)),
    Case("Inverse", (f32(3, 5, 5),)),
    Case("Trilu", (f32(3, 5, 7), i64(1))),
    Case("GatedAdd", (f32(3, 5, 7), f32(3, 5, 7), f32(3, 5, 1))),
    Case("GatedRMSNorm", (f32(3, 5, 7), f32(7), f32(3, 5, 7))),
    Case("BranchwiseRMSNorm", (f32(3, 5, 7), f32(7))),
    Case("NGramRepeatBlock", (ids(7, 3, 5), f32(3, 11)), {"ngram_size": 2}),
    Case("EngramGate", (f32(2, 3, 5, 7), f32(2, 3, 5, 7), f32(2, 3, 7), f32(5, 7), f32(5, 7), f32(5, 7)), {}, 2),
    Case("LinearAttentionGate", (f32(2, 3, 5), f32(5), f32(5), f32(2, 3, 5)), {}, 2),
    Case("HyperConnectionPreMix", (f32(2, 3, 5, 7), f32(2, 3, 5))),
    Case("HyperConnectionPreMix", (f32(2, 3, 35), f32(2, 3, 5)), {"num_branches": 5}, label="flat"),
    Case("HyperConnectionPostMix", (f32(2, 3, 5, 7), f32(2, 3, 7), f32(2, 3, 5))),
    Case("Affine", (f32(3, 5),), {"alpha": 2.0, "beta": 1.0}, domain="", opset=9),
    Case("ImageScaler", (f32(2, 3, 5, 7),), {"bias": [0.1, 0.2, 0.3], "scale": 1.0}, domain="", opset=9),
    Case("ParametricSoftplus", (f32(3, 5),), {"alpha": 2.0, "beta": 1.0}, domain="", opset=9),
    Case("Scale", (f32(3, 5),), {"scale": 2.0}, domain="", opset=9),
    Case("ScaledTanh", (f32(3, 5),), {"alpha": 2.0, "beta": 1.0}, domain="", opset=9),
    Case("SimplifiedLayerNormalization", (f32(3, 5, 7), f32(7)), {}, 2, domain=""),
    Case("SimplifiedLayerNormalization", (f32(3, 5, 7), f32(5, 7)), {"axis": 1}, 2, domain="", label="axis"),
    Case("LayerNormalization", (f32(3, 5, 7), f32(7), f32(7)), {}, 3, domain="", opset=13),
    Case("SkipLayerNormalization", (f32(3, 5, 7), f32(3, 5, 7), f32(7), f32(7), f32(7)), {}, 4),
    Case("LayerNormalization", (f16(3, 5, 7), f16(7), f16(7)), {}, 3, domain="", opset=13, label="half"),
    Case("SimplifiedLayerNormalization", (f16(3, 5, 7), f16(7)), {}, 2, domain="", label="half"),
    Case("SkipLayerNormalization", (f16(3, 5, 7), f16(3, 5, 7), f16(7)), {}, 4, label="half"),
    Case("SkipLayerNormalization", (f32(3, 5, 7), f32(5, 7), f32(7)), {}, label="broadcast"),
    Case("SkipSimplifiedLayerNormalization", (f32(3, 5, 7), f32(3, 5, 7), f32(7), f32(7)), {}, 4),
]

QUANTIZED = [
    Case("QuantizeLinear", (f32(3, 5), SCALE, np.uint16(3))),
    Case("QuantizeLinear", (f32(3, 5), SCALE, ZERO_SIGNED), label="int8"),
    Case("DequantizeLinear", (u8(3, 5), SCALE, ZERO)),
    Case("QLinearAdd", (*quantized(3, 1, 7), *quantized(5, 1), *QX)),
    Case("QLinearMul", (*quantized(3, 1, 7), *quantized(5, 1), *QX)),
    Case("QLinearWhere", (RNG.random((5, 1)) > 0.5, *quantized(3, 1, 7), *quantized(5, 7), *QX)),
    Case("QLinearConcat", (*QX, *quantized(3, 5), *quantized(3, 7)), {"axis": 1}),
    Case("QLinearLeakyRelu", (*quantized(3, 5), *QX)),
    Case("QLinearSigmoid", (*quantized(3, 5), *QX)),
    Case("QLinearSoftmax", (*quantized(3, 5), *QX), {"opset": 13}),
    Case("QLinearAveragePool", (*quantized(1, 3, 11, 13), *QX), {"kernel_shape": [2, 3], "strides": [2, 1]}),
    Case(
        "QLinearAveragePool",
        (*quantized(1, 11, 13, 3), *QX),
        {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1, "channels_last": 1},
        label="last",
    ),
    Case("QLinearGlobalAveragePool", (*quantized(2, 3, 5, 7), *QX)),
    Case("QLinearGlobalAveragePool", (*quantized(2, 5, 7, 3), *QX), {"channels_last": 1}, label="last"),
    Case("QLinearConv", (*quantized(1, 6, 11, 13), *quantized(5, 6, 2, 3), *QX), {"strides": [2, 1]}),
    Case(
        "QLinearConv",
        (*quantized(1, 11, 13, 6), *quantized(5, 6, 2, 3), *QX),
        {"strides": [2, 1], "channels_last": 1},
        label="last",
    ),
    Case("NhwcMaxPool", (u8(1, 11, 13, 3),), {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    Case("QGemm", (*quantized(3, 5), *quantized(7, 5), i32([1] * 7), *QX), {"transB": 1}),
    Case("QGemm", (*quantized(5, 3), *quantized(5, 7)), {"transA": 1}, label="float"),
    Case("DynamicQuantizeMatMul", (f32(2, 3, 5), u8(5, 7), SCALE, ZERO)),
    Case("MatMulIntegerToFloat", (u8(2, 3, 5), u8(5, 7), SCALE, SCALE, ZERO, ZERO)),
    Case("MatMulInteger16", (ids(9, 2, 3, 5, dtype=np.int16), ids(9, 5, 7, dtype=np.int16))),
    Case(
        "DynamicQuantizeLSTM",
        (f32(3, 2, 5), u8(2, 5, 28), u8(2, 7, 28), *(None,) * 5, *(f32(2), u8(2)) * 2),
        {"hidden_size": 7, "direction": "bidirectional"},
        3,
    ),
    Case("MurmurHash3", (ids(9, 3, 5, dtype=np.int32),)),
    Case("MurmurHash3", (ids(9, 3, 5, dtype=np.int32),), {"positive": 0}, label="signed"),
]

MATRIX = [
    Case("FusedMatMul", (f32(2, 3, 5), f32(2, 5, 7)), {"alpha": 0.5}),
    Case("FusedMatMul", (f32(2, 5, 3), f32(2, 7, 5)), {"transA": 1, "transB": 1}, label="AB"),
    Case("FusedMatMul", (f32(3, 2, 5), f32(5, 2, 7)), {"transBatchA": 1, "transBatchB": 1}, label="batch"),
    Case(
        "FusedMatMul",
        (f32(5, 2, 11, 3), f32(7, 2, 11, 5)),
        {f"trans{flag}": 1 for flag in ("A", "B", "BatchA", "BatchB")},
        label="all",
    ),
    Case("TransposeMatMul", (f32(2, 5, 3), f32(2, 7, 5)), {"transA": 1, "transB": 1}),
    Case("FusedGemm", (f32(5, 3), f32(7, 5), f32(7)), {"transA": 1, "transB": 1, "activation": "Relu"}),
    Case("MatMulNBits", (f32(2, 3, 48), u8(7, 3, 8), f32(7, 3)), {"K": 48, "N": 7, "block_size": 16, "bits": 4}),
    Case(
        "MatMulBnb4",
        (f32(2, 3, 48), u8(7 * 48 // 2), f32(7 * 48 // 16)),
        {"K": 48, "N": 7, "block_size": 16, "quant_type": 1},
    ),
    Case("CDist", (f32(3, 5), f32(7, 5))),
    Case("FusedMatMul", (f32(3, 5), f32(5)), {"transB": 1}, label="vector"),
    Case(
        "MatMulBnb4",
        (f32(2, 3, 7), u8(7 * 48 // 2), f32(7 * 48 // 16)),
        {"K": 48, "N": 7, "block_size": 16, "quant_type": 1, "transB": 0},
        label="backward",
    ),
]

CONVOLUTION = [
    Case("FusedConv", (f32(1, 3, 11, 13), f32(5, 3, 2, 3), f32(5)), {"strides": [2, 1], "activation": "Relu"}),
    Case(
        "FusedConv",
        (f32(1, 3, 11, 13), f32(5, 3, 2, 3), f32(5), f32(1, 5, 6, 7)),
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        label="sum",
    ),
    Case(
        "ConvTransposeWithDynamicPads",
        (f32(1, 6, 5, 7), f32(6, 3, 2, 3), i64([1, 0, 0, 1])),
        {"strides": [2, 3], "group": 2},
        needs_value=True,
    ),
    Case("Pad", (f32(3, 5), i64([1, 2, 0, 3])), needs_value=True),
    Case("Pad", (f32(3, 5), i64([[1, 2, 0, 3]])), needs_value=True, label="row"),
    Case("CropAndResize", (f32(2, 3, 11, 13), f32(5, 4), i32([0, 1, 0, 1, 0]), i32([2, 7])), needs_value=True),
    Case("GridSample", (f32(2, 3, 5, 7), f32(2, 11, 13, 2))),
    Case("CausalConvWithState", (f32(2, 5, 11), f32(5, 1, 3)), {}, 2),
    Case("CausalConvWithState", (f32(2, 5, 11), f32(5, 1, 3)), {"dilation": 2}, 2, label="dilation"),
    Case("CausalConvWithState", (f32(2, 11, 5), f32(5, 1, 3)), {"channels_last": 1}, 2, label="last"),
]

BLOCKED = [
    Case("Conv", (f32(1, 16, 11, 13), f32(32, 16, 2, 3)), {"strides": [2, 1]}, domain=NCHWC),
    Case("MaxPool", (f32(1, 16, 11, 13),), {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}, domain=NCHWC),
    Case("AveragePool", (f32(1, 16, 11, 13),), {"kernel_shape": [2, 3], "pads": [1, 1, 0, 0]}, domain=NCHWC),
    Case("GlobalAveragePool", (f32(1, 16, 11, 13),), domain=NCHWC),
    Case("GlobalMaxPool", (f32(1, 16, 11, 13),), domain=NCHWC),
    Case("ReorderInput", (f32(1, 16, 11, 13),), domain=NCHWC),
    Case("ReorderInput", (f32(1, 12, 11, 13),), domain=NCHWC, label="padded"),
    Case("ReorderInput", (f32(1, 11, 13, 16),), {"channels_last": 1}, domain=NCHWC, label="last"),
    Case("ReorderOutput", (f32(1, 16, 11, 13),), {"channels": 12}, domain=NCHWC),
    Case("ReorderOutput", (f32(1, 16, 11, 13),), {"channels": 12, "channels_last": 1}, domain=NCHWC, label="last"),
    Case("Upsample", (f32(1, 16, 11, 13),), {"scales": [1, 1, 2, 3]}, domain=NCHWC),
]

WORDS = {"mincharnum": 1, "pad_value": "#", "mark": 0, "separators": [" "]}

STRUCTURE = [
    Case("GatherND", (f32(3, 5, 7), ids(3, 11, 2))),
    Case(
        "GatherBlockQuantized",
        (u8(11, 16), ids(11, 3, 5), f32(11, 2)),
        {"block_size": 16, "bits": 4, "gather_axis": 0, "quantize_axis": 1},
    ),
    Case(
        "GatherBlockQuantized",
        (u8(11, 32), ids(11, 3, 5), f32(11, 2)),
        {"block_size": 16, "bits": 8, "gather_axis": 0, "quantize_axis": 1},
        label="8bits",
    ),
    Case(
        "GatherBlockQuantized",
        (u8(11, 8), ids(11, 3, 5), f32(11, 2)),
        {"block_size": 16, "bits": 2, "gather_axis": 0, "quantize_axis": 1},
        label="2bits",
    ),
    Case("Range", (i64(3), i64(17), i64(5)), needs_value=True),
    Case("Range", (np.float32(3), np.float32(7.5)), needs_value=True, label="float"),
    Case("UnfoldTensor", (f32(3, 11, 5),), {"dim": 1, "size": 3, "step": 2}),
    Case("Unique", (np.array([3, 5, 3], np.float32),), {}, 3, unknowable=True),
    Case("Tokenizer", (np.array([["a b", "c"]], object),), WORDS, unknowable=True),
    Case("DynamicTimeWarping", (f32(3, 5),), unknowable=True),
    Case(
        "NGramHashMapping",
        (ids(9, 2, 5), i64([3, 5, 7]), i64([11, 13, 17, 19])),
        {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0},
        2,
    ),
    Case(
        "VarlenNGramHashMapping",
        (ids(9, 7), i64([3, 5, 7]), i64([11, 13, 17, 19]), i32([0, 3, 7]), *(None,) * 3, ids(2, 7, dtype=np.int32)),
        {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0},
        3,
    ),
    Case(
        "VarlenNGramHashMapping",
        (ids(9, 7), i64([3, 5, 7]), i64([11, 13, 17, 19]), i32([0, 3, 7]), *(None,) * 5, i32([2, 2])),
        {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0, "state_update_capacity": 5},
        (0, 1, 3),
        label="captured",
    ),
]
