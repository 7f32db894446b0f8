"""Tiny generative models whose caches are not those of a plain decoder: states, windows, cross caches and prefixes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx

from models.graph_builder import FLOAT, INT64, Dim, GraphBuilder, Spec
from models.transformers.parts import OPSET, layer_norm

MICROSOFT, MICROSOFT_1 = {"domain": "com.microsoft"}, {"com.microsoft": 1}
PARTS = ("key", "value")
VOCABULARY = 97
LAYERS, HEADS, HEAD_SIZE = 2, 2, 16
HIDDEN = HEADS * HEAD_SIZE
KERNEL = 4
ACTIONS, ACTION_SIZE, STEPS = 5, 7, 10
WINDOW = 128
Caches: TypeAlias = Mapping[str, tuple[Dim, ...]]  # shape without the batch, by a name with a place for the layer


def build_tiny_state_space(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """A recurrent model of 2 layers: a causal convolution and a gated state per head, both of constant size.

    It is a Mamba-like layer (Gu and Dao 2023, arXiv:2312.00752), with the recurrence of ONNX Runtime's LinearAttention.
    """
    shapes = {"conv_states": (HIDDEN, KERNEL - 1), "recurrent_states": (HEADS, HEAD_SIZE, HEAD_SIZE)}
    past, present = ({f"{time}_{name}.{{}}": shape for name, shape in shapes.items()} for time in ("past", "present"))
    return _language_model("tiny-state-space", seed, batch, _state_layer, past, present, MICROSOFT_1)


def build_tiny_speech_decoder(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """A decoder of 2 layers with the cache of its own tokens, and the keys and values of an encoder's frames.

    The cross cache is an input alone: no call changes it. The form is that of Whisper's decoder with a past (Radford et
    al. 2022, arXiv:2212.04356), as optimum names it.
    """
    past: Caches = {
        f"past_key_values.{{}}.{side}.{part}": (HEADS, length, HEAD_SIZE)
        for part in PARTS
        for side, length in (("decoder", "past"), ("encoder", "frames"))
    }
    present: Caches = {f"present.{{}}.decoder.{part}": (HEADS, "past + seq", HEAD_SIZE) for part in PARTS}
    return _language_model("tiny-speech-decoder", seed, batch, _speech_layer, past, present, MICROSOFT_1)


def build_tiny_rolling_decoder(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """A decoder of 2 layers, each of whose tokens attends a window: the cache holds its last tokens, and no others.

    The window is that of Mistral 7B in small (Jiang et al. 2023, arXiv:2310.06825, section 2). A prompt that is longer
    than the window attends all of it at once.
    """
    past: Caches = {f"past_key_values.{{}}.{part}": ("past", HIDDEN) for part in PARTS}
    present: Caches = {f"present.{{}}.{part}": ("present", HIDDEN) for part in PARTS}
    return _language_model("tiny-rolling-decoder", seed, batch, _rolling_layer, past, present)


def _language_model(
    name: str,
    seed: int,
    batch: Dim,
    add_layer: Callable[[GraphBuilder, str, int], str],
    past: Caches,
    present: Caches,
    domains: dict[str, int] | None = None,
) -> onnx.ModelProto:
    """A model from token ids to logits, each of whose layers takes and returns these caches."""
    builder = GraphBuilder(name, seed=seed)
    inputs: dict[str, Spec] = {"input_ids": (INT64, (batch, "seq"))}
    outputs: dict[str, Spec] = {"logits": (FLOAT, (batch, "seq", VOCABULARY))}
    table = builder.normal("embed_tokens.weight", (VOCABULARY, HIDDEN))
    x = builder.node("Gather", [table, "input_ids"], "embed_tokens", axis=0)
    for layer in range(LAYERS):
        x = add_layer(builder, x, layer)
        inputs |= {cache.format(layer): (FLOAT, (batch, *shape)) for cache, shape in past.items()}
        outputs |= {cache.format(layer): (FLOAT, (batch, *shape)) for cache, shape in present.items()}
    normed = layer_norm(builder, x, "norm", HIDDEN, 1e-5)
    weight = builder.normal("lm_head.weight", (HIDDEN, VOCABULARY), 1 / HIDDEN)
    builder.node("MatMul", [normed, weight], "lm_head", output="logits")
    return builder.model(inputs, outputs, opset=OPSET, domains=domains)


def _state_layer(builder: GraphBuilder, x: str, layer: int) -> str:
    path = f"layers.{layer}"
    normed = layer_norm(builder, x, f"{path}/norm", HIDDEN, 1e-5)
    channels = builder.node("Transpose", [normed], path, perm=[0, 2, 1])
    kernel = builder.normal(f"{path}.conv.weight", (HIDDEN, 1, KERNEL), 1 / KERNEL)
    bias = builder.weight(f"{path}.conv.bias", np.zeros(HIDDEN, np.float32))
    names = [f"/{path}/conv/output_0", f"present_conv_states.{layer}"]
    operands = [channels, kernel, bias, f"past_conv_states.{layer}"]
    y, _ = builder.multi_node("CausalConvWithState", operands, f"{path}/conv", names, activation="silu", **MICROSOFT)
    y = builder.node("Transpose", [y], path, perm=[0, 2, 1])
    query, key, value, rate = (builder.linear(y, f"{path}/{name}", HIDDEN, HIDDEN) for name in ("q", "k", "v", "rate"))
    decay = builder.node("Neg", [builder.node("Softplus", [rate], path)], path)  # a logarithm: the state shrinks
    heads: dict[str, Any] = {"q_num_heads": HEADS, "kv_num_heads": HEADS, "update_rule": "gated", **MICROSOFT}
    operands = [query, key, value, f"past_recurrent_states.{layer}", decay]
    names = [f"/{path}/scan/output_0", f"present_recurrent_states.{layer}"]
    y, _ = builder.multi_node("LinearAttention", operands, f"{path}/scan", names, **heads)
    return builder.node("Add", [x, builder.linear(y, f"{path}/out", HIDDEN, HIDDEN)], path)


def _speech_layer(builder: GraphBuilder, x: str, layer: int) -> str:
    path, cache = f"layers.{layer}", f"past_key_values.{layer}"
    normed = layer_norm(builder, x, f"{path}/self_norm", HIDDEN, 1e-5)
    parts = [builder.linear(normed, f"{path}/self/{name}", HIDDEN, HIDDEN) for name in ("q", "k", "v")]
    past = [f"{cache}.decoder.{part}" for part in PARTS]
    names = [f"/{path}/self/output_0", *(f"present.{layer}.decoder.{part}" for part in PARTS)]
    heads: dict[str, Any] = {"num_heads": HEADS, **MICROSOFT}
    y, *_ = builder.multi_node(
        "MultiHeadAttention", [*parts, "", "", "", *past], f"{path}/self", names, unidirectional=1, **heads
    )
    x = builder.node("Add", [x, builder.linear(y, f"{path}/self/out", HIDDEN, HIDDEN)], path)
    normed = layer_norm(builder, x, f"{path}/cross_norm", HIDDEN, 1e-5)
    query = builder.linear(normed, f"{path}/cross/q", HIDDEN, HIDDEN)
    frames = [f"{cache}.encoder.{part}" for part in PARTS]
    y = builder.node("MultiHeadAttention", [query, *frames], f"{path}/cross", **heads)
    return builder.node("Add", [x, builder.linear(y, f"{path}/cross/out", HIDDEN, HIDDEN)], path)


def build_tiny_action_expert(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """One denoising step of an action expert of 2 layers: a chunk of actions attends the keys of a prefix and itself.

    The loop feeds the actions and the time back (flow matching, Black et al. 2024, arXiv:2410.24164, section IV). The
    keys and values of the prefix, which images and text gave, are inputs that no step changes.
    """
    builder = GraphBuilder("tiny-action-expert", seed=seed)
    actions: tuple[Dim, ...] = (batch, ACTIONS, ACTION_SIZE)
    inputs: dict[str, Spec] = {"actions": (FLOAT, actions), "time": (FLOAT, (batch, 1, 1))}
    outputs: dict[str, Spec] = {"next_actions": (FLOAT, actions), "next_time": (FLOAT, (batch, 1, 1))}
    x = builder.linear("actions", "action_in", ACTION_SIZE, HIDDEN)
    x = builder.node("Add", [x, builder.linear("time", "time_in", 1, HIDDEN)], "time_in")
    for layer in range(LAYERS):
        x = _expert_layer(builder, x, layer)
        cache = f"past_key_values.{layer}"
        inputs |= {f"{cache}.{part}": (FLOAT, (batch, HEADS, "prefix", HEAD_SIZE)) for part in PARTS}
    velocity = builder.linear(layer_norm(builder, x, "norm", HIDDEN, 1e-5), "action_out", HIDDEN, ACTION_SIZE)
    step = builder.constant("step", 1 / STEPS, np.float32)
    moved = builder.node("Mul", [velocity, step], "step")
    builder.node("Add", ["actions", moved], "step", output="next_actions")
    builder.node("Add", ["time", step], "step", output="next_time")
    return builder.model(inputs, outputs, opset=OPSET, domains=MICROSOFT_1)


def _expert_layer(builder: GraphBuilder, x: str, layer: int) -> str:
    path, cache = f"layers.{layer}", f"past_key_values.{layer}"
    normed = layer_norm(builder, x, f"{path}/norm", HIDDEN, 1e-5)
    parts = [builder.linear(normed, f"{path}/{name}", HIDDEN, HIDDEN) for name in ("q", "k", "v")]
    past = [f"{cache}.{part}" for part in PARTS]
    names = [f"/{path}/attention/output_0", *(f"/{path}/attention/{part}" for part in PARTS)]
    heads: dict[str, Any] = {"num_heads": HEADS, **MICROSOFT}
    operands = [*parts, "", "", "", *past]
    y, *_ = builder.multi_node("MultiHeadAttention", operands, f"{path}/attention", names, **heads)
    x = builder.node("Add", [x, builder.linear(y, f"{path}/out", HIDDEN, HIDDEN)], path)
    return builder.node("Add", [x, builder.linear(x, f"{path}/mlp", HIDDEN, HIDDEN)], path)


def _rolling_layer(builder: GraphBuilder, x: str, layer: int) -> str:
    path = f"layers.{layer}"
    normed = layer_norm(builder, x, f"{path}/norm", HIDDEN, 1e-5)
    query, *parts = (builder.linear(normed, f"{path}/{name}", HIDDEN, HIDDEN) for name in ("q", "k", "v"))
    first, last, axis = (builder.constant(path, [number]) for number in (-WINDOW, np.iinfo(np.int64).max, 1))
    whole = []
    for part, new in zip(PARTS, parts, strict=True):
        together = builder.node("Concat", [f"past_key_values.{layer}.{part}", new], f"{path}/{part}", axis=1)
        builder.node("Slice", [together, first, last, axis], f"{path}/{part}", output=f"present.{layer}.{part}")
        whole.append(together)
    keys, values = whole
    scores = builder.node("MatMul", [query, builder.node("Transpose", [keys], path, perm=[0, 2, 1])], f"{path}/scores")
    y = builder.node("MatMul", [builder.node("Softmax", [scores], path, axis=-1), values], f"{path}/values")
    return builder.node("Add", [x, builder.linear(y, f"{path}/out", HIDDEN, HIDDEN)], path)
