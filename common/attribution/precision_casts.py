"""Casts that the runtime inserts around nodes that it computes in float32 because it has no float16 kernel for them.

Such a node reads and writes tensors named ``InsertedPrecisionFreeCast_<tensor>``. Only the cast after the node writes
the tensor of the model. This module removes the casts and restores the names. The executed graph then looks as it would
with float16 kernels.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import replace

from common.graphs.graph import Graph, Node

PREFIX = "InsertedPrecisionFreeCast_"
NUMBER = re.compile(r"_token_\d+$")  # the runtime adds it to a name that is taken


def without_casts(executed: Graph, nodes: Container[str], tensors: Container[str]) -> Graph:
    """Return the executed graph without the inserted casts; the tensors around a cast get one name.

    A cast among the model's ``nodes`` is the model's own.
    """
    kept = (node for node in executed.nodes if node.name in nodes or not is_inserted_cast(node))
    return replace(executed, nodes=tuple(_renamed(node, tensors) for node in kept))


def is_inserted_cast(node: Node) -> bool:
    return node.op_type == "Cast" and node.name.startswith(PREFIX)


def gives_back(node: Node) -> bool:
    """Return whether the node is a cast after a node that computes in float32; such a cast belongs to that node."""
    return is_inserted_cast(node) and node.inputs[0].startswith(PREFIX)


def model_name(name: str, tensors: Container[str]) -> str:
    if name in tensors or not name.startswith(PREFIX):
        return name
    tensor = name.removeprefix(PREFIX)
    return tensor if tensor in tensors else NUMBER.sub("", tensor)


def _renamed(node: Node, tensors: Container[str]) -> Node:
    inputs, outputs = (tuple(model_name(name, tensors) for name in names) for names in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)
