"""Numbers and tables for people."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.artifacts.frames import records
from common.messages.names import shorten
from common.view.profile.work_text import symbolic_report
from common.view.text import MISSING, columns, duration, joules, percent, quantity, significant, text_table


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4.1e9, "FLOP", "4.10 GFLOP"),
        (1e12, "FLOP/s", "1.00 TFLOP/s"),
        (7e15, "FLOP", "7.00 PFLOP"),
        (2.5e18, "FLOP", "2500 PFLOP"),  # there is no prefix above
        (65.0, "W", "65.0 W"),
        (1.0, "J", "1.00 J"),
        (0.9997e-3, "J", "1.00 mJ"),  # the carry comes before the prefix
        (0.9994e-3, "J", "999 µJ"),
        (999.6, "B", "1.00 kB"),
        (999.4, "B", "999 B"),
        (0.09996, "s", "100 ms"),
        (-3e-3, "s", "-3.00 ms"),
        (1.5e-12, "J", "1.50 pJ"),
        (2e-15, "J", "2.00 fJ"),
        (9.82e-18, "J", "9.82 aJ"),
        (9.82e-21, "J", "9.82e-21 J"),  # nor one below
        (0.0, "J", "0 J"),
        (0, "", "0"),
        (12.0, "", "12.0"),
        (math.inf, "s", "inf s"),
        (None, "J", MISSING),
        (math.nan, "J", MISSING),
        (pd.NA, "J", MISSING),
    ],
)
def test_quantity(value, unit, text):
    assert quantity(value, unit) == text


@given(st.floats(1e-11, 1e17), st.integers(2, 5))
def test_a_quantity_keeps_its_value_and_so_many_digits(value, digits):
    number, _, unit = quantity(value, "X", digits).partition(" ")
    scale = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1, "m": 1e-3, "µ": 1e-6, "n": 1e-9, "p": 1e-12}
    assert float(number) * scale[unit.removesuffix("X")] == pytest.approx(value, rel=0.51 * 10 ** (1 - digits))
    assert 1 <= float(number) < 1000
    assert len(number.replace(".", "")) == max(digits, len(number.partition(".")[0]))


@pytest.mark.parametrize(
    ("energy_uj", "text"),
    [(9.82e-12, "0 J"), (-9.82e-12, "0 J"), (1e-6, "1.00 pJ"), (2.5, "2.50 µJ"), (None, MISSING), (math.nan, MISSING)],
)
def test_an_energy_below_a_picojoule_is_the_rounding_of_a_difference(energy_uj, text):
    assert joules(energy_uj) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(9.996, 3, "10.0"), (0.9996, 3, "1.00"), (12345.6, 3, "12346"), (0.0012345, 2, "0.0012"), (0, 3, "0")],
)
def test_significant(value, digits, text):
    assert significant(value, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (64_600.0, "64.6 ms"),
        (999.97, "1.00 ms"),
        (None, MISSING),
        (0.0, "0 s"),
        (-1.82e-12, "0 s"),
        (0.0471, "47.1 ns"),
    ],
)
def test_duration(value, text):
    assert duration(value) == text


@pytest.mark.parametrize(
    ("share", "decimals", "text"), [(0.1234, 1, "12.3 %"), (1.0, 0, "100 %"), (-0.03, 1, "-3.0 %"), (None, 1, MISSING)]
)
def test_percent(share, decimals, text):
    assert percent(share, decimals) == text


def test_a_table_aligns_and_gives_way_in_its_first_column():
    rows = [("/a/very/long/path/to/a/convolution/Conv_17", "Conv", "1"), ("b", "Gemm", "23")]
    lines = text_table(("node", "op", "value"), rows, left=(0, 1), width=30).splitlines()
    assert lines[0].split() == ["node", "op", "value"]
    assert [len(line) for line in lines[1:]] == [30, 30]
    assert lines[1].endswith("  Conv      1")
    assert "…" in lines[1]
    assert lines[2].endswith("  Gemm     23")


def test_a_table_without_rows_is_its_header():
    assert text_table(("node", "value"), []) == "node  value"


@pytest.mark.parametrize("width", range(3, 30))
def test_shorten_keeps_both_ends(width):
    name = "/layer4/layer4.2/conv3/Conv"
    short = shorten(name, width)
    assert len(short) == min(width, len(name))
    assert short == name or (short[0] == "/" and short[-1] == "v" and "…" in short)


def test_names_that_would_look_alike_are_numbered():
    names = [f"/decoder/block.{number}/layer.0/SelfAttention/wo/MatMul" for number in (0, 10, 2, 10)]
    lines = text_table(("node", "time"), [[name, "7 ms"] for name in names], width=21).splitlines()
    assert len(set(lines[1:])) == 3 and lines[2] == lines[4]
    assert lines[2].split()[-3] == "#2" and all(len(line) <= 21 for line in lines)


def test_what_names_bring_neither_breaks_nor_shifts_a_table():
    names = ["plain", "卷积层", "a\nb", "\x1b[31mred", "mirror\u202eed", "e\u0301"]
    lines = text_table(("node", "time"), [[name, "7 ms"] for name in names]).splitlines()
    shown = ["plain", "卷积层", r"a\nb", r"\x1b[31mred", r"mirror\u202eed", "e\u0301"]
    assert [line.split()[0] for line in lines[1:]] == shown
    assert {columns(line) for line in lines} == {20}
    cut = text_table(("n", "t"), [["卷" * 30, "7"]], width=20).splitlines()[1]
    assert columns(cut) <= 20 and "…" in cut


def test_a_total_over_a_dimension_of_any_name_is_one_line():
    metrics = pd.DataFrame({"op_type": ["Relu"], "source_node": ["r"], "flops": [None], "flops_expression": ["7*x"]})
    text = symbolic_report(records(metrics), {}, {"flops": "7*'b\x1b[31m\r\n\u202e'"})
    assert text.splitlines()[1:] == [r"flops = 7*'b\x1b[31m\r\n\u202e'"]
