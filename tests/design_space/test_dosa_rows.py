"""Tables of mapped layers: estimates row by row, and rows that cannot be used."""

import re

import pandas as pd
import pytest

from benchmarks.designs import dosa_rows
from common.design_space.__main__ import main
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.dosa_rows import BATCH_ROWS, estimate, read_rows
from common.messages.errors import PipelineError
from tests.support.paths import ROOT

GEMMINI = load_hardware("gemmini", ROOT / "configs" / "hardware")
HEADER = (
    "prob.R,prob.S,prob.P,prob.Q,prob.C,prob.K,prob.N,prob.Wstride,prob.Hstride,"
    "arch.pe,arch.meshX,arch.mem1_entries,arch.mem2_entries,mapping.mapping\n"
)
# Two layers on two arrays, made by hand: a matrix product of 7 x 15 by 15 x 10, and a 3 x 3 window with stride 2.
PRODUCT = "1,1,7,1,15,10,1,1,1,64,8,128,4096,L3[WIO] K2 P7 - L2[WI] N1 K5X - L1[O] C5 C3X - L0[W] N1\n"
WINDOW = "3,3,4,2,1,6,1,2,2,16,4,64,1024,L3[WIO] K6 Q2 P2 - L2[WI] N1 - L1[O] R3 S3 P2 - L0[W] N1\n"


@pytest.fixture
def table(tmp_path):
    def write(text=HEADER + PRODUCT + WINDOW):
        (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
        return tmp_path / "rows.csv"

    return write


def run(rows, *more):
    output = rows.with_name("estimates.csv")
    assert main(["estimate", "--rows", str(rows), "--output", str(output), *more]) == 0
    return pd.read_csv(output)


def test_each_row_has_its_estimate(table):
    product, window = run(table()).to_dict("records")
    # The product's sums are those of test_cost.py; here 8 columns, a scratchpad of 4 KiB, accumulators of 512 bytes.
    assert product["dram_read_weight_words"] == 150
    assert product["dram_read_input_words"] == 210
    assert product["dram_written_output_words"] == 70
    assert product["dram_read_output_words"] == product["dram_written_weight_words"] == 0
    energy = 1050 * 0.5608 + (192 + 256 + 128) * 100 + (160 + 224 + 1056 + 224) * (0.02513 * 4 + 0.49)
    energy += 700 * (0.1005 * 0.5 + 1.94) + 2100 * 0.48746172
    assert product["energy_uj"] == pytest.approx(energy * 1e-6)
    assert product["cycles"] == 102  # two words per column of the scratchpad: 1620 / 16; the array takes 70, DRAM 54
    # Tiles of two rows by one column read 5 x 3 inputs; the second of a pair keeps one row of the first.
    assert window["dram_read_input_words"] == 6 * 2 * (5 + 4) * 3
    assert window["dram_written_output_words"] == 6 * 8


def test_the_scratchpad_can_be_what_limits(table):
    text = PRODUCT.replace("64,8,128", "16,2,128").replace("K2 P7 - L2[WI] N1 K5X", "K5 P7 - L2[WI] N1 K2X")
    words = 150 + 5 * 105 + 7 * 150 + 1050 / 2
    assert run(table(HEADER + text))["cycles"][0] == -(-words // 4)  # two words for each of two columns


def test_without_sizes_those_of_the_file_hold(table):
    header, row = (",".join(text.strip().split(",")[:9]) for text in (HEADER, PRODUCT))
    mapping = PRODUCT.strip().split(",")[-1]
    without = run(table(f"{header},mapping.mapping\n{row},{mapping}\n"))
    sized = run(table(HEADER + PRODUCT.replace("64,8,128,4096", "256,16,512,131072")))
    assert without.equals(sized)


def test_a_table_longer_than_a_batch_keeps_its_order():
    text = pd.DataFrame(
        [dict(zip(HEADER.strip().split(","), row.strip().split(","), strict=True)) for row in (PRODUCT, WINDOW)]
    )
    long = pd.concat([text] * (BATCH_ROWS // 2 + 3), ignore_index=True)
    estimates = estimate(read_rows(long, GEMMINI), GEMMINI)
    assert len(estimates) == len(long) > BATCH_ROWS
    assert (estimates.iloc[::2]["dram_read_weight_words"] == 150).all()
    assert (estimates.iloc[1::2]["dram_written_output_words"] == 48).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("prob.K", "prob.M", "the table: has no column prob.K"),
        ("arch.meshX", "mesh", "the table: has no column arch.meshX"),
        ("3,3,4,2", "3,3,zero,2", "row 2: prob.P is 'zero'; it takes a positive whole number"),
        ("3,3,4,2", "3,3,0,2", "row 2: prob.P is '0'; it takes a positive whole number"),
        ("16,4,64", "17,4,64", "row 2: 17 elements are no array of 4 columns"),
        ("64,8,128,4096", "64,8,128,1", "row 1: holds 1 words of 1 bytes, which is below one tile"),
        ("K6 Q2", "Z6 Q2", "row 2: mapping.mapping: 'Z6' is not a loop"),
        ("K6 Q2", "K5 Q2", "row 2: the mapping covers 5 of 6 along K; its factors must multiply to the layer"),
        ("K2 P7 - L2[WI] N1 K5X", "P7 - L2[WI] N1 K10X", "row 1: the array has 8 columns; lay out fewer copies"),
        ("C5 C3X", "C15 P1X C1X", None),
        ("K2 P7 - L2[WI] N1 K5X", "K2 - L2[WI] P7X K5X", "row 1: a loop is spatial below scratchpad that may not be"),
        ("16,4,64", "16,4,1", "row 2: needs 2 words in accumulator, which holds 1; give smaller tiles"),
        ("16,4,64,1024", "16,4,64,23", "row 2: needs 24 words in scratchpad, which holds 23; give smaller tiles"),
    ],
)
def test_a_row_that_cannot_be_used_gives_one_line(table, old, new, message):
    text = HEADER + PRODUCT + WINDOW
    assert old in text
    rows = table(text.replace(old, new, 1))
    if message is None:
        run(rows)
        return
    with pytest.raises(PipelineError, match=re.escape(message)) as failure:
        run(rows)
    assert str(failure.value).startswith(f"{rows}: ")
    assert "\n" not in str(failure.value)
    assert not rows.with_name("estimates.csv").exists()
    assert [file.name for file in rows.parent.iterdir()] == ["rows.csv"]


@pytest.mark.parametrize("content", ["", HEADER, "a,b\n1,2,3\n4\n", "\0\1"])
def test_what_is_no_table_gives_one_line(table, content):
    with pytest.raises(PipelineError) as failure:
        run(table(content))
    assert "\n" not in str(failure.value)


def test_a_file_that_is_not_there_and_one_that_cannot_be_written(table, tmp_path):
    with pytest.raises(PipelineError, match="cannot be read"):
        main(["estimate", "--rows", str(tmp_path / "none.csv"), "--output", str(tmp_path / "x.csv")])
    with pytest.raises(PipelineError, match="cannot be written"):
        main(["estimate", "--rows", str(table()), "--output", str(tmp_path / "none" / "x.csv")])


@pytest.mark.parametrize("argv", [["estimate", "--output", "x"], ["estimate", "--rows", "x"], ["guess"]])
def test_a_command_line_that_cannot_be_used(argv):
    with pytest.raises(PipelineError) as failure:
        main(argv)
    assert failure.value.exit_code == 2


@pytest.mark.parametrize("argv", [[], ["--help"]])
def test_the_help_is_the_docstring(argv, capsys):
    assert main(argv) == 0
    assert "python -m common.design_space estimate" in capsys.readouterr().out


def test_the_comparison_with_timeloop_says_what_is_off(table, tmp_path, capsys):
    frame = pd.read_csv(table())
    ours = run(table())
    frame["target.cycle"], frame["target.energy"] = ours["cycles"], ours["energy_uj"]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    rows = read_rows(frame, GEMMINI)
    assert dosa_rows.compare(frame, rows, GEMMINI)
    frame["target.cycle"] *= 1.001
    assert not dosa_rows.compare(frame, rows, GEMMINI)
    assert "above 0.0050 %" in capsys.readouterr().out
    assert dosa_rows.main(["--rows", str(tmp_path / "none")]) == 0


@pytest.mark.skipif(not dosa_rows.ROWS.is_file(), reason="DOSA's rows are not there")
def test_timeloop_counts_the_same():
    frame = pd.read_csv(dosa_rows.ROWS)
    assert dosa_rows.compare(frame, read_rows(frame, GEMMINI), GEMMINI)


def test_sizes_of_levels_that_the_accelerator_does_not_have_are_refused(table):
    with pytest.raises(PipelineError, match="fa-dosa has other levels; leave out the columns arch"):
        run(table(), "--hardware", "fa-dosa")


def test_words_that_are_whole_are_written_as_whole_numbers(table):
    # A third of each window is new, which is no binary fraction.
    row = "3,3,12,1,5,2,1,1,1,16,4,64,1024,L3[WIO] K2 P12 - L2[WI] N1 - L1[O] R3 S3 C5 - L0[W] N1\n"
    estimates = run(table(HEADER + row))
    assert str(estimates["dram_read_input_words"].dtype) == "int64"
    assert estimates["dram_read_input_words"][0] == 2 * 5 * 3 * (3 + 11)
