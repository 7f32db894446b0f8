"""A model's graph and the bodies of its control-flow nodes as regions, and the shared graph with the bodies laid flat.

Tensor names are unique in the whole model. ONNX lets the two branches of an If use the same tensor names. Here, a
tensor that is defined in a body is called ``<owner>.<attribute>:<tensor>``; a tensor that a body captures from outside
keeps its name.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import onnx
from onnx import helper

from common.graphs.graph import Body, Graph, Node, TensorKind
from common.onnx_graph.attributes import bodies_of
from common.onnx_graph.shapes.types import UNKNOWN, ValueType, stored_type, to_tensor, value_type

_PLAIN_TYPES = ("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS")
PLAIN = frozenset(getattr(onnx.AttributeProto, name) for name in _PLAIN_TYPES)


@dataclass(frozen=True, slots=True)
class Region:
    """The main graph, or a body.

    ``bodies`` holds the bodies of each control-flow node, by the node's name, ``writers`` the node behind each result.
    """

    name: str
    owner: str
    attribute: str
    nodes: Sequence[onnx.NodeProto]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    initializers: Mapping[str, onnx.TensorProto]
    sparse: Mapping[str, onnx.SparseTensorProto]
    declared: Mapping[str, ValueType]
    bodies: Mapping[str, tuple[Region, ...]]
    writers: Mapping[str, onnx.NodeProto]

    def stored_types(self) -> dict[str, ValueType]:
        weights = {name: stored_type(tensor.data_type, tensor.dims) for name, tensor in self.initializers.items()}
        sparse = {name: stored_type(tensor.values.data_type, tensor.dims) for name, tensor in self.sparse.items()}
        return {**self.declared, **weights, **sparse}

    def walk(self) -> Iterator[Region]:
        """Yield this region and all bodies in it, each body after the region around it."""
        yield self
        for body in chain.from_iterable(self.bodies.values()):
            yield from body.walk()

    def every_node(self) -> Iterator[onnx.NodeProto]:
        return chain.from_iterable(part.nodes for part in self.walk())

    def written(self) -> Iterator[str]:
        return chain.from_iterable(part.writers for part in self.walk())


def with_bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the bodies of its nodes, however deep they are."""
    waiting = [graph]
    while waiting:
        yield (part := waiting.pop())
        waiting += chain.from_iterable(map(bodies_of, part.node))


def read_region(proto: onnx.GraphProto, alike: Region | None = None) -> Region:
    """Return the top-level region of a graph whose node names are unique.

    ``alike`` is the region of the same graph with other types: without bodies, all but the types is taken from it.
    """
    if alike and not alike.bodies:
        return replace(alike, declared=_declared(proto, {}))
    return _region(proto, "", "", "", ChainMap())


def _region(proto: onnx.GraphProto, name: str, owner: str, attribute: str, outer: ChainMap[str, str]) -> Region:
    names = outer.new_child({local: f"{name}:{local}" for local in _defined_in(proto)}) if name else outer
    bodies = {node.name: regions for node in proto.node if (regions := tuple(_bodies(node, names)))}
    nodes = [_renamed(node, names) if name else node for node in proto.node]
    return Region(
        name=name,
        owner=owner,
        attribute=attribute,
        nodes=nodes,
        inputs=tuple(names.get(value.name, value.name) for value in proto.input),
        outputs=tuple(names.get(value.name, value.name) for value in proto.output),
        initializers={names.get(tensor.name, tensor.name): tensor for tensor in proto.initializer},
        sparse={names.get(sparse.values.name, sparse.values.name): sparse for sparse in proto.sparse_initializer},
        declared=_declared(proto, names),
        bodies=bodies,
        writers={result: node for node in nodes for result in node.output if result},
    )


def _declared(proto: onnx.GraphProto, names: Mapping[str, str]) -> dict[str, ValueType]:
    values = chain(proto.value_info, proto.output, proto.input)
    return {names.get(value.name, value.name): value_type(value.type) for value in values}


def _bodies(node: onnx.NodeProto, names: ChainMap[str, str]) -> Iterator[Region]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield _region(attribute.g, f"{node.name}.{attribute.name}", node.name, attribute.name, names)


def _defined_in(proto: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a body defines; an empty output name is an absent output."""
    yield from (value.name for value in proto.input)
    yield from (tensor.name for tensor in proto.initializer)
    yield from (sparse.values.name for sparse in proto.sparse_initializer)
    yield from (name for node in proto.node for name in node.output if name)


def _renamed(node: onnx.NodeProto, names: ChainMap[str, str]) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    return copy


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
        attributes = {  # no formula needs tensors or bodies
            attribute.name: helper.get_attribute_value(attribute)
            for attribute in node.attribute
            if attribute.type in PLAIN and not attribute.ref_attr_name
        }
        yield Node(node.name, node.op_type, domain, inputs, tuple(node.output), attributes, region.name)


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
            first = 1 if node.op_type == "Loop" else 0  # no operand is behind a Loop's iteration number
            yield from zip(body.inputs[first:], node.input[first:], strict=False)
            yield from _aliases(body)
