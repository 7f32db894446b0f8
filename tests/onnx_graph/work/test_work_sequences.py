"""Einstein sums, recurrent layers and attention: prime sizes with the arithmetic written out."""

from __future__ import annotations

import numpy as np
import pytest

from common.onnx_graph.work.registry import Gemm
from tests.support.models.onnx_models import weight, work_of


@pytest.mark.parametrize(
    ("equation", "shapes", "result", "gemm"),
    [
        ("ij,jk->ik", [(3, 5), (5, 7)], (3, 7), Gemm(1, 3, 5, 7)),
        ("ij,jk", [(3, 5), (5, 7)], (3, 7), Gemm(1, 3, 5, 7)),
        (" b i j , b j k -> b i k ", [(2, 3, 5), (2, 5, 7)], (2, 3, 7), Gemm(2, 3, 5, 7)),
        ("...ij,...jk->...ik", [(11, 1, 3, 5), (1, 2, 5, 7)], (11, 2, 3, 7), Gemm(22, 3, 5, 7)),
        ("...i,ji->...j", [(2, 3, 5), (7, 5)], (2, 3, 7), Gemm(1, 6, 5, 7)),
        ("bhqd,bhkd->bhqk", [(2, 3, 5, 7), (2, 3, 11, 7)], (2, 3, 5, 11), Gemm(6, 5, 7, 11)),
        ("i,j->ij", [(3,), (5,)], (3, 5), Gemm(1, 3, 1, 5)),
        ("i,i->", [(7,), (7,)], (), Gemm(1, 1, 7, 1)),
        ("ij,ij->ij", [(3, 5), (3, 5)], (3, 5), Gemm(15, 1, 1, 1)),
        ("iij,jk->ik", [(3, 3, 5), (5, 7)], (3, 7), Gemm(1, 3, 5, 7)),
    ],
)
def test_einsum_of_two_is_a_matrix_product(equation, shapes, result, gemm):
    work = work_of("Einsum", shapes, outputs=[result], equation=equation)
    assert work.gemm == gemm
    assert work.macs == gemm.batch * gemm.m * gemm.k * gemm.n
    assert work.flops == 2 * work.macs


@pytest.mark.parametrize(
    ("equation", "shape", "result", "flops"),
    [
        ("ij->ji", (3, 5), (5, 3), 0),
        ("ii->i", (5, 5), (5,), 0),
        ("...ij->...ji", (2, 3, 5), (2, 5, 3), 0),
        ("ba", (3, 5), (5, 3), 0),
        ("ij->i", (3, 5), (3,), 15),
        ("ii", (5, 5), (), 5),
    ],
)
def test_einsum_of_one_has_no_products(equation, shape, result, flops):
    """A transpose and a diagonal are moves; a sum costs one FLOP per element, a trace one per place."""
    work = work_of("Einsum", [shape], outputs=[result], equation=equation)
    assert (work.macs, work.flops, work.gemm) == (0, flops, None)


def test_einsum_of_three_contracts_from_the_left():
    """(3×5)·(5×7) and (3×7)·(7×11)."""
    work = work_of("Einsum", [(3, 5), (5, 7), (7, 11)], equation="ij,jk,kl->il", outputs=[(3, 11)])
    assert (work.macs, work.gemm) == (3 * 5 * 7 + 3 * 7 * 11, None)


def test_einsum_sums_what_no_other_operand_needs_before_it_multiplies():
    """The 3 of ``i`` are added first (15 FLOPs), then 5 × 7 products remain."""
    work = work_of("Einsum", [(3, 5), (5, 7)], equation="ij,jk->k", outputs=[(7,)])
    assert (work.macs, work.flops) == (5 * 7, 2 * 5 * 7 + 15)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(
    ("op_type", "gates", "cell"),
    [
        ("RNN", 1, 1 + 1),
        ("GRU", 3, 3 + 2 * 4 + 1 + 1 + 4),
        ("LSTM", 4, 4 + 3 * 4 + 2 + 3 + 1),
    ],
)
def test_recurrent_layers(op_type, gates, cell, directions):
    """13 steps of batch 2, inputs 3, hidden 7."""
    weights = [weight(directions, gates * 7, 3), weight(directions, gates * 7, 7)]
    bias = weight(directions, 2 * gates * 7)
    settings = {"hidden_size": 7, "direction": "bidirectional" if directions == 2 else "forward"}
    outputs = [None] * (3 if op_type == "LSTM" else 2)
    steps = 13 * 2 * directions
    bare = work_of(op_type, [(13, 2, 3), *weights], outputs=outputs, **settings)
    assert bare.macs == steps * gates * 7 * (3 + 7)
    assert bare.flops == 2 * bare.macs + steps * 7 * cell
    biased = work_of(op_type, [(13, 2, 3), *weights, bias], outputs=outputs, **settings)
    assert biased.flops == bare.flops + steps * 7 * gates
    assert biased.weight_bytes == 4 * directions * gates * 7 * (3 + 7 + 2)


def test_lstm_with_peepholes_and_batch_first():
    operands = [(2, 13, 3), weight(1, 28, 3), weight(1, 28, 7), "", "", "", "", weight(1, 21)]
    work = work_of("LSTM", operands, outputs=[None] * 3, hidden_size=7, layout=1)
    assert work.macs == 26 * 28 * 10
    assert work.flops == 2 * work.macs + 26 * 7 * (22 + 6)


def test_attention_of_groups_with_past():
    """Batch 2: 6 heads of 5 queries, 3 of 11 keys and 17 past ones; sizes 7 and 13."""
    operands = [(2, 6, 5, 7), (2, 3, 11, 7), (2, 3, 11, 13), (5, 28), (2, 3, 17, 7), (2, 3, 17, 13)]
    work = work_of("Attention", operands, outputs=[None] * 3, opset=23)
    scores = 2 * 6 * 5 * 28
    assert work.macs == scores * (7 + 13)
    assert work.flops == 2 * work.macs + (6 + 1) * scores
    assert work.gemm is None
    assert work.output_bytes == 4 * (2 * 6 * 5 * 13 + 2 * 3 * 28 * (7 + 13))


def test_attention_with_packed_heads_counts_causal_scores_in_full():
    heads = {"q_num_heads": 6, "kv_num_heads": 3}
    operands = [(2, 5, 6 * 7), (2, 11, 3 * 7), (2, 11, 3 * 13)]
    plain = work_of("Attention", operands, opset=23, **heads)
    causal = work_of("Attention", operands, opset=23, is_causal=1, softcap=30.0, **heads)
    scores = 2 * 6 * 5 * 11
    assert plain.macs == causal.macs == scores * (7 + 13)
    assert (plain.flops, causal.flops) == (2 * plain.macs + 6 * scores, 2 * plain.macs + (6 + 1 + 3) * scores)


def test_rotary_embedding_turns_a_part_of_the_head():
    full = work_of("RotaryEmbedding", [(2, 3, 5, 8), (2, 5, 4), (2, 5, 4)], opset=23)
    assert full.flops == 3 * 2 * 3 * 5 * 8
    part = work_of("RotaryEmbedding", [(2, 3, 5, 8), (2, 5, 2), (2, 5, 2)], opset=23, rotary_embedding_dim=4)
    assert part.flops == 3 * 2 * 3 * 5 * 4


MICROSOFT = "com.microsoft"


def test_flex_attention():
    operands, outputs = [(2, 3, 5, 7), (2, 3, 11, 7), (2, 3, 11, 13)], [(2, 3, 5, 13)]
    work = work_of("FlexAttention", operands, outputs=outputs, domain="ai.onnx.preview")
    scores = 2 * 3 * 5 * 11
    assert (work.macs, work.flops) == (scores * 20, 2 * scores * 20 + 6 * scores)


def test_a_shared_cache_counts_by_its_valid_length():
    """A buffer of 97 keys of which 40 are valid, and one new key."""
    cache = [(2, 3, 97, 7), (2, 3, 97, 7), np.array([40], np.int32)]
    operands = [(2, 1, 21), (2, 1, 21), (2, 1, 21), "", "", *cache]
    shared = {"num_heads": 3, "past_present_share_buffer": 1}
    work = work_of(
        "DecoderMaskedMultiHeadAttention",
        operands,
        outputs=[(2, 1, 21), *cache[:2]],
        domain=MICROSOFT,
        **shared,
    )
    assert work.macs == 2 * 3 * 41 * 14
    assert work.output_bytes == 4 * (2 * 21 + 2 * 2 * 3 * 1 * 7)
    grown = work_of(
        "DecoderMaskedMultiHeadAttention", operands[:7], outputs=[(2, 1, 21)], domain=MICROSOFT, num_heads=3
    )
    assert grown.macs == 2 * 3 * 98 * 14


def test_query_key_and_value_packed_together():
    """(batch, length, heads, 3, size); a key of (batch, length, heads, 2, size) holds its value."""
    packed = work_of("MultiHeadAttention", [(2, 5, 3, 3, 7)], outputs=[(2, 5, 21)], domain=MICROSOFT, num_heads=3)
    assert packed.macs == 2 * 3 * 5 * 5 * 14
    pair = work_of(
        "MultiHeadAttention", [(2, 5, 21), (2, 11, 3, 2, 7)], outputs=[(2, 5, 21)], domain=MICROSOFT, num_heads=3
    )
    assert pair.macs == 2 * 3 * 5 * 11 * 14


def test_projection_by_three_weights():
    """The sizes of query, key and value are given apart: 21, 21 and 39 of 3 heads."""
    operands = [(2, 5, 14), weight(14, 81), weight(81)]
    sizes = {"num_heads": 3, "qkv_hidden_sizes": [21, 21, 39], "do_rotary": 1}
    work = work_of("Attention", operands, outputs=[(2, 5, 39)], domain=MICROSOFT, **sizes)
    scores = 2 * 3 * 5 * 5
    assert work.macs == 2 * 5 * 14 * 81 + scores * (7 + 13)
    assert work.flops == 2 * work.macs + 6 * scores + 2 * 5 * 81 + 3 * 2 * 2 * 5 * 21
