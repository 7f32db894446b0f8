"""Pairs of inputs and outputs that carry the state of a generative model from one call to the next.

A decoder returns the keys and values that it takes with its next token; a state-space model returns its states.
:mod:`common.graphs.cache_names` has the names by which exporters pair them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import onnx

from common.graphs.cache_names import paired_names
from common.graphs.expressions import upper_limit
from common.graphs.graph import Count, Graph, Shape, Tensor
from common.messages.errors import UnusableValueError
from common.messages.names import quoted
from common.onnx_graph.symbols.lengths import extent, graph_inputs, length_roles, new_tokens

MASKS = ("attention_mask", "decoder_attention_mask")
SCATTERS = ("ScatterND", "ScatterElements")
Kind = Literal["growing", "buffer", "rolling", "state"]


@dataclass(frozen=True, slots=True)
class CachePair:
    """An input, and the output that the next call takes as this input."""

    past: Tensor
    present: Tensor
    # ``growing``: the output is longer by the new tokens; ``buffer``: past and present share one buffer, and an input
    # holds its valid length; ``rolling``: it holds at most the last tokens of a window; ``state``: each call replaces
    # it as a whole
    kind: Kind
    axis: int | None = None  # the axis that grows; None where none does
    # Whether an operator reads how much of it is valid, so that past and present may share a buffer
    is_measured: bool = False
    window: int | None = None  # the most tokens that a rolling cache holds
    # The axis along which the graph writes new tokens at given positions; None where it writes none, or the axis is
    # unknown. No operator reads how much of such a cache is valid: products read it as a whole, and a mask hides the
    # rest.
    scattered_axis: int | None = None

    @property
    def bytes(self) -> Count | None:
        return self.past.size_bytes

    @property
    def room(self) -> Count | None:
        """The most tokens that a buffer holds; None for other caches, and where its axis of tokens is unknown."""
        shape = self.past.shape or ()
        if self.scattered_axis is not None:
            return shape[self.scattered_axis]
        return shape[2] if self.kind == "buffer" and len(shape) == 4 else None


def cache_pairs(graph: Graph, given: Mapping[str, str] | None = None) -> list[CachePair]:
    """Return the caches of a model, in the order of its inputs; ``given`` has pairs that the names do not show.

    A name that the model lacks, or an output that does not fit its input, is an UnusableValueError.
    """
    inputs = _inputs(graph)
    for name, output in (given or {}).items():
        for one, known, kind in ((name, inputs, "input"), (output, graph.outputs, "output")):
            if one not in known:
                raise UnusableValueError("cache", f"{name}={output}: the model has no {kind} {quoted(one)}")
    buffers = _buffers(graph)
    pairs = cache_names(graph, given).items()
    fed: dict[str, str] = {}
    for name, output in pairs:
        if (other := fed.setdefault(output, name)) != name:
            raise UnusableValueError("cache", f"{output} is fed to {other} and to {name}", "give each output once")
    return [_pair(graph, graph.tensors[name], graph.tensors[output], buffers) for name, output in pairs]


def cache_names(graph: Graph, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the output of each input that is a cache by its name, whether or not the output fits the input."""
    return paired_names(_inputs(graph), graph.outputs, given)


def _inputs(graph: Graph) -> list[str]:
    return [name for name, tensor in graph.tensors.items() if tensor.kind == "input"]


def _buffers(graph: Graph) -> set[str]:
    """Return the tensors that an operator with a valid length reads."""
    return {
        name
        for node in graph.nodes
        if any(index < len(node.inputs) and node.inputs[index] for index in length_roles(node))
        for name in node.inputs
    }


def _pair(graph: Graph, past: Tensor, present: Tensor, buffers: set[str]) -> CachePair:
    grown = _grown_axes(past.shape, present.shape)
    reason = ""
    if past.dtype != present.dtype:
        reason = f"the output is {present.dtype}, the input {past.dtype}"
    elif grown is None or len(grown) > 1:
        reason = f"the output has the shape {_text(present.shape)}, the input {_text(past.shape)}"
    if reason or grown is None:
        remedy = "give the pairs with <cache>, as PAST=PRESENT"
        raise UnusableValueError("cache", f"{present.name} cannot be fed to {past.name}: {reason}", remedy)
    axis = grown[0] if grown else None
    if (window := _window(graph, past, present, axis)) is not None:
        return CachePair(past, present, "rolling", axis, window=window)
    if grown:
        return CachePair(past, present, "growing", axis, past.name in buffers)
    if past.name in buffers:
        return CachePair(past, present, "buffer", is_measured=True)
    return CachePair(past, present, "state", scattered_axis=_scattered_axis(graph, past, present.name))


def _scattered_axis(graph: Graph, past: Tensor, present: str) -> int | None:
    """Return the axis of a past along which new tokens are scattered, as by the static cache of ``transformers``.

    It is unknown where the indices of a ScatterND have more than one number: these address several axes.
    """
    rank = len(past.shape or ())
    scatter = graph.by_name.get(graph.producer.get(_moved(graph, present, rank)[0], ""))
    if scatter is None or scatter.op_type not in SCATTERS:
        return None
    name, axes = _moved(graph, scatter.inputs[0], rank)
    axis, places = cast("int", scatter.attributes.get("axis", 0)), graph.tensors[scatter.inputs[1]].shape
    is_known = scatter.op_type == "ScatterElements" or (places is not None and places[-1:] == (1,))
    return axes[axis] if name == past.name and is_known and -rank <= axis < rank else None


def _moved(graph: Graph, name: str, rank: int) -> tuple[str, list[int]]:
    """Return the tensor whose elements another one has, perhaps in another order, and its axis for each of the axes."""
    axes = [*range(rank)]
    while (node := graph.by_name.get(graph.producer.get(name, ""))) and node.op_type in ("Identity", "Transpose"):
        if node.op_type == "Transpose":
            order = cast("Sequence[int]", node.attributes.get("perm", range(rank - 1, -1, -1)))
            axes = [order[axis] for axis in axes]
        name = node.inputs[0]
    return name, axes


def _window(graph: Graph, past: Tensor, present: Tensor, grown: int | None) -> int | None:
    """Return the most tokens of a rolling cache: the number that a Slice keeps of the past and the new tokens.

    A past that is longer is an UnusableValueError.
    """
    cut = graph.by_name.get(graph.producer.get(present.name, ""))
    whole = graph.by_name.get(graph.producer.get(cut.inputs[0], "")) if cut and cut.op_type == "Slice" else None
    if whole is None or whole.op_type != "Concat" or past.name not in whole.inputs:
        return None
    axis = grown if grown is not None else whole.attributes.get("axis")
    if not isinstance(axis, int) or past.shape is None or present.shape is None:
        return None
    before, after = past.shape[axis], present.shape[axis]
    if isinstance(before, int) and isinstance(after, int) and before > after:
        raise UnusableValueError("dim", f"{past.name} has {before} tokens, and its window holds {after}")
    return after if isinstance(after, int) else upper_limit(after)


def _grown_axes(past: Shape, present: Shape) -> list[int] | None:
    """Return the axes on which two shapes differ; None if their ranks differ or one is unknown."""
    if past is None or present is None or len(past) != len(present):
        return None
    return [axis for axis, (before, after) in enumerate(zip(past, present, strict=True)) if before != after]


def _text(shape: Shape) -> str:
    return "unknown" if shape is None else f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def total_lengths(model: onnx.ModelProto) -> dict[str, str]:
    """Return each dimension of a mask that is the past and the new tokens, as an expression of the two.

    Exporters give such a dimension a name of its own (``s12``), because they do not see that it is the sum of two
    others. If an operator reads the valid length of a buffer, the dimension is no such sum.
    """
    if any(map(length_roles, model.graph.node)):
        return {}
    inputs, outputs = graph_inputs(model), {value.name: value for value in model.graph.output}
    new = new_tokens(inputs)
    pasts = {past for pair in paired_names(inputs, outputs).items() for past in _grown_dims(inputs, outputs, *pair)}
    names = {str(extent(inputs[mask], 1)) for mask in MASKS if mask in inputs and extent(inputs[mask], 1)}
    others = {
        dim.dim_param for name, value in inputs.items() if name not in MASKS for dim in value.type.tensor_type.shape.dim
    }
    free = [name for name in names - others if name.isidentifier()]
    if len(pasts) != 1 or new is None:
        return {}
    (past,) = pasts
    is_plain = past.isidentifier() and (isinstance(new, int) or new.isidentifier())
    return dict.fromkeys(free, f"{past} + {new}") if is_plain else {}


def _grown_dims(
    inputs: Mapping[str, onnx.ValueInfoProto], outputs: Mapping[str, onnx.ValueInfoProto], past: str, present: str
) -> list[str]:
    """Return the dimensions of a past that its present does not have in the same place."""
    before, after = (value.type.tensor_type.shape.dim for value in (inputs[past], outputs[present]))
    pairs = zip(before, after, strict=False)
    return [old.dim_param for old, grown in pairs if old.dim_param and old.dim_param != grown.dim_param]


def name_total_lengths(model: onnx.ModelProto) -> dict[str, str]:
    """Replace such dimensions everywhere by the expression of :func:`total_lengths`, and return the expressions."""
    expressions = total_lengths(model)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info) if expressions else ():
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in expressions:
                dim.dim_param = expressions[dim.dim_param]
    return expressions
