"""Tokens as a dashboard gets them, on a virtual clock; every expected figure is written out."""

from __future__ import annotations

import pytest

from common.generation.decoder import CallSizes
from common.generation.loop import Token
from common.generation.streams.engine import StreamRequest, serve
from common.generation.streams.live import KEPT, LiveTokens, WatchedService

MS = 1_000_000
S = 1_000 * MS


class Ticking:
    """A clock that stands still until a call takes time or somebody waits."""

    def __init__(self, zero_ns):
        self.zero_ns, self.time_ns = zero_ns, zero_ns

    def __call__(self):
        return self.time_ns

    def now_ns(self):
        return self.time_ns - self.zero_ns

    def wait_until(self, time_ns):
        self.time_ns = max(self.time_ns, self.zero_ns + time_ns)


class Slow:
    """A service whose prompts take 40 ms and whose tokens take 10 ms each, one stream after the other."""

    def __init__(self, clock):
        self.clock = clock

    def begin(self, stream):
        self.clock.time_ns += 40 * MS

    def step(self, streams):
        for stream in streams:
            self.clock.time_ns += 10 * MS
            yield [stream]

    def end(self, stream):
        pass


def test_tokens_answers_and_waiting_requests_are_told_as_they_come():
    clock = Ticking(7 * S)
    live = LiveTokens(clock)
    requests = [StreamRequest(0, 4, 3), StreamRequest(5 * MS, 4, 2), StreamRequest(70 * MS, 4, 2)]
    watched = WatchedService(Slow(clock), live, requests, clock)
    clock.time_ns -= 1  # before the first one comes
    assert live.take() == ([], 0, {"output_tokens_per_s": 0.0, "in_flight_count": 0.0, "queue_depth_count": 0.0})
    ended = serve(requests, watched, "continuous", 2, clock)
    # First tokens after 40 and 80 ms, the second after 75 of its own; then 90, 100 (the second ends there).
    assert next(iter(ended)).index == 1
    answers_us, failed, figures = live.take()
    assert (answers_us, failed) == ([95_000.0], 0)
    assert figures == {
        "output_tokens_per_s": pytest.approx(4 / 0.1),
        "time_to_first_token_us": pytest.approx((40_000 + 75_000) / 2),
        "inter_token_us": pytest.approx((50_000 + 20_000) / 2),
        "in_flight_count": 2.0,  # one is served, and one waits
        "queue_depth_count": 1.0,
    }
    list(ended)
    # The third is admitted at 100 and has its first token at 140; the first ends at 150, the third at 160.
    answers_us, _, figures = live.take()
    assert answers_us == [150_000.0, 90_000.0]
    assert (figures["in_flight_count"], figures["queue_depth_count"]) == (0, 0)
    assert figures["output_tokens_per_s"] == pytest.approx(7 / 0.16)
    clock.time_ns += 11 * S  # nothing of now
    assert live.take() == ([], 0, {"output_tokens_per_s": 0.0, "in_flight_count": 0.0, "queue_depth_count": 0.0})


def test_time_that_passes_before_the_first_prompt_shifts_no_figure(monkeypatch):
    clock = Ticking(7 * S)
    live, requests = LiveTokens(clock), [StreamRequest(0, 4, 3)]
    watched = WatchedService(Slow(clock), live, requests, clock)
    begin = watched.begin

    def late(stream):
        """Run after the stream was admitted and the thread had no processor for 30 ms."""
        clock.time_ns += 30 * MS
        begin(stream)

    monkeypatch.setattr(watched, "begin", late)
    [stream] = serve(requests, watched, "continuous", 2, clock)
    assert stream.token_ns == [70 * MS, 80 * MS, 90 * MS]
    answers_us, _, figures = live.take()
    assert answers_us == [90_000.0]
    assert figures["time_to_first_token_us"] == pytest.approx(70_000)
    assert figures["inter_token_us"] == pytest.approx(10_000)


def test_of_more_tokens_than_are_kept_the_window_is_shorter():
    clock = Ticking(0)
    live = LiveTokens(clock)
    for _ in range(2 * KEPT):
        clock.time_ns += MS
        live.token(1000.0, is_first=False)
    assert live.take()[2] == {"output_tokens_per_s": pytest.approx(1000.0), "inter_token_us": pytest.approx(1000.0)}


def test_an_answer_of_the_loop_takes_the_time_of_its_tokens():
    clock = Ticking(0)
    live = LiveTokens(clock)
    for answer in (0, 1):
        for index, time_us in enumerate((900.0, 100.0, 200.0)):
            clock.time_ns += round(1e3 * time_us)
            token = Token(answer, index, CallSizes(index, 1), 3, time_us, 1.0)
            live.heard(token, is_last=index == 2)
    answers_us, _, figures = live.take()
    assert answers_us == [1200.0, 1200.0]
    assert figures == {
        "output_tokens_per_s": pytest.approx(6 / 0.0024),
        "time_to_first_token_us": pytest.approx(900.0),
        "inter_token_us": pytest.approx(150.0),
    }
