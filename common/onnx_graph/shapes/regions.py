"""A model's graph and the bodies of its control-flow nodes, with tensor names that are unique in the whole model.

ONNX lets the two branches of an If use the same tensor names. Here, a tensor that is defined in a body is called
``<owner>.<attribute>:<tensor>``; a tensor that a body captures from outside keeps its name.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import onnx

from common.onnx_graph.shapes.types import ValueType, stored_type, value_type


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

    def written(self) -> Iterator[str]:
        return chain.from_iterable(part.writers for part in self.walk())


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
