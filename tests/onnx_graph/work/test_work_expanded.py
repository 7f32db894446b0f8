"""Operators that ONNX defines by a graph of others: their MACs are those of that graph, which ONNX's own cases hold."""

from __future__ import annotations

import re
import warnings
from functools import cache

import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

from common.onnx_graph.symbols.lengths import length_inputs
from common.onnx_graph.work import measure
from tests.support.models.onnx_models import load

EXPANDED = re.compile(r"_expanded(_ver\d+)?$")


@cache
def cases() -> dict[str, onnx.ModelProto]:
    """The generated node cases by name; to collect them takes some seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases' own arithmetic overflows on purpose
        return {case.name: case.model for case in collect_testcases(None)}


def products(name: str) -> int:
    """MACs of a case, bodies as often as they run; how often a FlexAttention's do is unknown, and they have none."""
    model = cases()[name]
    # The definition masks the rest of a buffer, so that a whole buffer has its products.
    keys = (value.type.tensor_type.shape.dim for value in model.graph.input if value.name == "K")
    room = next((dims[2].dim_value for dims in keys if len(dims) == 4), 0)
    graph, nodes = load(model, **dict.fromkeys(length_inputs(model), room))
    times = {name: body.execution_count for name, body in graph.bodies.items()} | {"": 1}
    return sum(measure(graph, node).macs * times[node.body] for node in nodes if times[node.body] is not None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "least"), [("attention", 60), ("linear_attention", 10), ("causal_conv", 5), ("flexattention", 5)]
)
def test_an_operator_has_the_products_of_its_definition(family, least):
    names = [name for name in cases() if name.startswith(f"test_{family}") and EXPANDED.search(name)]
    assert len(names) >= least
    compared = {name: (products(EXPANDED.sub("", name)), products(name)) for name in names}
    assert {name: counts for name, counts in compared.items() if counts[0] != counts[1]} == {}
    assert all(one > 0 for one, _ in compared.values())
