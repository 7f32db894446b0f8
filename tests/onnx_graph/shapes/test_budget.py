"""Limits of the reference implementation: no endless pattern, no result of unknown size, one budget for a model."""

from __future__ import annotations

import locale

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from common.onnx_graph.load import load_model
from common.onnx_graph.shapes import budget as module
from common.onnx_graph.shapes.budget import (
    LARGEST_OPERAND,
    MOST_OPERATIONS,
    NODE_OPERATIONS,
    EvaluationBudget,
    operations_of,
)
from common.onnx_graph.shapes.evaluation import evaluate
from tests.support.models.body_models import body, info, node
from tests.support.models.onnx_models import INT64, Typed, model

OPSETS = {"": 20}
BOOL, FLOAT = TensorProto.BOOL, TensorProto.FLOAT


def one(op_type, count, outputs=1, **attributes):
    names = [f"x{index}" for index in range(count)], [f"y{index}" for index in range(outputs)]
    return helper.make_node(op_type, *names, **attributes)


def cost(op_type, *operands, outputs=1, **attributes):
    return operations_of(one(op_type, len(operands), outputs, **attributes), operands, OPSETS)


def zeros(*shape):
    return np.zeros(shape, np.float32)


def unknown_shape(proto, folder, tensor="y"):
    onnx.save(proto, folder / "m.onnx")
    return load_model(folder / "m.onnx", {}).graph.tensors[tensor].shape


def test_a_pattern_is_never_matched():
    text = np.array(["aaaa"], object)
    match = one("RegexFullMatch", 1, pattern="a+")
    assert evaluate(match, {"x0": text}, OPSETS, EvaluationBudget()) == {}


def test_a_pattern_without_end_leaves_its_shape_to_the_run(tmp_path):
    """Python would need 2⁶⁰ steps; a shape that follows from the matches is unknown, that of the matches is not."""
    nodes = [
        helper.make_node("RegexFullMatch", ["text"], ["m"], name="m", pattern="(a|a)*b"),
        helper.make_node("NonZero", ["m"], ["y"], name="n"),
    ]
    proto = model(nodes, {"x": (3,)}, {"y": Typed(INT64, None)}, {"text": np.array(["a" * 60], object)})
    proto.opset_import[0].version = 20
    assert unknown_shape(proto, tmp_path) == (1, None)
    assert unknown_shape(proto, tmp_path, "m") == (1,)


def loop(passes, nodes, returned="grown"):
    formal = [info("i", INT64, ()), info("go", BOOL, ()), info("state", FLOAT)]
    made = body(nodes, formal, [info("go", BOOL, ()), info(returned, FLOAT)])
    owner = helper.make_node("Loop", ["passes", "", "one"], ["y"], name="loop", body=made)
    return model([owner], {"x": (3,)}, {"y": None}, {"passes": np.array(passes), "one": zeros(1)})


def test_a_state_that_doubles_is_computed_while_it_is_small(tmp_path):
    double = helper.make_node("Concat", ["state", "state"], ["grown"], name="double", axis=0)
    assert unknown_shape(loop(7, [double]), tmp_path) == (2**7,)
    assert unknown_shape(loop(23, [double]), tmp_path) == (None,)


def test_an_empty_body_counts_its_passes(tmp_path):
    assert unknown_shape(loop(7, [], "state"), tmp_path) == (1,)
    proto = loop(10**5, [], "state")
    proto.graph.node.append(helper.make_node("ConstantOfShape", ["y64"], ["z"], name="fill"))
    proto.graph.node.insert(1, helper.make_node("Cast", ["y"], ["y64"], name="cast", to=INT64))
    assert unknown_shape(proto, tmp_path, "z") == (None,)


@pytest.mark.parametrize("grown", [10**4, 10**7])
def test_a_generator_in_a_body_is_bounded(tmp_path, grown):
    """The sum of what an If makes decides a shape: 10⁴ ones are made, 10⁷ are not."""
    nodes = [
        helper.make_node(
            "ConstantOfShape", ["size"], ["ones"], name="make", value=helper.make_tensor("v", INT64, [1], [1])
        ),
        helper.make_node("ReduceSum", ["ones"], ["sum"], name="sum", keepdims=1),
    ]
    sides = {side: body(nodes, [], [info("sum", INT64)]) for side in ("then_branch", "else_branch")}
    owner = helper.make_node("If", ["true"], ["n"], name="if", **sides)
    fill = helper.make_node("ConstantOfShape", ["n"], ["y"], name="fill")
    weights = {"size": np.array([grown]), "true": np.array(True)}
    shape = unknown_shape(model([owner, fill], {"x": (3,)}, {"y": None}, weights), tmp_path)
    assert shape == ((grown,) if grown < LARGEST_OPERAND else (None,))


def test_random_numbers_in_a_body_are_no_values(tmp_path):
    nodes = [
        helper.make_node("RandomUniform", [], ["r"], name="random", shape=[5], low=1.0, high=9.0),
        helper.make_node("Cast", ["r"], ["n"], name="cast", to=INT64),
    ]
    sides = {side: body(nodes, [], [info("n", INT64)]) for side in ("then_branch", "else_branch")}
    owner = helper.make_node("If", ["true"], ["n"], name="if", **sides)
    fill = helper.make_node("ConstantOfShape", ["n"], ["y"], name="fill")
    proto = model([owner, fill], {"x": (3,)}, {"y": None}, {"true": np.array(True)})
    assert unknown_shape(proto, tmp_path) == (None,) * 5


def test_a_model_does_not_set_the_locale_of_this_process():
    before = locale.setlocale(locale.LC_ALL)
    normalize = one("StringNormalizer", 1, locale="C.UTF-8", case_change_action="LOWER")
    assert evaluate(normalize, {"x0": np.array(["A"], object)}, OPSETS, EvaluationBudget()) == {}
    assert locale.setlocale(locale.LC_ALL) == before


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes"),
    [
        ("Add", (zeros(LARGEST_OPERAND + 1), zeros(1)), {}),
        ("Add", (zeros(2000, 1), zeros(1, 2000)), {}),
        ("ConstantOfShape", (np.array([10**4, 10**4]),), {}),
        ("Expand", (zeros(1), np.array([10**7])), {}),
        ("Tile", (zeros(10), np.array([10**6])), {}),
        ("Range", (np.array(0), np.array(10**9), np.array(1)), {}),
        ("OneHot", (np.zeros(100, np.int64), np.array([10**6]), zeros(2)), {}),
        ("MaxPool", (zeros(1, 1, 9, 9),), {"kernel_shape": [10**6, 10**6], "pads": [10**6] * 4}),
        ("Conv", (zeros(1, 1, 900, 900), zeros(1, 1, 99, 99)), {}),
        ("Einsum", (zeros(999), zeros(999), zeros(999)), {"equation": "i,j,k->"}),
        ("NonMaxSuppression", (zeros(1, 9999, 4), zeros(1, 80, 9999)), {}),
        ("StringSplit", (np.array(["a"] * 999 + ["a " * 999], object),), {"outputs": 2}),
        ("StringConcat", (np.array(["a" * 9999], object), np.array(["b" * 9999], object)), {}),
        ("StringNormalizer", (np.array(["a"], object),), {"locale": "tr_TR"}),
        ("RegexFullMatch", (np.array(["a"], object),), {"pattern": "a"}),
    ],
)  # fmt: skip
def test_what_takes_long_or_much_is_not_evaluated(op_type, operands, attributes):
    operations = cost(op_type, *operands, **attributes)
    assert operations is None or operations > MOST_OPERATIONS


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes"),
    [
        ("Add", (zeros(999, 1), zeros(1, 999)), {}),
        ("Concat", (zeros(700, 700), zeros(700, 700)), {"axis": 0}),
        ("Gather", (zeros(99), np.zeros(99, np.int64)), {}),
        ("NonZero", (zeros(LARGEST_OPERAND),), {}),
        ("ConstantOfShape", (np.array([999, 999]),), {}),
        ("Range", (np.array(0), np.array(10**5), np.array(1)), {}),
        ("NonMaxSuppression", (zeros(1, 100, 4), zeros(1, 80, 100)), {}),
        ("Conv", (zeros(1, 1, 28, 28), zeros(1, 1, 3, 3)), {}),
        ("SequenceConstruct", (zeros(99), zeros(99)), {}),
        ("StringSplit", (np.array(["a b", "c"], object),), {"outputs": 2}),
    ],
)  # fmt: skip
def test_what_shapes_are_computed_of_is_evaluated(op_type, operands, attributes):
    assert NODE_OPERATIONS <= cost(op_type, *operands, **attributes) <= MOST_OPERATIONS


@pytest.mark.parametrize("bound", [np.array("a", object), np.array("a"), np.array(1 + 2j), np.array(True)])
def test_a_range_between_what_is_no_number_is_not_evaluated(bound):
    assert cost("Range", bound, bound, bound) is None


def test_all_evaluations_share_one_budget(monkeypatch):
    budget = EvaluationBudget(left=3 * NODE_OPERATIONS)
    assert [budget.allows(one("Neg", 1), [zeros(1)], OPSETS) for _ in range(5)] == [True] * 3 + [False] * 2


def test_the_budget_is_that_of_all_bindings_of_a_model(tmp_path, monkeypatch):
    """A model with an unbound dimension is inferred seven times; each time a value is computed anew."""
    spent = []
    allows = EvaluationBudget.allows
    monkeypatch.setattr(
        module.EvaluationBudget, "allows", lambda self, *of: spent.append(id(self)) or allows(self, *of)
    )
    nodes = [node("Shape", "x", "s", "s"), node("Mod", "s,two", "t", "t"), node("Expand", "x,t", "y", "e")]
    onnx.save(model(nodes, {"x": ("N", 1)}, {"y": None}, {"two": np.array([1, 2])}), tmp_path / "m.onnx")
    load_model(tmp_path / "m.onnx", {}, symbolic=True)
    assert len(spent) > 3
    assert len(set(spent)) == 1
