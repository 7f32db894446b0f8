"""Groups of executed nodes: the smallest sets in which both sides compute the same source nodes."""

from __future__ import annotations

import pytest

from common.comparison.alignment import Executed, NodeGroup, aligned, fingerprints, renamed_sources


def test_equal_graphs_align_node_by_node():
    side = Executed({"a": ["1"], "b": ["2", "3"], "reorder": []}, {"reorder": "b"})
    assert aligned(side, side) == [
        NodeGroup(("1",), ("a",), ("a",)),
        NodeGroup(("2", "3"), ("b",), ("b",)),
        NodeGroup((), ("reorder",), ("reorder",)),
    ]


def test_a_fused_node_stands_against_those_that_it_replaced():
    fused = Executed({"conv_relu": ["conv", "bn", "relu"], "pool": ["pool"]})
    plain = Executed({"c": ["conv"], "b": ["bn"], "r": ["relu"], "p": ["pool"]})
    assert [(group.baseline, group.candidate) for group in aligned(fused, plain)] == [
        (("conv_relu",), ("c", "b", "r")),
        (("pool",), ("p",)),
    ]


def test_fusions_that_overlap_are_one_group():
    first, second = Executed({"ab": ["a", "b"], "c": ["c"]}), Executed({"A": ["a"], "bc": ["b", "c"]})
    assert [(group.baseline, group.candidate) for group in aligned(first, second)] == [(("ab", "c"), ("A", "bc"))]


def test_a_change_of_layout_belongs_to_the_node_that_it_serves_where_the_other_side_has_none():
    blocked = Executed({"reorder": [], "conv": ["conv"]}, {"reorder": "conv"})
    plain = Executed({"conv": ["conv"]})
    assert aligned(blocked, plain) == [NodeGroup(("conv",), ("reorder", "conv"), ("conv",))]
    assert aligned(plain, blocked)[0].candidate == ("reorder", "conv")


def test_an_inserted_node_that_serves_nothing_stands_alone():
    groups = aligned(Executed({"a": ["a"]}), Executed({"a": ["a"], "new": ["new"], "copy": []}))
    assert [(group.baseline, group.candidate) for group in groups] == [
        (("a",), ("a",)),
        ((), ("new",)),
        ((), ("copy",)),
    ]


def graph(names, shapes=None, edges=None):
    """Four nodes: two equal branches that join."""
    kinds = ("Conv", "Relu", "Relu", "Add")
    shapes = shapes or [[2, 3]] * 4
    rows = [
        {
            **{"source_node": name, "op_type": kind, "domain": "", "dtype": "float32"},
            **{"input_shapes": [shape], "output_shapes": [shape], "attributes": {}},
        }
        for name, kind, shape in zip(names, kinds, shapes, strict=True)
    ]
    ends = edges or [(0, 1), (0, 2), (1, 3), (2, 3)]
    return rows, [{"producer": names[one], "consumer": names[other]} for one, other in ends]


def matched(first, second):
    return renamed_sources(fingerprints(*first), fingerprints(*second))


def are_alike(first, second):
    return sorted(fingerprints(*first).values()) == sorted(fingerprints(*second).values())


def test_nodes_with_other_names_are_matched_by_what_they_compute():
    first, second = graph("abcd"), graph("wxyz")
    assert matched(first, second) == dict(zip("wxyz", "abcd", strict=True))
    assert are_alike(first, second)


def test_equal_names_are_left_alone():
    assert matched(graph("abcd"), graph("abcd")) == {}
    assert matched(graph("abcd"), graph("aXcd")) == {"X": "b"}


@pytest.mark.parametrize(
    "other",
    [
        graph("wxyz", shapes=[[2, 3], [2, 3], [2, 3], [2, 5]]),
        graph("wxyz", edges=[(0, 1), (1, 2), (1, 3), (2, 3)]),
    ],
)
def test_another_shape_or_edge_is_another_structure(other):
    assert not are_alike(graph("abcd"), other)


def test_behind_a_change_nodes_are_matched_by_what_they_lead_to():
    """The last node has another shape: what stands before it is the same, what it is itself is not."""
    first, other = graph("abcd"), graph("wxyz", shapes=[[2, 3], [2, 3], [2, 3], [2, 5]])
    assert matched(first, other) == {"w": "a", "x": "b", "y": "c"}
