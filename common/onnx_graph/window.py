"""The window of a convolution or a pool: kernel, strides and groups, with ONNX's defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.graph import Graph, Node
from common.operators import CONVOLUTION_WEIGHT


def integers(attributes: Mapping[str, Any], name: str) -> list[int]:
    """Return a list of integers; none where the node has no such attribute, or an own one of another type."""
    value = attributes.get(name)
    is_list = isinstance(value, (list, tuple)) and all(isinstance(item, int) for item in value)
    return [*value] if value and is_list else []


def window(graph: Graph, node: Node) -> dict[str, Any]:
    """Return ``kernel_shape``, ``strides`` and ``groups`` of a node; empty lists and None without a window."""
    kernel = integers(node.attributes, "kernel_shape")
    operand = CONVOLUTION_WEIGHT.get(node.op_type)
    if not kernel and operand is not None and operand < len(node.inputs) and node.inputs[operand]:
        shape = graph.tensors[node.inputs[operand]].shape or ()
        kernel = [extent for extent in shape[2:] if isinstance(extent, int)]
    strides = integers(node.attributes, "strides") or [1] * len(kernel)
    groups = node.attributes.get("group", 1) if operand is not None else None
    groups = groups if isinstance(groups, int) else None
    return {"kernel_shape": kernel, "strides": strides if kernel else [], "groups": groups}
