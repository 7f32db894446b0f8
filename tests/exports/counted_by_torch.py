"""Architectures whose MACs PyTorch counts itself: no closed form stands here, and no formula is shared with us."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    CLIPConfig,
    CLIPModel,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    T5Config,
    T5ForConditionalGeneration,
    Wav2Vec2Config,
    Wav2Vec2ForCTC,
)

from tests.exports.architectures import Subject, Wrapped

TOKENS = {0: "batch", 1: "seq"}


def counted_macs(subject: Subject) -> int:
    """MACs of one forward pass as PyTorch's dispatcher sees it: half of what its FLOP counter says."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        subject.module(*subject.inputs.values())
    return counter.get_total_flops() // 2


def bound(subject: Subject) -> dict[str, int]:
    """The value of each dynamic dimension in the example inputs."""
    return {
        axis: subject.inputs[name].shape[index] for name, axes in subject.axes.items() for index, axis in axes.items()
    }


def t5() -> Subject:
    """Text to text: encoder, decoder and the attention between them."""
    sizes = {"vocab_size": 101, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 3, "num_heads": 4}

    def call(model: nn.Module, input_ids: torch.Tensor, decoder_input_ids: torch.Tensor) -> Any:
        return model(input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False).logits

    inputs = {"input_ids": tokens(1, 13), "decoder_input_ids": tokens(1, 7)}
    axes = {"input_ids": TOKENS, "decoder_input_ids": {0: "batch", 1: "target"}}
    return subject(T5ForConditionalGeneration(T5Config(**sizes)), call, inputs, axes)


def clip() -> Subject:
    """An image and a text tower; also the sizes of the image are dynamic."""
    settings = CLIPConfig(
        text_config={
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "vocab_size": 101,
        },
        vision_config={
            "hidden_size": 192,
            "intermediate_size": 384,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "image_size": 64,
            "patch_size": 16,
        },
    )

    def call(model: nn.Module, input_ids: torch.Tensor, pixels: torch.Tensor, mask: torch.Tensor) -> Any:
        return model(input_ids=input_ids, pixel_values=pixels, attention_mask=mask).logits_per_image

    inputs = {"input_ids": tokens(1, 13), "pixels": torch.randn(1, 3, 64, 64), "mask": torch.ones(1, 13).long()}
    axes = {"input_ids": TOKENS, "pixels": {0: "images", 1: "channels", 2: "height", 3: "width"}, "mask": TOKENS}
    return subject(CLIPModel(settings), call, inputs, axes)


def wav2vec2() -> Subject:
    """Speech: a stack of strided convolutions under a transformer."""
    settings = Wav2Vec2Config(
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        conv_dim=(64,) * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    inputs, axes = {"audio": torch.randn(1, 8000)}, {"audio": {0: "batch", 1: "samples"}}
    return subject(Wav2Vec2ForCTC(settings), lambda model, audio: model(audio).logits, inputs, axes)


def segformer() -> Subject:
    """Segmentation: attention over reduced keys, depthwise convolutions."""
    inputs, axes = {"pixels": torch.randn(1, 3, 128, 128)}, {"pixels": {0: "batch"}}
    model = SegformerForSemanticSegmentation(SegformerConfig())
    return subject(model, lambda model, pixels: model(pixels).logits, inputs, axes)


def mixtral() -> Subject:
    """A decoder of mixtures: a router gives each token to two of four experts."""
    settings = MixtralConfig(
        hidden_size=64,
        intermediate_size=112,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        vocab_size=97,
    )
    settings._experts_implementation = "eager"

    def call(model: nn.Module, input_ids: torch.Tensor, mask: torch.Tensor) -> Any:
        return model(input_ids=input_ids, attention_mask=mask, use_cache=False).logits

    # A mask of four axes, because the tracer cannot export how a mask is made from one of two.
    mask = torch.triu(torch.full((13, 13), -1e4), 1).expand(2, 1, 13, 13).contiguous()
    axes = {"input_ids": TOKENS, "mask": {0: "batch", 2: "seq", 3: "seq"}}
    return subject(MixtralForCausalLM(settings), call, {"input_ids": tokens(2, 13), "mask": mask}, axes)


class Mixture(nn.Module):
    """Two of four experts for each token; how many tokens an expert gets depends on the data."""

    def __init__(self, width: int = 64, hidden: int = 112, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up = nn.ModuleList(nn.Linear(width, hidden) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(hidden, width) for _ in range(experts))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        weights, chosen = torch.topk(torch.softmax(self.router(rows), -1), 2, -1)
        result = torch.zeros_like(rows)
        for expert, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            mine = chosen == expert
            taken = mine.any(-1).nonzero().squeeze(-1)
            share = (weights * mine).sum(-1)[taken].unsqueeze(-1)
            result = result.index_add(0, taken, share * down(torch.relu(up(rows[taken]))))
        return result


def mixture() -> Subject:
    """Routing alone, in plain PyTorch."""
    return Subject(Mixture(), {"rows": torch.randn(37, 64)}, {"rows": {0: "tokens"}})


def tokens(batch: int, length: int) -> torch.Tensor:
    """Token ids that no vocabulary above lacks."""
    return torch.randint(3, 90, (batch, length))


def subject(
    model: PreTrainedModel,
    call: Callable[..., Any],
    inputs: Mapping[str, torch.Tensor],
    axes: Mapping[str, Mapping[int, str]],
) -> Subject:
    """A model behind a plain function of tensors. Its attention is in pieces: PyTorch does not count the fused one."""
    model.set_attn_implementation("eager")
    return Subject(Wrapped(model, call), inputs, {name: dict(names) for name, names in axes.items()})


FIXED = {"t5": t5, "clip": clip, "wav2vec2": wav2vec2, "segformer": segformer}  # shapes follow from those of the inputs
ROUTED = {"mixtral": mixtral, "mixture": mixture}  # data decide how many tokens each expert gets
