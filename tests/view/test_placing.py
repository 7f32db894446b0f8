"""Labels: apart from each other, short, and never shared by two nodes."""

from itertools import combinations
from math import hypot

import pandas as pd
import pytest

from common.artifacts.frames import records
from common.view.executed_nodes import rank_nodes
from common.view.node_labels import labels_of
from common.view.placing import place_around, spread


def test_values_far_apart_stay_where_they_are():
    assert spread([11.0, 2.0, 5.0], gap=3.0) == [11.0, 2.0, 5.0]


def test_values_too_close_move_apart_about_their_mean():
    # 5 and 6 make a pair about 5.5 with a gap of 3: 4 and 7
    assert spread([6.0, 5.0, 29.0], gap=3.0) == [7.0, 4.0, 29.0]


def test_a_pushed_pair_takes_its_neighbour_into_the_cluster():
    # 5, 6 would take 4 to 7; 8 is nearer than 3 to 7, so all three spread about 19/3
    assert spread([5.0, 6.0, 8.0], gap=3.0) == pytest.approx([19 / 3 - 3, 19 / 3, 19 / 3 + 3])


def test_nothing_spreads_to_nothing():
    assert spread([], gap=3.0) == []


def test_labels_of_a_dense_heap_touch_neither_each_other_nor_a_mark():
    points = [(100.0 + 3 * n, 100.0 + 2 * n) for n in range(7)]
    others = [(100.0, 120.0), (90.0, 80.0)]
    places = place_around(points, [5.0] * 7, others, 15.0, (0.0, 0.0), (300.0, 300.0))
    assert all(hypot(a[0] - b[0], a[1] - b[1]) >= 15.0 for a, b in combinations(places, 2))
    assert all(hypot(a[0] - b[0], a[1] - b[1]) >= 5.0 + 7.5 for a in places for b in (*points, *others))


def test_labels_stay_in_the_room():
    places = place_around([(1.0, 1.0), (3.0, 1.0)], [2.0, 2.0], [], 15.0, (0.0, 0.0), (100.0, 100.0))
    assert all(0 <= x <= 100 and 0 <= y <= 100 for x, y in places)


def test_without_any_clear_place_a_label_lies_on_its_point():
    assert place_around([(1.0, 1.0)], [2.0], [], 15.0, (0.0, 0.0), (2.0, 2.0)) == [(1.0, 1.0)]


def nodes(**columns):
    frame = {"executed_node": ["a", "b", "c", "(gap)"], "node_latency_us": [3.0, 7.0, 5.0, 11.0]}
    return pd.DataFrame(frame | columns)


def test_nodes_rank_by_latency_without_the_gap_and_without_what_the_correction_dominates():
    table = nodes(row_kind=["node"] * 3 + ["gap"], is_correction_dominated=[False, True, False, False])
    assert [
        (key.number, key.name, key.latency_us) for key in rank_nodes(records(table), labels_of(records(table)))
    ] == [
        (1, "c", 5.0),
        (2, "a", 3.0),
    ]


def test_a_table_without_those_columns_ranks_all_its_rows():
    assert [key.name for key in rank_nodes(records(nodes().head(3)), labels_of(records(nodes())), count=2)] == [
        "b",
        "c",
    ]
