"""A decoder as a service of token streams: each stream has caches of its own, or a row of buffers that all share.

If an operator reads how much of a buffer is valid for each sequence of a batch, one call serves all streams in flight,
whatever their lengths. Otherwise the caches of streams have different lengths, and each stream has a call of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from common.generation.decoder import CallSizes, Decoder
from common.generation.loop import Calls, drawn_prompt, runtime_values
from common.generation.streams.engine import TokenService, TokenStream
from common.runtime.inputs.given import numpy_dtype
from common.runtime.inputs.values import Array, Value, value_of
from common.runtime.sessions.session import Session


@dataclass(slots=True)
class OwnCalls:
    """Each stream has its caches and its calls."""

    calls: Calls
    seed: int
    held: dict[int, tuple[dict[str, Value], int, int]] = field(default_factory=dict)  # caches, past and token

    def begin(self, stream: TokenStream) -> None:
        prompt = drawn_prompt(self.calls.decoder, stream.request.prompt_count, self.seed + stream.index)
        self._call(stream, self.calls.caches(0), 0, prompt)

    def step(self, streams: Sequence[TokenStream]) -> Iterator[Sequence[TokenStream]]:
        for stream in streams:
            caches, past, token = self.held[stream.index]
            self._call(stream, caches, past, [token])
            yield [stream]

    def end(self, stream: TokenStream) -> None:
        del self.held[stream.index]

    def _call(self, stream: TokenStream, caches: dict[str, Value], past: int, tokens: Sequence[int]) -> None:
        call = CallSizes(past, len(tokens), self.calls.room)
        logits = self.calls.run(self.calls.decoder.feeds(tokens, call), caches)
        self.held[stream.index] = caches, call.total, int(logits.numpy()[0, -1].argmax()) if logits else 0


@dataclass(slots=True)
class SharedCalls:
    """The streams in flight have the first rows of shared buffers, and one call gives all of them a token."""

    calls: Calls
    seed: int
    rows: dict[str, Array]  # the buffer of each cache, with a row for each stream in flight
    order: list[TokenStream] = field(default_factory=list)  # the stream of each row
    held: dict[int, tuple[int, int]] = field(default_factory=dict)  # past and token of each stream

    @classmethod
    def of(cls, session: Session, decoder: Decoder, path: Path, room: int, most: int, seed: int) -> SharedCalls:
        """Return a service with buffers for ``most`` streams of ``room`` tokens."""
        pasts, empty = [pair.past for pair in decoder.pairs], CallSizes(0, 1, room)
        rows = {one.name: np.zeros((most, *decoder.shape(one, empty)[1:]), numpy_dtype(one)) for one in pasts}
        return cls(Calls(session, decoder, {}, path, room), seed, rows)

    def begin(self, stream: TokenStream) -> None:
        """Run the prompt in a call of its own, which writes into the next row."""
        place = len(self.order)
        prompt = drawn_prompt(self.calls.decoder, stream.request.prompt_count, self.seed + stream.index)
        call = CallSizes(0, len(prompt), self.calls.room)
        (token,) = self._run(self.calls.decoder.feeds(prompt, call), slice(place, place + 1))
        self.order.append(stream)
        self.held[stream.index] = call.total, token

    def step(self, streams: Sequence[TokenStream]) -> Iterator[Sequence[TokenStream]]:
        pasts, tokens = zip(*(self.held[stream.index] for stream in self.order), strict=True)
        calls = [CallSizes(past, 1, self.calls.room) for past in pasts]
        chosen = self._run(self.calls.decoder.batch_feeds(tokens, calls), slice(0, len(calls)))
        states = zip(self.order, calls, chosen, strict=True)
        self.held = {stream.index: (call.total, token) for stream, call, token in states}
        yield list(streams)

    def end(self, stream: TokenStream) -> None:
        """Free the row of a stream: the stream in the last row moves there."""
        place = self.order.index(stream)
        last = self.order.pop()
        if last is not stream:
            self.order[place] = last
            for rows in self.rows.values():
                rows[place] = rows[len(self.order)]
        del self.held[stream.index]

    def _run(self, feeds: Mapping[str, Array], rows: slice) -> list[int]:
        """Run a call on some rows of the buffers, and return the likeliest token of each."""
        caches = {name: value_of(buffer[rows]) for name, buffer in self.rows.items()}
        logits = self.calls.run(feeds, caches)
        return [int(row[-1].argmax()) for row in logits.numpy()] if logits else []


def service_of(session: Session, decoder: Decoder, path: Path, room: int | None, most: int, seed: int) -> TokenService:
    """Return the service of a session: ``most`` rows of buffers of ``room`` tokens; without a room, own calls."""
    if room:
        return SharedCalls.of(session, decoder, path, room, most, seed)
    return OwnCalls(Calls(session, decoder, runtime_values(decoder, seed), path), seed)
