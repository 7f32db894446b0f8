"""BERT encoder as exporters write it (Devlin et al., NAACL 2019, arXiv:1810.04805, section 3).

BERT-base without the pooler has 108,891,648 parameters. Over weights and attention it does exactly
84934656·batch·seq + 18432·batch·seq² multiply-accumulates: 12 layers × (4·768² + 2·768·3072) a token, and twice
768 a pair of tokens and layer. Every shape is computed from the inputs' where the model runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from models.graph_builder import FLOAT, INT64, Dim, GraphBuilder, Spec
from models.transformers.parts import OPSET, feed_forward, layer_norm, reshape, size_of

EPSILON = 1e-12
SEGMENTS = 2


@dataclass(frozen=True)
class _Sizes:
    width: int
    heads: int
    feed: int
    vocabulary: int
    positions: int


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
    sizes = _Sizes(width, heads, feed, vocabulary, positions)
    builder = GraphBuilder("bert", seed=seed, has_weights=has_weights)
    x, mask = _embed(builder, sizes), _mask(builder)
    for layer in range(layers):
        last = layer == layers - 1
        x = _layer(builder, x, mask, f"encoder/layer.{layer}", sizes, output="last_hidden_state" if last else None)
    inputs: dict[str, Spec] = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (INT64, (batch, seq)))
    return builder.model(inputs, {"last_hidden_state": (FLOAT, (batch, seq, width))}, opset=OPSET)


def build_tiny_bert(*, seed: int = 0, batch: Dim = "batch", seq: Dim = "seq") -> onnx.ModelProto:
    """Two layers of BERT, three heads of seven, 97 words, at most 31 of them: (batch, seq) to (batch, seq, 21)."""
    return build_bert(
        seed=seed, batch=batch, seq=seq, layers=2, width=21, heads=3, feed=37, vocabulary=97, positions=31
    )


def _embed(builder: GraphBuilder, sizes: _Sizes) -> str:
    """Words, segments and positions, each looked up, added and normalized."""
    path = "embeddings"
    tables = {
        name: builder.normal(f"{path}.{name}_embeddings.weight", (rows, sizes.width))
        for name, rows in (("word", sizes.vocabulary), ("position", sizes.positions), ("token_type", SEGMENTS))
    }
    every = builder.weight(f"{path}.position_ids", np.arange(sizes.positions, dtype=np.int64)[None])
    length = size_of(builder, "input_ids", 1, path)
    end = builder.node("Unsqueeze", [length, builder.constant(path, [0])], path)
    first, axis, step = (builder.constant(path, [value]) for value in (0, 1, 1))
    ids = builder.node("Slice", [every, first, end, axis, step], path)
    words, segments, places = (
        builder.node("Gather", [tables[name], indices], f"{path}/{name}_embeddings", axis=0)
        for name, indices in (("word", "input_ids"), ("token_type", "token_type_ids"), ("position", ids))
    )
    x = builder.node("Add", [builder.node("Add", [words, segments], path), places], path)
    return layer_norm(builder, x, f"{path}/LayerNorm", sizes.width, EPSILON)


def _mask(builder: GraphBuilder) -> str:
    """Return the mask that is added to the scores: 0 for a word, the lowest float32 for padding; (batch, 1, 1, seq)."""
    x = "attention_mask"
    for axis in (1, 2):
        x = builder.node("Unsqueeze", [x, builder.constant("", [axis])], "")
    x = builder.node("Cast", [x], "", to=FLOAT)
    x = builder.node("Sub", [builder.constant("", 1, np.float32), x], "")
    return builder.node("Mul", [x, builder.constant("", np.finfo(np.float32).min, np.float32)], "")


def _layer(builder: GraphBuilder, x: str, mask: str, path: str, sizes: _Sizes, *, output: str | None) -> str:
    """Attention and feed-forward net; each is added to its input and then normalized."""
    context = _attention(builder, x, mask, f"{path}/attention/self", sizes)
    y = builder.linear(context, f"{path}/attention/output/dense", sizes.width, sizes.width)
    y = builder.node("Add", [y, x], f"{path}/attention/output")
    x = layer_norm(builder, y, f"{path}/attention/output/LayerNorm", sizes.width, EPSILON)
    paths = (f"{path}/intermediate/dense", f"{path}/intermediate/intermediate_act_fn", f"{path}/output/dense")
    y = feed_forward(builder, x, paths, sizes.width, sizes.feed)
    y = builder.node("Add", [y, x], f"{path}/output")
    return layer_norm(builder, y, f"{path}/output/LayerNorm", sizes.width, EPSILON, output=output)


def _attention(builder: GraphBuilder, x: str, mask: str, path: str, sizes: _Sizes) -> str:
    """softmax(Q·Kᵀ / √d + mask)·V over heads (Vaswani et al. 2017, arXiv:1706.03762, eq. 1)."""
    size = sizes.width // sizes.heads
    heads = {}
    # K is turned once more than Q and V: (batch, heads, size, seq).
    for name, order in {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}.items():
        y = builder.linear(x, f"{path}/{name}", sizes.width, sizes.width)
        batch, seq = (size_of(builder, y, axis, path) for axis in (0, 1))
        y = reshape(builder, y, [batch, seq, sizes.heads, size], path)
        heads[name] = builder.node("Transpose", [y], path, perm=order)
    scores = builder.node("MatMul", [heads["query"], heads["key"]], path)
    scores = builder.node("Div", [scores, builder.constant(path, math.sqrt(size), np.float32)], path)
    weights = builder.node("Softmax", [builder.node("Add", [scores, mask], path)], path, axis=-1)
    y = builder.node("MatMul", [weights, heads["value"]], path)
    y = builder.node("Transpose", [y], path, perm=[0, 2, 1, 3])
    batch, seq = (size_of(builder, y, axis, path) for axis in (0, 1))
    return reshape(builder, y, [batch, seq, sizes.width], path)
