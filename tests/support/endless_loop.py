"""A model whose number of steps is an input: only a stop ends its run."""

import onnx
from onnx import TensorProto, helper


def endless_loop():
    """``x [N]`` doubled ``count`` times."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_in"], ["go_out"]),
            helper.make_node("Add", ["state_in", "state_in"], ["state_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go_in", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("state_in", TensorProto.FLOAT, ["N"]),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("state_out", TensorProto.FLOAT, ["N"]),
        ],
    )
    loop = helper.make_node("Loop", ["count", "", "x"], ["sum"], body=body)
    graph = helper.make_graph(
        [loop],
        "graph",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"]),
            helper.make_tensor_value_info("count", TensorProto.INT64, ()),
        ],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["N"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model
