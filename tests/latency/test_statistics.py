"""Quantile limits against a brute-force binomial."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

from common.latency.dependence import Dependence
from common.latency.statistics import (
    QUANTILES,
    Estimate,
    counts_for_limits,
    dependent_ranks,
    deviation,
    figures,
    limit_ranks,
    mean_and_deviation,
    ordered_percentile,
    percentile,
    percentiles,
    summary,
)


def at_most(count, q, most):
    """P(Binomial(count, q) <= most), term by term."""
    return sum(math.comb(count, k) * q**k * (1 - q) ** (count - k) for k in range(most + 1))


# 1 - q**n >= 0.95: n = ln 0.05 / ln q rounded up. 0.5: 4.3, 0.95: 58.4, 0.99: 298.1, 0.999: 2994.2
@pytest.mark.parametrize(("quantile", "needed"), [(0.5, 5), (0.9, 29), (0.95, 59), (0.99, 299), (0.999, 2995)])
def test_an_upper_limit_needs_so_many_samples(quantile, needed):
    assert ordered_percentile(np.arange(needed - 1, dtype=float), quantile).value is None
    assert ordered_percentile(np.arange(needed - 1, dtype=float), quantile).high is None
    assert ordered_percentile(np.arange(needed, dtype=float), quantile).high == needed - 1  # the largest sample


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("count", [5, 31, 59, 101, 307])
def test_the_limits_are_the_tightest_that_cover(quantile, count):
    found = ordered_percentile(np.arange(1, count + 1, dtype=float), quantile)  # a sample's value is its rank
    if found.high is None:
        assert 1 - quantile**count < 0.95
        return
    upper = int(found.high)
    assert at_most(count, quantile, upper - 1) >= 0.95 > at_most(count, quantile, upper - 2)
    lower = int(found.low or 0)
    covers = [rank for rank in range(1, count + 1) if 1 - at_most(count, quantile, rank - 1) >= 0.95]
    assert lower == max(covers, default=0)


def test_samples_without_dependence_have_the_limits_of_independent_ones():
    shuffled = np.random.default_rng(0).permutation(np.arange(101, dtype=float))
    assert percentile(shuffled, 0.5) == ordered_percentile(np.sort(shuffled), 0.5)
    assert percentile(shuffled, 0.5).value == 50
    assert percentile(np.sort(shuffled), 0.5).value == 50


def test_an_unknown_percentile_is_none_in_all_three_columns():
    found = percentiles(np.arange(31, dtype=float))
    assert found["p50_us"] == 15
    assert [found[name] for name in ("p99_9_us", "p99_9_low_us", "p99_9_high_us")] == [None] * 3
    assert len(found) == 15


def test_summary():
    # mean 31/5 = 6.2; the deviation divides by n - 1
    found = summary(np.array([2.0, 3.0, 5.0, 7.0, 14.0]), "raw")
    squares = sum((value - 6.2) ** 2 for value in (2, 3, 5, 7, 14))
    assert found == {
        "raw_median_us": 5.0,
        "raw_mean_us": pytest.approx(6.2),
        "raw_min_us": 2.0,
        "raw_p95_us": pytest.approx(7 + 0.8 * 7),  # position 0.95·4 = 3.8
        "raw_std_us": pytest.approx(math.sqrt(squares / 4)),
    }


def test_one_sample_has_no_deviation():
    assert deviation([3.0]) is None


# --- ranks of long series -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("count", [2, 5, 307, 10_007, 10**6, 10**8])
def test_ranks_against_scipy(count, quantile):
    binom = pytest.importorskip("scipy.stats").binom
    lower, upper = limit_ranks(count, quantile)
    # upper: the smallest j with P(X <= j - 1) >= 0.95; lower: the largest i with P(X >= i) >= 0.95
    expected = int(binom.ppf(0.95, count, quantile)) + 1
    assert upper == (expected if expected <= count else None)
    assert binom.sf(lower - 1, count, quantile) >= 0.95 > binom.sf(lower, count, quantile)


# --- mean and deviation ---------------------------------------------------------------------------------------------


def autoregressive(noise, phi):
    """A series about 10 in which each value keeps so much of its neighbour."""
    values = [noise[0] / math.sqrt(1 - phi**2)]
    for each in noise[1:]:
        values.append(phi * values[-1] + each)
    return np.array(values) + 10


def test_limits_of_independent_samples_are_near_those_of_the_normal_law():
    # σ/√n = 3/√2500 = 0.06 and σ/√(2n) = 0.0424, times 1.645
    mean, spread = mean_and_deviation(Dependence(np.random.default_rng(0).normal(100, 3, 2500)))
    assert mean.high - mean.low == pytest.approx(2 * 1.645 * 0.06, rel=0.2)
    assert spread.high - spread.low == pytest.approx(2 * 1.645 * 0.0424, rel=0.25)
    assert mean.low < 100 < mean.high
    assert spread.low < 3 < spread.high


def test_neighbours_that_are_alike_widen_the_limits_of_the_mean():
    # the variance of the mean grows by (1 + φ) / (1 - φ) = 4 at φ = 0.6, so the limits by 2
    alike, _ = mean_and_deviation(Dependence(autoregressive(np.random.default_rng(0).normal(size=4000) * 0.8, 0.6)))
    exact = 2 * 2 * 1.645 / math.sqrt(4000)
    assert exact < alike.high - alike.low < 1.6 * exact  # the largest of three factors, with Student's quantile


@pytest.mark.slow
@pytest.mark.parametrize(("count", "phi", "least"), [(100, 0.0, 0.88), (1000, 0.5, 0.88)])
def test_nine_limits_in_ten_hold(count, phi, least):
    of_means, of_spreads = [], []
    for seed in range(200):
        noise = np.random.default_rng(seed).normal(size=count) * math.sqrt(1 - phi**2)
        mean, spread = mean_and_deviation(Dependence(autoregressive(noise, phi)))
        of_means.append((mean.low <= 10, mean.high >= 10))
        if spread.low is not None:  # one independent series in twenty looks dependent, and is then too short
            of_spreads.append((spread.low <= 1, spread.high >= 1))
    assert len(of_spreads) >= 170
    assert min(*np.mean(of_means, axis=0), *np.mean(of_spreads, axis=0)) >= least


def test_one_slow_run_does_not_take_the_limits_away():
    series = np.random.default_rng(0).normal(100, 1, 1000)
    series[5] = 1000
    mean, spread = mean_and_deviation(Dependence(series))
    assert 99.8 < mean.low < mean.value < mean.high < 105
    assert 0.9 < spread.low < spread.value < spread.high < 60


def test_the_same_series_has_the_same_limits():
    series = np.random.default_rng(0).lognormal(3, 1, 97)
    assert mean_and_deviation(Dependence(series)) == mean_and_deviation(Dependence(series.copy()))


def test_ten_samples_for_a_limit():
    few = np.arange(9.0)
    assert mean_and_deviation(Dependence(few)) == (
        Estimate(4.0, None, None),
        Estimate(pytest.approx(math.sqrt(7.5)), None, None),
    )
    assert mean_and_deviation(Dependence(np.array([3.0, 9, 1, 7, 0, 8, 4, 2, 6, 5])))[0].low is not None
    assert mean_and_deviation(Dependence(np.array([3.0]))) == (Estimate(3.0, None, None), Estimate(None, None, None))


def test_equal_samples_are_their_own_limits():
    assert mean_and_deviation(Dependence(np.full(20, 3.0))) == (Estimate(3.0, 3.0, 3.0), Estimate(0.0, 0.0, 0.0))
    for value, count in ((1234.567, 100), (0.1, 15)):  # the mean of equal numbers is off by a rounding
        mean, spread = mean_and_deviation(Dependence(np.full(count, value)))
        assert mean.low == mean.high == pytest.approx(value) and spread.high == pytest.approx(0, abs=1e-9)


def test_an_outlier_in_a_dependent_series_leaves_no_limits_rather_than_absurd_ones():
    random = np.random.default_rng(0)
    shifted = np.where(np.arange(1000) < 500, 10_000.0, 12_000.0) + random.normal(0, 50, 1000)
    for outlier in (100_000.0, 1e7, 1e15):
        mean, spread = mean_and_deviation(Dependence(np.where(np.arange(1000) == 700, outlier, shifted)))
        assert spread == Estimate(spread.value)
        assert mean.high is None or mean.high < 3 * mean.value


def test_the_limits_scale_with_the_unit():
    series = np.random.default_rng(0).lognormal(3, 1, 197)
    for one, thousand in zip(
        mean_and_deviation(Dependence(series)), mean_and_deviation(Dependence(1000 * series)), strict=True
    ):
        assert (thousand.value, thousand.low, thousand.high) == pytest.approx(
            (1000 * one.value, 1000 * one.low, 1000 * one.high)
        )


@pytest.mark.parametrize(("mine", "other"), [((10.0, 8.0, 12.5), (20.0, 1 / 4)), ((2.0, 1.0, 4.0), (3.0, 1.0))])
def test_the_estimate_of_a_longer_series(mine, other):
    value, narrower = other
    found = Estimate(*mine).about(value, narrower)
    low, high = (value * (limit / mine[0]) ** narrower for limit in mine[1:])
    assert (found.value, found.low, found.high) == pytest.approx((value, low, high))


def test_the_estimate_of_a_longer_series_without_limits():
    assert Estimate(10.0, None, None).about(11.0, 0.5) == Estimate(11.0, None, None)


def test_figures_have_limits_each_but_for_the_ends():
    found = figures(np.random.default_rng(0).permutation(np.arange(1.0, 3600.0)))
    names = [*(f"p{q}" for q in ("50", "90", "95", "99", "99_9")), "mean", "jitter"]
    expected = {f"{name}{part}_us" for name in names for part in ("", "_low", "_high")} | {"min_us", "max_us"}
    assert found.keys() == expected
    assert (found["min_us"], found["max_us"], found["mean_us"]) == (1, 3599, 1800)
    assert None not in found.values()


def series_with_limits(kind, count):
    random = np.random.default_rng(3)
    if kind == "independent":
        return random.lognormal(5, 0.3, count)
    walk = lfilter([1.0], [1.0, -0.9], random.standard_normal(count + 200))[200:]
    return np.exp(5 + 0.1 * walk)


@pytest.mark.parametrize("kind", ["independent", "dependent"])
@pytest.mark.parametrize("count", [1, 5, 12, 60, 400, 3000])
@pytest.mark.parametrize("least_factor", [1.0, 40.0])
def test_each_figure_without_limits_has_a_count_that_would_do(kind, count, least_factor):
    samples = series_with_limits(kind, count)
    found, counts = figures(samples, least_factor), counts_for_limits(samples, least_factor)
    names = (*QUANTILES, "mean", *(["jitter"] if count > 1 else []))
    assert {*counts} == {name for name in names if found[f"{name}_high_us"] is None}
    assert all(needed > count for needed in counts.values())


def test_as_many_independent_samples_as_are_needed_do():
    few = series_with_limits("independent", 58)
    assert counts_for_limits(few) == {"p95": 59, "p99": 299, "p99_9": 2995}
    for name, count in counts_for_limits(few).items():
        assert figures(series_with_limits("independent", count))[f"{name}_high_us"] is not None


def test_the_farther_limit_is_the_reach_of_an_estimate():
    assert Estimate(100.0, 90.0, 130.0).reach_share == pytest.approx(0.3)
    assert Estimate(100.0, None, 130.0).reach_share is None


@given(
    count=st.integers(1, 5000),
    factor=st.floats(1.0, 3000.0),
    quantile=st.sampled_from([*QUANTILES.values()]),
)
def test_limits_of_dependent_samples_are_around_the_quantile(count, factor, quantile):
    lower, upper = dependent_ranks(count, quantile, factor)
    assert 0 <= lower <= quantile * (count - 1) + 1
    assert upper is None or quantile * (count - 1) + 1 <= upper <= count


def test_independent_samples_are_their_own_ranks():
    assert dependent_ranks(500, 0.9, 1.0) == limit_ranks(500, 0.9)
    # 50 independent samples: p90 is between the 41st and the 49th, each of which stands for ten.
    assert limit_ranks(50, 0.9) == (41, 49)
    assert dependent_ranks(500, 0.9, 10.0) == (401, 490)
