"""Small models with bodies: a Loop over one carried value, an If between two products."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.support.models.onnx_models import INT64, Typed, model, weight

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL
SCALAR_INT, SCALAR_BOOL = Typed(INT64, ()), Typed(BOOL, ())


def node(op_type, inputs, outputs, name="", **attributes):
    return helper.make_node(op_type, inputs.split(","), outputs.split(","), name=name, **attributes)


def constant(name, value):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value)))


def info(name, element_type=FLOAT, shape=None):
    return helper.make_tensor_value_info(name, element_type, shape)


def body(nodes, takes, gives, weights=()):
    stored = [numpy_helper.from_array(array, name) for name, array in dict(weights).items()]
    return helper.make_graph(nodes, "body", takes, gives, stored)


def loop_body(nodes, condition="keep", state="state_out", scans=()):
    """A body with one carried float value of undeclared shape; ``keep`` is the condition as it was given."""
    takes = [info("i", INT64, ()), info("going", BOOL, ()), info("state")]
    first = [node("Identity", "going", "keep", "keep")] if condition == "keep" else []
    return body([*first, *nodes], takes, [info(condition, BOOL, ()), info(state), *map(info, scans)])


DOUBLE = [node("Add", "state,state", "state_out", "double")]


def loop(nodes=DOUBLE, limit="m", start="", outputs="z", before=(), weights=None, inputs=None, **body_options):
    """y = Loop(limit, start, x) of x (3, 5), after the nodes ``before``."""
    ends = outputs.split(",")
    owner = helper.make_node("Loop", [limit, start, "x"], ends, name="loop", body=loop_body(nodes, **body_options))
    given = {"m": np.array(7)} if weights is None else weights
    return model([*before, owner], {"x": (3, 5), **(inputs or {})}, dict.fromkeys(ends), given)


def branches(then_nodes, else_nodes, condition=None):
    """y = x·w of one shape or another; both branches call their result r."""
    sides = [body(nodes, [], [info("r")]) for nodes in (then_nodes, else_nodes)]
    owner = helper.make_node("If", ["c"], ["y"], name="if", then_branch=sides[0], else_branch=sides[1])
    weights = {"w": weight(5, 11), "v": weight(5, 13)}
    inputs = {"x": (3, 5)}
    if condition is None:
        inputs["c"] = SCALAR_BOOL
    else:
        weights["c"] = np.array(condition)
    return model([owner], inputs, {"y": None}, weights)


NARROW, WIDE = [node("MatMul", "x,w", "r", "narrow")], [node("MatMul", "x,v", "r", "wide")]
