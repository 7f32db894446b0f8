"""The window of a convolution or a pool: kernel, strides and groups, with ONNX's defaults filled in."""

from __future__ import annotations

from typing import Any

from common.graph import Graph, Node
from common.operators import CONVOLUTION_WEIGHT


def window(graph: Graph, node: Node) -> dict[str, Any]:
    """Return ``kernel_shape``, ``strides`` and ``groups`` of a node; empty lists and None without a window."""
    kernel = [int(extent) for extent in node.attributes.get("kernel_shape", ())]
    operand = CONVOLUTION_WEIGHT.get(node.op_type)
    if not kernel and operand is not None and operand < len(node.inputs):
        shape = graph.tensors[node.inputs[operand]].shape or ()
        kernel = [extent for extent in shape[2:] if isinstance(extent, int)]
    strides = [int(step) for step in node.attributes.get("strides", ())] or [1] * len(kernel)
    groups = int(node.attributes.get("group", 1)) if operand is not None else None
    return {"kernel_shape": kernel, "strides": strides if kernel else [], "groups": groups}
