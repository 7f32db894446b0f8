"""Architectures of ``transformers`` with random weights, ready to be exported: module, example inputs, dynamic axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, SiglipVisionConfig, SiglipVisionModel
from transformers import WhisperConfig as WhisperSettings
from transformers.cache_utils import DynamicCache
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from tests.exports.closed_forms import Bert, Llama, Siglip, Whisper

Binding = dict[str, int]
Axes = dict[int, str]
TEXT_AXES: Axes = {0: "batch", 1: "seq"}


@dataclass(frozen=True)
class Subject:
    """A module to export. ``output`` picks tensors out of what the model returns: exporters take nothing else."""

    module: nn.Module
    inputs: Mapping[str, torch.Tensor]
    axes: Mapping[str, Axes]


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

    def call(model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor, *past: torch.Tensor) -> Any:
        cache = DynamicCache()
        for layer in range(dims.layers):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        made = model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        present = [tensor for layer in made.past_key_values.layers for tensor in (layer.keys, layer.values)]
        return made.logits, *present

    inputs, axes = text(2, 3, 3 + 7), {"input_ids": TEXT_AXES, "attention_mask": {0: "batch", 1: "total"}}
    for name in (f"past.{layer}.{kind}" for layer in range(dims.layers) for kind in ("key", "value")):
        inputs[name] = torch.randn(2, dims.kv_heads, 7, dims.head_width)
        axes[name] = {0: "batch", 2: "past"}
    return Subject(Wrapped(llama_model(dims), call), inputs, axes)


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
    "whisper": Architecture(
        whisper,
        {"full": Whisper(6, 512, 8, 2048), "small": Whisper(2, 48, 4, 80, frames=60)},
        ({"batch": 1}, {"batch": 3}),
        ("batch",),
    ),
}
