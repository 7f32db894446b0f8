"""Work of a node: a registry of small formulas by operator; an operator without a formula is reported as such.

Conventions (docs/MODEL.md): one multiply-accumulate of a contraction is one MAC and two FLOPs; padding taps count;
everything else costs FLOPs per element as its formula says. Bytes are compulsory traffic: each distinct operand read
once, each output written once, at its stored width. Source of the definitions of operators: onnx.ai/onnx/operators and
ONNX Runtime, docs/ContribOperators.md.
"""

# Importing a module registers its formulas.
from common.onnx_graph.work import (  # noqa: F401
    attention,
    contractions,
    convolutions,
    einsum,
    elementwise,
    movement,
    packed_weights,
    recurrent,
    sampling,
    transforms,
)
from common.onnx_graph.work.registry import Work, measure

__all__ = ["Work", "measure"]
