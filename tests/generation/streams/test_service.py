"""Streams that share a call give the tokens that each of them gives alone."""

from __future__ import annotations

import pytest

from common.generation.decoder import decoder_of
from common.generation.loop import Calls
from common.generation.streams.engine import StreamRequest, TokenStream
from common.generation.streams.service import OwnCalls, SharedCalls
from common.onnx_graph.load import load_model
from common.runtime.sessions.session import SessionSettings, create_session
from models.__main__ import BUILDERS, save

ROOM = 32


@pytest.fixture
def services(tmp_path):
    path = tmp_path / "m.onnx"
    save(BUILDERS["tiny-grouped-decoder"](), path)
    decoder = decoder_of(load_model(path, {}, symbolic=True), {}, {})
    session = create_session(path, SessionSettings(1))
    return OwnCalls(Calls(session, decoder, {}, path), 0), SharedCalls.of(session, decoder, path, ROOM, 3, 0)


def tokens_of(service):
    """Serve three streams of different lengths; one comes late, and one ends early, so that rows move."""
    first, second, third = (
        TokenStream(index, StreamRequest(0, prompt, 9), 0) for index, prompt in enumerate((5, 11, 2))
    )
    found = {0: [], 1: [], 2: []}

    def note(streams):
        for stream in streams:
            found[stream.index].append(service.held[stream.index][-1])

    def steps(count, *streams):
        for _ in range(count):
            list(service.step(streams))
            note(streams)

    service.begin(first)
    service.begin(second)
    note([first, second])
    steps(3, first, second)
    service.begin(third)
    note([third])
    steps(2, first, second, third)
    service.end(first)
    steps(3, second, third)
    return found


def test_a_shared_call_gives_the_tokens_of_calls_alone(services):
    own, shared = services
    expected = tokens_of(own)
    assert len({token for tokens in expected.values() for token in tokens}) > 3
    assert tokens_of(shared) == expected
