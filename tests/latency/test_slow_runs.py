"""The limit beyond which a run of a series is slow, against limits worked out by hand."""

import pytest

from common.latency.slow_runs import slow_limit_us


@pytest.mark.parametrize(
    ("latencies_us", "limit_us"),
    [
        ((1000, 1000, 1000, 1000, 9000), 1050),  # MAD 0: 5 % of the median
        ((900, 1000, 1100, 800, 1200), 1444.78),  # MAD 100: 1000 + 3 × 1.4826 × 100
        ((1000, 1000, 1000, 9000), float("inf")),  # too few
        ((), float("inf")),
    ],
)
def test_the_limit_beyond_which_a_run_is_slow(latencies_us, limit_us):
    assert slow_limit_us(latencies_us) == pytest.approx(limit_us)
