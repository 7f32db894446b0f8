"""Names in messages."""

from __future__ import annotations

from common.names import listed, similar_names


def test_a_long_list_is_cut_off_and_says_how_many_are_missing():
    assert listed(iter("abcde"), 3) == "a, b, c and 2 more"
    assert listed("abc", 3) == "a, b, c"
    assert listed([], 3) == ""


def test_similar_names_are_few_and_never_empty():
    assert similar_names("conv", ["", "/conv1", "/conv2", "/conv3", "/conv4"]) == ["/conv1", "/conv2", "/conv3"]
    assert similar_names("Softmx", ["Softmax", "Softmax", "Add"]) == ["Softmax"]
