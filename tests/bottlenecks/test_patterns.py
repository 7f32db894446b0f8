"""Patterns: what the runtime leaves apart without optimization is found, and what it fuses with it is not there."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.bottlenecks.judge import findings
from common.bottlenecks.subjects import measured, subjects
from tests.support.tables.bottlenecks import RULES, SUMMARY, node, tables

LEVELS = {"disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL, "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL}
RANDOM = np.random.default_rng(7)
ACTIVATIONS = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid")


def values(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def model(nodes, weights, shape=(2, 3, 16), returned=(2, 3, 16), inputs="x"):
    """A model of nodes (kind, operands, result, attributes) that returns ``y``."""
    made = [helper.make_node(kind, reads.split(), [writes], **attributes) for kind, reads, writes, attributes in nodes]
    graph = helper.make_graph(
        made,
        "pattern",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, returned)],
        [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def convolution(kind, **weights):
    maps = (1, 16, 7, 7)
    nodes = [("Conv", "x w", "c", {"pads": [1] * 4}), (kind, " ".join(("c", *weights)), "y", {})]
    return model(nodes, {"w": values(16, 16, 3, 3), **weights}, maps, maps)


def product(shape, returned):
    nodes = [("MatMul", "x w", "c", {}), ("Add", "c b", "y", {})]
    return model(nodes, {"w": values(16, 8), "b": values(8)}, shape, returned)


def gemm(kind):
    nodes = [("Gemm", "x w b", "c", {}), (kind, "c", "y", {})]
    return model(nodes, {"w": values(16, 8), "b": values(8)}, (3, 16), (3, 8))


def gelu(*, halved_first):
    begin = [("Div", "x root", "d", {}), ("Erf", "d", "e", {}), ("Add", "e one", "a", {})]
    first = [("Mul", "x half", "p", {}), ("Mul", "p a", "y", {})]
    last = [("Mul", "x a", "p", {}), ("Mul", "p half", "y", {})]
    return model([*begin, *(first if halved_first else last)], {"root": 2**0.5, "one": 1, "half": 0.5})


def normalization():
    axes = {"axes": [-1]}
    nodes = [
        *(("ReduceMean", "x", "m", axes), ("Sub", "x m", "d", {}), ("Pow", "d two", "p", {})),
        *(("ReduceMean", "p", "v", axes), ("Add", "v eps", "ve", {}), ("Sqrt", "ve", "s", {})),
        *(("Div", "d s", "n", {}), ("Mul", "n g", "ng", {}), ("Add", "ng b", "y", {})),
    ]
    return model(nodes, {"two": 2, "eps": 1e-5, "g": values(16), "b": values(16)})


BATCH_NORM = convolution("BatchNormalization", s=values(16), o=values(16), m=values(16), v=np.ones(16))
CASES = {
    "Conv BatchNormalization": ("unfused_conv", BATCH_NORM),
    **{f"Conv {kind}": ("unfused_conv", convolution(kind)) for kind in ACTIVATIONS},
    "Conv Clip": ("unfused_conv", convolution("Clip", lo=0, hi=6)),
    **{f"Gemm {kind}": ("unfused_product", gemm(kind)) for kind in (*ACTIVATIONS, "Elu", "Softplus")},
    "bias": ("unfused_product", product((3, 16), (3, 8))),
    "bias of three axes": ("unfused_product", product((2, 3, 16), (2, 3, 8))),
    "gelu": ("unfused_gelu", gelu(halved_first=False)),
    "gelu, halved first": ("unfused_gelu", gelu(halved_first=True)),
    "layer norm": ("unfused_norm", normalization()),
}


def executed(made, level, folder):
    """The graph that the runtime executes, each node with a time and a result of the rank of the model's."""
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(folder / "executed.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    graph = onnx.load(folder / "executed.onnx").graph
    writers = {output: str(index) for index, one in enumerate(graph.node) for output in one.output}
    shapes = [[1] * len(made.graph.output[0].type.tensor_type.shape.dim)]
    rows = [node(str(index), one.op_type, 503.0, output_shapes=shapes) for index, one in enumerate(graph.node)]
    edges = [(writers.get(read, ""), str(index)) for index, one in enumerate(graph.node) for read in one.input]
    return measured(tables(rows, [*edges, *((writers[output.name], "") for output in graph.output)]), SUMMARY)


@pytest.mark.parametrize("name", CASES)
def test_what_the_runtime_fuses_is_found_where_it_did_not(name, tmp_path):
    rule, made = CASES[name]
    (finding,) = findings([RULES[rule]], executed(made, "disable", tmp_path))
    assert finding.gain.gain_us > 0
    assert findings([RULES[rule]], executed(made, "all", tmp_path)) == []


def test_an_unbound_dimension_keeps_a_product_and_its_bias_apart(tmp_path):
    """As the remedy says: the runtime fuses the same product where the dimension is known."""
    assert findings([RULES["unfused_product"]], executed(product(("n", 3, 16), ("n", 3, 8)), "all", tmp_path))


def test_matches_share_no_node():
    rows = tables([node(f"n{index}", kind) for index, kind in enumerate(("Conv", "Relu", "Conv", "Relu", "Relu"))])
    found = subjects(RULES["unfused_conv"], measured(rows, SUMMARY))
    assert [(one.name, one.nodes) for one in found] == [("Conv + Relu", ("n1", "n3"))]
