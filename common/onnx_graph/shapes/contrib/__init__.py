"""Output types and shapes of the operators of ONNX Runtime that ONNX's own shape inference does not know.

A registry of one small rule per operator and domain. Where a contrib operator is an ONNX operator with its operands in
another order, the rule asks ONNX's own inference. Source of the definitions: ONNX Runtime's docs/ContribOperators.md
and the documentation in its operator schemas, and onnx.ai/onnx/operators.
"""

# Importing a module registers its rules.
from common.onnx_graph.shapes.contrib import (  # noqa: F401
    as_onnx,
    attention,
    elementwise,
    layouts,
    machine_learning,
    structure,
)
from common.onnx_graph.shapes.contrib.registry import contrib_outputs

__all__ = ["contrib_outputs"]
