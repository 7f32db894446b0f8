"""Source nodes of executed nodes, from the two graphs without counts."""

from common.attribution.ownership import computed_sources
from common.graphs.graph import Graph, Node, Tensor


def graph(*nodes, weights=()):
    tensors = {
        name: Tensor(name, "float32", 32, None, "activation")
        for node in nodes
        for name in (*node.inputs, *node.outputs)
    }
    tensors |= {name: Tensor(name, "float32", 32, None, "weight") for name in weights}
    return Graph(nodes, tensors, ("out",))


def node(name, op_type, inputs, output):
    return Node(name, op_type, "", tuple(inputs.split()), (output,))


def test_a_fused_node_computes_its_sources_in_graph_order_and_an_inserted_one_none():
    source = graph(
        node("/stem/Conv", "Conv", "x w", "c"),
        node("/stem/Relu", "Relu", "c", "r"),
        node("/fold/Neg", "Neg", "v", "negative"),
        node("/head/MatMul", "MatMul", "r negative", "out"),
        weights=("w", "v"),
    )
    executed = graph(
        node("r_nchwc", "Conv", "x w2", "blocked"),
        node("ReorderOutput", "ReorderOutput", "blocked", "r"),
        node("/head/MatMul", "MatMul", "r folded", "out"),
    )
    assert computed_sources(source, executed) == {
        "r_nchwc": [("/stem/Conv", "Conv"), ("/stem/Relu", "Relu")],
        "ReorderOutput": [],
        "/head/MatMul": [("/head/MatMul", "MatMul")],
    }
