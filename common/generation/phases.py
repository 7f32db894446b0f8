"""The two phases of a decoder: the work of each part of the model in a call, at a length and as an expression of it.

Prefill takes a whole prompt: its products have as many rows as the prompt has tokens. Decode takes one token after
others: each weight is read for one row, so the bandwidth of the weights bounds it (Pope et al. 2022, arXiv:2211.05102,
section 2.1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from common.generation.decoder import CallSizes, Decoder
from common.graphs.expressions import Count, dimension, smaller, sum_of, with_sizes
from common.graphs.graph import Graph
from common.graphs.sums import total
from common.messages.errors import UnusableValueError
from common.onnx_graph.caches import CachePair
from common.onnx_graph.counts import NodeCount, count_nodes
from common.onnx_graph.symbols.symbolic import number
from common.onnx_graph.work import measure
from common.table_rows import PhaseWorkRow

PREFILL, DECODE = "prefill", "decode"
WHOLE, EMBEDDING, LAYERS, HEAD, SAMPLING = "model", "embedding", "layers", "head", "sampling"
FIGURES = ("macs", "flops", "dequantized", "weight_bytes", "bytes")
# Operators between the input of tokens and the table that the tokens index.
PASSED_ON = frozenset({"Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Clip"})


@dataclass(frozen=True, slots=True)
class PhasePoint:
    phase: str
    call: CallSizes


def point_at(phase: str, length: int) -> PhasePoint:
    """Return a phase at a length: tokens of the prompt (prefill), or tokens in the caches before the call (decode)."""
    return PhasePoint(phase, CallSizes(0, length) if phase == PREFILL else CallSizes(length, 1))


def bound_point(decoder: Decoder, sizes: Mapping[str, int]) -> PhasePoint | None:
    """Return the phase and the lengths that follow from the bound dimensions of a decoder; None if one is not bound.

    One token after others is decode. Everything else is a prompt or a part of a prompt. If a buffer is longer than its
    valid part, the length of the valid part gives the tokens in the past.

    An UnusableValueError says that a past is longer than the window of its cache.
    """
    if any(name not in sizes for name in decoder.call_dimensions):
        return None
    for name, window in decoder.windows.items():
        if sizes[name] > window:
            raise UnusableValueError("dim", f"{name}={sizes[name]}: the cache holds a window of {window} tokens")
    new = sizes[decoder.new] if decoder.new else 1
    held = [sizes[name] - new for name in decoder.totals[:1]]
    room = [sizes[name] for name in (decoder.past, *decoder.windows) if name][:1]
    past, *_ = [*held, *room, 0]
    call = CallSizes(max(past, 0), new, room[0] if room and held and room != held else None)
    return PhasePoint(DECODE if new == 1 and (past or not (held or room)) else PREFILL, call)


# --- parts of a model -------------------------------------------------------------------------------------------------


def model_parts(decoder: Decoder) -> dict[str, str]:
    """Return the part of each node: embedding, layers, head or sampling.

    The embedding looks tokens up in a table. The head is the last product before the logits, with the operators between
    the product and the logits. Sampling is what reads the logits. The layers are the rest.
    """
    graph = decoder.model.graph
    contractions = {node.name for node in graph.nodes if measure(graph, node).macs != 0}
    parts = dict.fromkeys((node.name for node in graph.nodes), LAYERS)
    if decoder.tokens is None or decoder.logits is None:
        return parts
    if decoder.looks_up:
        parts |= dict.fromkeys(_embedding(graph, decoder.tokens.name), EMBEDDING)
    parts |= dict.fromkeys(_head(graph, decoder.logits.name, contractions), HEAD)
    return parts | dict.fromkeys(_after(graph, decoder.logits.name), SAMPLING)


def _embedding(graph: Graph, tokens: str) -> list[str]:
    found, waiting = [], [tokens]
    while waiting:
        for name in graph.consumers.get(waiting.pop(), ()):
            node = graph.by_name[name]
            if node.op_type in PASSED_ON:
                waiting += node.outputs
            elif any(graph.tensors[operand].kind == "weight" for operand in node.inputs if operand):
                found.append(name)
    return found


def _head(graph: Graph, logits: str, contractions: Set[str]) -> list[str]:
    """Walk back from the logits. A product ends the walk, and so does a node with several computed operands."""
    found, waiting = list[str](), [logits]
    while waiting and (name := graph.producer.get(waiting.pop())):
        found.append(name)
        written = [operand for operand in graph.by_name[name].inputs if operand in graph.producer]
        if name in contractions:
            return found
        waiting += written if len(written) == 1 else []
    return []


def _after(graph: Graph, logits: str) -> Set[str]:
    found, waiting = set[str](), [logits]
    while waiting:
        for name in graph.consumers.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting += graph.by_name[name].outputs
    return found


# --- work -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartWork:
    """Work of a part of the model in one call, as expressions of the dimensions that a call sets; None is unknown."""

    macs: Count | None
    flops: Count | None
    dequantized: Count | None
    weight_bytes: Count | None
    bytes: Count | None
    cache_bytes: Count | None

    def over(self, sizes: Mapping[str, Count]) -> PartWork:
        """Return the work with these sizes, which may be expressions."""
        figures = (getattr(self, name) for name in (*FIGURES, "cache_bytes"))
        return PartWork(*(None if figure is None else with_sizes(figure, sizes) for figure in figures))


def work_by_part(decoder: Decoder) -> dict[str, PartWork]:
    counts = [count for count in count_nodes(decoder.model.graph, None) if not count.is_of_either]
    parts = model_parts(decoder)
    caches = total(valid_bytes(decoder, pair) for pair in decoder.pairs)
    by_part = {WHOLE: _work(counts, caches)}
    for part in (EMBEDDING, LAYERS, HEAD, SAMPLING):
        if chosen := [count for count in counts if parts[count.node.name] == part]:
            by_part[part] = _work(chosen, caches if part == LAYERS else 0)
    return by_part


def _work(counts: Sequence[NodeCount], caches: Count | None) -> PartWork:
    figures = {name: [count.figure(name) for count in counts] for name in FIGURES}
    known = {name: None if None in of_each else sum_of(of_each) for name, of_each in figures.items()}
    return PartWork(**known, cache_bytes=caches)


def valid_bytes(decoder: Decoder, pair: CachePair) -> Count | None:
    """Return the bytes of a cache that are valid after a call, as an expression of the dimensions that a call sets."""
    size = pair.present.size_bytes
    if pair.kind != "buffer" or size is None or pair.past.shape is None:
        return size
    held = next((dimension(name) for name in decoder.totals), None)
    return None if held is None else size // pair.past.shape[2] * held


def moved_bytes(decoder: Decoder, work: PartWork, call: CallSizes) -> int | None:
    """Return the bytes that a call moves.

    A call writes a growing cache as a whole. In a buffer (``call.room``), it writes the new tokens alone.
    """
    moved = decoder.at(work.bytes, call)
    if moved is None or call.room is None or work.cache_bytes == 0:
        return moved
    grown = replace(call, room=None)
    whole = total(decoder.at(pair.present.size_bytes, grown) for pair in decoder.pairs if pair.kind == "growing")
    return None if whole is None else moved - whole // call.total * call.past


# --- rows -------------------------------------------------------------------------------------------------------------


def phase_rows(decoder: Decoder, points: Sequence[PhasePoint], bound: Collection[str]) -> list[PhaseWorkRow]:
    """Return the work of each part of the model at each point, as numbers and as expressions of the phase's length.

    Points with the same sizes give one row: the states of a recurrent model do not grow. ``bound`` dimensions have the
    same size in all rows.
    """
    swept = {name for name in decoder.sizes(CallSizes(0, 1)) if name not in bound} | {*decoder.call_dimensions}
    work = work_by_part(decoder)
    over = {
        phase: {part: one.over(_sizes_over_length(decoder, phase)) for part, one in work.items()}
        for phase in dict.fromkeys(point.phase for point in points)
    }
    rows: dict[tuple[str, str, str], PhaseWorkRow] = {}
    for point in points:
        for part, one in work.items():
            row = _row(decoder, point, part, one, over[point.phase][part], swept)
            rows.setdefault((str(row["dimensions"]), point.phase, part), row)
    return [*rows.values()]


def _sizes_over_length(decoder: Decoder, phase: str) -> dict[str, Count]:
    """Return the sizes of a call in a phase, as expressions of the dimension that is its length."""
    pasts = [*([] if decoder.past is None else [decoder.past]), *decoder.windows]
    if phase == PREFILL and decoder.tokens:
        whole = dimension(decoder.new) if decoder.new else 1
        return {**decoder.fixed, **dict.fromkeys(pasts, 0), **dict.fromkeys(decoder.totals, whole)}
    new: dict[str, Count] = {decoder.new: 1} if decoder.new else {}
    if not pasts:
        return {**decoder.fixed, **new}
    length = dimension(pasts[0])
    held = {name: smaller(window, length) for name, window in decoder.windows.items()}
    return {**decoder.fixed, **new, **held, **dict.fromkeys(decoder.totals, length + 1)}


def _row(
    decoder: Decoder, point: PhasePoint, part: str, work: PartWork, over: PartWork, swept: Set[str]
) -> PhaseWorkRow:
    call, sizes = point.call, decoder.sizes(point.call)
    at_point, moved = work.over(sizes), moved_bytes(decoder, work, call)
    flops = at_point.flops
    return {
        "dimensions": {name: size for name, size in sizes.items() if name in swept},
        "generation_phase": point.phase,
        "model_part": part,
        "past_token_count": call.past,
        "new_token_count": call.new,
        "macs": number(at_point.macs),
        "flops": number(flops),
        "dequantized_weight_count": number(at_point.dequantized),
        "weight_bytes": number(at_point.weight_bytes),
        "cache_bytes": decoder.at(work.cache_bytes, replace(call, room=None)),
        "bytes": number(moved),
        "arithmetic_intensity_flop_per_byte": flops / moved if flops is not None and moved else None,
        "phase_macs_expression": _text(over.macs),
        "phase_flops_expression": _text(over.flops),
        "phase_weight_bytes_expression": _text(over.weight_bytes),
        "phase_cache_bytes_expression": _text(over.cache_bytes),
        "phase_bytes_expression": _text(over.bytes),
    }


def _text(count: Count | None) -> str:
    """Return a count as text: a number if it does not depend on the length, empty if it is unknown."""
    return "" if count is None else str(count)
