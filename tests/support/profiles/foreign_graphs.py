"""Graphs of a few nodes, for profiles that were made elsewhere."""

from common.graphs.graph import Graph, Node, Tensor


def graph_of(*nodes, outputs):
    """Make a graph of (operator, name, operands): each writes the tensor ``<name>:0``; x is the input, w a weight."""
    made = tuple(Node(name, op_type, "", tuple(reads), (f"{name}:0",)) for op_type, name, reads in nodes)
    names = dict.fromkeys(name for node in made for name in (*node.inputs, *node.outputs))
    kinds = {"x": "input", "w": "weight"} | dict.fromkeys(outputs, "output")
    return Graph(made, {n: Tensor(n, "float32", 32, (2, 3), kinds.get(n, "activation")) for n in names}, tuple(outputs))
