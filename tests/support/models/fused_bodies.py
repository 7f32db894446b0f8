"""A model whose nodes ONNX Runtime fuses under one name in the main graph and in bodies."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def gelu(reads, writes):
    """x/2 · (1 + erf(x/√2)) as exporters write it; the runtime fuses it."""
    tag = f"{reads}.{writes}"
    return [
        helper.make_node("Div", [reads, "root"], [f"{tag}.a"], name=f"{tag}.div"),
        helper.make_node("Erf", [f"{tag}.a"], [f"{tag}.b"], name=f"{tag}.erf"),
        helper.make_node("Add", [f"{tag}.b", "one"], [f"{tag}.c"], name=f"{tag}.add"),
        helper.make_node("Mul", [reads, f"{tag}.c"], [f"{tag}.d"], name=f"{tag}.mul"),
        helper.make_node("Mul", [f"{tag}.d", "half"], [writes], name=f"{tag}.half"),
    ]


def fused_everywhere(shape):
    """A Gelu in the main graph and in both branches of an If; the else branch has a Neg besides."""
    scalars = {"root": 2**0.5, "one": 1.0, "half": 0.5}
    weights = [numpy_helper.from_array(np.array(number, np.float32), name) for name, number in scalars.items()]

    def value(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    then = helper.make_graph(gelu("h", "t"), "then", [], [value("t")], weights)
    other = [*gelu("h", "e"), helper.make_node("Neg", ["e"], ["f"], name="neg")]
    choose = helper.make_node(
        "If",
        ["flag"],
        ["y"],
        name="if",
        then_branch=then,
        else_branch=helper.make_graph(other, "else", [], [value("f")], weights),
    )
    takes = [value("x"), helper.make_tensor_value_info("flag", TensorProto.BOOL, [])]
    proto = helper.make_graph([*gelu("x", "h"), choose], "g", takes, [value("y")], weights)
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model
