"""Architectures of ``transformers`` with random weights, ready to be exported: module, example inputs, dynamic axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SiglipVisionConfig,
    SiglipVisionModel,
    WhisperForConditionalGeneration,
)
from transformers import WhisperConfig as WhisperSettings
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from tests.exports.closed_forms import Bert, Experts, Llama, Mamba, Siglip, Speech, Whisper

Binding = dict[str, int]
Axes = dict[int, str]
TEXT_AXES: Axes = {0: "batch", 1: "seq"}


@dataclass(frozen=True)
class Subject:
    """A module to export. ``outputs`` are the names of what it returns; none for the exporter's own."""

    module: nn.Module
    inputs: Mapping[str, torch.Tensor]
    axes: Mapping[str, Axes]
    outputs: tuple[str, ...] = ()


class Wrapped(nn.Module):
    """A model behind a plain function of tensors, because neither exporter takes a model's named outputs."""

    def __init__(self, model: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.call(self.model, *tensors)


def siglip(dims: Siglip) -> Subject:
    """Vision encoder with its pooling head."""
    settings = SiglipVisionConfig(
        hidden_size=dims.width,
        num_hidden_layers=dims.layers,
        num_attention_heads=dims.heads,
        intermediate_size=dims.mlp,
        image_size=dims.image,
        patch_size=dims.patch,
    )

    def call(model: nn.Module, pixel_values: torch.Tensor) -> Any:
        made = model(pixel_values=pixel_values)
        return made.last_hidden_state, made.pooler_output

    pixels = torch.randn(2, dims.channels, dims.image, dims.image)
    return Subject(Wrapped(SiglipVisionModel(settings), call), {"pixel_values": pixels}, {"pixel_values": {0: "batch"}})


def bert(dims: Bert) -> Subject:
    """Text encoder with its pooler."""
    settings = BertConfig(
        vocab_size=dims.vocabulary,
        hidden_size=dims.width,
        num_hidden_layers=dims.layers,
        num_attention_heads=dims.heads,
        intermediate_size=dims.mlp,
    )

    def call(model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        made = model(input_ids=input_ids, attention_mask=attention_mask)
        return made.last_hidden_state, made.pooler_output

    return Subject(Wrapped(BertModel(settings), call), text(2, 11, 11), dict.fromkeys(text(2, 11, 11), TEXT_AXES))


def llama(dims: Llama) -> Subject:
    """Decoder that reads a whole text."""

    def call(model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits

    return Subject(Wrapped(llama_model(dims), call), text(2, 11, 11), dict.fromkeys(text(2, 11, 11), TEXT_AXES))


def llama_with_cache(dims: Llama) -> Subject:
    """Decoder that continues a text: keys and values of the past go in, those of all tokens come out."""
    return with_cache(llama_model(dims), dims)


def experts_with_cache(dims: Experts) -> Subject:
    """Decoder with experts, whose weights are gathered for each token: a graph cannot branch by token."""
    settings = Qwen3MoeConfig(
        vocab_size=dims.vocabulary,
        hidden_size=dims.width,
        num_hidden_layers=dims.layers,
        num_attention_heads=dims.heads,
        num_key_value_heads=dims.kv_heads,
        head_dim=dims.head_width,
        moe_intermediate_size=dims.mlp,
        num_experts=dims.experts,
        num_experts_per_tok=dims.chosen,
        max_position_embeddings=512,
        use_cache=True,
    )
    settings._experts_implementation = "batched_mm"
    return with_cache(Qwen3MoeForCausalLM(settings), dims)


def with_cache(model: nn.Module, dims: Llama) -> Subject:
    """A decoder with the caches of all layers as inputs and outputs, by the names of optimum."""

    def call(model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor, *past: torch.Tensor) -> Any:
        cache = DynamicCache()
        for layer in range(dims.layers):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        made = model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        present = [tensor for layer in made.past_key_values.layers for tensor in (layer.keys, layer.values)]
        return made.logits, *present

    inputs, axes = text(2, 3, 3 + 7), {"input_ids": TEXT_AXES, "attention_mask": {0: "batch", 1: "total"}}
    parts = [f"{layer}.{kind}" for layer in range(dims.layers) for kind in ("key", "value")]
    for part in parts:
        inputs[f"past_key_values.{part}"] = torch.randn(2, dims.kv_heads, 7, dims.head_width)
        axes[f"past_key_values.{part}"] = {0: "batch", 2: "past"}
    return Subject(Wrapped(model, call), inputs, axes, ("logits", *(f"present.{part}" for part in parts)))


def llama_model(dims: Llama) -> nn.Module:
    """A decoder with grouped queries."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=dims.vocabulary,
            hidden_size=dims.width,
            num_hidden_layers=dims.layers,
            num_attention_heads=dims.heads,
            num_key_value_heads=dims.kv_heads,
            intermediate_size=dims.mlp,
            max_position_embeddings=512,
        )
    )


def whisper(dims: Whisper) -> Subject:
    """Audio encoder."""
    settings = WhisperSettings(
        d_model=dims.width,
        encoder_layers=dims.layers,
        encoder_attention_heads=dims.heads,
        encoder_ffn_dim=dims.mlp,
        num_mel_bins=dims.mels,
        max_source_positions=dims.frames // 2,
    )

    def call(model: nn.Module, input_features: torch.Tensor) -> Any:
        return model(input_features).last_hidden_state

    features = torch.randn(2, dims.mels, dims.frames)
    return Subject(
        Wrapped(WhisperEncoder(settings), call), {"input_features": features}, {"input_features": {0: "batch"}}
    )


def speech_with_cache(dims: Speech) -> Subject:
    """Whisper's decoder with a past, as optimum exports it: the keys and values of the frames are inputs alone."""
    settings = WhisperSettings(
        vocab_size=dims.vocabulary,
        d_model=dims.width,
        decoder_layers=dims.layers,
        decoder_attention_heads=dims.heads,
        decoder_ffn_dim=dims.mlp,
        max_source_positions=dims.frames,
        max_target_positions=512,
        encoder_layers=1,
        encoder_attention_heads=dims.heads,
        encoder_ffn_dim=1,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0),
    )

    def call(model: nn.Module, input_ids: torch.Tensor, position_ids: torch.Tensor, *past: torch.Tensor) -> Any:
        own, cross = DynamicCache(), DynamicCache()
        for layer in range(dims.layers):
            own.update(past[4 * layer], past[4 * layer + 1], layer)
            cross.update(past[4 * layer + 2], past[4 * layer + 3], layer)
        frames = past[2].transpose(1, 2).flatten(2)  # only says how many there are: their keys are there
        made = model.model.decoder(
            input_ids=input_ids,
            position_ids=position_ids,
            encoder_hidden_states=frames,
            past_key_values=EncoderDecoderCache(own, cross),
            use_cache=True,
        )
        layers = made.past_key_values.self_attention_cache.layers
        return model.proj_out(made.last_hidden_state), *(each for one in layers for each in (one.keys, one.values))

    inputs = {"input_ids": torch.ones(2, 3, dtype=torch.int64), "position_ids": torch.arange(7, 10)[None].repeat(2, 1)}
    axes: dict[str, Axes] = dict.fromkeys(inputs, TEXT_AXES)
    for layer in range(dims.layers):
        for side, length in (("decoder", 7), ("encoder", dims.frames)):
            for kind in ("key", "value"):
                name = f"past_key_values.{layer}.{side}.{kind}"
                inputs[name] = torch.randn(2, dims.heads, length, dims.head_width)
                axes[name] = {0: "batch", 2: "past"} if side == "decoder" else {0: "batch"}
    presents = (f"present.{layer}.decoder.{kind}" for layer in range(dims.layers) for kind in ("key", "value"))
    return Subject(Wrapped(WhisperForConditionalGeneration(settings), call), inputs, axes, ("logits", *presents))


def mamba_step(dims: Mamba) -> Subject:
    """One token of a state-space model: its states go in, and come out of the same size."""
    settings = MambaConfig(
        vocab_size=dims.vocabulary,
        hidden_size=dims.width,
        num_hidden_layers=dims.layers,
        state_size=dims.state,
        conv_kernel=dims.kernel,
        time_step_rank=dims.rank,
    )

    def call(model: nn.Module, input_ids: torch.Tensor, *past: torch.Tensor) -> Any:
        cache = DynamicCache(config=model.config)
        for layer, held in enumerate(cache.layers):
            conv, recurrent = past[2 * layer].clone(), past[2 * layer + 1].clone()
            held.lazy_initialization(conv_states=conv, recurrent_states=recurrent)
            held.conv_states[0], held.recurrent_states[0] = conv, recurrent
            held.has_previous_state[0] = True
        logits = model(input_ids=input_ids, cache_params=cache, use_cache=True).logits
        return logits, *(state[0] for held in cache.layers for state in (held.conv_states, held.recurrent_states))

    inputs, axes = {"input_ids": torch.ones(2, 1, dtype=torch.int64)}, {"input_ids": {0: "batch"}}
    for layer in range(dims.layers):
        for name, size in (("conv", dims.kernel), ("recurrent", dims.state)):
            inputs[f"past_{name}_states.{layer}"] = torch.randn(2, dims.inner, size)
            axes[f"past_{name}_states.{layer}"] = {0: "batch"}
    outputs = (name.replace("past", "present") for name in inputs if name != "input_ids")
    return Subject(Wrapped(MambaForCausalLM(settings), call), inputs, axes, ("logits", *outputs))


def text(batch: int, seq: int, total: int) -> dict[str, torch.Tensor]:
    """Token ids, and the mask over everything that can be attended to."""
    return {
        "input_ids": torch.ones(batch, seq, dtype=torch.int64),
        "attention_mask": torch.ones(batch, total, dtype=torch.int64),
    }


@dataclass(frozen=True)
class Architecture:
    """How to build it, its dimensions in full and scaled down, and two bindings of its dynamic dimensions."""

    build: Callable[[Any], Subject]
    sizes: Mapping[str, Any]
    bindings: tuple[Binding, Binding]
    closed_form: tuple[str, ...]

    def macs(self, size: str, binding: Mapping[str, Any]) -> Any:
        """The closed form at a binding of numbers or symbols."""
        return sum(self.sizes[size].macs(**{name: binding[name] for name in self.closed_form}).values())


# Full-size widths where the width is the point; the vocabularies are small, because they cost space and no work.
ARCHITECTURES = {
    "siglip": Architecture(
        siglip,
        {"full": Siglip(12, 768, 12, 3072, image=512), "small": Siglip(2, 48, 4, 80, image=64)},
        ({"batch": 1}, {"batch": 2}),
        ("batch",),
    ),
    "bert": Architecture(
        bert,
        {"full": Bert(12, 768, 12, 3072, vocabulary=1009), "small": Bert(2, 48, 4, 80, vocabulary=31)},
        ({"batch": 1, "seq": 7}, {"batch": 3, "seq": 13}),
        ("batch", "seq"),
    ),
    "llama": Architecture(
        llama,
        {"full": Llama(4, 256, 8, 2, 688, vocabulary=1009), "small": Llama(2, 64, 8, 2, 160, vocabulary=31)},
        ({"batch": 1, "seq": 7}, {"batch": 3, "seq": 13}),
        ("batch", "seq"),
    ),
    "llama-cache": Architecture(
        llama_with_cache,
        {"full": Llama(4, 256, 8, 2, 688, vocabulary=1009), "small": Llama(2, 64, 8, 2, 160, vocabulary=31)},
        ({"batch": 1, "seq": 1, "past": 7, "total": 8}, {"batch": 3, "seq": 5, "past": 11, "total": 16}),
        ("batch", "seq", "past"),
    ),
    "qwen-experts-cache": Architecture(
        experts_with_cache,
        {
            "full": Experts(4, 256, 8, 2, 192, vocabulary=1009, experts=8, chosen=2),
            "small": Experts(2, 64, 8, 2, 40, vocabulary=31, experts=5, chosen=2),
        },
        ({"batch": 1, "seq": 1, "past": 7, "total": 8}, {"batch": 3, "seq": 5, "past": 11, "total": 16}),
        ("batch", "seq", "past"),
    ),
    "whisper-decoder-cache": Architecture(
        speech_with_cache,
        {
            "full": Speech(4, 256, 4, 1024, vocabulary=1009, frames=1500),
            "small": Speech(2, 48, 4, 80, vocabulary=31, frames=60),
        },
        ({"batch": 1, "seq": 1, "past": 7}, {"batch": 3, "seq": 5, "past": 11}),
        ("batch", "seq", "past"),
    ),
    "mamba-step": Architecture(
        mamba_step,
        {
            "full": Mamba(4, 256, state=16, kernel=4, rank=16, vocabulary=1009),
            "small": Mamba(2, 48, state=8, kernel=4, rank=5, vocabulary=31),
        },
        ({"batch": 1}, {"batch": 3}),
        ("batch",),
    ),
    "whisper": Architecture(
        whisper,
        {"full": Whisper(6, 512, 8, 2048), "small": Whisper(2, 48, 4, 80, frames=60)},
        ({"batch": 1}, {"batch": 3}),
        ("batch",),
    ),
}
