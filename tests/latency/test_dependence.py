"""Independent samples that a dependent series is worth, against closed forms and planted dependence."""

import numpy as np
import pytest

from benchmarks.series.laws import QueueLaw, exponential, in_phases
from common.latency.dependence import Dependence, batch_variance, queue_factor
from common.latency.statistics import figures, percentile


def autoregressive(random, count, phi):
    """A series of unit deviation in which each value keeps so much of its neighbour."""
    noise, values = random.normal(size=count) * np.sqrt(1 - phi**2), [random.normal()]
    for each in noise[1:]:
        values.append(phi * values[-1] + each)
    return np.array(values)


def waits(random, count, load, service, gaps=None):
    """Latencies of a queue with one server, Poisson arrivals and mean service 1, by Lindley's recursion."""
    gaps, wait, latencies = random.exponential(1 / load, count) if gaps is None else gaps, 0.0, []
    for gap, taken in zip(gaps, service, strict=True):
        wait = max(0.0, wait - gap)
        wait += taken
        latencies.append(wait)
    return np.array(latencies)


def test_most_independent_series_are_seen_as_such():
    random = np.random.default_rng(0)
    factors = [Dependence(random.lognormal(0, 0.3, 400)).quantile_factor(0.9) for _ in range(100)]
    assert np.mean(np.array(factors) == 1) > 0.6


def test_values_that_come_in_runs_have_their_length_as_factor():
    """Whole runs of eleven: the variance of a mean is eleven times that of independent values."""
    random = np.random.default_rng(1)
    factors = [batch_variance(np.repeat(random.random(4000), 11)).factor for _ in range(100)]
    assert 11 < np.mean(factors) < 1.6 * 11  # the largest of three estimates, with Student's quantile


def test_a_short_or_constant_series_has_no_factor():
    assert Dependence(np.array([1.0, 2.0, 1.0] * 3)).factor == 1
    assert Dependence(np.full(400, 3.0)).quantile_factor(0.5) == 1


def test_equal_samples_share_their_rank():
    """A rank by place would rise along the series, and would look like a trend."""
    random = np.random.default_rng(2)
    assert Dependence(random.integers(0, 2, 4000).astype(float)).factor < 4


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.5, 0.7])
def test_the_factor_of_a_queue_is_that_of_its_simulation(load):
    """The variance of the mean of 300 runs of a warm queue, against that of as many independent waits."""
    random = np.random.default_rng(3)
    count, filling = 3000, 500
    runs = [waits(random, count, load, random.exponential(1.0, count))[filling:] for _ in range(300)]
    means = np.array([run.mean() for run in runs])
    simulated = means.var(ddof=1) * (count - filling) / np.concatenate(runs).var()
    sample = random.exponential(1.0, 100_000)
    assert queue_factor(load, sample, sample) == pytest.approx(simulated, rel=0.3)


@pytest.mark.slow
def test_arrivals_in_phases_enter_the_factor_of_a_queue():
    """As above. The gaps scatter as those of Poisson arrivals do, and their sums nearly four times as much."""
    random, count = np.random.default_rng(9), 20_000
    law = QueueLaw(exponential, in_phases)
    runs = [law.draw(0.7, random, count).latencies for _ in range(200)]
    simulated = np.var([run.mean() for run in runs], ddof=1) * count / np.concatenate(runs).var()
    long = law.draw(0.7, random, 500_000)
    assert queue_factor(0.7, long.service, long.gaps) == pytest.approx(simulated, rel=0.35)
    shuffled = random.permutation(long.gaps)
    assert queue_factor(0.7, long.service, shuffled) < simulated / 2


def test_even_service_and_even_arrivals_halve_and_end_the_factor():
    random, even = np.random.default_rng(4), np.ones(100_000)
    exponential = random.exponential(1.0, 100_000)
    whole = queue_factor(0.8, exponential, exponential)
    assert queue_factor(0.8, even, exponential) == pytest.approx(whole / 2, rel=0.02)
    assert queue_factor(0.8, even, even) == 1
    assert queue_factor(1.0, exponential, exponential) == queue_factor(0.0, exponential, exponential) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("phi", "count"), [(0.3, 200), (0.7, 200), (0.7, 1000), (0.95, 200), (0.95, 1000)])
def test_nine_limits_of_the_median_in_ten_hold(phi, count):
    random = np.random.default_rng(5)
    estimates = [percentile(10 + autoregressive(random, count, phi), 0.5) for _ in range(100)]
    held = [each.low <= 10 <= each.high for each in estimates if each.low is not None and each.high is not None]
    assert len(held) >= 80 and np.mean(held) >= 0.88


@pytest.mark.slow
@pytest.mark.parametrize("name", ["p50", "p90", "p95", "p99", "mean"])
def test_nine_limits_in_ten_of_a_busy_queue_hold_where_they_are_stated(name):
    """M/M/1 at 70 %: the latency is exponential with mean 1 / (1 - 0.7)."""
    random = np.random.default_rng(6)
    truth = {"mean": 1 / 0.3} | {key: -np.log(1 - share) / 0.3 for key, share in SHARES.items()}
    held = []
    for count in (1500, 14_000 if name == "p99" else 6000):
        for _ in range(60):
            service = random.exponential(1.0, count + 1000)
            latencies = waits(random, count + 1000, 0.7, service)[1000:]
            found = figures(latencies, queue_factor(0.7, service, random.exponential(1.0, count)))
            low, high = found[f"{name}_low_us"], found[f"{name}_high_us"]
            held += [low <= truth[name] <= high] if low is not None and high is not None else []
    assert len(held) >= 20 and np.mean(held) >= 0.88


SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def test_a_busy_queue_of_few_requests_has_no_limit_of_its_tail():
    """1,500 requests at 85 % are worth ten independent ones."""
    random = np.random.default_rng(7)
    service = random.exponential(1.0, 1500)
    found = figures(waits(random, 1500, 0.85, service), queue_factor(0.85, service, random.exponential(1.0, 1500)))
    assert found["p99_us"] is not None
    assert [found[f"{name}_high_us"] for name in ("p90", "p99")] == [None] * 2


@pytest.mark.slow
def test_mean_and_deviation_of_few_requests_of_a_busy_queue_have_limits_that_hold():
    """M/M/1 at 85 %. Limits in some of the series only, chosen by what they show, held in a third of them."""
    random, count, filling = np.random.default_rng(8), 1500, 2500
    held = []
    for _ in range(80):
        service, gaps = random.exponential(1.0, count + filling), random.exponential(1 / 0.85, count + filling)
        latencies = waits(random, count + filling, 0.85, service, gaps)[filling:]
        own = service[filling:], gaps[filling:]
        found = figures(latencies, queue_factor(min(0.999, own[0].sum() / own[1].sum()), *own))
        if found["jitter_low_us"] is not None:  # else its servers hardly ever rested
            held.append(
                [found[f"{name}_low_us"] <= 1 / 0.15 <= found[f"{name}_high_us"] for name in ("mean", "jitter")]
            )
    assert len(held) >= 72 and np.mean(held, axis=0).min() >= 0.88
