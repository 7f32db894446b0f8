"""A CumSum becomes a product with a triangular matrix of ones: the runtime sums on one thread, and multiplies on all.

An infinite element makes the sums before it NaN as well, which a running sum leaves finite.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from common.mending.rewrite import Edit, NoMend, fresh, mend_of
from common.mending.view import View, attribute

MOST_SIZE = 128  # a product takes longer from about 160, when measured on one thread (docs/VALIDATION.md)
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)


@mend_of("CumSum")
def replace_cumsum(view: View, node: onnx.NodeProto) -> Edit | NoMend:
    tensor, axes, shape = node.input[0], view.constant(node.input[1]), view.shape(node.input[0])
    if axes is None or shape is None:
        return NoMend("its axis or the shape of its operand is unknown")
    axis = int(axes.reshape(-1)[0]) % max(1, len(shape))
    size = shape[axis] if shape else None
    if size is None:
        return NoMend("the length of its axis is not fixed")
    if axis < len(shape) - 2:
        return NoMend("it sums along none of the last two axes, over which products sum")
    if view.element_type(tensor) not in FLOATS:
        return NoMend("integers overflow in a product otherwise than in a sum")
    if size > MOST_SIZE:
        return NoMend(f"a product with {size} × {size} ones takes longer")
    element, total = np.indices((size, size))
    if attribute(node, "reverse", 0):
        element, total = -element, -total
    # Which element (row) is part of which sum (column).
    matrix = element < total if attribute(node, "exclusive", 0) else element <= total
    ones = fresh(view, f"{node.name}/triangle")
    is_last = axis == len(shape) - 1
    operands = [tensor, ones] if is_last else [ones, tensor]
    product = helper.make_node("MatMul", operands, [*node.output], node.name)
    narrow = helper.tensor_dtype_to_np_dtype(view.element_type(tensor))
    return Edit([node.name], [product], {ones: (matrix if is_last else matrix.T).astype(narrow)})
