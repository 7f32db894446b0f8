"""Pairs of sessions one after another: how runs are divided among them, and their series joined."""

from __future__ import annotations

import numpy as np
import pytest

from common.measurements.paired_measurement import joined_pairs, shares_of_runs


@pytest.mark.parametrize(
    ("runs", "shares"),
    [(5, [5]), (9, [9]), (11, [6, 5]), (99, [6, 6, 6, 6, *[5] * 15]), (203, [11, 11, 11, *[10] * 17])],
)
def test_runs_are_divided_among_as_many_sessions_as_have_enough_of_them(runs, shares):
    assert shares_of_runs(runs) == shares


def test_series_are_joined_in_the_order_of_the_sessions():
    first = (
        (np.array([2.0]), np.array([3.0])),
        ({"a": np.array([5.0]), "b": np.array([7.0])}, {"c": np.array([11.0])}),
    )
    other = ((np.array([13.0]), np.array([17.0])), ({"a": np.array([19.0])}, {"c": np.array([23.0])}))
    latencies, nodes = joined_pairs([first, other])
    assert [series.tolist() for series in latencies] == [[2.0, 13.0], [3.0, 17.0]]
    assert [{name: times.tolist() for name, times in side.items()} for side in nodes] == [
        {"a": [5.0, 19.0]},
        {"c": [11.0, 23.0]},
    ]
