"""The rules that a graph must keep before anything is read from it; ONNX Runtime refuses the same graphs.

Every value is defined once and before it is read, each node is one that its operator allows, and a stored tensor has as
many bytes as its type and shape say. Nodes may be in any order, as in ONNX Runtime: they are sorted here.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from math import prod
from pathlib import Path

import onnx
from onnx import TensorProto, numpy_helper

from common.messages.errors import PipelineError
from common.messages.names import listed
from common.onnx_graph.attributes import bodies_of
from common.onnx_graph.malformed import MalformedNodeError
from common.onnx_graph.shapes.node_inference import has_schema
from common.onnx_graph.shapes.types import element_bits
from common.onnx_graph.shapes.values import has_value, read_by

NEWEST_IR_VERSION = onnx.IR_VERSION
LARGEST_VERSION = 2**31 - 1  # of an operator set, as ONNX holds it
AXES = range(-(2**31), 2**31)  # ONNX's inference cuts an axis to 32 bits after it has checked it, and then crashes
_TERM = rb"[A-Za-z ]*(?:\.\.\.[A-Za-z ]*)?"
EQUATION = re.compile(rb"%b(?:,%b)*(?:->%b)?" % (_TERM, _TERM, _TERM))  # ONNX's inference does not end on any other
MOST_NAMED = 3  # names in an error
MOST_AXES = 32  # some versions of numpy hold no more
_STAND_IN = onnx.helper.make_graph([], "body", [], [])  # the checker would check a body without what it captures


def require_valid(path: Path, model: onnx.ModelProto) -> None:
    """Check the graph of a model whose functions are inlined, and sort its nodes where they are not in order."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    if unknown := [version for version in opsets.values() if not 0 <= version <= LARGEST_VERSION]:
        raise PipelineError(path, f"its graph is not valid ONNX (it imports version {unknown[0]} of an operator set)")
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = NEWEST_IR_VERSION, opsets
    require_order(path, model)
    for graph, _ in _scopes(model.graph, frozenset()):
        with _one_line(path):
            for tensor in _stored(graph):
                _require_payload(tensor)
        for node in graph.node:
            _require_allowed(node, opsets, context)


def require_order(path: Path, model: onnx.ModelProto) -> None:
    """Check that every value is defined once and before it is read; sort the nodes where that makes it so.

    Nodes that read one another's results in a cycle are a PipelineError, too.
    """
    with _one_line(path):
        for graph, outer in _scopes(model.graph, frozenset()):
            _define(graph, outer)


@contextlib.contextmanager
def _one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except _InvalidError as error:
        raise PipelineError(path, f"its graph is not valid ONNX ({error})", "export the model again") from error


class _InvalidError(ValueError):
    """A rule of ONNX that a graph breaks."""


def _scopes(graph: onnx.GraphProto, outer: Set[str]) -> Iterator[tuple[onnx.GraphProto, Set[str]]]:
    """Yield a graph and the bodies in it, each with the names that are defined around it."""
    yield graph, outer
    bodies = [body for node in graph.node for body in bodies_of(node)]
    inner = outer | set(_defined(graph)) if bodies else outer
    for body in bodies:
        yield from _scopes(body, inner)


def _stored(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        if attribute.type in (onnx.AttributeProto.TENSOR, onnx.AttributeProto.TENSORS):
            yield from (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors)


def _defined(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield every name that a graph defines; an initializer may be an input, too."""
    stored = chain(graph.initializer, (sparse.values for sparse in graph.sparse_initializer))
    yield from dict.fromkeys(tensor.name for tensor in stored)
    yield from _written(graph.node)
    weights = {tensor.name for tensor in graph.initializer}
    yield from (value.name for value in graph.input if value.name not in weights)


def _written(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    return (name for node in nodes for name in node.output if name)


def _define(graph: onnx.GraphProto, outer: Set[str]) -> None:
    counts = Counter(_defined(graph))
    if repeated := [name for name, count in counts.items() if count > 1]:
        raise _InvalidError(f"it defines twice: {_quoted(repeated)}")
    reads = [read_by(node) for node in graph.node]  # bodies included; slow for deep ones
    needed = chain(dict.fromkeys(chain.from_iterable(reads)), (value.name for value in graph.output))
    if unknown := [name for name in needed if name not in counts and name not in outer]:
        raise _InvalidError(f"nothing defines {_quoted(unknown)}")
    pending = set(_written(graph.node))
    for node, read in zip(graph.node, reads, strict=True):
        if any(name in pending for name in read):
            _sort(graph)
            return
        pending.difference_update(node.output)


def _sort(graph: onnx.GraphProto) -> None:
    writers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = {
        index: {writers[name] for name in read_by(node) if name in writers} for index, node in enumerate(graph.node)
    }
    try:
        order = [*TopologicalSorter(needs).static_order()]
    except CycleError as error:
        cycle = [graph.node[index].name or graph.node[index].op_type for index in error.args[1]]
        raise _InvalidError(f"nodes read one another's results in a cycle: {_quoted(cycle)}") from None
    nodes = [*graph.node]
    del graph.node[:]
    graph.node.extend(nodes[index] for index in order)


def _quoted(names: Iterable[str]) -> str:
    return listed(map(repr, names), MOST_NAMED)


def _require_allowed(node: onnx.NodeProto, opsets: Mapping[str, int], context: onnx.checker.C.CheckerContext) -> None:
    """Check operands and attributes against the operator's schema; ONNX Runtime's own operators have none here."""
    if not has_schema(node.op_type, opsets.get(node.domain, 0), node.domain):
        return
    if node.op_type == "Einsum" and any(not EQUATION.fullmatch(attribute.s) for attribute in node.attribute):
        raise MalformedNodeError(node, "its equation")
    if any(attribute.name == "axis" and attribute.i not in AXES for attribute in node.attribute):
        raise MalformedNodeError(node, "its axis")
    try:
        onnx.checker.check_node(_without_payloads(node), context)
    except onnx.checker.ValidationError as error:
        raise MalformedNodeError(node, str(error).splitlines()[0]) from error
    except UnicodeDecodeError:  # the error quotes an attribute that is not text
        raise MalformedNodeError(node, "its operands or attributes") from None


def _without_payloads(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return the node with a stand-in for each body and each tensor: they are checked on their own."""
    held = (onnx.AttributeProto.TENSOR, onnx.AttributeProto.GRAPH)
    if not any(attribute.type in held for attribute in node.attribute):
        return node
    copy = onnx.NodeProto(op_type=node.op_type, domain=node.domain, input=node.input, output=node.output)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            stand_in = TensorProto(data_type=attribute.t.data_type, dims=[0])
            copy.attribute.add(name=attribute.name, type=attribute.type, t=stand_in)
        elif attribute.type == onnx.AttributeProto.GRAPH:
            copy.attribute.add(name=attribute.name, type=attribute.type, g=_STAND_IN)
        else:
            copy.attribute.append(attribute)
    return copy


def _require_payload(tensor: TensorProto) -> None:
    if tensor.data_type not in TensorProto.DataType.values() or not tensor.data_type:
        raise _InvalidError(f"tensor {tensor.name!r} has the unknown element type {tensor.data_type}")
    if any(extent < 0 for extent in tensor.dims):
        raise _InvalidError(f"tensor {tensor.name!r} has a negative extent")
    if tensor.HasField("segment"):
        raise _InvalidError(f"tensor {tensor.name!r} is a segment of another one")
    if not has_value(tensor):
        return
    bits = element_bits(tensor.data_type) if len(tensor.dims) <= MOST_AXES else 0
    if bits and tensor.HasField("raw_data") and len(tensor.raw_data) == (prod(tensor.dims) * bits + 7) // 8:
        return
    try:
        numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError) as error:
        raise _InvalidError(f"the data of tensor {tensor.name!r} do not fit its type and shape") from error
