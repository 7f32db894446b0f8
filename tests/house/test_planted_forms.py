"""Forms of the models in which causes of slowness are planted (make check-findings)."""

from __future__ import annotations

from onnx import TensorProto, helper

from benchmarks.planted.forms import quantized


def test_a_tensor_whose_type_onnx_does_not_infer_is_not_quantized():
    nodes = [
        helper.make_node("Unknown", ["x"], ["y"], "first", domain="example"),
        helper.make_node("MatMul", ["y", "x"], ["z"], "product"),
    ]
    x, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xz")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("example", 1)]
    made = quantized(helper.make_model(helper.make_graph(nodes, "g", [x], [z]), opset_imports=opsets))
    product = next(node for node in made.graph.node if node.name == "product")
    assert [*product.input] == ["y", "x_dq"]
