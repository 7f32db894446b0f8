"""MACs of each architecture, written out from its dimensions alone: no graph is looked at.

A product of (M×K)·(K×N) is M·K·N MACs. Every form takes its dynamic dimensions as numbers or as SymPy symbols, and
answers part by part, so that a difference shows where it lies.

Sources: Dosovitskiy et al., arXiv 2010.11929 (vision transformer), Zhai et al., arXiv 2303.15343 (SigLIP), Devlin et
al., arXiv 1810.04805 (BERT), Touvron et al., arXiv 2302.13971 (Llama), Ainslie et al., arXiv 2305.13245 (grouped
queries), Radford et al., arXiv 2212.04356 (Whisper), Yang et al., arXiv 2505.09388 (Qwen3 and its experts), Gu and Dao,
arXiv 2312.00752 (Mamba).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Encoder:
    """What the encoders have in common."""

    layers: int
    width: int
    heads: int
    mlp: int

    def blocks(self, batch: Any, tokens: Any) -> dict[str, Any]:
        """Query, key, value and output projections; scores and weighted values; two matrices of the MLP."""
        rows = batch * tokens
        return {
            "projections": self.layers * 4 * rows * self.width * self.width,
            "scores": self.layers * batch * tokens * tokens * self.width,
            "values": self.layers * batch * tokens * tokens * self.width,
            "mlp": self.layers * 2 * rows * self.width * self.mlp,
        }


@dataclass(frozen=True)
class Siglip(Encoder):
    """Vision transformer with an attention-pooling head: one learned query over all patches, then an MLP."""

    image: int
    patch: int = 16
    channels: int = 3

    def macs(self, batch: Any) -> dict[str, Any]:
        """MACs of ``batch`` images."""
        tokens = (self.image // self.patch) ** 2
        return {
            "patch embedding": batch * tokens * self.width * self.channels * self.patch**2,
            **self.blocks(batch, tokens),
            "head query and output": 2 * batch * self.width * self.width,
            "head keys and values": 2 * batch * tokens * self.width * self.width,
            "head scores and values": 2 * batch * tokens * self.width,
            "head mlp": 2 * batch * self.width * self.mlp,
        }


@dataclass(frozen=True)
class Bert(Encoder):
    """BERT with its pooler; the vocabulary costs no MAC (embeddings are looked up)."""

    vocabulary: int

    def macs(self, batch: Any, seq: Any) -> dict[str, Any]:
        """MACs of ``batch`` texts of ``seq`` tokens; the pooler reads the first token of each."""
        return {**self.blocks(batch, seq), "pooler": batch * self.width * self.width}


@dataclass(frozen=True)
class Whisper(Encoder):
    """Whisper's encoder: two convolutions over mel frames, the second with stride 2."""

    mels: int = 80
    frames: int = 3000

    def macs(self, batch: Any) -> dict[str, Any]:
        """MACs of ``batch`` windows of 30 seconds."""
        tokens = self.frames // 2
        return {
            "first convolution": batch * self.frames * self.width * self.mels * 3,
            "second convolution": batch * tokens * self.width * self.width * 3,
            **self.blocks(batch, tokens),
        }


@dataclass(frozen=True)
class Llama:
    """Llama-like decoder: ``kv_heads`` < ``heads``, a gated MLP of three matrices, the vocabulary as head."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    def macs(self, batch: Any, seq: Any, past: Any = 0) -> dict[str, Any]:
        """MACs of ``seq`` new tokens that attend to themselves and to ``past`` cached ones; the mask spares none."""
        rows, kv_width = batch * seq, self.kv_heads * self.head_width
        return {
            "query and output projections": self.layers * 2 * rows * self.width * self.width,
            "key and value projections": self.layers * 2 * rows * self.width * kv_width,
            "scores": self.layers * batch * seq * (past + seq) * self.width,
            "values": self.layers * batch * seq * (past + seq) * self.width,
            "mlp": self.layers * 3 * rows * self.width * self.mlp,
            "vocabulary": rows * self.width * self.vocabulary,
        }

    def cache_bytes(self, batch: Any, total: Any) -> Any:
        """Bytes of all keys and values in fp32."""
        return 4 * 2 * self.layers * batch * total * self.kv_heads * self.head_width


@dataclass(frozen=True)
class Experts(Llama):
    """Qwen-like decoder: instead of one MLP, a router and ``chosen`` of ``experts`` gated MLPs for each token."""

    experts: int = 8
    chosen: int = 2

    def macs(self, batch: Any, seq: Any, past: Any = 0) -> dict[str, Any]:
        """MACs as of Llama, with the experts that ran."""
        rows = batch * seq
        return {
            **super().macs(batch, seq, past),
            "mlp": self.layers * self.chosen * 3 * rows * self.width * self.mlp,
            "router": self.layers * rows * self.width * self.experts,
        }


@dataclass(frozen=True)
class Speech:
    """Whisper's decoder over the keys and values of its own tokens, and those of an encoder's frames."""

    layers: int
    width: int
    heads: int
    mlp: int
    vocabulary: int
    frames: int

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    def macs(self, batch: Any, seq: Any, past: Any = 0) -> dict[str, Any]:
        """MACs of ``seq`` new tokens; the keys and values of the frames are there already."""
        rows = batch * seq
        return {
            "projections": self.layers * (4 + 2) * rows * self.width * self.width,
            "own scores and values": self.layers * 2 * rows * (past + seq) * self.width,
            "scores and values of the frames": self.layers * 2 * rows * self.frames * self.width,
            "mlp": self.layers * 2 * rows * self.width * self.mlp,
            "vocabulary": rows * self.width * self.vocabulary,
        }

    def cache_bytes(self, batch: Any, total: Any) -> Any:
        """Bytes of the keys and values of its own tokens, in fp32."""
        return 4 * 2 * self.layers * batch * total * self.width


@dataclass(frozen=True)
class Mamba:
    """One step of Mamba: a convolution over the last inputs and a state of N numbers for each channel."""

    layers: int
    width: int
    state: int
    kernel: int
    rank: int
    vocabulary: int

    @property
    def inner(self) -> int:
        """Channels of the mixer: twice the width."""
        return 2 * self.width

    def macs(self, batch: Any) -> dict[str, Any]:
        """MACs of one token; the update of the state multiplies element by element, which is no product."""
        inner = self.inner
        return {
            "projection in": self.layers * batch * self.width * 2 * inner,
            # PyTorch's step convolves the last ``kernel`` inputs and the new one, and leaves out the first result.
            "convolution": self.layers * 2 * batch * inner * self.kernel,
            "time step, B and C": self.layers * batch * inner * (self.rank + 2 * self.state),
            "time step to channels": self.layers * batch * self.rank * inner,
            "state to output": self.layers * batch * inner * self.state,
            "projection out": self.layers * batch * inner * self.width,
            "vocabulary": batch * self.width * self.vocabulary,
        }

    def cache_bytes(self, batch: Any, total: Any) -> Any:
        """Bytes of all states in fp32, whatever the length."""
        return 4 * self.layers * batch * self.inner * (self.kernel + self.state)
