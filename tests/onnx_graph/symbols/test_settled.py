"""Which shapes that depend on data follow from the values of the graph's inputs."""

from __future__ import annotations

import pytest

from common.graphs.expressions import dimension
from common.graphs.graph import Graph, Node, Tensor
from common.onnx_graph.symbols.settled import settled_by_inputs


@pytest.mark.parametrize(("extent", "is_settled"), [(3, True), (100_003, False), (dimension("n"), False)])
def test_a_small_weight_settles_what_it_shapes(extent, is_settled):
    """A stored value of unknown extent occurs where a graph declares an input of the same name."""
    tensors = {
        "x": Tensor("x", "float32", 32, (7, 11), "input"),
        "shape": Tensor("shape", "int64", 64, (extent,), "weight"),
        "y": Tensor("y", "float32", 32, (None, None), "output"),
    }
    graph = Graph((Node("reshape", "Reshape", "", ("x", "shape"), ("y",)),), tensors, ("y",))
    assert settled_by_inputs(graph) == ({"reshape"} if is_settled else set())
