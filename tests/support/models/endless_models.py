"""Models that never end, or that no memory holds."""

import onnx
from onnx import TensorProto, helper


def endless_loop(count=None):
    """``x [N]`` doubled ``count`` times; the count is an input, unless it is given."""
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
            *([helper.make_tensor_value_info("count", TensorProto.INT64, ())] if count is None else []),
        ],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["N"])],
        [] if count is None else [helper.make_tensor("count", TensorProto.INT64, (), [count])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def doubled(times):
    """``x0 [1, 1024]`` joined with itself, again and again: its last result has ``1024 · 2^times`` elements."""
    nodes = [helper.make_node("Concat", [f"x{n}"] * 2, [f"x{n + 1}"], f"n{n}", axis=1) for n in range(times)]
    ends = [
        helper.make_tensor_value_info("x0", TensorProto.FLOAT, (1, 1024)),
        helper.make_tensor_value_info(f"x{times}", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
