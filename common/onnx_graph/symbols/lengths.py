"""Lengths that a graph takes as values of its inputs: how much of a cache is valid is a number, not a shape.

A buffer of 4,096 keys of which 101 are valid costs what 101 keys cost. An operator reads such a length as an operand.
It has one of three roles: the total length t of past and new tokens, the position t - 1 of the last token, or the past
length t - s before s new tokens. Where the cache grows, t is the sum of two dimensions. Where past and present share a
buffer, the length is a dynamic dimension of the model like any other, under the name of its input. Exporters add inputs
that are no lengths and have one value in every call of a loop (``CONSTANTS``).
Source of the roles: onnx.ai/onnx/operators (Attention, TensorScatter), docs/ContribOperators.md of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import numpy as np
import onnx

from common.graphs.graph import Count, Graph, Node
from common.graphs.operators import MICROSOFT, ONNX
from common.onnx_graph.shapes.budget import LARGEST_OPERAND
from common.onnx_graph.shapes.types import Array, fixed_dim

Role = Literal["total", "last", "past", "mask"]
Term = str | int  # a dimension, or a number


# The role of each operand that is a length; the decisive one is first.
LENGTHS: Mapping[tuple[str, str], Mapping[int, Role]] = {
    (MICROSOFT, "GroupQueryAttention"): {6: "total", 5: "last"},
    (MICROSOFT, "MultiHeadAttention"): {8: "past"},
    (MICROSOFT, "DecoderMaskedMultiHeadAttention"): {7: "past"},
    (MICROSOFT, "Attention"): {6: "past"},
    (MICROSOFT, "DecoderMaskedSelfAttention"): {6: "past"},
    (ONNX, "Attention"): {6: "total"},
    (ONNX, "TensorScatter"): {2: "past"},
}
# The operator whose cache may grow: operand of the past keys, output of all keys, and axis of the tokens.
GROWING, PAST, PRESENT, TOKENS = "GroupQueryAttention", 3, 1, 2
PASSED_ON = frozenset({"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"})  # operators that keep a length
# The branch of optimum's merged decoders that reads caches (optimum/onnx/graph_transformations.py), and the scores of
# all tokens (num_logits_to_keep of transformers' forward).
CONSTANTS: Mapping[str, int] = {"use_cache_branch": 1, "num_logits_to_keep": 0, "logits_to_keep": 0}
LESS_ONE = "Sub"  # from a total to the position of the last token
SUMMED = "ReduceSum"  # of a mask with a one for each token


@dataclass(frozen=True, slots=True)
class LengthInput:
    """A graph input all of whose elements have one value: the sum of ``terms``.

    The mask over all tokens, whose sum is a length, has the value 1.
    """

    name: str
    terms: tuple[Term, ...]

    @property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(term for term in self.terms if isinstance(term, str))

    def value(self, size: Callable[[str], int | None]) -> int | None:
        """Return the value, or None where a dimension has no size."""
        sizes = [size(term) if isinstance(term, str) else term for term in self.terms]
        known = [extent for extent in sizes if extent is not None]
        return sum(known) if len(known) == len(sizes) else None


def graph_inputs(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Return the inputs that a caller must feed; old models list their initializers among the inputs, too."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return {value.name: value for value in model.graph.input if value.name not in weights}


def length_inputs(model: onnx.ModelProto) -> dict[str, LengthInput]:
    """Return the inputs that are lengths of a cache, masks of which a graph makes one, and ``CONSTANTS``, by name."""
    inputs = graph_inputs(model)
    found = {name: LengthInput(name, (number,)) for name, number in CONSTANTS.items() if name in inputs}
    readers = [(node, roles) for node in model.graph.node if (roles := length_roles(node))]
    writers = {name: node for node in model.graph.node for name in node.output} if readers else {}
    for node, roles in readers:
        total = _grown(model, node, inputs)
        for name, role in _lengths(node, roles, writers, inputs):
            if total is None and role == "total":  # the first length of a node names the dimension
                total = (name,)
            found.setdefault(name, LengthInput(name, _terms(name, role, total)))
    return found


def _terms(name: str, role: Role, total: tuple[Term, ...] | None) -> tuple[Term, ...]:
    """Return the terms of a length; where nothing says the total length, it is a dimension of its own."""
    if role == "mask":
        return (1,)
    if total is None or role == "past":
        return (name,)
    return total if role == "total" else (*total, -1)


def length_roles(node: onnx.NodeProto | Node) -> Mapping[int, Role]:
    """Return the role of each operand of a node that is a length."""
    return LENGTHS.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type), {})


def _lengths(
    node: onnx.NodeProto,
    roles: Mapping[int, Role],
    writers: Mapping[str, onnx.NodeProto],
    inputs: Mapping[str, onnx.ValueInfoProto],
) -> Iterator[tuple[str, Role]]:
    """Yield the graph inputs behind the length operands with their roles: that of a sum is to be its mask."""
    for index, role in roles.items():
        if index < len(node.input) and node.input[index]:
            name, passed = _origin(node.input[index], writers)
            if name not in inputs:
                continue
            if SUMMED in passed:
                yield name, "mask"
            elif LESS_ONE not in passed:
                yield name, role
            elif role == "last":
                yield name, "total"


def _origin(name: str, writers: Mapping[str, onnx.NodeProto]) -> tuple[str, set[str]]:
    """Return the tensor that a length is made of, and the operators on the way."""
    passed = set[str]()
    while (node := writers.get(name)) is not None and node.op_type in {*PASSED_ON, LESS_ONE, SUMMED}:
        passed.add(node.op_type)
        name = node.input[0]
    return name, passed


def _grown(
    model: onnx.ModelProto, node: onnx.NodeProto, inputs: Mapping[str, onnx.ValueInfoProto]
) -> tuple[Term, ...] | None:
    """Return the total length of a cache that grows, as terms; None where past and present may share a buffer."""
    if node.op_type != GROWING:
        return None
    new = new_tokens(inputs)
    past_name = node.input[PAST] if len(node.input) > PAST else ""
    if not past_name:
        return (new,) if new is not None else None
    outputs = {value.name: value for value in model.graph.output}
    present_name = node.output[PRESENT] if len(node.output) > PRESENT else ""
    if past_name not in inputs or present_name not in outputs or new is None:
        return None
    past, present = (extent(value, TOKENS) for value in (inputs[past_name], outputs[present_name]))
    return (past, new) if past not in (None, present) and past is not None else None


def new_tokens(inputs: Mapping[str, onnx.ValueInfoProto]) -> Term | None:
    """Return how many tokens a call adds: axis 1 of the first input of two or three axes that is no mask."""
    for value in inputs.values():
        if len(value.type.tensor_type.shape.dim) in (2, 3) and "mask" not in value.name:
            return extent(value, 1)
    return None


def extent(value: onnx.ValueInfoProto, axis: int) -> Term | None:
    """Return an extent as a number, or the name of a dynamic dimension; None where there is no such axis."""
    dims = value.type.tensor_type.shape.dim
    if axis >= len(dims):
        return None
    fixed = fixed_dim(dims[axis])
    return dims[axis].dim_param or f"{value.name}.{axis}" if fixed is None else int(fixed)


def length_values(
    model: onnx.ModelProto, lengths: Mapping[str, LengthInput], size: Callable[[str], int | None]
) -> dict[str, Array]:
    """Return an array for each length whose value is known; the shapes of the model's inputs are numbers.

    The ``lengths`` are those of the model before its dimensions were bound; ``size`` is None for a dimension without
    one. A mask of more elements than are evaluated has no array.
    """
    arrays = {}
    for value in model.graph.input:
        number = lengths[value.name].value(size) if value.name in lengths else None
        declared = value.type.tensor_type
        extents = [fixed_dim(dim) for dim in declared.shape.dim]
        if number is not None and None not in extents and prod(extents) <= LARGEST_OPERAND:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(declared.elem_type)
            arrays[value.name] = np.full(extents, number, dtype)
    return arrays


def longest(value: Array | None) -> int | None:
    """Return the largest of the lengths that a value holds, one for each sequence of a batch."""
    return int(value.max()) if value is not None and value.size and value.dtype.kind in "iub" else None


def length_operands(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    operands_of = ((node.input, index) for node in nodes for index in length_roles(node))
    return [*dict.fromkeys(names[index] for names, index in operands_of if index < len(names) and names[index])]


def with_values(graph: Graph, numbers: Mapping[str, Count | None]) -> Graph:
    """Return a graph whose tensors have the lengths that they hold."""
    tensors = {name: replace(graph.tensors[name], value=number) for name, number in numbers.items()}
    return replace(graph, tensors={**graph.tensors, **tensors}) if tensors else graph
