"""The predicted queue against closed forms of the literature, and against a simulation event by event."""

import heapq
import math
from bisect import bisect_right

import numpy as np
import pytest

from common.load.search.bulk_queue import JUDGED, ROUGH, THOROUGH, load_factor, predict

SIZES = 7
TIMES_S = [0.011 + 0.0031 * size for size in range(1, SIZES + 1)]
SERVICE_S = 0.0113
EXPONENTIAL_S = -SERVICE_S * np.log(1 - (np.arange(20_000) + 0.5) / 20_000)
LAWS_S = {  # the last four took no part in the design
    "exponential": EXPONENTIAL_S,
    "1 % of the calls 50 times as long": np.where(np.arange(1000) < 10, 0.05, 0.001),
    "5 % of the calls 19 times as long": np.where(np.arange(1000) < 50, 0.019, 0.001),
    "gamma of shape 0.3": np.random.default_rng(3).gamma(0.3, 0.01, 20_000),
    "Weibull of shape 0.6": 0.01 * np.random.default_rng(5).weibull(0.6, 20_000),
    "Pareto, cut off": np.minimum(0.003 * (1 + np.random.default_rng(7).pareto(2.0, 20_000)), 0.2),
    "three values": np.repeat([0.002, 0.013, 0.101], [700, 250, 50]),
}


def crommelin_share(rate, service, time):
    """P(wait <= time) of M/D/1 (Erlang 1909; Crommelin 1932, Bell System Technical Journal 11)."""
    load = rate * service
    terms = ((load * (k - time / service)) ** k / math.factorial(k) for k in range(int(time / service) + 1))
    return (1 - load) * sum(
        term * math.exp(-load * (k - time / service)) for k, term in zip(range(10**6), terms, strict=False)
    )


def erlang_c_beyond(load, servers, time):
    """P(response > time) of M/M/c with mean service 1, by Erlang's C (Gross, Harris, Queueing Theory, section 2.3)."""
    offered = load * servers
    full = offered**servers / math.factorial(servers) / (1 - load)
    queued = full / (sum(offered**k / math.factorial(k) for k in range(servers)) + full)
    decay = servers * (1 - load) + 1e-9  # P(wait > t) = queued · exp(-decay t); 1 would be a case of its own
    ratio = queued * decay / (decay - 1)
    return (1 - queued + ratio) * math.exp(-time) - (ratio - queued) * math.exp(-decay * time)


def test_exponential_calls_at_half_load_are_m_m_1():
    found = predict(0.5 / SERVICE_S, [EXPONENTIAL_S])
    for quantile in JUDGED:
        assert found.quantile_s(quantile) == pytest.approx(2 * SERVICE_S * -math.log(1 - quantile), rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.7, 0.9])
def test_exponential_calls_are_m_m_1(load):
    found = predict(load / SERVICE_S, [EXPONENTIAL_S])
    assert found.utilization == pytest.approx(load, rel=0.01)
    for quantile in JUDGED:
        exact = SERVICE_S / (1 - load) * -math.log(1 - quantile)
        assert found.quantile_s(quantile) == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("load", [0.5, pytest.param(0.8, marks=pytest.mark.slow)])
def test_equal_calls_are_m_d_1(load):
    found = predict(load / SERVICE_S, [np.array([SERVICE_S])])
    assert found.mean_s == pytest.approx(SERVICE_S * (1 + load / (2 * (1 - load))), rel=0.02)  # Pollaczek, Khinchine
    assert found.utilization == pytest.approx(load, rel=0.01)
    for quantile in (0.6, 0.9, 0.99):
        wait = found.quantile_s(quantile) - SERVICE_S
        assert crommelin_share(load / SERVICE_S, SERVICE_S, wait) == pytest.approx(quantile, abs=0.01)


@pytest.mark.parametrize("law", LAWS_S)
@pytest.mark.parametrize("load", [0.5, pytest.param(0.8, marks=pytest.mark.slow)])
def test_every_law_has_the_mean_of_m_g_1(law, load):
    times = LAWS_S[law]
    rate, effort = load / times.mean(), THOROUGH if load > 0.5 else THOROUGH._replace(most_steps=512)
    wait = rate * float(np.mean(times**2)) / (2 * (1 - load))  # Pollaczek, Khinchine
    assert predict(rate, [times], effort=effort).mean_s == pytest.approx(times.mean() + wait, rel=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("servers", [2, 4, 8])
@pytest.mark.parametrize("load", [0.5, 0.7, 0.9])
def test_several_sessions_with_exponential_calls_are_m_m_c(servers, load):
    found = predict(load * servers / SERVICE_S, [EXPONENTIAL_S], session_count=servers)
    assert found.utilization == pytest.approx(load, rel=0.01)
    for quantile in JUDGED:
        beyond = erlang_c_beyond(load, servers, found.quantile_s(quantile) / SERVICE_S)
        assert beyond == pytest.approx(1 - quantile, rel=0.05)


def shares_by_roots(rate, service, most):
    """Shares of the sizes of batches of M/D(1,b)/1 by the zeros of z^b = exp(rate service (z - 1)) (Bailey 1954).

    With p(n) the share of the services that leave n requests behind, their generating function P has
    P(z) (z^b - K(z)) = K(z) sum over n < b of p(n) (z^b - z^n), and the right side vanishes where the left one does.
    """
    zeros = np.exp(2j * np.pi * np.arange(1, most) / most)
    turns = zeros.copy()
    for _ in range(500):
        zeros = turns * np.exp(rate * service * (zeros - 1) / most)
    powers = np.arange(most)
    rows = [zero**most - zero**powers for zero in zeros]
    # At z = 1, by de l'Hospital: b - rate service = sum of p(n) (b - n).
    rows.append((most - powers).astype(complex))
    left = np.linalg.solve(np.array(rows), np.array([0] * (most - 1) + [most - rate * service], dtype=complex)).real
    sizes = np.append(left[1:], 0.0)
    sizes[0] += left[0]
    sizes[-1] += 1 - sizes.sum()
    return sizes, service / (service + left[0] / rate)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.2, 0.5, 0.8, 0.95])
def test_batches_of_one_service_time_have_bailey_s_utilization(load):
    """It follows from the sizes: rate · service over their mean."""
    sizes, utilization = shares_by_roots(load * SIZES / SERVICE_S, SERVICE_S, SIZES)
    assert load * SIZES / (sizes @ np.arange(1, SIZES + 1)) == pytest.approx(utilization)
    found = predict(load * SIZES / SERVICE_S, [np.array([SERVICE_S])] * SIZES)
    assert found.utilization == pytest.approx(utilization, rel=0.005)


def simulated(rate, service, wait, count, seed, sessions=1):
    """Response times of a queue that is played event by event, without the first tenth."""
    random = np.random.default_rng(seed)
    gaps = random.exponential(1.0, count)
    comes = (np.cumsum(gaps) * (count / rate / gaps.sum())).tolist()
    first, free, responses = 0, [0.0] * sessions, []
    while first < count:
        full = comes[first + len(service) - 1] if first + len(service) <= count else math.inf
        start = max(free[0], comes[first], min(comes[first] + wait, full))
        end = min(bisect_right(comes, start, first), first + len(service))
        heapq.heapreplace(free, done := start + random.choice(service[end - first - 1]))
        responses += [done - came for came in comes[first:end]]
        first = end
    return np.array(responses[count // 10 :])


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0.0, 0.004, 0.03, 0.2])
@pytest.mark.parametrize("load", [0.1, 0.4, 0.75])
@pytest.mark.parametrize("sessions", [1, 3])
def test_batches_with_a_wait_are_those_of_a_simulation(load, wait, sessions):
    service = [np.array([time, 1.3 * time]) for time in TIMES_S]
    rate = load * sessions * SIZES / service[-1].mean()
    found = predict(rate, service, wait, sessions)
    played = simulated(rate, service, wait, 60_000, 11, sessions)
    assert found.mean_s == pytest.approx(played.mean(), rel=0.02)
    for quantile in JUDGED:
        assert found.quantile_s(quantile) == pytest.approx(np.quantile(played, quantile), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_queues_are_those_of_a_simulation(seed):
    random = np.random.default_rng(seed)
    most, wait = int(random.integers(2, 24)), float(random.choice([0.0, 0.002, 0.02]))
    steps = np.cumsum(random.uniform(0.0, 0.003, most)) + 0.004
    service, sessions = [step * random.lognormal(0.0, 0.1, 5) for step in steps], int(random.integers(1, 5))
    rate = random.uniform(0.05, 0.75) * sessions * most / service[-1].mean()
    played = simulated(rate, service, wait, 200_000, seed, sessions)
    found = predict(rate, service, wait, sessions)
    assert found.mean_s == pytest.approx(played.mean(), rel=0.02)
    for quantile in JUDGED:
        assert found.quantile_s(quantile) == pytest.approx(np.quantile(played, quantile), rel=0.05)


def test_a_call_takes_the_measured_times_and_no_others():
    """At a load of almost nothing a response is a call: the slowest hundredth of them is where it was measured."""
    found = predict(1e-4, [np.repeat([1.0, 31.0], [97, 3])], effort=ROUGH)
    assert [found.quantile_s(quantile) for quantile in (0.5, 0.96, 0.98)] == [1.0, 1.0, 31.0]


def test_the_error_of_a_percentile_shrinks_with_the_effort():
    rough, finer = (
        predict(0.7 / SERVICE_S, [EXPONENTIAL_S], effort=own) for own in (ROUGH, ROUGH._replace(queues=2048))
    )
    assert (rough.error_shares() > 1.5 * finer.error_shares()).all()  # eight times the requests
    exact = SERVICE_S / 0.3 * np.log(1 / (1 - np.array(JUDGED)))
    found = np.array([finer.quantile_s(quantile) for quantile in JUDGED])
    assert (np.abs(found / exact - 1) < 4 * finer.error_shares()).all()


def test_a_queue_that_grows_has_no_prediction():
    service = [np.array([0.01]), np.array([0.015])]
    assert load_factor(2 / 0.015, service) == pytest.approx(1.0)
    assert load_factor(2 / 0.015, service, 4) == pytest.approx(0.25)
    assert predict(2 / 0.015, service) is None
    assert predict(0.9 * 2 / 0.015, service, effort=ROUGH) is not None
