"""The predicted queue against closed forms of the literature and against a simulation of its own."""

import math
from bisect import bisect_right

import numpy as np
import pytest

from common.load.search.bulk_queue import load_factor, predict

SIZES = 7
TIMES_S = [0.011 + 0.0031 * size for size in range(1, SIZES + 1)]


def crommelin_share(rate, service, time):
    """P(wait <= time) of M/D/1 (Erlang 1909; Crommelin 1932, Bell System Technical Journal 11)."""
    load = rate * service
    terms = ((load * (k - time / service)) ** k / math.factorial(k) for k in range(int(time / service) + 1))
    return (1 - load) * sum(
        term * math.exp(-load * (k - time / service)) for k, term in zip(range(10**6), terms, strict=False)
    )


@pytest.mark.parametrize("load", [0.5, 0.8, 0.95])
def test_a_queue_of_one_is_m_d_1(load):
    service = 0.0113
    found = predict(load / service, [np.array([service])])
    assert found.mean_s == pytest.approx(service * (1 + load / (2 * (1 - load))), rel=1e-3)  # Pollaczek, Khinchine
    assert found.utilization == pytest.approx(load)
    if load < 0.9:  # the sum has alternating terms, and floats do not bear many of them
        for quantile in (0.6, 0.9, 0.99):
            wait = found.quantile_s(quantile) - service
            assert crommelin_share(load / service, service, wait) == pytest.approx(quantile, abs=0.01)


def test_a_queue_of_one_with_two_service_times_is_m_g_1():
    times, rate = np.array([0.003, 0.017]), 61.0
    load, square = rate * times.mean(), float(np.mean(times**2))
    wait = rate * square / (2 * (1 - load))  # Pollaczek, Khinchine
    assert predict(rate, [times]).mean_s == pytest.approx(times.mean() + wait, rel=2e-3)


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
def test_batches_of_one_service_time_have_bailey_s_sizes(load):
    service = 0.0137
    sizes, utilization = shares_by_roots(load * SIZES / service, service, SIZES)
    found = predict(load * SIZES / service, [np.array([service])] * SIZES)
    assert found.sizes == pytest.approx(sizes, abs=1e-6)
    assert found.utilization == pytest.approx(utilization, rel=1e-6)


def simulated(rate, service, wait, count, seed):
    """Response times of a queue that is played event by event."""
    random = np.random.default_rng(seed)
    gaps = random.exponential(1.0, count)
    comes = (np.cumsum(gaps) * (count / rate / gaps.sum())).tolist()
    first, free, responses = 0, 0.0, []
    while first < count:
        full = comes[first + len(service) - 1] if first + len(service) <= count else math.inf
        start = max(free, comes[first], min(comes[first] + wait, full))
        end = min(bisect_right(comes, start, first), first + len(service))
        free = start + random.choice(service[end - first - 1])
        responses += [free - came for came in comes[first:end]]
        first = end
    return np.array(responses)


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0.0, 0.004, 0.03, 0.2])
@pytest.mark.parametrize("load", [0.1, 0.4, 0.75])
def test_batches_with_a_wait_are_those_of_a_simulation(load, wait):
    service = [np.array([time, 1.3 * time]) for time in TIMES_S]
    rate = load * SIZES / service[-1].mean()
    found, played = predict(rate, service, wait), simulated(rate, service, wait, 60_000, 11)
    assert found.mean_s == pytest.approx(played.mean(), rel=0.02)
    assert found.quantile_s(0.5) == pytest.approx(np.quantile(played, 0.5), rel=0.06)
    assert found.quantile_s(0.99) == pytest.approx(np.quantile(played, 0.99), rel=0.06)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(8))
def test_random_queues_are_those_of_a_simulation(seed):
    random = np.random.default_rng(seed)
    most, wait = int(random.integers(2, 24)), float(random.choice([0.0, 0.002, 0.02]))
    steps = np.cumsum(random.uniform(0.0, 0.003, most)) + 0.004
    service = [step * random.lognormal(0.0, 0.1, 5) for step in steps]
    rate = random.uniform(0.05, 0.75) * most / service[-1].mean()
    found, played = predict(rate, service, wait), simulated(rate, service, wait, 200_000, seed)
    assert found.mean_s == pytest.approx(played.mean(), rel=0.02)
    assert found.quantile_s(0.99) == pytest.approx(np.quantile(played, 0.99), rel=0.06)


@pytest.mark.slow
def test_a_queue_that_grows_has_no_prediction():
    service = [np.array([0.01]), np.array([0.015])]
    assert load_factor(2 / 0.015, service) == pytest.approx(1.0)
    assert predict(2 / 0.015, service) is None
    assert predict(0.99 * 2 / 0.015, service) is not None
