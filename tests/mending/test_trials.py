"""The mends of a rule together, and when outputs agree."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from common.artifacts.columns import COLUMNS
from common.bottlenecks.rules import read_rules
from common.files.configuration import Section
from common.mending.agreement import TOLERANCES, agreement, tolerance
from common.mending.registry import MENDS, tried
from common.mending.rewrite import Case
from common.runtime.sessions.session import SessionSettings
from tests.support.models.onnx_models import Typed, model
from tests.support.paths import ROOT

SETTINGS = SessionSettings(1, optimization="disable")


def unfused_conv():
    """A convolution with weights that a caller may replace, and a normalization after it."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["y"], "norm"),
    ]
    weights = {name: np.full(2, value, np.float32) for name, value in zip("gbmv", (2, 3, 5, 7), strict=True)}
    weights |= {"w": np.ones((2, 3, 1, 1), np.float32)}
    proto = model(nodes, {"x": (1, 3, 4, 4)}, {"y": (1, 2, 4, 4)}, weights)
    proto.graph.input.extend(helper.make_tensor_value_info(one.name, 1, one.dims) for one in proto.graph.initializer)
    return proto


def test_each_mend_of_a_rule_works_on_what_the_one_before_it_left():
    trial = tried("unfused_conv", Case(unfused_conv(), frozenset({"norm"})))
    assert trial.mends == ("freeze_weights", "fold_batch_normalization")
    assert trial.changed == ("b", "g", "m", "v", "w", "conv", "norm")
    assert trial.model is not None
    assert [node.op_type for node in trial.model.graph.node] == ["Conv"]


def test_a_rule_without_a_mend_that_applies_says_why():
    trial = tried(
        "unfused_conv",
        Case(model([helper.make_node("Relu", ["x"], ["y"], "r")], {"x": [1]}, {"y": [1]}), frozenset({"r"})),
    )
    assert trial.model is None
    assert trial.reasons == {
        "freeze_weights": "no weight that it reads is an input",
        "fold_batch_normalization": "it is about no BatchNormalization",
    }
    assert tried("throttled", Case(unfused_conv(), frozenset())).reasons == {}


def test_every_rule_with_a_mend_is_a_rule():
    rules = read_rules(Section.of_file(ROOT / "configs" / "bottlenecks.yaml"), COLUMNS)
    assert {*MENDS} <= {rule.name for rule in rules}


def scaled(factor, element_type=TensorProto.FLOAT):
    dtype = helper.tensor_dtype_to_np_dtype(element_type)
    typed = Typed(element_type, [3])
    return model(
        [helper.make_node("Mul", ["x", "w"], ["y"], "m")], {"x": typed}, {"y": typed}, {"w": np.full(1, factor, dtype)}
    )


def agreed(one, other, *values):
    return agreement(one, other, [{"x": np.float32(values)}], SETTINGS)


def test_the_error_is_that_of_the_largest_element():
    """1.001 · 4 differs from 4 by 0.004, a thousandth of the largest element, 4."""
    found = agreed(scaled(1), scaled(1.001), 1, -4, 2)
    assert found.error == pytest.approx(0.001, rel=1e-3)
    assert not found.holds
    assert agreed(scaled(1), scaled(1 + 1e-6), 1, -4, 2).holds


def test_what_is_not_finite_must_be_so_in_both():
    assert agreed(scaled(1), scaled(1), np.nan, np.inf, 2).holds
    assert agreed(scaled(1), scaled(-1), 1, np.inf, 2).error is None
    assert agreed(scaled(1), scaled(3e38), 1, 4, 2).error is None


def test_the_tolerance_is_that_of_the_coarsest_format():
    assert tolerance(scaled(1)) == TOLERANCES[TensorProto.FLOAT]
    assert tolerance(scaled(1, TensorProto.FLOAT16)) == TOLERANCES[TensorProto.FLOAT16]
    cast = helper.make_node("Cast", ["x"], ["y"], "c", to=TensorProto.BFLOAT16)
    assert (
        tolerance(model([cast], {"x": [3]}, {"y": Typed(TensorProto.BFLOAT16, [3])}))
        == TOLERANCES[TensorProto.BFLOAT16]
    )
    whole = model(
        [helper.make_node("Abs", ["x"], ["y"], "a")],
        {"x": Typed(TensorProto.INT64, [3])},
        {"y": Typed(TensorProto.INT64, [3])},
    )
    assert tolerance(whole) == 0
