"""Calls of attention and its kin that ONNX Runtime's CPU provider can execute."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.support.models.contrib_cases import SCALE, ZERO, Case
from tests.support.models.one_node import f32, i32, ids, u8

CACHE = (f32(2, 3, 4, 8), f32(2, 3, 4, 8))
GROUPED = {"num_heads": 6, "kv_num_heads": 3}
GROUPED_OPERANDS = (f32(2, 5, 48), f32(2, 5, 24), f32(2, 5, 24))

ATTENTION = [
    Case("Attention", (f32(2, 5, 7), f32(7, 36), f32(36)), {"num_heads": 3}),
    Case("Attention", (f32(2, 5, 7), f32(7, 36), f32(36)), {"num_heads": 3}, 2, label="present"),
    Case(
        "Attention", (f32(2, 5, 7), f32(7, 36), f32(36), None, f32(2, 2, 3, 11, 4)), {"num_heads": 3}, 2, label="past"
    ),
    Case(
        "Attention",
        (f32(2, 5, 7), f32(7, 12 + 12 + 15), f32(39)),
        {"num_heads": 3, "qkv_hidden_sizes": [12, 12, 15]},
        label="sizes",
    ),
    Case(
        "QAttention",
        (u8(2, 5, 7), u8(7, 36), f32(36), SCALE, SCALE, None, ZERO, ZERO, f32(2, 2, 3, 11, 4)),
        {"num_heads": 3},
        2,
    ),
    Case(
        "MultiHeadAttention",
        (f32(2, 5, 12), f32(2, 7, 12), f32(2, 7, 15)),
        {"num_heads": 3},
        4,
        declared={3: TensorProto.FLOAT},
        label="cross",
    ),
    Case("MultiHeadAttention", (f32(2, 5, 12), f32(2, 3, 7, 4), f32(2, 3, 7, 4)), {"num_heads": 3}, label="kv-cache"),
    Case(
        "MultiHeadAttention",
        (f32(2, 5, 12), f32(2, 5, 12), f32(2, 5, 12), None, None, None, f32(2, 3, 11, 4), f32(2, 3, 11, 4)),
        {"num_heads": 3},
        4,
        declared={3: TensorProto.FLOAT},
        label="past",
    ),
    Case(
        "MultiHeadAttention",
        (*(f32(2, 1, 12) for _ in range(3)), None, None, None, f32(2, 3, 11, 4), f32(2, 3, 11, 4), i32([4])),
        {"num_heads": 3},
        4,
        declared={3: TensorProto.FLOAT},
        needs_value=True,
        label="buffer",
    ),
    Case(
        "DecoderMaskedMultiHeadAttention",
        (f32(2, 1, 12), f32(2, 1, 12), f32(2, 1, 12), None, None, f32(2, 3, 11, 4), f32(2, 3, 11, 4), i32([4])),
        {"num_heads": 3, "past_present_share_buffer": 1, "output_qk": 1},
        4,
        declared={3: TensorProto.FLOAT},
        needs_value=True,
    ),
    Case(
        "DecoderMaskedMultiHeadAttention",
        (f32(2, 1, 12), f32(2, 3, 11, 4), f32(2, 3, 11, 4)),
        {"num_heads": 3, "output_qk": 1},
        (0, 3),
        declared={3: TensorProto.FLOAT},
        label="cross",
    ),
    Case("GroupQueryAttention", (*GROUPED_OPERANDS, None, None, i32([4, 4]), i32(5)), GROUPED, 3),
    Case(
        "GroupQueryAttention",
        (*(f32(2, 1, width) for width in (48, 24, 24)), *CACHE, i32([4, 4]), i32(5)),
        GROUPED,
        3,
        needs_value=True,
        label="past",
    ),
    Case(
        "GroupQueryAttention",
        (f32(2, 5, 96), None, None, f32(2, 3, 17, 8), f32(2, 3, 17, 8), i32([4, 4]), i32(5)),
        GROUPED,
        3,
        needs_value=True,
        label="packed-buffer",
    ),
    Case(
        "GroupQueryAttention",
        (f32(1, 5, 48), f32(1, 5, 24), f32(1, 5, 24), f32(1, 3, 17, 8), f32(1, 3, 17, 8), i32([8]), i32(9)),
        {**GROUPED, "qk_output": 1},
        4,
        declared={3: TensorProto.FLOAT},
        needs_value=True,
        label="scores",
    ),
    Case(
        "GroupQueryAttention",
        (
            *(f32(1, 1, 48), f32(1, 1, 24), f32(1, 1, 24), u8(1, 3, 17, 4), u8(1, 3, 17, 4), i32([8]), i32(9)),
            *(None, None, None, None, None, f32(1), f32(1)),
        ),
        {**GROUPED, "kv_cache_bit_width": 4, "k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"},
        3,
        needs_value=True,
        label="int4",
    ),
    Case(
        "GroupQueryAttention",
        (f32(1, 1, 48), f32(1, 1, 24), f32(1, 1, 24), f32(1, 3, 8, 8), f32(1, 3, 8, 8), i32([16]), i32(17)),
        {**GROUPED, "sliding_window_cache": 1, "local_window_size": 7},
        3,
        label="window",
    ),
    Case("RotaryEmbedding", (f32(2, 5, 24), ids(7, 2, 5), f32(7, 4), f32(7, 4)), {"num_heads": 3}),
    Case(
        "MRotaryEmbedding",
        (f32(2, 5, 24), ids(7, 3, 2, 5), f32(7, 4), f32(7, 4)),
        {"num_heads": 3, "mrope_section": [2, 1, 1]},
    ),
    Case(
        "LinearAttention",
        (f32(2, 5, 12), f32(2, 5, 12), f32(2, 5, 21), None, f32(2, 5, 3), f32(2, 5, 3)),
        {"q_num_heads": 3, "kv_num_heads": 3},
        2,
    ),
    Case(
        "LinearAttention",
        (f32(2, 5, 24), f32(2, 5, 12), f32(2, 5, 21), f32(2, 3, 4, 7)),
        {"q_num_heads": 6, "kv_num_heads": 3, "update_rule": "linear"},
        2,
        label="grouped",
    ),
    Case(
        "EmbedLayerNormalization",
        (
            *(ids(7, 2, 5, dtype=np.int32), ids(2, 2, 5, dtype=np.int32)),
            *(f32(7, 11), f32(5, 11), f32(2, 11), f32(11), f32(11), i32(np.ones((2, 5)))),
        ),
        {"mask_index_type": 1},
        3,
    ),
    Case(
        "QEmbedLayerNormalization",
        (
            *(ids(7, 2, 5, dtype=np.int32), ids(2, 2, 5, dtype=np.int32)),
            *(u8(7, 11), u8(5, 11), u8(2, 11), u8(11), u8(11), i32(np.ones((2, 5)))),
            *(SCALE,) * 5,
            *(ZERO,) * 5,
        ),
        {},
        2,
    ),
    Case(
        "MoE",
        (f32(2, 5, 8), f32(10, 3), f32(3, 16, 8), f32(3, 16), f32(3, 8, 16), f32(3, 8)),
        {"k": 2, "activation_type": "gelu"},
    ),
    Case(
        "QMoE",
        (
            *(f32(2, 5, 32), f32(10, 3), u8(3, 64, 16), f32(3, 64), f32(3, 64)),
            *(u8(3, 32, 32), f32(3, 32), f32(3, 32)),
        ),
        {"k": 2, "activation_type": "gelu", "expert_weight_bits": 4},
    ),
]
