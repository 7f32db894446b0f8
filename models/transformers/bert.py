"""BERT encoder as exporters write it (Devlin et al., NAACL 2019, arXiv:1810.04805, section 3).

BERT-base without the pooler has 108,891,648 parameters. Over weights and attention it does exactly
84934656·batch·seq + 18432·batch·seq² multiply-accumulates: 12 layers × (4·768² + 2·768·3072) a token, and twice
768 a pair of tokens and layer. Every shape is computed from the inputs' where the model runs.
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from models.graph_builder import FLOAT, INT64, Dim, GraphBuilder, Spec
from models.transformers.parts import OPSET, feed_forward, layer_norm, reshape, size_of, unsqueeze

EPSILON = 1e-12
SEGMENTS = 2


def build_bert(
    *,
    seed: int = 0,
    batch: Dim = "batch",
    seq: Dim = "seq",
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    feed: int = 3072,
    vocabulary: int = 30522,
    positions: int = 512,
    has_weights: bool = True,
) -> onnx.ModelProto:
    """BERT-base with random weights: int64 ids, mask and segments (batch, seq) to float32 (batch, seq, 768)."""
    builder = GraphBuilder("bert", seed=seed, has_weights=has_weights)
    x, mask = _embed(builder, width, vocabulary, positions), _mask(builder)
    for layer in range(layers):
        path, output = f"encoder/layer.{layer}", "last_hidden_state" if layer == layers - 1 else None
        y = _attention(builder, x, mask, f"{path}/attention/self", width, heads)
        y = builder.linear(y, f"{path}/attention/output/dense", width, width)
        y = builder.node("Add", [y, x], f"{path}/attention/output")
        x = layer_norm(builder, y, f"{path}/attention/output/LayerNorm", width, EPSILON)
        paths = (f"{path}/intermediate/dense", f"{path}/intermediate/intermediate_act_fn", f"{path}/output/dense")
        y = builder.node("Add", [feed_forward(builder, x, paths, width, feed), x], f"{path}/output")
        x = layer_norm(builder, y, f"{path}/output/LayerNorm", width, EPSILON, output=output)
    inputs: dict[str, Spec] = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (INT64, (batch, seq)))
    return builder.model(inputs, {"last_hidden_state": (FLOAT, (batch, seq, width))}, opset=OPSET)


def build_tiny_bert(*, seed: int = 0, batch: Dim = "batch", seq: Dim = "seq") -> onnx.ModelProto:
    """Two layers of BERT, three heads of seven, 97 words, at most 31 of them: (batch, seq) to (batch, seq, 21)."""
    return build_bert(
        seed=seed, batch=batch, seq=seq, layers=2, width=21, heads=3, feed=37, vocabulary=97, positions=31
    )


def _embed(builder: GraphBuilder, width: int, vocabulary: int, positions: int) -> str:
    """Words, segments and positions, each looked up, added and normalized."""
    path = "embeddings"
    tables = {
        name: builder.normal(f"{path}.{name}_embeddings.weight", (rows, width))
        for name, rows in (("word", vocabulary), ("position", positions), ("token_type", SEGMENTS))
    }
    every = builder.weight(f"{path}.position_ids", np.arange(positions, dtype=np.int64)[None])
    end = unsqueeze(builder, size_of(builder, "input_ids", 1, path), path)
    first, axis, step = (builder.constant(path, [value]) for value in (0, 1, 1))
    ids = builder.node("Slice", [every, first, end, axis, step], path)
    words, segments, places = (
        builder.node("Gather", [tables[name], indices], f"{path}/{name}_embeddings", axis=0)
        for name, indices in (("word", "input_ids"), ("token_type", "token_type_ids"), ("position", ids))
    )
    x = builder.node("Add", [builder.node("Add", [words, segments], path), places], path)
    return layer_norm(builder, x, f"{path}/LayerNorm", width, EPSILON)


def _mask(builder: GraphBuilder) -> str:
    """Return the mask that is added to the scores: 0 for a word, the lowest float32 for padding; (batch, 1, 1, seq)."""
    x = "attention_mask"
    for axis in (1, 2):
        x = builder.node("Unsqueeze", [x, builder.constant("", [axis])], "")
    x = builder.node("Cast", [x], "", to=FLOAT)
    x = builder.node("Sub", [builder.constant("", 1, np.float32), x], "")
    return builder.node("Mul", [x, builder.constant("", np.finfo(np.float32).min, np.float32)], "")


def _attention(builder: GraphBuilder, x: str, mask: str, path: str, width: int, heads: int) -> str:
    """softmax(Q·Kᵀ / √d + mask)·V over heads (Vaswani et al. 2017, arXiv:1706.03762, eq. 1)."""
    size = width // heads
    parts = {}
    # K is turned once more than Q and V: (batch, heads, size, seq).
    for name, order in {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}.items():
        y = builder.linear(x, f"{path}/{name}", width, width)
        batch, seq = (size_of(builder, y, axis, path) for axis in (0, 1))
        y = reshape(builder, y, [batch, seq, heads, size], path)
        parts[name] = builder.node("Transpose", [y], path, perm=order)
    scores = builder.node("MatMul", [parts["query"], parts["key"]], path)
    scores = builder.node("Div", [scores, builder.constant(path, math.sqrt(size), np.float32)], path)
    weights = builder.node("Softmax", [builder.node("Add", [scores, mask], path)], path, axis=-1)
    y = builder.node("MatMul", [weights, parts["value"]], path)
    y = builder.node("Transpose", [y], path, perm=[0, 2, 1, 3])
    batch, seq = (size_of(builder, y, axis, path) for axis in (0, 1))
    return reshape(builder, y, [batch, seq, width], path)
