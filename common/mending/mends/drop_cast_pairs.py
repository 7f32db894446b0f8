"""Two casts in a row become one or none, where the first one loses nothing."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from common.mending.rewrite import Edit, NoMend, mend_of
from common.mending.view import View, attribute


@mend_of("Cast")
def drop_cast_pairs(view: View, second: onnx.NodeProto) -> Edit | NoMend:
    first = view.writer(second.input[0], "Cast")
    if first is None:
        return NoMend("no other cast is before it")
    begin, middle, end = view.element_type(first.input[0]), attribute(first, "to"), attribute(second, "to")
    if not begin:
        return NoMend("the type of the tensor before the casts is unknown")
    if not _holds(begin, middle):
        return NoMend("the casts round the values")
    operands, result = [first.input[0]], [second.output[0]]
    op_type, attributes = ("Identity", {}) if begin == end else ("Cast", {"to": end})
    one = helper.make_node(op_type, operands, result, second.name, **attributes)
    goes = [first.name] if view.only_reader(first.output[0]) is not None else []
    return Edit([*goes, second.name], [one], changed=[first.name, second.name])


def _holds(begin: int, middle: int) -> bool:
    """Return whether a type has every value of another one."""
    if begin == middle:
        return True
    if TensorProto.BFLOAT16 in (begin, middle):
        return begin == TensorProto.BFLOAT16 and middle in (TensorProto.FLOAT, TensorProto.DOUBLE)
    try:
        before, after = (np.dtype(helper.tensor_dtype_to_np_dtype(one)) for one in (begin, middle))
        return before.kind in "biuf" and after.kind in "biuf" and np.can_cast(before, after, casting="safe")
    except (KeyError, TypeError):  # a type that numpy lacks
        return False
