"""Errors about models that break the rules of ONNX, kept apart from bugs of this program.

Data of a file are checked where they are read. Any other exception from this room is a bug and shows its traceback.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import onnx

from common.graphs.graph import Node
from common.messages.errors import PipelineError
from common.messages.names import quoted, shown

# Exceptions that ONNX raises about an invalid graph or node.
INVALID = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError)


class MalformedNodeError(PipelineError):
    """A node whose operands, attributes or bodies its operator does not allow."""

    def __init__(
        self, node: Node | onnx.NodeProto, problem: str, remedy: str = "onnx.checker says what is wrong with the model"
    ) -> None:
        super().__init__(f"node {quoted(node.name)}", f"not a valid {shown(node.op_type)} ({problem})", remedy)


@contextlib.contextmanager
def names_model(path: Path) -> Iterator[None]:
    """Name the model in an error about one of its nodes."""
    try:
        yield
    except MalformedNodeError as error:
        raise PipelineError(path, str(error)) from error
