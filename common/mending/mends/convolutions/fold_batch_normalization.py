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
    if before is not None:
        return _into_producer(view, norm, before, scale, shift)
    if after is not None and after.input[0] == norm.output[0]:
        return _into_reader(view, norm, after, scale, shift)
    return NoMend("no convolution is before or after it")


def _into_producer(view: View, norm: onnx.NodeProto, conv: onnx.NodeProto, scale: Array, shift: Array) -> Edit | NoMend:
    weight, bias = _weights(view, conv)
    if weight is None or bias is None:
        return NoMend("the weights of the convolution are not constant")
    if view.only_reader(conv.output[0]) is None:
        return NoMend("something else reads the convolution, too")
    scaled = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    return _edit(view, (conv, norm), conv, (scaled, bias * scale + shift), (conv.input[0], norm.output[0]))


def _into_reader(view: View, norm: onnx.NodeProto, conv: onnx.NodeProto, scale: Array, shift: Array) -> Edit | NoMend:
    weight, bias = _weights(view, conv)
    if weight is None or bias is None:
        return NoMend("the weights of the convolution are not constant")
    if any(attribute(conv, "pads", [])) or attribute(conv, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return NoMend("the convolution pads with zeros that a shift would change")
    groups = attribute(conv, "group", 1)
    of_filter = np.repeat(np.arange(groups), len(weight) // groups)  # the group of each filter
    space = [1] * (weight.ndim - 2)
    by_filter = [
        one.reshape(groups, weight.shape[1])[of_filter].reshape(*weight.shape[:2], *space) for one in (scale, shift)
    ]
    moved = (weight * by_filter[1]).sum(axis=tuple(range(1, weight.ndim)))
    return _edit(view, (norm, conv), conv, (weight * by_filter[0], bias + moved), (norm.input[0], conv.output[0]))


def _weights(view: View, conv: onnx.NodeProto) -> tuple[Array | None, Array | None]:
    """Return weight and bias as float64; an absent bias is zeros, None is not constant."""
    weight = view.constant(conv.input[1])
    if weight is None:
        return None, None
    bias = view.constant(name) if (name := operand(conv, 2)) else np.zeros(len(weight))
    return weight.astype(np.float64), None if bias is None else bias.astype(np.float64)


def _edit(
    view: View,
    removed: tuple[onnx.NodeProto, onnx.NodeProto],
    conv: onnx.NodeProto,
    arrays: tuple[Array, Array],
    ends: tuple[str, str],
) -> Edit:
    kept = view.constants[conv.input[1]]
    narrow = onnx.helper.tensor_dtype_to_np_dtype(kept.data_type)
    names = [fresh(view, f"{conv.name}/{part}") for part in ("folded_weight", "folded_bias")]
    folded = deepcopy(conv)
    folded.input[:], folded.output[:] = [ends[0], *names], [ends[1]]
    weights = {name: array.astype(narrow) for name, array in zip(names, arrays, strict=True)}
    return Edit([node.name for node in removed], [folded], weights)
