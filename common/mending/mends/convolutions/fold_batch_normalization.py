"""A BatchNormalization goes into the weights of the convolution before or after it.

With s = scale / √(variance + ε) and t = bias - s · mean per channel, s · (W ∗ x + b) + t = (s W) ∗ x + (s b + t), and
W ∗ (s x + t) + b = (W s) ∗ x + (b + W t) where no padding joins the sums (Ioffe, Szegedy 2015, arXiv:1502.03167).
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import onnx

from common.mending.rewrite import Edit, NoMend, fresh, mend_of
from common.mending.view import Array, View, attribute, operand

USUAL_EPSILON = 1e-5


@mend_of("BatchNormalization")
def fold_batch_normalization(view: View, norm: onnx.NodeProto) -> Edit | NoMend:
    parameters = [view.constant(operand(norm, place)) for place in range(1, 5)]
    known = [parameter.astype(np.float64) for parameter in parameters if parameter is not None]
    if len(known) < 4 or attribute(norm, "training_mode", 0) or any(norm.output[1:]):
        return NoMend("its parameters are not constant")
    gamma, beta, mean, variance = known
    scale = gamma / np.sqrt(variance + attribute(norm, "epsilon", USUAL_EPSILON))
    shift = beta - scale * mean
    before, after = view.writer(norm.input[0], "Conv"), view.only_reader(norm.output[0], "Conv")
    conv = before if before is not None else after
    if conv is None or (before is None and conv.input[0] != norm.output[0]):
        return NoMend("no convolution is before or after it")
    weight, bias = _weights(view, conv)
    if weight is None or bias is None:
        return NoMend("the weights of the convolution are not constant")
    if before is not None:
        scaled = weight * scale.reshape(-1, *[1] * (weight.ndim - 1)), bias * scale + shift
        is_shared = view.only_reader(conv.output[0]) is None
        return NoMend("something else reads the convolution, too") if is_shared else _edit(view, (conv, norm), scaled)
    if any(attribute(conv, "pads", [])) or attribute(conv, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return NoMend("the convolution pads with zeros that a shift would change")
    return _edit(view, (norm, conv), _of_scaled_input(weight, bias, scale, shift, attribute(conv, "group", 1)))


def _of_scaled_input(weight: Array, bias: Array, scale: Array, shift: Array, groups: int) -> tuple[Array, Array]:
    of_filter = np.repeat(np.arange(groups), len(weight) // groups)  # the group of each filter
    shape = (*weight.shape[:2], *[1] * (weight.ndim - 2))
    scales, shifts = (one.reshape(groups, shape[1])[of_filter].reshape(shape) for one in (scale, shift))
    moved = (weight * shifts).sum(axis=tuple(range(1, weight.ndim)))
    return weight * scales, bias + moved


def _weights(view: View, conv: onnx.NodeProto) -> tuple[Array | None, Array | None]:
    """Return weight and bias as float64; an absent bias is zeros, None is not constant."""
    weight = view.constant(conv.input[1])
    if weight is None:
        return None, None
    bias = view.constant(name) if (name := operand(conv, 2)) else np.zeros(len(weight))
    return weight.astype(np.float64), None if bias is None else bias.astype(np.float64)


def _edit(view: View, nodes: tuple[onnx.NodeProto, onnx.NodeProto], arrays: tuple[Array, Array]) -> Edit:
    """Return the edit that puts the convolution with other weights and biases in the place of two nodes in a row."""
    first, last = nodes
    conv = first if first.op_type == "Conv" else last
    narrow = onnx.helper.tensor_dtype_to_np_dtype(view.constants[conv.input[1]].data_type)
    names = [fresh(view, f"{conv.name}/{part}") for part in ("folded_weight", "folded_bias")]
    folded = deepcopy(conv)
    folded.input[:], folded.output[:] = [first.input[0], *names], [last.output[0]]
    weights = {name: array.astype(narrow) for name, array in zip(names, arrays, strict=True)}
    return Edit([first.name, last.name], [folded], weights)
