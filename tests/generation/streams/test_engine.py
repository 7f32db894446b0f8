"""Policies on a virtual clock: who is admitted when, and when each token comes, by hand."""

from __future__ import annotations

import pytest

from common.generation.streams.engine import StreamRequest, serve
from common.generation.streams.figures import TokenBounds, broken_goodput, request_rows, stream_summary
from common.view.load.load_text import stream_report

PROMPT_NS, TOKEN_NS = 100, 10
SETUP = {"threads": 1, "batching_policy": "static", "most_in_flight_count": 2, "is_batched": True, "sent_count": 3}


class Virtual:
    """A clock, and a service on it that takes 100 ns for a prompt and 10 ns for a call."""

    def __init__(self, *, is_shared):
        self.time_ns, self.is_shared, self.held = 0, is_shared, set()

    def now_ns(self):
        return self.time_ns

    def wait_until(self, time_ns):
        self.time_ns = max(self.time_ns, time_ns)

    def begin(self, stream):
        self.time_ns += PROMPT_NS
        self.held.add(stream.index)

    def step(self, streams):
        for call in [streams] if self.is_shared else [[stream] for stream in streams]:
            self.time_ns += TOKEN_NS
            yield call

    def end(self, stream):
        self.held.remove(stream.index)


def token_times(policy, *, is_shared=True, most=2):
    """Three requests: at 0 for 4 tokens, at 50 for 2, at 60 for 2."""
    requests = [StreamRequest(0, 7, 4), StreamRequest(50, 7, 2), StreamRequest(60, 7, 2)]
    virtual = Virtual(is_shared=is_shared)
    streams = list(serve(requests, virtual, policy, most, virtual))
    assert not virtual.held
    return {stream.index: stream.token_ns for stream in streams}, streams


def test_static_admits_all_that_came_and_nobody_until_they_have_ended():
    """The prompt of the first ends at 100; both others came meanwhile, and only one of them has room."""
    times, _ = token_times("static")
    assert times == {0: [100, 210, 220, 230], 1: [200, 210], 2: [330, 340]}


def test_continuous_admits_between_two_tokens():
    """The second ends at 210, so the third has its prompt until 310, while the first waits."""
    times, _ = token_times("continuous")
    assert times == {0: [100, 210, 320, 330], 1: [200, 210], 2: [310, 320]}


def test_calls_of_their_own_come_one_after_the_other():
    times, _ = token_times("static", is_shared=False)
    assert times[0][:2] == [100, 210]
    assert times[1] == [200, 220]


def test_a_stream_of_one_token_takes_no_step():
    virtual = Virtual(is_shared=True)
    (stream,) = serve([StreamRequest(5, 3, 1)], virtual, "continuous", 4, virtual)
    assert (stream.admitted_ns, stream.token_ns) == (5, [105])
    assert request_rows([stream])[0]["time_per_output_token_us"] is None


def test_times_count_from_the_intended_start():
    _, streams = token_times("continuous")
    rows = request_rows(streams)
    assert [row["time_to_first_token_us"] for row in rows] == pytest.approx([0.1, 0.15, 0.25])
    assert [row["time_per_output_token_us"] for row in rows] == pytest.approx([0.23 / 3, 0.01, 0.01])
    assert [row["request_latency_us"] for row in rows] == pytest.approx([0.33, 0.16, 0.26])


@pytest.mark.parametrize(
    ("bounds", "met"),
    [
        (TokenBounds(), 3),
        (TokenBounds(first_token_us=0.2), 2),
        (TokenBounds(inter_token_us=0.05), 2),
        (TokenBounds(0.2, 0.05), 1),
    ],
)
def test_goodput_meets_both_bounds(bounds, met):
    _, streams = token_times("continuous")
    summary = stream_summary(streams, 2.0, bounds, SETUP)
    seconds = 330e-9
    assert summary["goodput_requests_per_s"] == pytest.approx(met / seconds)
    assert summary["output_tokens_per_s"] == pytest.approx(8 / seconds)
    assert summary["streams_in_flight_count"] == pytest.approx((330 + 110 + 110) / 330)


@pytest.mark.parametrize(("gap_ns", "is_overload"), [(90, True), (150, False)])
def test_an_overload_is_one_whose_waiting_requests_grow(gap_ns, is_overload):
    """Each request takes 110 ns alone. Two in flight share their calls, so a request takes 105 ns at best."""
    virtual = Virtual(is_shared=True)
    requests = [StreamRequest(gap_ns * place, 7, 2) for place in range(400)]
    streams = list(serve(requests, virtual, "continuous", 2, virtual))
    summary = stream_summary(streams, 1e9 / gap_ns, TokenBounds(), SETUP)
    assert summary["validity"] == ("overload" if is_overload else "valid")
    assert ("the queue grows" in (summary["validity_reason"] or "")) is is_overload
    assert (summary["time_to_first_token_p50_us"] is None) is is_overload
    assert (summary["request_p99_us"] is None) is is_overload
    assert summary["inter_token_p50_us"] is not None
    assert ("overload: the queue grows" in stream_report(summary)) is is_overload


def test_a_goodput_below_the_least_one_is_a_broken_threshold():
    _, streams = token_times("continuous")
    summary = stream_summary(streams, 2.0, TokenBounds(0.2, 0.05), SETUP)
    assert broken_goodput(summary, None) == []
    assert broken_goodput(summary, summary["goodput_requests_per_s"]) == []
    (problem,) = broken_goodput(summary, 1e9)
    assert problem.endswith("requests/s were answered within both bounds; <min_goodput> is 1e+09")
