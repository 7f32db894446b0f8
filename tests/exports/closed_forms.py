"""MACs of each architecture, written out from its dimensions alone: no graph is looked at.

A product of (M×K)·(K×N) is M·K·N MACs. Every form takes its dynamic dimensions as numbers or as SymPy symbols, and
answers part by part, so that a difference shows where it lies.

Sources: Dosovitskiy et al., arXiv 2010.11929 (vision transformer), Zhai et al., arXiv 2303.15343 (SigLIP), Devlin et
al., arXiv 1810.04805 (BERT), Touvron et al., arXiv 2302.13971 (Llama), Ainslie et al., arXiv 2305.13245 (grouped
queries), Radford et al., arXiv 2212.04356 (Whisper).
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
