"""The largest shape that an operator's output can have where it depends on the value of an operand.

Operators such as Resize, Pad, Tile, Expand, ConstantOfShape, Range, OneHot, StringSplit and Tokenizer have no bound:
a value can make their output arbitrarily large. Reshape needs none: it keeps the number of elements. The rules of
``contrib`` bound their own operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx

from common.graphs.graph import Dim, Shape, Tensor
from common.graphs.operators import ONNX, REDUCTIONS
from common.onnx_graph.by_operator import ByOperator
from common.onnx_graph.shapes.contrib.registry import (
    RULES,
    FindValue,
    OperatorCall,
    UnfitError,
    as_tuple,
    has_valid_extents,
    product,
    smallest,
)

Bound = Callable[[OperatorCall], Sequence[Shape]]
BOUNDS = bound = ByOperator[Bound](ONNX)


def upper_bound(node: onnx.NodeProto, operands: Sequence[Tensor | None], find_value: FindValue) -> list[Shape] | None:
    """Return the largest shape that each output can have for any operand value; None where there is no bound."""
    call = OperatorCall(node, tuple(operands), find_value, bounded=True)
    try:
        if largest := BOUNDS.of(node):
            shapes = [*largest(call), *(None for _ in node.output)]
        elif rule := RULES.of(node):
            shapes = [*(output and output[1] for output in rule(call)), *(None for _ in node.output)]
        else:
            return None
    except UnfitError:
        return None
    bounds = [
        shape if name and has_valid_extents(shape) else None for name, shape in zip(node.output, shapes, strict=False)
    ]
    return bounds if any(shape is not None for shape in bounds) else None


def _known(call: OperatorCall, index: int) -> tuple[Dim, ...]:
    shape = call.shape(index)
    if shape is None:
        raise UnfitError
    return shape


def _axis(call: OperatorCall, shape: tuple[Dim, ...], default: int = -1) -> int:
    axis = call.integer("axis", default)
    if not -len(shape) <= axis < len(shape):
        raise UnfitError
    return axis % len(shape)


def _replaced(shape: tuple[Dim, ...], axis: int, dim: Dim) -> tuple[Dim, ...]:
    return (*shape[:axis], dim, *shape[axis + 1 :])


@bound("NonZero")
def nonzero(call: OperatorCall) -> list[Shape]:
    """Return a column of ``rank`` indices per element: all may be nonzero. A scalar counts as rank 1."""
    shape = _known(call, 0)
    return [(max(1, len(shape)), product(*shape))]


@bound("Unique")
def unique(call: OperatorCall) -> list[Shape]:
    """Return all elements (or slices along the axis): all may differ; each has one inverse index."""
    shape = _known(call, 0)
    if call.attribute("axis") is None:
        return [(product(*shape),)] * 4
    return [shape, *[(shape[_axis(call, shape)],)] * 3]


@bound("NonMaxSuppression")
def non_max_suppression(call: OperatorCall) -> list[Shape]:
    """Return all boxes of every class and batch, at most the given number per class (operand 2, default 0)."""
    batches, classes, boxes = call.dims(1, 3)
    most = call.scalar(2) if call.has(2) else 0
    return [(product(batches, classes, smallest(boxes, most)), 3)]


@bound("TopK")
def top_k(call: OperatorCall) -> list[Shape]:
    """Return K elements, at most the extent of the axis."""
    shape = _known(call, 0)
    axis = _axis(call, shape)
    kept = call.scalar(1) if call.has(1) else call.attribute("k")
    return [_replaced(shape, axis, smallest(shape[axis], kept))] * 2


@bound("Slice")
def sliced(call: OperatorCall) -> list[Shape]:
    return [_known(call, 0)]


@bound("Split")
def split(call: OperatorCall) -> list[Shape]:
    """Return equal parts of the axis, rounded up; where the sizes are an unknown operand, each may be the whole."""
    shape, parts = _known(call, 0), len(call.node.output)
    axis = _axis(call, shape, default=0)
    sizes = as_tuple(call.value(1), parts) if call.has(1) else call.integers("split") or (None,) * parts
    extents = [shape[axis] if size is None else size for size in sizes]
    if not call.has(1) and call.attribute("split") is None and shape[axis] is not None:
        extents = [-(-shape[axis] // parts)] * parts
    return [_replaced(shape, axis, extent) for extent in extents]


@bound(*REDUCTIONS)
def reduced(call: OperatorCall) -> list[Shape]:
    """Keep each axis, as it keeps its extent or becomes 1; without ``keepdims`` the rank is unknown, too."""
    if not call.attribute("keepdims", 1):
        raise UnfitError
    return [tuple(None if dim is None else max(1, dim) for dim in _known(call, 0))]


@bound("StringNormalizer")
def string_normalizer(call: OperatorCall) -> list[Shape]:
    """Return all strings: none may be a stop word; if all are, one empty string remains."""
    shape = _known(call, 0)
    if len(shape) not in (1, 2):
        raise UnfitError
    return [(*shape[:-1], None if shape[-1] is None else max(1, shape[-1]))]
