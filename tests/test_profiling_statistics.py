"""Quantile limits against a brute-force binomial."""

import math

import numpy as np
import pytest

from common.profiling.statistics import deviation, percentile, percentiles, summary


def at_most(count, q, most):
    """P(Binomial(count, q) <= most), term by term."""
    return sum(math.comb(count, k) * q**k * (1 - q) ** (count - k) for k in range(most + 1))


# 1 - q**n >= 0.95: n = ln 0.05 / ln q rounded up. 0.5: 4.3, 0.95: 58.4, 0.99: 298.1, 0.999: 2994.2
@pytest.mark.parametrize(("quantile", "needed"), [(0.5, 5), (0.9, 29), (0.95, 59), (0.99, 299), (0.999, 2995)])
def test_an_upper_limit_needs_so_many_samples(quantile, needed):
    assert percentile(np.arange(needed - 1, dtype=float), quantile).value is None
    assert percentile(np.arange(needed - 1, dtype=float), quantile).high is None
    assert percentile(np.arange(needed, dtype=float), quantile).high == needed - 1  # the largest sample


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("count", [5, 31, 59, 101, 307])
def test_the_limits_are_the_tightest_that_cover(quantile, count):
    found = percentile(np.arange(1, count + 1, dtype=float), quantile)  # a sample's value is its rank
    if found.high is None:
        assert 1 - quantile**count < 0.95
        return
    upper = int(found.high)
    assert at_most(count, quantile, upper - 1) >= 0.95 > at_most(count, quantile, upper - 2)
    lower = int(found.low or 0)
    covers = [rank for rank in range(1, count + 1) if 1 - at_most(count, quantile, rank - 1) >= 0.95]
    assert lower == max(covers, default=0)


def test_the_order_of_the_samples_does_not_matter():
    shuffled = np.random.default_rng(0).permutation(np.arange(101, dtype=float))
    assert percentile(shuffled, 0.5) == percentile(np.sort(shuffled), 0.5)
    assert percentile(shuffled, 0.5).value == 50


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
