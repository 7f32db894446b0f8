"""A Gather whose constant indices go in equal steps becomes a Slice, which the runtime copies in blocks."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from common.mending.rewrite import Edit, NoMend, fresh, mend_of, opset_of
from common.mending.view import Array, View, attribute

WITH_OPERANDS = 10  # the version from which Slice takes its places as operands
PARTS = ("starts", "ends", "axes", "steps")


@mend_of("Gather")
def slice_gather(view: View, node: onnx.NodeProto) -> Edit | NoMend:
    indices, shape, axis = view.constant(node.input[1]), view.shape(node.input[0]), attribute(node, "axis", 0)
    if indices is None:
        return NoMend("its indices are not constant")
    if indices.ndim != 1 or len(indices) < 2:
        return NoMend("its indices are no list of several")
    if opset_of(view.model) < WITH_OPERANDS:
        return NoMend(f"the model is older than version {WITH_OPERANDS} of the operators")
    size = shape[axis] if shape is not None else None
    if size is None and (indices < 0).any():
        return NoMend("its indices count from the end of an axis of unknown length")
    places = _places(np.where(indices < 0, indices + (size or 0), indices), axis)
    if places is None:
        return NoMend("its indices do not rise in equal steps")
    names = {part: fresh(view, f"{node.name}/{part}") for part in PARTS}
    weights = {names[part]: np.array([value], np.int64) for part, value in zip(PARTS, places, strict=True)}
    slice_node = helper.make_node("Slice", [node.input[0], *names.values()], [*node.output], node.name)
    return Edit([node.name], [slice_node], weights)


def _places(indices: Array, axis: int) -> tuple[int, int, int, int] | None:
    """Return start, end, axis and step of the slice that takes the same elements; None if no slice does."""
    steps = np.unique(np.diff(indices))
    if len(steps) != 1 or steps[0] < 1:
        return None
    return int(indices[0]), int(indices[-1]) + 1, axis, int(steps[0])
