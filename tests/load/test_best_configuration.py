"""What the run with the best configuration says against the search that found it."""

import pytest

from common.load.best_configuration import contradictions

BEST = {"is_bound_met": True, "bound_us": 50_000.0}
RUN = {"validity": "valid", "validity_reason": None, "request_p99_us": 49_000.0}


@pytest.mark.parametrize(
    ("best", "run", "found"),
    [
        ({}, {}, ""),
        ({}, {"request_p99_us": 61_234.0}, "its p99 is 61.23 ms"),
        ({}, {"validity": "overload", "validity_reason": "the queue grows", "request_p99_us": None}, "the queue grows"),
        ({}, {"validity": "failing", "validity_reason": "2 % failed", "request_p99_us": None}, "2 % failed"),
        ({}, {"validity": "invalid", "validity_reason": "late", "request_p99_us": None}, ""),  # it tells nothing
        ({"is_bound_met": False}, {"request_p99_us": 61_234.0}, ""),  # the search says so itself
    ],
)
def test_a_rate_that_the_best_configuration_does_not_hold_is_said(best, run, found):
    text = f"the load with the best configuration did not hold its rate: {found}; search with a larger <budget>"
    assert contradictions(BEST | best, RUN | run) == ([text] if found else [])
