"""Each mend on a model made for it: the runtime returns the same outputs, the cause is gone, and look-alikes stay."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from common.mending.agreement import agreement
from common.mending.mends.bind_dimensions import bind_dimensions
from common.mending.mends.cancel_transposes import cancel_transposes
from common.mending.mends.convolutions.fold_batch_normalization import fold_batch_normalization
from common.mending.mends.convolutions.move_resize import move_resize
from common.mending.mends.convolutions.pad_channels import pad_channels
from common.mending.mends.drop_cast_pairs import drop_cast_pairs
from common.mending.mends.expand_einsum import expand_einsum
from common.mending.mends.freeze_weights import freeze_weights
from common.mending.mends.fuse_gelu import fuse_gelu
from common.mending.mends.fuse_layer_normalization import fuse_layer_normalization
from common.mending.mends.merge_constants import merge_constants
from common.mending.mends.replace_cumsum import replace_cumsum
from common.mending.mends.slice_gather import slice_gather
from common.mending.mends.widen_halves import widen_halves
from common.mending.rewrite import Case, NoMend
from common.runtime.sessions.session import SessionSettings
from tests.support.models.onnx_models import Typed, model

RANDOM = np.random.default_rng(7)
HALF = TensorProto.FLOAT16
NCHW = (1, 3, 6, 7)


def array(*shape, low=-1.0, high=1.0):
    return RANDOM.uniform(low, high, shape).astype(np.float32)


def node(op_type, inputs, outputs, **attributes):
    names = inputs.split(), outputs.split()
    return helper.make_node(op_type, *names, name=f"{op_type}_{names[1][0]}", **attributes)


def case(proto, **sizes):
    return Case(proto, frozenset(one.name for one in proto.graph.node), sizes)


def kinds(proto):
    return [one.op_type for one in proto.graph.node]


def mended(mend, proto, feed, **sizes):
    """Mend a model, and hold that it returns the same and that the given model did not change."""
    before = proto.SerializeToString()
    outcome = mend(case(proto, **sizes))
    assert not isinstance(outcome, NoMend), outcome.reason
    assert proto.SerializeToString() == before
    found = agreement(proto, outcome.model, [feed], SessionSettings(1, optimization="disable"))
    assert found.holds, found
    return outcome


def refused(mend, proto, words, **sizes):
    outcome = mend(case(proto, **sizes))
    assert isinstance(outcome, NoMend)
    assert words in outcome.reason


# --- batch normalization ---------------------------------------------------------------------------------------------


def parameters(channels, prefix="n"):
    values = array(channels), array(channels), array(channels), array(channels, low=0.5)
    return dict(zip((f"{prefix}{part}" for part in "gbmv"), values, strict=True))


def after_conv(group=1, extra=(), outputs=("y",), bias=True):
    nodes = [
        node("Conv", "x w b" if bias else "x w", "c", group=group, pads=[1] * 4),
        node("BatchNormalization", "c ng nb nm nv", "y", epsilon=0.01),
        *extra,
    ]
    weights = {"w": array(4, 4 // group, 3, 3), "b": array(4), **parameters(4)}
    return model(nodes, {"x": (1, 4, 6, 7)}, dict.fromkeys(outputs), weights)


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_a_normalization_goes_into_the_convolution_before_it(group, bias):
    outcome = mended(fold_batch_normalization, after_conv(group, bias=bias), {"x": array(1, 4, 6, 7)})
    assert kinds(outcome.model) == ["Conv"]
    assert outcome.changed == ("Conv_c", "BatchNormalization_y")
    assert {one.name for one in outcome.model.graph.initializer} == {*outcome.model.graph.node[0].input[1:]}


def before_conv(pads, group=1):
    nodes = [
        node("BatchNormalization", "x ng nb nm nv", "n"),
        node("Conv", "n w b", "y", group=group, pads=pads),
    ]
    weights = {"w": array(6, 4 // group, 3, 3), "b": array(6), **parameters(4)}
    return model(nodes, {"x": (1, 4, 6, 7)}, {"y": None}, weights)


@pytest.mark.parametrize("group", [1, 2])
def test_a_normalization_goes_into_the_convolution_after_it(group):
    outcome = mended(fold_batch_normalization, before_conv([0] * 4, group), {"x": array(1, 4, 6, 7)})
    assert kinds(outcome.model) == ["Conv"]


def test_a_normalization_stays_where_its_shift_would_reach_the_padding_or_another_reader():
    refused(fold_batch_normalization, before_conv([1] * 4), "pads with zeros")
    shared = after_conv(extra=[node("Relu", "c", "z")], outputs=("y", "z"))
    refused(fold_batch_normalization, shared, "something else reads")
    refused(fold_batch_normalization, after_conv(outputs=("y", "c")), "something else reads")
    alone = model([node("BatchNormalization", "x ng nb nm nv", "y")], {"x": (1, 4, 6, 7)}, {"y": None}, parameters(4))
    refused(fold_batch_normalization, alone, "no convolution")


def with_defaults(*names):
    proto = after_conv()
    held = {one.name: one for one in proto.graph.initializer}
    proto.graph.input.extend(helper.make_tensor_value_info(name, 1, held[name].dims) for name in names)
    return proto


def test_weights_that_a_caller_may_replace_are_frozen_first():
    proto = with_defaults("w", "ng")
    refused(fold_batch_normalization, proto, "not constant")
    outcome = mended(freeze_weights, proto, {"x": array(1, 4, 6, 7)})
    assert outcome.changed == ("ng", "w")
    assert [one.name for one in outcome.model.graph.input] == ["x"]
    refused(freeze_weights, after_conv(), "no weight")
    proto.ir_version = 3  # then every weight is an input, and constant for the runtime
    refused(freeze_weights, proto, "no weight")


# --- channels --------------------------------------------------------------------------------------------------------


def convs(channels, *, middle=(), last="h", outputs=("y",), weights=None):
    nodes = [node("Conv", "x w1 b1", "h", pads=[1] * 4), *middle, node("Conv", f"{last} w2", "y")]
    weights = {"w1": array(channels, 3, 3, 3), "b1": array(channels), "w2": array(5, channels, 1, 1), **(weights or {})}
    return model(nodes, {"x": NCHW}, dict.fromkeys(outputs), weights)


def channels_of(proto, tensor):
    inferred = onnx.shape_inference.infer_shapes(proto)
    return next(one for one in inferred.graph.value_info if one.name == tensor).type.tensor_type.shape.dim[1].dim_value


def test_channels_between_convolutions_are_padded():
    outcome = mended(pad_channels, convs(29, middle=[node("Sigmoid", "h", "r")], last="r"), {"x": array(*NCHW)})
    assert channels_of(outcome.model, "h") == channels_of(outcome.model, "r") == 32


def test_a_sum_and_a_depthwise_convolution_carry_the_padding_on():
    middle = [
        node("Conv", "h wd", "d", group=29, pads=[1] * 4),
        node("Add", "h d", "s"),
    ]
    outcome = mended(
        pad_channels, convs(29, middle=middle, last="s", weights={"wd": array(29, 1, 3, 3)}), {"x": array(*NCHW)}
    )
    assert channels_of(outcome.model, "s") == channels_of(outcome.model, "d") == 32


def test_channels_that_fit_or_that_somebody_else_sees_stay():
    refused(pad_channels, convs(16), "into its blocked layout")
    refused(pad_channels, convs(5), "into its blocked layout")
    refused(pad_channels, convs(17), "17 channels would fill their blocks of 16 badly")
    refused(pad_channels, convs(29, outputs=("y", "h")), "an input or an output")
    softmax = [node("Softmax", "h", "r", axis=1)]  # zeros would take a part of the sum
    refused(pad_channels, convs(29, middle=softmax, last="r"), "Softmax")
    split = [node("Concat", "h h", "r", axis=2)]
    refused(pad_channels, convs(29, middle=split, last="r"), "Concat")


# --- casts and formats -----------------------------------------------------------------------------------------------


def casts(begin, middle, end, outputs=("y",)):
    nodes = [node("Cast", "x", "m", to=middle), node("Cast", "m", "y", to=end)]
    types = dict(zip("ymx", (end, middle, begin), strict=True))
    return model(nodes, {"x": Typed(begin, (2, 3))}, {name: Typed(types[name], (2, 3)) for name in outputs})


def test_casts_that_lose_nothing_are_dropped():
    outcome = mended(drop_cast_pairs, casts(HALF, 1, HALF), {"x": array(2, 3).astype(np.float16)})
    assert kinds(outcome.model) == ["Identity"]
    outcome = mended(drop_cast_pairs, casts(HALF, 1, TensorProto.DOUBLE), {"x": array(2, 3).astype(np.float16)})
    assert kinds(outcome.model) == ["Cast"]
    outcome = mended(drop_cast_pairs, casts(HALF, 1, HALF, ("y", "m")), {"x": array(2, 3).astype(np.float16)})
    assert kinds(outcome.model) == ["Cast", "Identity"]


@pytest.mark.parametrize(("begin", "middle"), [(1, HALF), (1, TensorProto.INT32), (TensorProto.INT32, 1)])
def test_casts_that_round_stay(begin, middle):
    refused(drop_cast_pairs, casts(begin, middle, begin), "round the values")


def half_model():
    nodes = [
        node("Cast", "a", "h", to=HALF),
        node("Mul", "h w", "m"),
        node("Add", "m x", "y"),
        node("Cast", "y", "z", to=1),
    ]
    weights = {"w": array(4).astype(np.float16)}
    return model(nodes, {"a": (3, 4), "x": Typed(HALF, (3, 4))}, {"y": Typed(HALF, (3, 4)), "z": (3, 4)}, weights)


def test_a_model_in_fp16_computes_in_fp32_between_the_same_inputs_and_outputs():
    feed = {"a": array(3, 4), "x": array(3, 4).astype(np.float16)}
    outcome = mended(widen_halves, half_model(), feed)
    inferred = onnx.shape_inference.infer_shapes(outcome.model)
    inner = {one.name: one.type.tensor_type.elem_type for one in inferred.graph.value_info}
    assert inner and {*inner.values()} == {TensorProto.FLOAT}
    refused(widen_halves, after_conv(), "no fp16")


# --- single operators ------------------------------------------------------------------------------------------------


def cumsum(axis, shape, element_type=1, **attributes):
    weights = {"axis": np.array(axis, np.int64)}
    typed = Typed(element_type, shape)
    return model([node("CumSum", "x axis", "y", **attributes)], {"x": typed}, {"y": typed}, weights)


@pytest.mark.parametrize("axis", [2, 1, -1, -2])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_a_running_sum_becomes_a_product(axis, exclusive, reverse):
    proto = cumsum(axis, (2, 5, 7), exclusive=exclusive, reverse=reverse)
    outcome = mended(replace_cumsum, proto, {"x": array(2, 5, 7)})
    assert kinds(outcome.model) == ["MatMul"]


def test_a_running_sum_stays_where_no_product_can_take_its_place():
    refused(replace_cumsum, cumsum(0, (2, 5, 7)), "last two axes")
    refused(replace_cumsum, cumsum(1, (2, "N")), "not fixed")
    refused(replace_cumsum, cumsum(1, (2, 129)), "takes longer")
    refused(replace_cumsum, cumsum(1, (2, 5), TensorProto.INT32), "integers")


def resized(target, scales=None, kernel=1, outputs=("y",), **attributes):
    operands = ["x", "", "s"] if scales else ["x", "", "", "sizes"]
    nodes = [helper.make_node("Resize", operands, ["r"], name="Resize_r", **attributes), node("Conv", "r w b", "y")]
    weights = {"w": array(5, 3, kernel, kernel), "b": array(5)}
    weights |= {"s": np.array(scales, np.float32)} if scales else {"sizes": np.array(target, np.int64)}
    return model(nodes, {"x": NCHW}, dict.fromkeys(outputs), weights)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scales", [None, (1, 1, 2, 3)])
def test_a_resize_moves_past_a_pointwise_convolution(mode, scales):
    outcome = mended(move_resize, resized((1, 3, 12, 21), scales, mode=mode), {"x": array(*NCHW)})
    assert kinds(outcome.model) == ["Conv", "Resize"]


def test_a_resize_stays_where_it_would_not_commute_or_not_gain():
    refused(move_resize, resized((1, 3, 12, 21), kernel=3), "not of 1")
    refused(move_resize, resized((1, 3, 3, 7)), "shrinks an axis")
    refused(move_resize, resized((1, 3, 12, 21), outputs=("y", "r")), "several readers")
    special = resized((1, 3, 12, 21), keep_aspect_ratio_policy="not_larger")
    special.opset_import[0].version = 18
    refused(move_resize, special, "aspect ratio")


def transposes(between, first=(0, 2, 3, 1), last=(0, 3, 1, 2), outputs=("y",), weights=None):
    end = between[-1].output[0] if between else "t"
    nodes = [node("Transpose", "x", "t", perm=first), *between, node("Transpose", f"{end}", "y", perm=last)]
    return model(nodes, {"x": (2, 3, 4, 5)}, dict.fromkeys(outputs), weights)


def test_transposes_that_undo_each_other_go():
    feed = {"x": array(2, 3, 4, 5)}
    assert kinds(mended(cancel_transposes, transposes([]), feed).model) == ["Identity"]
    chain = [node("Relu", "t", "r"), node("Mul", "two r", "m")]
    outcome = mended(cancel_transposes, transposes(chain, weights={"two": np.float32([2])}), feed)
    assert kinds(outcome.model) == ["Relu", "Mul"]


def test_transposes_stay_where_something_sees_the_layout_between_them():
    refused(cancel_transposes, transposes([], last=(0, 2, 1, 3)), "does not undo")
    softmax = transposes([node("Softmax", "t", "s", axis=3)])
    refused(cancel_transposes, softmax, "no other transpose")
    per_channel = transposes([node("Mul", "t w", "m")], weights={"w": array(3)})
    refused(cancel_transposes, per_channel, "no other transpose")
    refused(cancel_transposes, transposes([node("Relu", "t", "r")], outputs=("y", "r")), "no other transpose")


# --- chains ----------------------------------------------------------------------------------------------------------


def chain(*steps, outputs=("y",), shape=(2, 3, 4), **weights):
    names = ["x", *(f"t{place}" for place in range(len(steps) - 1)), "y"]
    nodes = [
        node(op_type, operands.replace("_", names[place]), names[place + 1])
        for place, (op_type, operands) in enumerate(steps)
    ]
    for place, one in enumerate(nodes):
        one.name = f"{one.op_type}_{place}"
    return model(
        nodes, {"x": shape}, dict.fromkeys(outputs), {name: np.float32(held) for name, held in weights.items()}
    )


EVERY = (("Add", "_ a"), ("Mul", "b _"), ("Sub", "_ c"), ("Div", "_ d"), ("Sub", "a _"))


def test_a_chain_of_constants_becomes_one_product_and_one_sum():
    proto = chain(*EVERY, a=array(4), b=array(3, 1), c=0.3, d=array(2, 1, 4, low=0.5))
    outcome = mended(merge_constants, proto, {"x": array(2, 3, 4)})
    assert kinds(outcome.model) == ["Mul", "Add"]
    assert len(outcome.changed) == 5
    six = chain(*[("Add", "_ a")] * 6, a=array(3, 4))
    assert kinds(mended(merge_constants, six, {"x": array(2, 3, 4)}).model) == ["Add"]


def test_a_chain_that_nothing_shortens_or_that_others_read_stays():
    refused(merge_constants, chain(("Mul", "_ a"), ("Add", "_ b"), a=2.0, b=1.0), "no longer than")
    seen = chain(("Add", "_ a"), ("Add", "_ a"), outputs=("y", "t0"), a=1.0)
    refused(merge_constants, seen, "no chain")
    refused(merge_constants, chain(("Div", "a _"), ("Div", "a _"), a=1.0), "no chain")
    refused(merge_constants, chain(("Div", "_ a"), ("Mul", "_ b"), a=0.0, b=2.0), "no chain")
    refused(merge_constants, chain(("Mul", "_ a"), ("Mul", "_ a"), a=3e38), "not be finite")
    wider = chain(("Add", "_ a"), ("Add", "_ a"), shape=(1, 4), a=array(3, 4))
    refused(merge_constants, wider, "larger")


GELU = {
    "half last": (
        ("Div", "x r", "d"),
        ("Erf", "d", "e"),
        ("Add", "e one", "p"),
        ("Mul", "x p", "m"),
        ("Mul", "m h", "y"),
    ),
    "half in between": (
        ("Mul", "x i", "d"),
        ("Erf", "d", "e"),
        ("Add", "one e", "p"),
        ("Mul", "h p", "m"),
        ("Mul", "m x", "y"),
    ),
    "half first": (
        ("Div", "x r", "d"),
        ("Erf", "d", "e"),
        ("Add", "e one", "p"),
        ("Mul", "x h", "m"),
        ("Mul", "m p", "y"),
    ),
}
NUMBERS = {"r": np.float32(2**0.5), "i": np.float32(0.5**0.5), "one": np.float32(1), "h": np.float32(0.5)}


def of(steps, outputs=("y",), **numbers):
    return model([node(*step) for step in steps], {"x": (3, 5)}, dict.fromkeys(outputs), {**NUMBERS, **numbers})


@pytest.mark.parametrize("form", GELU)
def test_the_operators_of_a_gelu_become_one(form):
    outcome = mended(fuse_gelu, of(GELU[form]), {"x": array(3, 5, low=-3, high=3)})
    assert kinds(outcome.model) == ["Gelu"]


@pytest.mark.parametrize("number", ["r", "one", "h"])
def test_what_only_looks_like_a_gelu_stays(number):
    refused(fuse_gelu, of(GELU["half last"], **{number: np.float32(0.7)}), "no Gelu")
    refused(fuse_gelu, of(GELU["half last"], ("y", "p")), "no Gelu")


NORM = (
    ("ReduceMean", "x", "m"),
    ("Sub", "x m", "d"),
    ("Pow", "d two", "q"),
    ("ReduceMean", "q", "v"),
    ("Add", "v eps", "p"),
    ("Sqrt", "p", "s"),
    ("Div", "d s", "n"),
    ("Mul", "n g", "k"),
    ("Add", "k b", "y"),
)


def norm(axes=(-1,), outputs=("y",), opset=17, **weights):
    nodes = [node(*step, **({"axes": axes} if step[0] == "ReduceMean" else {})) for step in NORM]
    held = {"two": np.float32(2), "eps": np.float32([0.01]), "g": array(5), "b": array(5), **weights}
    return model(nodes, {"x": (3, 5)}, dict.fromkeys(outputs), held, opset=opset)


def test_the_operators_of_a_layer_normalization_become_one():
    outcome = mended(fuse_layer_normalization, norm(), {"x": array(3, 5)})
    assert kinds(outcome.model) == ["LayerNormalization"]
    assert len(outcome.changed) == len(NORM)


def test_what_only_looks_like_a_layer_normalization_stays():
    refused(fuse_layer_normalization, norm((0,)), "over the last axis")
    refused(fuse_layer_normalization, norm(two=np.float32(3)), "no layer normalization")
    refused(fuse_layer_normalization, norm(outputs=("y", "s")), "no layer normalization")
    refused(fuse_layer_normalization, norm(outputs=("y", "d")), "something else reads")
    refused(fuse_layer_normalization, norm(g=array(3, 5)), "each element of the last axis")
    refused(fuse_layer_normalization, norm(opset=13), "opset 17")


# --- einsum and gather ------------------------------------------------------------------------------------------------


def einsum(equation, first, second, result):
    return model([node("Einsum", "x z", "y", equation=equation)], {"x": first, "z": second}, {"y": result})


@pytest.mark.parametrize(
    ("equation", "first", "second", "result", "kinds_of"),
    [
        ("bhqd,bhkd->bhqk", (2, 3, 5, 7), (2, 3, 11, 7), (2, 3, 5, 11), ["Transpose", "MatMul"]),
        ("bhqk,bhkd->bhqd", (2, 3, 5, 7), (2, 3, 7, 11), (2, 3, 5, 11), ["MatMul"]),
        (
            *("bqhd, bkhd -> bhqk", (2, 5, 3, 7), (2, 11, 3, 7), (2, 3, 5, 11)),
            ["Transpose", "Transpose", "MatMul"],
        ),
        (
            *("bsd,dhe->bshe", (2, 3, 5), (5, 7, 11), (2, 3, 7, 11)),
            ["Reshape", "Reshape", "MatMul", "Reshape"],
        ),
        ("ij,jk->ki", (2, 3), (3, 5), (5, 2), ["MatMul", "Transpose"]),
        ("iab,abk->ik", (2, 3, 5), (3, 5, 7), (2, 7), ["Reshape", "Reshape", "MatMul"]),
    ],
)
def test_an_einsum_becomes_a_product(equation, first, second, result, kinds_of):
    outcome = mended(expand_einsum, einsum(equation, first, second, result), {"x": array(*first), "z": array(*second)})
    assert kinds(outcome.model) == kinds_of


@pytest.mark.parametrize(
    ("equation", "first", "second", "result", "words"),
    [
        ("ij,jk", (2, 3), (3, 5), (2, 5), "no product of two"),
        ("ij,ij->ij", (2, 3), (2, 3), (2, 3), "no product of two"),
        ("ij,kl->ik", (2, 3), (5, 7), (2, 5), "no product of two"),
        ("ii,ik->k", (3, 3), (3, 5), (5,), "no product of two"),
        ("...j,jk->...k", (2, 3), (3, 5), (2, 5), "no product of two"),
        ("ij,jk->ik", ("n", 3), (3, 5), ("n", 5), "unknown, or different"),
    ],
)
def test_an_einsum_that_is_no_product_stays(equation, first, second, result, words):
    refused(expand_einsum, einsum(equation, first, second, result), words)


def gather(indices, shape=(2, 7), axis=1, result=(2, 3)):
    nodes = [node("Gather", "x i", "y", axis=axis)]
    return model(nodes, {"x": shape}, {"y": result}, {"i": np.array(indices, np.int64)})


@pytest.mark.parametrize("indices", [[0, 1, 2], [1, 3, 5], [-3, -2, -1], [4, -2, 6]])
def test_indices_in_equal_steps_are_a_slice(indices):
    outcome = mended(slice_gather, gather(indices), {"x": array(2, 7)})
    assert kinds(outcome.model) == ["Slice"]


def test_other_indices_stay():
    refused(slice_gather, gather([0, 1, 3]), "equal steps")
    refused(slice_gather, gather([2, 1, 0]), "equal steps")
    refused(slice_gather, gather([3, 3, 3]), "equal steps")
    refused(slice_gather, gather(3, result=(2,)), "no list")
    refused(slice_gather, gather([-2, -1], ("n", 7), 0, (2, 7)), "an axis of unknown length")
    variable = model([node("Gather", "x i", "y")], {"x": (7,), "i": Typed(TensorProto.INT64, [3])}, {"y": (3,)})
    refused(slice_gather, variable, "not constant")


# --- dimensions ------------------------------------------------------------------------------------------------------


def test_dimensions_are_bound_to_the_sizes_of_the_measurement():
    proto = model([node("Relu", "x", "y")], {"x": ("N", "M")}, {"y": ("N", "M")})
    outcome = mended(bind_dimensions, proto, {"x": array(2, 3)}, N=2)
    assert outcome.changed == ("N",)
    dims = outcome.model.graph.output[0].type.tensor_type.shape.dim
    assert (dims[0].dim_value, dims[1].dim_param) == (2, "M")
    refused(bind_dimensions, proto, "no dimension", K=2)


# --- what all mends have in common -----------------------------------------------------------------------------------


def test_only_what_a_finding_is_about_is_mended():
    proto = chain(*EVERY, a=1.0, b=2.0, c=3.0, d=4.0)
    outcome = merge_constants(Case(proto, frozenset({"elsewhere"})))
    assert isinstance(outcome, NoMend)
    assert outcome.reason == "it is about no Add or Sub or Mul or Div"


def test_what_a_body_reads_counts_as_read():
    """The branches of an If read the tensor between two sums, so that it must stay."""
    branch = helper.make_graph([node("Relu", "t0", "b")], "branch", [], [helper.make_tensor_value_info("b", 1, None)])
    proto = chain(("Add", "_ a"), ("Add", "_ a"), outputs=("y", "z"), a=1.0)
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    proto.graph.node.append(helper.make_node("If", ["c"], ["z"], name="If", then_branch=branch, else_branch=branch))
    refused(merge_constants, proto, "no chain")
