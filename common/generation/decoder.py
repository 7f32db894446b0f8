"""A decoder as its caller sees it: its input of tokens, the dimensions that a call sets, and the inputs of a call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np

from common.graphs.expressions import Expression, at
from common.graphs.graph import Count, Tensor
from common.messages.errors import UnusableValueError
from common.messages.names import listed
from common.onnx_graph.caches import MASKS, CachePair, cache_pairs
from common.onnx_graph.load import LoadedModel
from common.runtime.inputs.given import numpy_dtype, random_input
from common.runtime.inputs.values import Array

TOKENS = ("input_ids", "decoder_input_ids", "inputs_embeds")
POSITIONS = ("position_ids", "decoder_position_ids", "cache_position")
BATCH = 1
ROWS = 256  # of the table of embeddings that stands for one outside of the model; tokens share them in turn


@dataclass(frozen=True, slots=True)
class CallSizes:
    """One call: ``new`` tokens after ``past`` ones. ``room`` is the length of the caches' buffers; None: no buffers."""

    past: int
    new: int
    room: int | None = None

    @property
    def total(self) -> int:
        return self.past + self.new


@dataclass(frozen=True)
class Decoder:
    """A model with caches, by names."""

    model: LoadedModel
    pairs: Sequence[CachePair]
    # The input of token numbers, or of their rows in a table of embeddings that is not in the model; None for a loop of
    # states alone, such as the steps of an action expert
    tokens: Tensor | None
    logits: Tensor | None  # the output with a score for each token of the vocabulary; None if ``tokens`` is
    # Dimensions that a call sets: its tokens, and those before it. ``new`` is None where each call takes one token,
    # ``past`` where no cache grows.
    new: str | None
    past: str | None
    totals: tuple[str, ...]  # dimensions that are past and new tokens together
    fixed: Mapping[str, int] = field(default_factory=dict)  # all other dimensions
    still: Sequence[Tensor] = ()  # inputs that no call changes, such as an encoder's keys
    # Dimensions of rolling caches, which a call sets too, with the most tokens that they hold
    windows: Mapping[str, int] = field(default_factory=dict)

    @property
    def has_room(self) -> bool:
        """Whether the length of the caches' buffers is free."""
        return any(pair.kind == "growing" for pair in self.pairs)

    @property
    def sequences(self) -> int:
        """How many sequences a call takes tokens of."""
        return self.shape(self.tokens, CallSizes(0, 1))[0] if self.tokens else 1

    @property
    def looks_up(self) -> bool:
        """Whether the model itself has the table of embeddings."""
        return self.tokens is not None and len(self.tokens.shape or ()) == 2

    @property
    def call_dimensions(self) -> tuple[str, ...]:
        return (*(name for name in (self.new, self.past) if name), *self.windows, *self.totals)

    def sizes(self, call: CallSizes) -> dict[str, int]:
        past = {} if self.past is None else {self.past: call.past if call.room is None else call.room}
        rolling = {name: min(call.past, window) for name, window in self.windows.items()}
        new = {} if self.new is None else {self.new: call.new}
        return {**self.fixed, **new, **past, **rolling, **dict.fromkeys(self.totals, call.total)}

    def shape(self, tensor: Tensor, call: CallSizes) -> tuple[int, ...]:
        return _extents(tensor, self.sizes(call))

    def at(self, count: Count | None, call: CallSizes) -> int | None:
        return None if count is None else at(count, self.sizes(call))

    def feeds(self, tokens: Sequence[int], call: CallSizes) -> dict[str, Array]:
        """Return the inputs of a call, without the caches and without inputs that no call changes."""
        sizes = self.sizes(call)
        return {tensor.name: self._fed(tensor, tokens, call, sizes) for tensor in self._fed_inputs}

    @cached_property
    def _fed_inputs(self) -> Sequence[Tensor]:
        cached = {pair.past.name for pair in self.pairs} | {tensor.name for tensor in self.still}
        inputs = (tensor for tensor in self.model.graph.tensors.values() if tensor.kind == "input")
        return [tensor for tensor in inputs if tensor.name not in cached]

    def _fed(self, tensor: Tensor, tokens: Sequence[int], call: CallSizes, sizes: Mapping[str, int]) -> Array:
        shape, dtype = _extents(tensor, sizes), numpy_dtype(tensor)
        if self.tokens and tensor.name == self.tokens.name:
            return np.full(shape, tokens if self.looks_up else drawn_rows(shape[-1])[np.array(tokens) % ROWS], dtype)
        if tensor.name in POSITIONS:
            return np.full(shape, np.arange(call.past, call.total), dtype)
        if tensor.value is not None:
            return np.full(shape, at(tensor.value, sizes), dtype)
        # Masks are ones, an encoder's too; segments and others are zeros.
        return np.full(shape, tensor.name.endswith(MASKS[0]), dtype)

    def batch_feeds(self, tokens: Sequence[int], calls: Sequence[CallSizes]) -> dict[str, Array]:
        """Return the inputs of one call for several sequences of different lengths; it gives each sequence a token.

        An input with rows has, for each sequence, the row that a call of the sequence alone would have. A mask is as
        wide as that of the longest sequence. An input without rows, such as a length, is that of the longest sequence.
        """
        rows = [self.feeds([token], call) for token, call in zip(tokens, calls, strict=True)]
        longest = max(calls, key=lambda call: call.total)
        whole, tensors = self.feeds([0], longest), self.model.graph.tensors
        has_rows = {name for name in whole if isinstance(next(iter(tensors[name].shape or ()), None), Expression)}
        return whole | {name: _stacked([row[name] for row in rows], whole[name]) for name in has_rows}

    def still_values(self, seed: int) -> dict[str, Array]:
        random, nothing = np.random.default_rng(seed), CallSizes(0, 1)
        bound = (replace(one, shape=self.shape(one, nothing)) for one in self.still)
        return {tensor.name: random_input(tensor, random) for tensor in bound}


def decoder_of(model: LoadedModel, sizes: Mapping[str, int], given: Mapping[str, str]) -> Decoder:
    """Return a model as a decoder.

    Args:
        model: loaded with symbols.
        sizes: of dimensions. Those that a call sets are ignored; the batch is 1 by default.
        given: input and output of each cache that the names do not show.

    Raises:
        UnusableValueError: it has no caches, no input of tokens or no logits, or a dimension is not bound.
    """
    graph = model.graph
    pairs = cache_pairs(graph, given)
    if not pairs:
        remedy = "give the pairs with <cache>, as PAST=PRESENT, or profile it with <op_latency>"
        raise UnusableValueError("model", "has no cache: no output is fed to an input in the next call", remedy)
    _require_growth(pairs)
    inputs = [tensor for tensor in graph.tensors.values() if tensor.kind == "input"]
    tokens = next((tensor for tensor in inputs if tensor.name in TOKENS), None)
    if tokens is None and all(pair.kind == "state" for pair in pairs):
        return _loop_of_states(model, inputs, pairs, sizes)
    if tokens is None or tokens.shape is None or not _takes_tokens(tokens.shape):
        problem = f"has no input of tokens: none of {listed(TOKENS, 5)} has a batch and a free length"
        raise UnusableValueError("model", problem, "export it with a dynamic sequence")
    presents = {pair.present.name for pair in pairs}
    scores = (graph.tensors[name] for name in graph.outputs if name not in presents)
    logits = next((tensor for tensor in scores if len(tensor.shape or ()) == 3), None)
    if logits is None:
        problem = "has no output of three axes with a score for each number of the vocabulary"
        raise UnusableValueError("model", problem, "export it with its head")
    new = _name(tokens.shape[1])
    past = next((_name(_length(pair)) for pair in pairs if pair.kind == "growing"), None)
    rolling = ((_name(_length(pair)), pair.window) for pair in pairs)
    windows = {name: window for name, window in rolling if name is not None and window is not None}
    totals = _totals(inputs, {new, past, *windows})
    moving = {new, past, *windows, *totals}
    fixed = {name: BATCH for name in [_name(tokens.shape[0])] if name}
    fixed |= {name: size for name, size in sizes.items() if name not in moving}
    _require_bound(model, moving | {*fixed})
    still = _still([tensor for tensor in inputs if tensor is not tokens], pairs, moving)
    if len(tokens.shape) == 3 and isinstance(tokens.shape[2], int):
        drawn_rows(tokens.shape[2])  # now, and not in the time of a token
    return Decoder(model, pairs, tokens, logits, new, past, totals, fixed, still, windows)


def _takes_tokens(shape: Sequence[Count]) -> bool:
    """Return whether an input has a batch, a free length or that of one token, and else at most a fixed width."""
    has_width = len(shape) == 3 and isinstance(shape[2], int)
    return (len(shape) == 2 or has_width) and (_name(shape[1]) is not None or shape[1] == 1)


def _require_growth(pairs: Sequence[CachePair]) -> None:
    """Refuse a cache that grows out of an input of fixed length, unless an operator reads how much of it is valid.

    The UnusableValueError names the first one.
    """
    for pair in pairs:
        length = _length(pair)
        if pair.kind == "growing" and not pair.is_measured and isinstance(length, int):
            problem = f"{pair.present.name} cannot be fed to {pair.past.name}: it grows, and the input takes {length}"
            raise UnusableValueError("model", f"{problem} tokens", "leave the length free")


def _length(pair: CachePair) -> Count | None:
    """Return the extent of a cache's input along the axis that grows."""
    return pair.past.shape[pair.axis] if pair.past.shape and pair.axis is not None else None


def _extents(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(at(dim, sizes) for dim in tensor.shape or ())


@cache
def drawn_rows(width: int) -> Array:
    """Return a table of embeddings: one for all calls, because drawing a row takes as long as a small call."""
    return np.random.default_rng(0).standard_normal((ROWS, width))


def _stacked(rows: Sequence[Array], longest: Array) -> Array:
    """Stack rows with a batch of 1; a row that is shorter than the longest one ends in zeros."""
    whole = np.zeros((len(rows), *longest.shape[1:]), longest.dtype)
    for place, row in enumerate(rows):
        whole[place][tuple(slice(extent) for extent in row.shape[1:])] = row[0]
    return whole


def _loop_of_states(
    model: LoadedModel, inputs: Sequence[Tensor], pairs: Sequence[CachePair], sizes: Mapping[str, int]
) -> Decoder:
    """Return a model whose calls change only states; its first dimension is by default a batch of 1."""
    first = next((pair.past.shape for pair in pairs if pair.past.shape), ())
    fixed = {name: BATCH for name in [_name(first[0]) if first else None] if name} | dict(sizes)
    _require_bound(model, fixed)
    return Decoder(model, pairs, None, None, None, None, (), fixed, _still(inputs, pairs, set()))


def _require_bound(model: LoadedModel, known: Collection[str | None]) -> None:
    if missing := [name for name in model.unbound if name not in known]:
        raise UnusableValueError("dim", f"{listed(missing, 5)} not bound", f"add for example <dim> {missing[0]}=128")


def require_prompt(decoder: Decoder, length: int, quantity: str) -> None:
    """Refuse a prompt of several tokens for a model whose calls take one; UnusableValueError: it is one."""
    if decoder.tokens is not None and decoder.new is None and length > 1:
        remedy = f"give 1 token with <{quantity}>, or export it with a dynamic sequence"
        raise UnusableValueError(quantity, f"{length} tokens, and a call of the model takes one", remedy)


def require_length(decoder: Decoder, length: int, quantity: str, room: int | None = None) -> None:
    """Refuse a length of tokens in the caches for which a buffer has no room.

    Args:
        quantity: the setting that leads to this length.
        room: length of the buffers, if the model does not fix it.

    Raises:
        UnusableValueError: a buffer is shorter; the error names its length.
    """
    for size in [room, *(pair.room for pair in decoder.pairs)]:
        if isinstance(size, int) and size < length:
            problem = f"prompt and answer take {length} tokens of cache, and a buffer has room for {size}"
            raise UnusableValueError(quantity, problem, f"give fewer with <{quantity}>")


def _name(dim: object) -> str | None:
    """Return the name of an extent that is one dimension; None for a number or another expression."""
    return next(iter(dim.names)) if isinstance(dim, Expression) and str(dim) in dim.names else None


def _totals(inputs: Sequence[Tensor], others: set[str | None]) -> tuple[str, ...]:
    """Return the dimensions that are past and new tokens together: the width of a mask, or a length in an input."""
    masks = [tensor.shape[1] for tensor in inputs if tensor.name in MASKS and tensor.shape and len(tensor.shape) == 2]
    values = [tensor.value for tensor in inputs if tensor.value is not None]
    names = (name for count in (*masks, *values) if isinstance(count, Expression) for name in sorted(count.names))
    return tuple(name for name in dict.fromkeys(names) if name not in others)


def _still(inputs: Sequence[Tensor], pairs: Sequence[CachePair], moving: set[str | None]) -> list[Tensor]:
    cached = {pair.past.name for pair in pairs}
    floats = (one for one in inputs if one.name not in cached and one.dtype.startswith(("float", "bfloat")))
    still = []
    for tensor in floats:
        used = {name for dim in tensor.shape or () if isinstance(dim, Expression) for name in dim.names}
        if used & moving:
            problem = f"its input {tensor.name} is neither a cache nor the same in each call"
            raise UnusableValueError("model", problem, "give the output that is fed to it with <cache>")
        still.append(tensor)
    return still
