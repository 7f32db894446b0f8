"""What is raised about a model that breaks ONNX's rules, so that no bug of this program is taken for one.

Foreign data are checked where they are read. Whatever else escapes from this room is a bug and shows its traceback.
"""

from __future__ import annotations

import onnx

from common.errors import PipelineError

# What ONNX raises about a graph or a node that it finds invalid.
INVALID = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError)


class MalformedNodeError(PipelineError):
    """A node whose operands, attributes or bodies its operator does not allow."""

    def __init__(self, name: str, op_type: str, problem: str) -> None:
        """Name the node, its operator, and what is wrong with it."""
        remedy = "onnx.checker tells what is wrong with the model"
        super().__init__(f"node {name!r}", f"not a valid {op_type} ({problem})", remedy)
