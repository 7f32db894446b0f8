"""PyTorch's calls as layers of the ONNX model that was exported from the same program.

The calls and the model's nodes have nearly the same order, but neither names the other. So both sequences are
aligned, as versions of a text are. PyTorch's attention is one call: it is aligned with the softmax, and computes all
from the product before that to the product behind it. Two entries are alike if they are the same operation on operands
of the same sizes. Between two aligned pairs may be nodes that no call is like, and calls that no node is like: then the
slowest call there computes all of those nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from statistics import fmean

import numpy as np

from common.foreign_traces.layers import Layer, LayerProfile, uniquely_named
from common.foreign_traces.readers.kineto import TorchCalls, read_calls
from common.foreign_traces.readers.kineto_events import TorchCall
from common.graphs.graph import Graph, Node, operands
from common.graphs.operators import COPIES, MOVEMENT, RESHAPES, SHAPE_CONSTANTS
from common.messages.errors import PipelineError
from common.messages.names import quoted

CONV, MATMUL, SOFTMAX, ATTENTION = "conv", "matmul", "softmax", "scaled_dot_product_attention"
BATCH_NORM = "batchnormalization"
CONTRACTION_WEIGHT = 100  # a contraction is not given up for any other operations around it
# Words of PyTorch and of ONNX for one operation; other names are compared in lower case, without underscores.
PYTORCH = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "_convolution", "conv_transpose2d"), CONV),
    **dict.fromkeys(("linear", "addmm", "mm", "bmm", "baddbmm", "matmul", "einsum"), MATMUL),
    **dict.fromkeys(("view", "reshape", "flatten", "unsqueeze", "squeeze", "unflatten"), "reshape"),
    **dict.fromkeys(("permute", "transpose", "t"), "transpose"),
    **dict.fromkeys(("adaptive_avg_pool2d", "mean"), "mean"),
    **dict.fromkeys(("relu6", "hardtanh", "hardtanh_", "clamp"), "clip"),
    **dict.fromkeys(("upsample_linear1d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"), "resize"),
    **dict.fromkeys(("upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"), "resize"),
    **{"pixel_shuffle": "depthtospace", "max_pool2d": "maxpool", "avg_pool2d": "averagepool"},
    **{"cat": "concat", "embedding": "gather"},
    **{ATTENTION: SOFTMAX, "batch_norm": BATCH_NORM, "layer_norm": "layernormalization"},
}
ONNX = {
    **dict.fromkeys(("Conv", "ConvTranspose"), CONV),
    **dict.fromkeys(("MatMul", "Gemm", "FusedMatMul", "Einsum"), MATMUL),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), "reshape"),
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean"), "mean"),
}
Token = tuple[object, ...]
BIAS = "bias"  # a node that adds one, which PyTorch does within the operation before
SIZE = "size"  # a node that calculates sizes, in integers
# Calls that exporters may write as several nodes, and how many these are at most: LayerNorm has 9, GELU up to 8.
COMPOSITES = {
    *("gelu", "layernormalization", "layernorm", "silu", "mish", "softplus"),
    *("groupnorm", "instancenorm", "rmsnorm", "logsoftmax", "glu", "elu"),
}
MOST_PARTS = 12
# Operations that only move elements or that an exporter writes otherwise: they say little about which model it is.
MOVES = {
    *(ONNX.get(op_type, op_type.lower()) for op_type in RESHAPES | MOVEMENT | SHAPE_CONSTANTS | COPIES),
    *(SIZE, BIAS, "chunk", "contiguous", "select", "to", "empty", "zeros", "detach", "narrow"),
}


def read_pytorch_layers(path: Path, graph: Graph) -> LayerProfile:
    """Read a profile of a model's program; refuse one whose operators work on other sizes than the model."""
    recorded = read_calls(path)
    within = _attention(graph) if any(call.operator == ATTENTION for call in recorded.calls) else {}
    hidden = {name for names in within.values() for name in names}
    nodes = [node for node in graph.nodes if not _is_constant(graph, node) and node.name not in hidden]
    is_sized = any(call.shapes for call in recorded.calls)
    right = [_node_token(node, graph, sized=is_sized) for node in nodes]
    recorded = _whole_runs(recorded, right, sized=is_sized)
    left = [_call_token(call, sized=is_sized) for call in recorded.calls]
    _require_sizes(path, recorded.calls, left, right)
    pairs = _pairs(left, right)
    alike = {call: nodes[node].name for call, node in pairs}
    fills = _fills(recorded, pairs, nodes)
    times_us = [*zip(*recorded.times_us, strict=True)]
    computed = {index: (source, *within.get(source, ())) for index, source in alike.items()}
    layers = uniquely_named(
        Layer(
            call.operator,
            call.operator,
            computed.get(index, ()),
            fills.get(index, ()),
            is_folded=_is_folded(left, index, alike),
            run_us=times_us[index],
        )
        for index, call in enumerate(recorded.calls)
    )
    sized = [_or_size(token, node, graph) for token, node in zip(right, nodes, strict=True)]
    return LayerProfile(
        *("PyTorch", "pytorch", layers, len(recorded.start_us)),
        names_contractions=True,
        operation_share=None if is_sized else _operation_share(left, sized, pairs),
        run_start_us=recorded.start_us,
        run_us=recorded.run_us,
        is_of_device=recorded.has_kernels,
        notes=tuple(_notes(recorded)),
    )


def _notes(recorded: TorchCalls) -> Iterator[str]:
    yield "calls were aligned with the model's nodes by their order, operation and sizes"
    if not any(call.shapes for call in recorded.calls):
        yield "the profile has no shapes, so sizes were not compared; record it with record_shapes=True"
    if recorded.has_kernels:
        yield "a layer's time is that of the kernels that it launched"
    if recorded.training_share:
        yield f"{recorded.training_share:.1%} of the time is in gradients and optimizers, and is left out"
    if recorded.left_out:
        yield f"{recorded.left_out} runs with other operators are left out"


def _attention(graph: Graph) -> dict[str, list[str]]:
    within = {}
    for node in graph.nodes:
        if node.op_type == "Softmax":
            before = _up_to_product(graph, node, lambda part: [graph.producer.get(part.inputs[0], "")])
            behind = _up_to_product(graph, node, lambda part: graph.consumers.get(part.outputs[0], ()))
            if before and behind:
                within[node.name] = [*before, *behind]
    return within


def _up_to_product(graph: Graph, node: Node, steps: Callable[[Node], Sequence[str]]) -> list[str]:
    """Return the nodes on a way without branches up to the first product; none where there is no such way."""
    passed: list[str] = []
    while len(following := steps(node)) == 1 and following[0] in graph.by_name:
        node = graph.by_name[following[0]]
        passed.append(node.name)
        if ONNX.get(node.op_type) == MATMUL:
            return passed
    return []


def _is_constant(graph: Graph, node: Node) -> bool:
    return all(graph.tensors[name].kind == "weight" for name in operands(node))


def _whole_runs(recorded: TorchCalls, right: Sequence[Token], *, sized: bool) -> TorchCalls:
    """Return the calls in runs of as many repetitions as the model has: the fewest that it is most like."""
    if recorded.has_steps:
        return recorded
    repetitions, contractions = len(recorded.times_us), sum(token[0] in (CONV, MATMUL) for token in right)
    each = sum(token[0] in (CONV, MATMUL) for token in (_call_token(call, sized=sized) for call in recorded.calls))
    if not each:
        return recorded
    counts = [count for count in range(1, repetitions + 1) if repetitions % count == 0 and count * each <= contractions]
    merged = [recorded.merged(count) for count in counts or [1]]
    return max(merged, key=lambda calls: len(_pairs([_call_token(call, sized=sized) for call in calls.calls], right)))


def _pairs(left: Sequence[Token], right: Sequence[Token]) -> list[tuple[int, int]]:
    """Return the places of alike entries, both in order: the longest common subsequence, where contractions weigh most.

    The length up to each pair of places is computed row by row (Hirschberg 1975, CACM 18(6), gives the recurrence).
    """
    places = {token: place for place, token in enumerate({*right})}
    columns = np.array([places[token] for token in right], dtype=np.int64)
    lengths = np.zeros((len(left) + 1, len(right) + 1), dtype=np.int32)
    for row, token in enumerate(left):
        weight = CONTRACTION_WEIGHT if token[0] in (CONV, MATMUL, SOFTMAX) else 1
        alike = lengths[row, :-1] + weight * (columns == places.get(token, -1))
        lengths[row + 1, 1:] = np.maximum.accumulate(np.maximum(lengths[row, 1:], alike))
    pairs, row, column = [], len(left), len(right)
    while row and column:
        if lengths[row, column] == lengths[row - 1, column]:
            row -= 1
        elif lengths[row, column] == lengths[row, column - 1]:
            column -= 1
        else:
            row, column = row - 1, column - 1
            pairs.append((row, column))
    return pairs[::-1]


def _gaps(pairs: Sequence[tuple[int, int]], call_count: int, node_count: int) -> Iterator[tuple[range, range]]:
    """Yield the places of the calls and of the nodes between each two aligned pairs, and before and behind all."""
    ends = [(-1, -1), *pairs, (call_count, node_count)]
    for (call, node), (next_call, next_node) in pairwise(ends):
        yield range(call + 1, next_call), range(node + 1, next_node)


def _fills(recorded: TorchCalls, pairs: Sequence[tuple[int, int]], nodes: Sequence[Node]) -> dict[int, tuple[str, ...]]:
    """Return the nodes between aligned ones by the slowest call there; without a call, no call has them."""
    mean_us = [fmean(times) for times in zip(*recorded.times_us, strict=True)]
    return {
        max(calls, key=mean_us.__getitem__): tuple(nodes[place].name for place in between)
        for calls, between in _gaps(pairs, len(recorded.calls), len(nodes))
        if calls and between
    }


def _is_folded(calls: Sequence[Token], index: int, alike: Container[int]) -> bool:
    """Whether a call without a node is a normalization behind an aligned contraction, which exporters fold into it."""
    is_normalization = calls[index][0] == BATCH_NORM and index not in alike
    return is_normalization and index - 1 in alike and calls[index - 1][0] in (CONV, MATMUL)


def _operation_share(left: Sequence[Token], right: Sequence[Token], pairs: Sequence[tuple[int, int]]) -> float:
    """Return the share of the calls or of the nodes that are aligned, whichever is less.

    Some count for neither: moves of elements, calculations of sizes, and normalizations that are folded. A call that
    exporters write as several nodes is aligned with those between the same neighbours.
    """
    alike = dict(pairs)
    calls, nodes = {*alike}, {*alike.values()}
    for between_calls, between_nodes in _gaps(pairs, len(left), len(right)):
        composites = [place for place in between_calls if left[place][0] in COMPOSITES]
        is_small = len(between_nodes) <= MOST_PARTS * len(composites)
        if between_nodes and is_small and not any(right[place][0] in (CONV, MATMUL) for place in between_nodes):
            calls.update(composites)
            nodes.update(between_nodes)
    called = {place for place, token in enumerate(left) if token[0] not in MOVES and not _is_folded(left, place, alike)}
    computed = {place for place, token in enumerate(right) if token[0] not in MOVES}
    sides = ((called & calls, called), (computed & nodes, computed))
    return min(len(aligned) / len(counted) if counted else 0.0 for aligned, counted in sides)


def _or_size(token: Token, node: Node, graph: Graph) -> Token:
    is_size = all(graph.tensors[name].dtype.startswith("int") for name in node.outputs if name)
    return (SIZE,) if is_size else token


def _call_token(call: TorchCall, *, sized: bool) -> Token:
    name = call.operator
    operation = PYTORCH.get(name) or PYTORCH.get(name.strip("_")) or name.strip("_").replace("_", "").lower()
    return _token(operation, [prod(shape) for shape in call.shapes if shape], sized=sized)


def _node_token(node: Node, graph: Graph, *, sized: bool) -> Token:
    operation = ONNX.get(node.op_type, node.op_type.lower())
    tensors = [graph.tensors[name] for name in operands(node)]
    if operation == "add" and any(tensor.kind == "weight" for tensor in tensors):
        operation = BIAS
    counts = [tensor.element_count for tensor in tensors if tensor.shape]
    return _token(operation, [count for count in counts if isinstance(count, int)], sized=sized)


def _token(operation: str, counts: Sequence[int], *, sized: bool) -> Token:
    """Return what must be equal: the operation; of a contraction both operands' sizes, of others the first one's."""
    if not sized or operation in (SOFTMAX, "reshape", "transpose", "concat", "gather"):
        return (operation,)
    if operation == MATMUL:  # a bias may be the first, the second or the third
        return (operation, *sorted(counts, reverse=True)[:2])
    return (operation, *counts[: 2 if operation == CONV else 1])


def _require_sizes(path: Path, calls: Sequence[TorchCall], left: Sequence[Token], right: Sequence[Token]) -> None:
    known, operations = {*right}, {token[0] for token in right}
    places = [place for place, token in enumerate(left) if token[0] in (CONV, MATMUL) and token[0] in operations]
    strange = [place for place in places if left[place] not in known]
    if places and 2 * len(strange) > len(places):
        call = calls[strange[0]]
        operands_read = [*map(list, call.shapes[:2])]
        problem = f"{quoted(call.operator)} was recorded with operands {operands_read}, which no node has"
        remedy = "give the recorded sizes with <dim>, and the model exported from that program"
        raise PipelineError(path, problem, remedy)
