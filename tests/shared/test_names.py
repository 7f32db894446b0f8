"""Names in messages."""

from __future__ import annotations

import pytest

from common.messages.names import MOST_SHOWN, listed, printable, quoted, shown, similar_names


def test_a_long_list_is_cut_off_and_says_how_many_are_missing():
    assert listed(iter("abcde"), 3) == "a, b, c and 2 more"
    assert listed("abc", 3) == "a, b, c"
    assert listed([], 3) == ""


def test_similar_names_are_few_and_never_empty():
    assert similar_names("conv", ["", "/conv1", "/conv2", "/conv3", "/conv4"]) == ["/conv1", "/conv2", "/conv3"]
    assert similar_names("Softmx", ["Softmax", "Softmax", "Add"]) == ["Softmax"]


# --- names as messages show them ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain/Conv_1", "plain/Conv_1"),
        ("größe ✓ 卷积", "größe ✓ 卷积"),
        ("a\nb\tc\x1b[31m\x00", r"a\nb\tc\x1b[31m\x00"),
        ("right\u202eleft\u200f", r"right\u202eleft\u200f"),
        ("\u2028\x85\xa0\ufeff", r"\u2028\x85\xa0\ufeff"),
        ("file\udcff", r"file\udcff"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_is_not_seen_is_escaped(name, text):
    assert printable(name) == shown(name) == text
    assert printable(text) == text


def test_a_name_is_no_quantity():
    assert shown("/a/<input>/<peak_flops>") == r"/a/\x3cinput>/\x3cpeak_flops>"
    assert quoted("<input>") == r"'\x3cinput>'"
    assert shown("<A>, a < b > c") == "<A>, a < b > c"
    assert listed(["<dim>", "b\n", "c"], 2) == r"\x3cdim>, b\n and 1 more"


def test_a_value_is_quoted_as_python_writes_it_and_cut_off():
    assert quoted("it's") == '"it\'s"' and quoted(7.5) == "7.5" and quoted(["a", {"b": 2}]) == "['a', {'b': 2}]"
    for value in ("x" * 5000, ["x" * 5000] * 5000, 10**4000):
        assert len(quoted(value)) == MOST_SHOWN and "…" in quoted(value)
    bomb = ["x"]
    for _ in range(60):
        bomb = [bomb] * 9
    assert len(quoted(bomb)) <= MOST_SHOWN
