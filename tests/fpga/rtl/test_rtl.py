"""The array as Verilog: results and cycles by Verilator, cells by yosys."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from benchmarks.kernels import systolic_fit
from common.files.configuration import Section
from common.fpga.kernels.systolic.array import fold_cycles
from common.fpga.kernels.systolic.array_models import read_systolic
from common.fpga.rtl import programs
from common.fpga.rtl.generate import FORMATS, Design
from common.fpga.rtl.simulate import ArrayProduct, simulate
from common.fpga.rtl.synthesize import Cells, synthesize, synthesize_by_block
from common.messages.errors import PipelineError

needs_verilator = pytest.mark.skipif(not programs.is_there("verilator"), reason="no verilator: make rtl-tools")
needs_yosys = pytest.mark.skipif(not programs.is_there("yosys"), reason="no yosys: make rtl-tools")


def random_run(design, m, k, n, seed=1):
    half = 1 << (design.format.bits - 1)
    random = np.random.default_rng(seed)
    return ArrayProduct(design, random.integers(-half, half, (m, k)), random.integers(-half, half, (k, n)))


def all_lowest(design, k):
    """Every operand the most negative one, whose square fills a field of the packed product to its last bit."""
    low = -(1 << (design.format.bits - 1))
    return ArrayProduct(design, np.full((design.rows, k), low), np.full((k, design.cols), low))


def borrowing(design):
    """Lower products negative, upper ones positive and negative: the borrowed bit decides each of them."""
    half = 1 << (design.format.bits - 1)
    a = np.array([[-half, half - 1, -1, 1, half - 1][(r + k) % 5] for r in range(design.rows) for k in range(5)])
    b = np.array([[1, -half, half - 1, -1][(c + 2 * k) % 4] for k in range(5) for c in range(design.cols)])
    return ArrayProduct(design, a.reshape(design.rows, 5), b.reshape(5, design.cols))


# Several products per element and several sums per cycle. Where they do not divide the rows, the topmost segment is
# shorter; in int4 a multiplier joins two rows.
DEEP = {
    "int16": Design(5, 2, "int16", overlap=True, simd=3, sums_per_cycle=3),
    "int8": Design(5, 3, "int8", overlap=True, simd=4, sums_per_cycle=2),
    "int4": Design(4, 3, "int4", overlap=True, simd=2, sums_per_cycle=2),
}


def runs():
    """Rectangles, primes, odd sides that leave half-filled multipliers, partial folds, K of 1 and less than R."""
    for precision in FORMATS:
        yield random_run(Design(5, 3, precision), 11, 7, 8)  # 3 x 3 folds
        yield random_run(Design(2, 7, precision), 4, 1, 14)  # 2 x 2 folds of a single product
        yield random_run(Design(5, 3, precision, overlap=True), 11, 7, 8)
        yield random_run(Design(4, 6, precision, overlap=True), 9, 3, 11)  # K < R: draining sets the pace
        yield all_lowest(Design(4, 5, precision), 13)
        if precision != "int16":
            yield borrowing(Design(3, 4, precision))
        deep = DEEP[precision]
        yield random_run(deep, 2 * deep.rows - 1, 37, 5)
        yield random_run(deep, deep.rows + 1, deep.simd, 7, seed=2)  # one step: draining sets the pace
        yield all_lowest(deep, 48)


@pytest.fixture(scope="module")
def outcomes():
    given = list(runs())
    return list(zip(given, simulate(given), strict=True))


def described(run):
    return f"{run.design.name} m={run.a.shape[0]} k={run.a.shape[1]} n={run.b.shape[1]}"


@pytest.mark.slow
@needs_verilator
def test_results_are_those_of_numpy(outcomes):
    for run, outcome in outcomes:
        np.testing.assert_array_equal(outcome.product, run.a @ run.b, described(run))


@pytest.mark.slow
@needs_verilator
def test_simple_schedule_takes_the_cycles_of_its_equation(outcomes):
    counted = {described(run): outcome.cycles for run, outcome in outcomes if not run.design.overlap}
    for run, outcome in outcomes:
        rows, cols, k = run.design.rows, run.design.cols, run.a.shape[1]
        if not run.design.overlap:
            assert outcome.cycles == run.folds * (2 * rows + cols + k - 2), described(run)
    # By hand: nine folds of 5 to feed and drain twice, 3 across, 7 deep, less 2; one fold of 4, 5 and 13.
    assert counted["systolic_5x3_int8 m=11 k=7 n=8"] == 9 * (10 + 3 + 7 - 2)
    assert counted["systolic_4x5_int4 m=4 k=13 n=5"] == 8 + 5 + 13 - 2


@pytest.mark.slow
@needs_verilator
def test_overlapped_schedule_takes_the_cycles_of_its_equation(outcomes):
    seen = 0
    for run, outcome in outcomes:
        if run.design.overlap:
            seen += 1
            rows, cols, d = run.design.rows, run.design.cols, run.design.sums_per_cycle
            steps, drain = ceil(run.a.shape[1] / run.design.simd), ceil(rows / d)
            expected = rows + drain + cols + steps - 2 + (run.folds - 1) * max(steps, drain)
            assert outcome.cycles == expected, described(run)
            assert outcome.cycles == fold_cycles(rows, cols, steps, run.folds, "overlapped", d)
    assert seen == 15
    counted = {described(run): outcome.cycles for run, outcome in outcomes}
    # By hand: 9 x 5 sums are 2 x 2 folds of 10 steps; a column of 5 leaves in segments of 3 and 2.
    assert counted["systolic_5x3x4_int8_overlap m=9 k=37 n=5"] == 5 + 3 + 3 + 10 - 2 + 3 * 10
    # 6 x 7 sums are 2 x 3 folds of one step, and each waits until the three rows of a segment have left.
    assert counted["systolic_5x3x4_int8_overlap m=6 k=4 n=7"] == 5 + 3 + 3 + 1 - 2 + 5 * 3


@pytest.mark.slow
@needs_verilator
def test_registers_behind_the_products_cost_their_cycles_once_per_call():
    """Two registers before and two behind the product and one per level of the tree, in both schedules."""
    given = [
        random_run(replace(design, is_pipelined=True), 11, 37, 8)
        for design in (
            Design(5, 3, "int8"),
            replace(DEEP["int8"], has_wide_multipliers=False),
            DEEP["int4"],
            Design(4, 3, "int16", overlap=True, simd=5),
        )
    ]
    extra = []
    for run, outcome in zip(given, simulate(given), strict=True):
        np.testing.assert_array_equal(outcome.product, run.a @ run.b, described(run))
        design = run.design
        schedule = "overlapped" if design.overlap else "simple"
        within = fold_cycles(design.rows, design.cols, run.steps, run.folds, schedule, design.sums_per_cycle)
        extra.append(outcome.cycles - within)
    assert extra == [4, 6, 5, 7] == [run.design.pipeline_cycles for run in given]


@needs_verilator
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("precision", "sums_per_cycle"), [("int16", 256 // 48), ("int8", 128 // 32), ("int4", 64 // 24)]
)
def test_sixteen_products_per_element(precision, sums_per_cycle):
    design = Design(8, 4, precision, overlap=True, simd=16, sums_per_cycle=sums_per_cycle)
    given = [random_run(design, 19, 131, 7), all_lowest(design, 256)]
    for run, outcome in zip(given, simulate(given), strict=True):
        np.testing.assert_array_equal(outcome.product, run.a @ run.b)
        assert outcome.cycles == fold_cycles(8, 4, run.steps, run.folds, "overlapped", sums_per_cycle)


@pytest.mark.slow
@needs_yosys
@pytest.mark.parametrize(
    ("rows", "cols", "precision", "overlap", "simd"),
    [(5, 4, "int8", False, 1), (4, 5, "int4", True, 1), (4, 5, "int8", True, 2)],
)
def test_cells_of_unseen_sizes_are_within_two_percent(rows, cols, precision, overlap, simd):
    assert (rows, cols) not in systolic_fit.FIT_SIZES[precision]
    design = Design(rows, cols, precision, overlap, simd)
    models = read_systolic(Section.of_file(systolic_fit.CONFIG))
    (dsp, dsp_model), *others = systolic_fit.modelled(design, synthesize(design), models)
    assert dsp == dsp_model == {"int8": rows * ceil(cols / 2), "int4": 2 * 3}[precision] * simd
    for count, model in others:
        assert model == pytest.approx(count, rel=0.02)


@needs_yosys
@pytest.mark.exhaustive
def test_an_array_of_a_planned_size_takes_what_the_model_says():
    """The array that ResNet-50 in int8 got on a KV260."""
    design = Design(8, 12, "int8", overlap=True, simd=16, sums_per_cycle=4)
    models = read_systolic(Section.of_file(systolic_fit.CONFIG))
    (dsp, dsp_model), (lut, lut_model), (ff, ff_model) = systolic_fit.modelled(
        design, synthesize_by_block(design), models
    )
    assert dsp == dsp_model == 8 * 6 * 16
    assert lut_model == pytest.approx(lut, rel=0.05)
    assert ff_model == pytest.approx(ff, rel=0.01)


def test_cells_add_up():
    cells = Cells({"LUT2": 3, "LUT6": 5, "INV": 1, "SRL16E": 7, "FDRE": 11, "FDSE": 2, "DSP48E2": 4, "CARRY4": 9})
    assert (cells.lut, cells.ff, cells.dsp) == (16, 13, 4)


def test_verilog_carries_its_sizes():
    text = Design(5, 3, "int4").verilog()
    top = text[text.index("module systolic_5x3_int4") :]
    assert ".ROWS(5), .COLS(3), .WIDTH(4), .ACC_WIDTH(24), .PACK_ROWS(2), .PACK_COLS(2), .OVERLAP(0), .SIMD(1)" in top
    assert re.search(r"input \[19:0\] a,\s+input \[11:0\] b,", top)  # 5 x 4 and 3 x 4 bits
    assert "output [71:0] result" in top  # 3 x 24
    assert "$name" not in text


def test_fit_finds_a_known_form_and_counts_its_errors():
    known = {Design(r, c, "int16"): Cells({"LUT4": 10 + 3 * r + 2 * c + 5 * r * c}) for r in (4, 7, 9) for c in (5, 8)}
    unseen = {Design(16, 16, "int16"): Cells({"LUT4": 2 * (10 + 48 + 32 + 1280)})}
    fit = systolic_fit._one_fit(known, unseen, ("int16", False, "lut"))
    assert fit["coefficients"] == pytest.approx({"one": 10, "row": 3, "col": 2, "row_col": 5}, abs=2e-3)
    assert (fit["fit_count"], fit["held_out_count"], fit["worst_error"]) == (6, 1, pytest.approx(0.5, abs=1e-4))


def test_sums_of_rows_that_share_a_multiplier_leave_together():
    with pytest.raises(PipelineError, match="would part rows that share a multiplier"):
        Design(6, 4, "int4", overlap=True, simd=16, sums_per_cycle=2)
    with pytest.raises(PipelineError, match="without overlap"):
        Design(6, 4, "int8", simd=16, sums_per_cycle=2)


@pytest.mark.parametrize("rows, cols, precision", [(1, 4, "int8"), (4, 4, "fp32")])
def test_there_is_no_such_design(rows, cols, precision):
    with pytest.raises(PipelineError, match=r"^(1x4|fp32): "):
        Design(rows, cols, precision)


def test_operands_must_fit(tmp_path):
    design = Design(2, 2, "int4")
    with pytest.raises(PipelineError, match="an operand is outside int4"):
        simulate([ArrayProduct(design, np.array([[8]]), np.array([[1]]))])
    with pytest.raises(PipelineError, match="does not fit its counters"):
        simulate([ArrayProduct(design, np.ones((2, 3), int), np.ones((4, 2), int))])


def test_a_missing_tool_is_one_line_with_its_remedy(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PipelineError) as caught:
        synthesize(Design(4, 4, "int8"))
    assert str(caught.value) == "yosys: not found; make rtl-tools installs yosys and verilator"


def test_a_failing_tool_is_one_line(tmp_path):
    with pytest.raises(PipelineError, match=r"^sh: exit code 3: some error here$"):
        programs.call(["sh", "-c", "echo some error here >&2; exit 3"], tmp_path)


def as_modelled(design, excess=1.0):
    models = read_systolic(Section.of_file(systolic_fit.CONFIG))
    dsp, lut, ff = (
        model for _, model in systolic_fit.modelled(design, Cells({"DSP48E2": 1, "LUT1": 1, "FDRE": 1}), models)
    )
    return Cells({"DSP48E2": dsp, "LUT6": round(lut * excess), "FDRE": round(ff)})


@pytest.mark.slow
@pytest.mark.parametrize(("excess", "code"), [(1.0, 0), (1.03, 1)])
def test_check_fails_above_two_percent(monkeypatch, capsys, excess, code):
    monkeypatch.setattr(systolic_fit, "synthesize", lambda design: as_modelled(design, excess))
    assert systolic_fit.main(["check", "--jobs", "1"]) == code
    out = capsys.readouterr().out.splitlines()
    deep = len(systolic_fit.DEEP_HELD_OUT)
    assert len(out) == 1 + (len(systolic_fit.HELD_OUT) * 2 + deep) * len(FORMATS) + 1
    assert out[-1].startswith("81 designs that were not fitted, worst error ")


def test_check_without_yosys_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert systolic_fit.main(["check", "--jobs", "1"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "systolic_fit: error: yosys: not found; make rtl-tools installs yosys and verilator"
    ]


@pytest.mark.slow
def test_fit_writes_its_section_and_leaves_the_rest(monkeypatch, tmp_path):
    copy = tmp_path / "systolic_rtl.yaml"
    copy.write_text(systolic_fit.CONFIG.read_text(encoding="utf-8"), encoding="utf-8")
    before = copy.read_text(encoding="utf-8").split("\nfits:\n")[0]
    monkeypatch.setattr(systolic_fit, "CONFIG", copy)
    monkeypatch.setattr(systolic_fit, "synthesize", as_modelled)
    assert systolic_fit.main(["fit", "--write", "--jobs", "1"]) == 0
    after = copy.read_text(encoding="utf-8")
    assert after.split("\nfits:\n")[0] == before
    fit = read_systolic(Section.of_file(copy)).fits["int8", "simple", "ff"]
    assert (fit.fit_count, fit.held_out_count) == (10, 12)
    assert fit.worst_error < 0.002


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize(
    "design",
    [
        Design(3, 4, "int8"),
        Design(9, 16, "int16", simd=2),
        Design(8, 4, "int4", overlap=True, sums_per_cycle=2),
        Design(7, 4, "int8", overlap=True, is_pipelined=True, has_wide_multipliers=False),
    ],
    ids=lambda design: design.name,
)
def test_the_linter_has_nothing_to_say(design, tmp_path):
    (tmp_path / "array.v").write_text(design.verilog(), encoding="utf-8")
    command = ["verilator", "--lint-only", "-Wall", "--top-module", design.name, "array.v"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
