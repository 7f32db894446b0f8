"""The histogram against exact percentiles of the same values, on values of any size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.latency.histogram import Histogram
from common.latency.statistics import QUANTILES, Estimate, deviation, ordered_percentile

HOURS_NS = 10 * 3600 * 10**9
LATENCIES = st.lists(st.integers(0, HOURS_NS), min_size=1, max_size=300)


def histogram(values):
    made = Histogram()
    made.add(np.array(values, dtype=np.int64))
    return made


def close(value):
    return None if value is None else pytest.approx(value, rel=0.0005, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(LATENCIES)
def test_every_percentile_and_its_limits_are_within_half_a_thousandth(values):
    found = histogram(values)
    for quantile in (0.01, 1 / 3, *QUANTILES.values()):
        exact = ordered_percentile(np.sort(values) / 1e3, quantile)
        result = found.percentile_us(quantile)
        assert (result.value, result.low, result.high) == (close(exact.value), close(exact.low), close(exact.high))


@settings(max_examples=100, deadline=None)
@given(LATENCIES)
def test_count_ends_mean_and_deviation_are_exact(values):
    found = histogram(values)
    assert (found.count, found.min_ns, found.max_ns) == (len(values), min(values), max(values))
    assert found.mean_us == pytest.approx(sum(values) / len(values) / 1e3, rel=1e-12)
    assert found.deviation_us == close(deviation(np.array(values) / 1e3))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(LATENCIES, LATENCIES)
def test_merged_is_as_counted_together(first, second):
    merged, together = histogram(first), histogram(first + second)
    merged.merge(histogram(second))
    assert [merged.percentile_us(q) for q in QUANTILES.values()] == [
        together.percentile_us(q) for q in QUANTILES.values()
    ]
    ends = ("count", "min_ns", "max_ns", "mean_us", "deviation_us")
    assert [getattr(merged, name) for name in ends] == [getattr(together, name) for name in ends]


def test_an_empty_one_adds_nothing():
    found = histogram([7, 11])
    found.merge(Histogram())
    assert (found.count, found.min_ns) == (2, 7)
    empty = Histogram()
    empty.merge(found)
    assert (empty.count, empty.min_ns, empty.max_ns) == (2, 7, 11)


# 2,047 takes 11 bits, a cell of its own; from 2,048 on two share a cell, from 4,096 on four
@pytest.mark.parametrize(
    ("value", "read"), [(2047, 2047), (2048, 2048.5), (2049, 2048.5), (2050, 2050.5), (4095, 4094.5), (4096, 4097.5)]
)
def test_a_value_is_read_as_the_middle_of_its_cell(value, read):
    found = histogram([0] * 10 + [value] * 20 + [10**6] * 10)
    assert found.percentile_us(0.5).value == pytest.approx(read / 1e3)


def test_the_ends_are_never_passed():
    found = histogram([4096] * 10)  # its cell reaches to 4,099
    assert found.percentile_us(0.5) == Estimate(4.096, 4.096, 4.096)


def test_the_largest_value_of_63_bits():
    found = histogram([2**63 - 1] * 5)
    assert found.percentile_us(0.5).value == pytest.approx((2**63 - 1) / 1e3)


def test_a_clock_that_runs_backwards():
    with pytest.raises(ValueError, match="a duration of -1 ns"):
        Histogram().record(-1)


def test_one_value_has_no_deviation():
    assert histogram([5]).deviation_us is None


def test_a_billion_values_have_limits():
    """The cells do not grow with what they count, nor does the binomial behind the limits."""
    found = histogram([1000, 2000, 3000])
    for _ in range(29):
        found.merge(_copy(found))
    assert found.count == 3 * 2**29
    assert found.percentile_us(0.5) == Estimate(2, 2, 2)
    assert found.deviation_us == pytest.approx(np.sqrt(2 / 3))  # of 1, 2, 3 in equal parts


def _copy(found):
    made = Histogram()
    made.merge(found)
    return made
