"""Two services on a virtual clock: what running together costs each of them is known."""

import numpy as np
import pytest

from benchmarks.load.virtual_clock import simulate
from common.load.interference import ROUNDS, interference_figures, interference_rows, measure_interference, ratio
from common.load.requests.batching import BatchPolicy
from common.load.requests.schedules import constant, poisson
from common.load.requests.sources import OpenLoop
from common.load.results.load_figures import LoadTest

MS = 1_000_000
NAMES = {"main": "a.onnx", "other": "b.onnx"}


class Host:
    """A service answers in ``alone_ms``, and ``slower`` times as slowly while the other one runs.

    Args:
        arrivals: of a service in a round.
        slower: by service.
    """

    def __init__(self, arrivals, slower, alone_ms=(2.0, 5.0)):
        self.arrivals, self.slower, self.alone_ms, self.calls = arrivals, slower, alone_ms, []

    def __call__(self, index, services):
        self.calls.append((index, tuple(services)))
        return [self._run(index, own, is_together=len(services) > 1) for own in services]

    def _run(self, index, own, *, is_together):
        typical_ms = self.alone_ms[own] * (self.slower[own] if is_together else 1)

        def service_ns(batch, now_ns):
            return round(MS * typical_ms)

        policy = BatchPolicy()
        return LoadTest(simulate(OpenLoop(self.arrivals(index, own)), service_ns, policy), policy, 1, True)


def rows_of(host):
    rows = interference_rows(measure_interference(host), NAMES)
    return {(row["model_role"], row["load_state"]): row for row in rows}


def test_the_factors_of_services_without_a_queue_are_those_of_their_calls():
    host = Host(lambda index, own: constant(50, 1.0), slower=(1.5, 1.25))
    rows = rows_of(host)
    for role, alone_ms, slower in (("main", 2, 1.5), ("other", 5, 1.25)):
        alone, together = rows[role, "alone"], rows[role, "together"]
        assert alone["request_p99_us"] == pytest.approx(1000 * alone_ms)
        assert alone["request_p99_slowdown_factor"] is None
        for name in ("request_p50_slowdown", "request_p99_slowdown"):
            found = [together[f"{name}{end}_factor"] for end in ("_low", "", "_high")]
            assert found == pytest.approx([slower] * 3)
        assert together["sent_count"] == together["completed_count"] == ROUNDS * 50
        assert together["offered_requests_per_s"] == pytest.approx(50)
        assert together["utilization_share"] == pytest.approx(slower * alone_ms * 0.05, rel=0.03)
        assert together["served_model"] == NAMES[role]


def test_services_take_turns_and_meet_the_same_arrivals_alone_and_together():
    host = Host(lambda index, own: poisson(100, 1.0, 10 * index + own), slower=(1.0, 1.0))
    states = measure_interference(host)
    assert host.calls[:6] == [(0, (0,)), (0, (1,)), (0, (0, 1)), (1, (0, 1)), (1, (1,)), (1, (0,))]
    for role in NAMES:
        pairs = zip(states[role, "alone"].tests, states[role, "together"].tests, strict=True)
        assert all((one.record.intended_ns == other.record.intended_ns).all() for one, other in pairs)
    row = {(one["model_role"], one["load_state"]): one for one in interference_rows(states, NAMES)}["main", "together"]
    assert row["request_p99_slowdown_factor"] == row["answered_rate_factor"] == 1


@pytest.mark.slow
def test_more_than_one_host_can_answer_is_an_overload_without_latencies():
    host = Host(lambda index, own: poisson(150, 2.0, 10 * index + own), slower=(1.2, 2.0))
    rows = rows_of(host)
    found = rows["other", "together"]
    assert (found["validity"], found["request_p99_us"], found["request_p99_slowdown_factor"]) == (
        "overload",
        None,
        None,
    )
    assert found["answered_rate_factor"] == pytest.approx(100 / 150, rel=0.05)  # 150/s came, 10 ms each
    assert rows["main", "together"]["validity"] == "valid"
    figures = interference_figures(rows.values())
    assert figures["other"]["served_model"] == "b.onnx"
    assert figures["other"]["answered_rate_factor"] == found["answered_rate_factor"]


class Pieces:
    """Response times of a queue M/D/1 that starts empty in each round (Lindley); a quarter is left out."""

    def __init__(self, gaps_ms, service_ms):
        self.tests = [self._responses(gaps, service_ms) for gaps in gaps_ms]

    @staticmethod
    def _responses(gaps, service_ms):
        steps = np.concatenate([[0.0], service_ms - gaps]).cumsum()
        return (steps - np.minimum.accumulate(steps) + service_ms)[len(gaps) // 4 :]

    def quantile(self, quantile, left_out=None):
        kept = [run for index, run in enumerate(self.tests) if index != left_out]
        return float(np.quantile(np.concatenate(kept), quantile))


@pytest.mark.slow
@pytest.mark.parametrize("quantile", [0.5, 0.99])
def test_the_limits_of_a_factor_hold_the_true_one(quantile):
    """A queue at 40 % alone, and at 60 % together: the truth is that of a long run. 95 of 100 are asked for."""
    random, held = np.random.default_rng(5), 0
    long = [random.exponential(5.0, 400_000)]
    true = Pieces(long, 3.0).quantile(quantile) / Pieces(long, 2.0).quantile(quantile)
    for _ in range(100):
        gaps = random.exponential(5.0, (ROUNDS, 1500))
        figure = lambda pieces, left_out: pieces.quantile(quantile, left_out)  # noqa: E731
        found = ratio(Pieces(gaps, 3.0), Pieces(gaps, 2.0), figure)
        held += found.low <= true <= found.high
    assert held >= 86


def test_a_signal_leaves_whole_rounds():
    whole = Host(lambda index, own: constant(50, 1.0), slower=(1.5, 1.25))

    def ended(index, services):
        if len(whole.calls) == 7:  # in the third round
            raise KeyboardInterrupt
        return whole(index, services)

    states = measure_interference(ended)
    assert {len(state.tests) for state in states.values()} == {2}
    row = interference_rows(states, NAMES)[1]
    assert row["request_p50_slowdown_factor"] is None or row["request_p50_slowdown_low_factor"] is None
    whole.calls = whole.calls[:7]
    with pytest.raises(KeyboardInterrupt):
        measure_interference(ended)
