"""An enlarging Resize goes past a convolution of 1 × 1, which then computes fewer pixels.

Interpolation weighs pixels with weights that sum to 1, alike for each channel; a convolution of 1 × 1 weighs channels,
alike for each pixel. So they commute, with the bias.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import onnx

from common.mending.rewrite import Edit, NoMend, fresh, mend_of
from common.mending.view import Array, View, attribute, operand

SCALES, SIZES = 2, 3  # positions of the operands
LEAST_OPERANDS = 3


@mend_of("Resize")
def move_resize(view: View, resize: onnx.NodeProto) -> Edit | NoMend:
    conv = view.only_reader(resize.output[0], "Conv")
    if conv is None or conv.input[0] != resize.output[0]:
        return NoMend("its only reader is no convolution, or it has several readers")
    weight, strides = view.shape(conv.input[1]), attribute(conv, "strides", [1])
    if weight is None or {*weight[2:]} != {1} or any(attribute(conv, "pads", [])) or {*strides} != {1}:
        return NoMend("the convolution after it is not of 1 × 1")
    is_special = (
        attribute(resize, "coordinate_transformation_mode", b"") == b"tf_crop_and_resize"
        or attribute(resize, "keep_aspect_ratio_policy", b"stretch") != b"stretch"
        or attribute(resize, "axes") is not None
    )
    if is_special or len(resize.input) < LEAST_OPERANDS:
        return NoMend("it crops, or keeps an aspect ratio, or names its axes")
    given = SIZES if operand(resize, SIZES) else SCALES
    target, shape = view.constant(operand(resize, given)), view.shape(resize.input[0])
    if target is None:
        return NoMend("its scales are not constant")
    if not _enlarges(target, shape, is_size=given == SIZES):
        return NoMend("it shrinks an axis or changes the channels, or its sizes are unknown")
    return _swapped(view, resize, conv, target, given)


def _enlarges(target: Array, shape: tuple[int | None, ...] | None, *, is_size: bool) -> bool:
    if is_size and (shape is None or None in shape or len(shape) != len(target)):
        return False
    before = np.array(shape) if is_size else np.ones(len(target))
    return bool((target[:2] == before[:2]).all() and (target[2:] >= before[2:]).all() and (target > before).any())


def _swapped(view: View, resize: onnx.NodeProto, conv: onnx.NodeProto, target: Array, given: int) -> Edit:
    between, operands, weights = fresh(view, f"{conv.name}/small"), [*resize.input], dict[str, Array]()
    if given == SIZES:
        sizes = target.copy()
        sizes[1] = (view.shape(conv.input[1]) or (0,))[0]
        operands[SIZES] = fresh(view, f"{resize.name}/sizes")
        weights[operands[SIZES]] = sizes
    first, last = deepcopy(conv), deepcopy(resize)
    first.input[0], first.output[:] = resize.input[0], [between]
    last.input[:], last.output[:] = [between, *operands[1:]], conv.output
    return Edit([resize.name, conv.name], [first, last], weights)
