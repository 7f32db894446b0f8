"""Build the shared graph from regions and types: bodies laid out flat, every tensor with its type and its kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import onnx
from onnx import helper

from common.graph import Body, Graph, Node, TensorKind
from common.onnx_graph.shapes.regions import Region
from common.onnx_graph.shapes.types import UNKNOWN, ValueType, to_tensor

_PLAIN_TYPES = ("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS")
PLAIN = frozenset(getattr(onnx.AttributeProto, name) for name in _PLAIN_TYPES)


def to_graph(region: Region, types: Mapping[str, ValueType], bodies: Mapping[str, Body]) -> Graph:
    """Return the shared graph of a model; a branch that never runs is left out."""
    nodes = tuple(_nodes(region, bodies))
    kinds = _kinds(region)
    touched = (name for node in nodes for name in (*node.inputs, *node.outputs) if name)
    names = dict.fromkeys(chain(region.declared, region.initializers, region.sparse, touched))
    tensors = {name: to_tensor(name, types.get(name, UNKNOWN), kinds.get(name, "activation")) for name in names}
    laid_out = {node.body for node in nodes if node.body}
    return Graph(
        nodes,
        tensors,
        region.outputs,
        {name: bodies.get(name, Body(name, name.rpartition(".")[0], None, None)) for name in laid_out},
        dict(_aliases(region)),
    )


def _nodes(region: Region, bodies: Mapping[str, Body]) -> Iterator[Node]:
    """Yield the nodes in topological order: a body comes before its owner, which reads its results."""
    for node in region.nodes:
        results: tuple[str, ...] = ()
        for body in region.bodies.get(node.name, ()):
            if body.name not in bodies or bodies[body.name].execution_count != 0:
                yield from _nodes(body, bodies)
                results += body.outputs
        inputs = (*node.input, *results)
        domain = "" if node.domain == "ai.onnx" else node.domain
        yield Node(node.name, node.op_type, domain, inputs, tuple(node.output), _attributes(node), region.name)


def _attributes(node: onnx.NodeProto) -> dict[str, object]:
    """Return the attributes that are numbers, strings or lists; no formula needs tensors or bodies."""
    return {
        attribute.name: helper.get_attribute_value(attribute)
        for attribute in node.attribute
        if attribute.type in PLAIN and not attribute.ref_attr_name
    }


def _kinds(region: Region) -> dict[str, TensorKind]:
    """Return the kind of each tensor that is not an activation.

    A later kind overrides an earlier one: old models list weights among the inputs, and a graph may return a weight or
    an input unchanged.
    """
    kinds: dict[str, TensorKind] = dict.fromkeys(region.outputs, "output")
    kinds |= dict.fromkeys(region.inputs, "input")
    for part in region.walk():
        constants = (name for node in part.nodes if node.op_type == "Constant" for name in node.output)
        kinds |= dict.fromkeys(chain(part.initializers, part.sparse, constants), "weight")
    return kinds


def _aliases(region: Region) -> Iterator[tuple[str, str]]:
    for node in region.nodes:
        for body in region.bodies.get(node.name, ()):
            yield from zip(*_inputs_with_operands(node, body), strict=False)
            yield from _aliases(body)


def _inputs_with_operands(node: onnx.NodeProto, body: Region) -> tuple[Sequence[str], Sequence[str]]:
    """Return the inputs of a body and the operands behind them; no operand is behind a Loop's iteration number."""
    return (body.inputs[1:], node.input[1:]) if node.op_type == "Loop" else (body.inputs, node.input)
