"""Operators whose outputs have the type and shape of an operand."""

from __future__ import annotations

from common.onnx_graph.shapes.contrib.registry import OperatorCall, Output, Rule, rule
from common.operators import MICROSOFT, ONNX

# Operator -> for each output the operand whose type and shape it has.
SAME: dict[str, tuple[int, ...]] = {
    "BiasAdd": (0,),
    "BiasGelu": (0,),
    "BiasSoftmax": (0,),
    "BranchwiseRMSNorm": (0,),
    "DecoderAttention": (0,),
    "EngramGate": (0, 0),
    "FastGelu": (0,),
    "GatedAdd": (0,),
    "GatedRMSNorm": (0,),
    "Gelu": (0,),
    "GemmaRotaryEmbedding": (1, 3),
    "GroupNorm": (0,),
    "HyperConnectionPostMix": (0,),
    "Inverse": (0,),
    "LinearAttentionGate": (0, 3),
    "LongformerAttention": (0,),
    "MRotaryEmbedding": (0,),
    "MoE": (0,),
    "NGramRepeatBlock": (1,),
    "QLinearLeakyRelu": (0,),
    "QLinearSigmoid": (0,),
    "QLinearSoftmax": (0,),
    "QMoE": (0,),
    "QOrderedGelu": (0,),
    "QOrderedLayerNormalization": (0,),
    "QOrderedLongformerAttention": (0,),
    "QuickGelu": (0,),
    "RotaryEmbedding": (0,),
    "ScaledSiLU": (0,),
    "SkipGroupNorm": (0, 0),
    "Trilu": (0,),
    "VarlenCausalConvWithState": (0, 4),
}
# In ONNX's own domain: experimental operators of early ONNX that the runtime still has, its copies between devices, and
# an operator whose first version (operator set 18) is a function without inference.
SAME_IN_ONNX = (
    "Affine",
    "GroupNormalization",
    "ImageScaler",
    "MemcpyFromHost",
    "MemcpyToHost",
    "ParametricSoftplus",
    "Scale",
    "ScaledTanh",
    "ThresholdedRelu",
)


def _same_as(operands: tuple[int, ...]) -> Rule:
    def outputs(call: OperatorCall) -> list[Output]:
        return [call.same(index) for index in operands]

    return outputs


for _op_type, _operands in SAME.items():
    rule(_op_type, domains=(MICROSOFT,))(_same_as(_operands))
for _op_type in SAME_IN_ONNX:
    rule(_op_type, domains=(ONNX,))(_same_as((0,)))
rule("Dropout", domains=(ONNX,))(_same_as((0, 0)))  # before operator set 12, the shape of the mask is not specified
