"""Decoders that are called once per token, with their caches: as exporters write them, and as GenAI's builder does.

The layer is that of Llama (Touvron et al. 2023, arXiv:2302.13971): RMS norm, rotary positions, queries in groups that
share keys (Ainslie et al. 2023, arXiv:2305.13245), and a gated feed-forward network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from models.graph_builder import FLOAT, INT64, Dim, GraphBuilder, Spec, dotted
from models.transformers.packing import packed
from models.transformers.parts import OPSET, reshape, size_of

MICROSOFT = "com.microsoft"
INT32 = onnx.TensorProto.INT32
EPSILON = 1e-5
ROTARY_BASE = 10_000.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a decoder; ``experts`` of 0 is one feed-forward network for all tokens."""

    layers: int
    heads: int
    groups: int
    head_size: int
    wide: int
    vocabulary: int
    positions: int
    experts: int = 0
    chosen: int = 2

    @property
    def hidden(self) -> int:
        return self.heads * self.head_size


TINY = Sizes(layers=2, heads=4, groups=2, head_size=16, wide=40, vocabulary=97, positions=512)
TINY_EXPERTS = Sizes(layers=2, heads=4, groups=2, head_size=16, wide=24, vocabulary=97, positions=512, experts=5)
SMALL = Sizes(layers=6, heads=8, groups=2, head_size=64, wide=1408, vocabulary=8192, positions=4096)


def build_tiny_decoder(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """A decoder of 2 layers in plain operators, whose cache grows by Concat; its mask has a dimension of its own."""
    return _exported("tiny-decoder", TINY, seed, batch)


def build_tiny_grouped_decoder(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """A decoder of 2 layers in ONNX Runtime's operators; its cache grows, or is a buffer if one is bound."""
    return _grouped("tiny-grouped-decoder", TINY, seed, batch)


def build_tiny_expert_decoder(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """The grouped decoder with 2 of 5 experts per token instead of one feed-forward network."""
    return _grouped("tiny-expert-decoder", TINY_EXPERTS, seed, batch)


def build_small_decoder(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """A decoder of 6 layers and 26 M weights in ONNX Runtime's operators: its weights are larger than most caches."""
    return _grouped("small-decoder", SMALL, seed, batch)


def build_tiny_packed_decoder(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """The grouped decoder with weights of four bits."""
    return packed(_grouped("tiny-packed-decoder", TINY, seed, batch))


def build_small_packed_decoder(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """The decoder of 6 layers with weights of four bits; its embedding keeps 32."""
    return packed(_grouped("small-packed-decoder", SMALL, seed, batch))


# --- what both forms share --------------------------------------------------------------------------------------------


def _product(builder: GraphBuilder, x: str, path: str, width: int, wider: int, output: str | None = None) -> str:
    weight = builder.normal(f"{dotted(path)}.weight", (width, wider), 1 / width)
    return builder.node("MatMul", [x, weight], path, output=output)


def _scale(builder: GraphBuilder, path: str, width: int) -> str:
    return builder.weight(f"{dotted(path)}.weight", builder.random.uniform(0.9, 1.1, width).astype(np.float32))


def _rotary_tables(builder: GraphBuilder, sizes: Sizes) -> tuple[str, str]:
    rates = ROTARY_BASE ** (-np.arange(0, sizes.head_size, 2) / sizes.head_size)
    angles = np.outer(np.arange(sizes.positions), rates)
    cosines, sines = (function(angles).astype(np.float32) for function in (np.cos, np.sin))
    return builder.weight("cos_cache", cosines), builder.weight("sin_cache", sines)


def _embedding(builder: GraphBuilder, sizes: Sizes) -> str:
    table = builder.normal("model.embed_tokens.weight", (sizes.vocabulary, sizes.hidden))
    return builder.node("Gather", [table, "input_ids"], "model/embed_tokens", axis=0)


def _gated(builder: GraphBuilder, x: str, path: str, sizes: Sizes) -> str:
    """The feed-forward network down(SiLU(gate(x)) · up(x))."""
    gate = _product(builder, x, f"{path}/gate_proj", sizes.hidden, sizes.wide)
    up = _product(builder, x, f"{path}/up_proj", sizes.hidden, sizes.wide)
    active = builder.node("Mul", [gate, builder.node("Sigmoid", [gate], f"{path}/act_fn")], f"{path}/act_fn")
    return _product(builder, builder.node("Mul", [active, up], path), f"{path}/down_proj", sizes.wide, sizes.hidden)


def _cache_values(sizes: Sizes, batch: Dim, past: Dim, present: Dim) -> tuple[dict[str, Spec], dict[str, Spec]]:
    """Return the inputs and the outputs of the caches, with the names of optimum and GenAI."""
    parts = [f"{layer}.{part}" for layer in range(sizes.layers) for part in ("key", "value")]
    before, after = ((batch, sizes.groups, length, sizes.head_size) for length in (past, present))
    inputs: dict[str, Spec] = {f"past_key_values.{part}": (FLOAT, before) for part in parts}
    outputs: dict[str, Spec] = {f"present.{part}": (FLOAT, after) for part in parts}
    return inputs, outputs


# --- plain operators, as torch.onnx writes them -----------------------------------------------------------------------


def _exported(name: str, sizes: Sizes, seed: int, batch: Dim) -> onnx.ModelProto:
    builder = GraphBuilder(name, seed=seed)
    x, bias = _embedding(builder, sizes), _mask_bias(builder)
    tables = [
        builder.node("Unsqueeze", [builder.node("Gather", [table, "position_ids"], "rotary", axis=0), one], "rotary")
        for one in [builder.constant("rotary", [1])]
        for table in _rotary_tables(builder, sizes)
    ]
    for layer in range(sizes.layers):
        path = f"model/layers.{layer}"
        normed = _rms_norm(builder, x, f"{path}/input_layernorm", sizes.hidden)
        attended = _attention(builder, normed, layer, sizes, tables, bias)
        x = builder.node("Add", [x, attended], path)
        normed = _rms_norm(builder, x, f"{path}/post_attention_layernorm", sizes.hidden)
        x = builder.node("Add", [x, _gated(builder, normed, f"{path}/mlp", sizes)], path)
    normed = _rms_norm(builder, x, "model/norm", sizes.hidden)
    _product(builder, normed, "lm_head", sizes.hidden, sizes.vocabulary, "logits")
    caches, presents = _cache_values(sizes, batch, "past", "past + seq")
    inputs: dict[str, Spec] = {"input_ids": (INT64, (batch, "seq")), "attention_mask": (INT64, (batch, "s12"))}
    inputs |= {"position_ids": (INT64, (batch, "seq")), **caches}
    return builder.model(inputs, {"logits": (FLOAT, (batch, "seq", sizes.vocabulary)), **presents}, opset=OPSET)


def _rms_norm(builder: GraphBuilder, x: str, path: str, width: int) -> str:
    square = builder.node("Mul", [x, x], path)
    mean = builder.node("ReduceMean", [square], path, axes=[-1], keepdims=1)
    root = builder.node("Sqrt", [builder.node("Add", [mean, builder.constant(path, EPSILON, np.float32)], path)], path)
    return builder.node("Mul", [builder.node("Div", [x, root], path), _scale(builder, path, width)], path)


def _mask_bias(builder: GraphBuilder) -> str:
    """What is added to the scores: 0 where a key is before its query and not masked, else -10,000."""
    path = "model/mask"
    zero, one, axes = (builder.constant(path, number) for number in (0, 1, [1]))
    keys = builder.node("Range", [zero, size_of(builder, "attention_mask", 1, path), one], path)
    queries = builder.node("Unsqueeze", ["position_ids", builder.constant(path, [1, 3])], path)
    is_before = builder.node("LessOrEqual", [keys, queries], path)
    is_there = builder.node("Cast", ["attention_mask"], path, to=onnx.TensorProto.BOOL)
    is_there = builder.node("Unsqueeze", [builder.node("Unsqueeze", [is_there, axes], path), axes], path)
    is_met = builder.node("And", [is_before, is_there], path)
    numbers = (builder.constant(path, number, np.float32) for number in (0, -1e4))
    return builder.node("Where", [is_met, *numbers], path)


def _attention(builder: GraphBuilder, x: str, layer: int, sizes: Sizes, tables: list[str], bias: str) -> str:
    path = f"model/layers.{layer}/self_attn"
    batch, tokens = (size_of(builder, x, axis, path) for axis in (0, 1))

    def heads(name: str, count: int) -> str:
        y = _product(builder, x, f"{path}/{name}", sizes.hidden, count * sizes.head_size)
        y = reshape(builder, y, [batch, tokens, count, sizes.head_size], path)
        return builder.node("Transpose", [y], path, perm=[0, 2, 1, 3])

    query, key = (
        _rotated(builder, heads(name, count), path, sizes.head_size // 2, tables)
        for name, count in (("q_proj", sizes.heads), ("k_proj", sizes.groups))
    )
    whole = [
        builder.node("Concat", [f"past_key_values.{layer}.{part}", new], path, output=f"present.{layer}.{part}", axis=2)
        for part, new in (("key", key), ("value", heads("v_proj", sizes.groups)))
    ]
    keys, values = (_repeated(builder, cache, path, sizes, batch) for cache in whole)
    scores = builder.node("MatMul", [query, builder.node("Transpose", [keys], path, perm=[0, 1, 3, 2])], path)
    scores = builder.node("Mul", [scores, builder.constant(path, sizes.head_size**-0.5, np.float32)], path)
    shares = builder.node("Softmax", [builder.node("Add", [scores, bias], path)], path, axis=-1)
    y = builder.node("Transpose", [builder.node("MatMul", [shares, values], path)], path, perm=[0, 2, 1, 3])
    y = reshape(builder, y, [batch, tokens, sizes.hidden], path)
    return _product(builder, y, f"{path}/o_proj", sizes.hidden, sizes.hidden)


def _rotated(builder: GraphBuilder, x: str, path: str, half: int, tables: list[str]) -> str:
    cosines, sines = tables
    left, right = builder.multi_node("Split", [x], path, [f"{x}_left", f"{x}_right"], axis=-1)
    turned = [
        builder.node(op_type, [builder.node("Mul", [a, cosines], path), builder.node("Mul", [b, sines], path)], path)
        for op_type, a, b in (("Sub", left, right), ("Add", right, left))
    ]
    return builder.node("Concat", turned, path, axis=-1)


def _repeated(builder: GraphBuilder, cache: str, path: str, sizes: Sizes, batch: str) -> str:
    """Repeat the keys of each group for its queries, as transformers' ``repeat_kv`` does."""
    length = size_of(builder, cache, 2, path)
    times = sizes.heads // sizes.groups
    x = builder.node("Unsqueeze", [cache, builder.constant(path, [2])], path)
    ones = builder.constant(path, [1, 1, times, 1, 1])
    x = builder.node("Expand", [x, ones], path)
    return reshape(builder, x, [batch, sizes.heads, length, sizes.head_size], path)


# --- ONNX Runtime's operators, as GenAI's builder writes them ---------------------------------------------------------


def _grouped(name: str, sizes: Sizes, seed: int, batch: Dim) -> onnx.ModelProto:
    builder = GraphBuilder(name, seed=seed)
    lengths, tables = _lengths(builder), _rotary_tables(builder, sizes)
    skip = x = _embedding(builder, sizes)
    for layer in range(sizes.layers):
        path = f"model/layers.{layer}"
        normed, skip = _skip_norm(builder, x, skip if layer else "", f"{path}/input_layernorm", sizes.hidden)
        attended = _grouped_attention(builder, normed, layer, sizes, [*lengths, *tables])
        normed, skip = _skip_norm(builder, attended, skip, f"{path}/post_attention_layernorm", sizes.hidden)
        feed = _experts if sizes.experts else _gated
        x = feed(builder, normed, f"{path}/mlp", sizes)
    normed, _ = _skip_norm(builder, x, skip, "model/norm", sizes.hidden)
    _product(builder, normed, "lm_head", sizes.hidden, sizes.vocabulary, "logits")
    past, total, new = "past_sequence_length", "total_sequence_length", "sequence_length"
    caches, presents = _cache_values(sizes, batch, past, total)
    inputs: dict[str, Spec] = {"input_ids": (INT64, (batch, new)), "attention_mask": (INT64, (batch, total)), **caches}
    outputs: dict[str, Spec] = {"logits": (FLOAT, (batch, new, sizes.vocabulary)), **presents}
    return builder.model(inputs, outputs, opset=OPSET, domains={MICROSOFT: 1})


def _lengths(builder: GraphBuilder) -> list[str]:
    """The position of the last token of each sequence, and the total length, from the mask."""
    path = "model/attn_mask_reformat"
    sums = builder.node("ReduceSum", ["attention_mask", builder.constant(path, [1])], path, keepdims=0)
    last = builder.node("Sub", [sums, builder.constant(path, [1])], path)
    total = size_of(builder, "attention_mask", 1, path)
    return [builder.node("Cast", [length], path, to=INT32) for length in (last, total)]


def _skip_norm(builder: GraphBuilder, x: str, skip: str, path: str, width: int) -> tuple[str, str]:
    """The normalized sum, and the sum itself for the next one; without a skip the sum is ``x``.

    GenAI's builder writes the first norm as ONNX Runtime's SimplifiedLayerNormalization, which is in ONNX's domain but
    not in ONNX, so that no checker of ONNX passes it.
    """
    if not skip:
        return _rms_norm(builder, x, path, width), x
    scale = _scale(builder, path, width)
    names = [f"/{path}/output_0", "", "", f"/{path}/output_3"]
    attributes: dict[str, Any] = {"domain": MICROSOFT, "epsilon": EPSILON}
    outputs = builder.multi_node("SkipSimplifiedLayerNormalization", [x, skip, scale], path, names, **attributes)
    return outputs[0], outputs[3]


def _grouped_attention(builder: GraphBuilder, x: str, layer: int, sizes: Sizes, lengths_and_tables: list[str]) -> str:
    path = f"model/layers.{layer}/attn"
    counts = {"q_proj": sizes.heads, "k_proj": sizes.groups, "v_proj": sizes.groups}
    parts = [_product(builder, x, f"{path}/{name}", sizes.hidden, n * sizes.head_size) for name, n in counts.items()]
    parts += [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
    names = [f"/{path}/GroupQueryAttention/output_0", *(f"present.{layer}.{part}" for part in ("key", "value"))]
    heads = {"num_heads": sizes.heads, "kv_num_heads": sizes.groups, "do_rotary": 1}
    operands = [*parts, *lengths_and_tables]
    y, *_ = builder.multi_node("GroupQueryAttention", operands, path, names, domain=MICROSOFT, **heads)
    return _product(builder, y, f"{path}/o_proj", sizes.hidden, sizes.hidden)


def _experts(builder: GraphBuilder, x: str, path: str, sizes: Sizes) -> str:
    """A router and the weighted sum of the experts that it chooses for a token."""
    logits = _product(builder, x, f"{path}/gate", sizes.hidden, sizes.experts)
    logits = builder.node("Reshape", [logits, builder.constant(path, [-1, sizes.experts])], path)
    layers = ((sizes.wide, sizes.hidden), (sizes.hidden, sizes.wide))
    up, down = (
        builder.normal(f"{dotted(path)}.experts.{name}.weight", (sizes.experts, *shape), 1 / shape[1])
        for name, shape in zip(("fc1", "fc2"), layers, strict=True)
    )
    attributes: dict[str, Any] = {"k": sizes.chosen, "activation_type": "silu", "normalize_routing_weights": 1}
    return builder.node("MoE", [x, logits, up, "", down], path, domain=MICROSOFT, **attributes)
