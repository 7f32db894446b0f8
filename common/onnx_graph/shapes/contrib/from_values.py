"""Operators of ONNX whose shape depends on an operand's value that ONNX's own inference ignores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.onnx_graph.shapes.contrib.registry import OperatorCall, Output, UnfitError, as_tuple, product, rule
from common.operators import ONNX


@rule("Compress", domains=(ONNX,))
def compress(call: OperatorCall) -> Sequence[Output]:
    """The slices along an axis, or of the flattened operand, for which the condition (operand 1) holds."""
    shape, condition = call.shape(0), call.value(1)
    axis = None if call.attribute("axis") is None else call.integer("axis")
    if shape is None:
        return [(call.element_type(0), None if axis is not None else (None,))]
    if (axis is not None and not -len(shape) <= axis < len(shape)) or (condition is not None and condition.ndim != 1):
        raise UnfitError
    extent = product(*shape) if axis is None else shape[axis]
    chosen = None if condition is None or extent is None else int(np.count_nonzero(condition[:extent]))
    if axis is None:
        return [(call.element_type(0), (chosen,))]
    dims = list(shape)
    dims[axis] = chosen
    return [(call.element_type(0), tuple(dims))]


@rule("MaxUnpool", domains=(ONNX,))
def max_unpool(call: OperatorCall) -> Sequence[Output]:
    """The output's shape is operand 2, where it is given."""
    shape = call.shape(0)
    return [(call.element_type(0), as_tuple(call.value(2), len(shape)) if shape is not None and call.has(2) else None)]
