"""Normalizations that are fused with skips, biases, gates or embeddings.

A layer norm costs 7 FLOPs per element (sum, difference, square and sum, scale by the deviation, scale, shift), a root
mean square norm 4. Source of the definitions: ONNX Runtime, docs/ContribOperators.md.
"""

from __future__ import annotations

from common.graph import Count
from common.onnx_graph.work.flops import DEQUANTIZE, LAYER_NORM, RMS_NORM, SIGMOID, SILU
from common.onnx_graph.work.registry import Cost, Operation, formula
from common.operators import MACHINE_LEARNING, MICROSOFT, NHWC, ONNX


@formula("SkipLayerNormalization", domains=(MICROSOFT,))
def count_skip_layer_norm(operation: Operation) -> Cost:
    """Operands input, skip, gamma, beta, optional bias."""
    return Cost(other_flops=(LAYER_NORM + 1 + operation.has(4)) * operation.elements(0))


@formula("SkipSimplifiedLayerNormalization", domains=(MICROSOFT,))
def count_skip_rms_norm(operation: Operation) -> Cost:
    """Operands input, skip, gamma, optional bias."""
    return Cost(other_flops=(RMS_NORM + 1 + operation.has(3)) * operation.elements(0))


@formula("GroupNorm", "SkipGroupNorm", domains=(MICROSOFT,))
def count_group_norm(operation: Operation) -> Cost:
    """Operands X, gamma, beta, optional skip and bias; the attribute ``activation`` asks for a SiLU."""
    activated = SILU * operation.flag("activation")
    return Cost(other_flops=(LAYER_NORM + operation.has(3) + operation.has(4) + activated) * operation.elements(0))


@formula("GatedRMSNorm", domains=(MICROSOFT,))
def count_gated_rms_norm(operation: Operation) -> Cost:
    """Count a norm, the gate's activation, and the product with the gate."""
    gate = SIGMOID if operation.text("activation", "silu") == "sigmoid" else SILU
    return Cost(other_flops=(RMS_NORM + gate + 1) * operation.elements(0))


@formula("LRN", domains=(ONNX, NHWC))
def count_local_response_norm(operation: Operation) -> Cost:
    """Count a square, ``size - 1`` additions, scale, shift, power and division per element."""
    return Cost(other_flops=(operation.integer("size", 1) + 4) * operation.elements(0))


@formula("Normalizer", domains=(MACHINE_LEARNING,))
def count_normalizer(operation: Operation) -> Cost:
    """Count a comparison, an absolute value and sum, or a square and sum; and a division per element."""
    steps = operation.choice("norm", {"MAX": 1, "L1": 2, "L2": 2}, "MAX")
    return Cost(other_flops=(steps + 1) * operation.elements(0))


@formula("EmbedLayerNormalization", domains=(MICROSOFT,))
def count_embed_layer_norm(operation: Operation) -> Cost:
    """Operands token and segment ids, word, position and segment tables (2, 3, 4), …, position ids (8)."""
    return _embedded(operation, positions_given=bool(operation.has(8)), dequantized=0)


@formula("QEmbedLayerNormalization", domains=(MICROSOFT,))
def count_quantized_embed_layer_norm(operation: Operation) -> Cost:
    """EmbedLayerNormalization with quantized tables, dequantized row by row (2 FLOPs per element)."""
    return _embedded(operation, positions_given=False, dequantized=DEQUANTIZE)


def _embedded(operation: Operation, *, positions_given: bool, dequantized: int) -> Cost:
    """Add a row of each table per token, and normalize the sum. At most as many rows of a table as tokens are read.

    Positions that are not given are the same for every sequence of the batch.
    """
    batch, length = operation.shape(0, rank=2)
    hidden = operation.dim(2, 1)
    tokens = batch * length
    rows = {2: tokens, 3: tokens if positions_given else length, 4: tokens}
    tables = [index for index in rows if operation.has(index)]
    reads: dict[int, Count] = {index: operation.touched_bytes(index, rows[index] * hidden) for index in tables}
    flops = LAYER_NORM + len(tables) - 1 + dequantized * len(tables)
    return Cost(other_flops=flops * tokens * hidden, reads=reads)
