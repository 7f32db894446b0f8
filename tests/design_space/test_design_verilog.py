"""Steps that the cost counts, against cycles of the generated Verilog."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from benchmarks.designs import verilog
from benchmarks.designs.verilog import TileRun, fill_and_drain
from common.fpga.kernels.systolic.array import fold_cycles
from common.fpga.rtl import programs
from common.fpga.rtl.generate import Design
from common.fpga.rtl.simulate import Outcome
from common.workload.loop_nests import LoopNest

needs_verilator = pytest.mark.skipif(not programs.is_there("verilator"), reason="no verilator: make rtl-tools")
STRIDED = LoopNest(k=7, c=3, p=3, q=11, r=3, s=2, stride_p=2, stride_q=3, dilation_r=2, dilation_s=3)
SHORT = LoopNest(k=5, c=2, p=13)


def test_steps_are_those_of_a_nest_written_by_hand():
    # 3 rows of 11 pixels on 5 rows are 3 x 3 folds, 7 channels on 4 columns are 2; each sums up 3 x 3 x 2 products.
    assert TileRun.drawn(Design(5, 4, "int8"), STRIDED).steps() == 3 * 3 * 2 * 18
    # 13 rows on 5 are 3 folds, 5 channels on 4 are 2; each sums up 2 products.
    assert TileRun.drawn(Design(5, 4, "int8"), SHORT).steps() == 3 * 2 * 2


def test_numpy_computes_a_tile_as_the_definition_says():
    run = TileRun.drawn(Design(5, 4, "int8"), STRIDED)
    k, p, q = 5, 2, 10
    by_hand = sum(
        int(run.image[c, 2 * p + 2 * r, 3 * q + 3 * s]) * int(run.weights[k, c, r, s])
        for c, r, s in product(range(3), range(3), range(2))
    )
    assert run.outputs()[p, q, k] == by_hand
    np.testing.assert_array_equal(run.sums_of(run.product().a @ run.product().b), run.outputs())


@pytest.mark.parametrize(("overlap", "schedule"), [(True, "overlapped"), (False, "simple")])
def test_fill_and_drain_is_what_the_plan_counts_beside_the_steps(overlap, schedule):
    for rows, columns, steps, folds in product((2, 5, 13), (3, 7), (1, 4, 17), (1, 2, 11)):
        whole = folds * steps + fill_and_drain(Design(rows, columns, "int8", overlap), steps, folds)
        assert whole == fold_cycles(rows, columns, steps, folds, schedule)


@pytest.mark.exhaustive
@needs_verilator
def test_the_verilog_takes_the_steps_and_the_fill_and_drain():
    designs = (Design(5, 4, "int8", overlap=True), Design(3, 4, "int8"))
    runs = [TileRun.drawn(design, nest, seed=3) for design in designs for nest in (STRIDED, SHORT)]
    lines, problems = verilog.compared(runs)
    assert problems == []
    # 5 to fill the rows and 4 the columns, less 2; 5 sums leave. Folds of 2 steps wait 3 cycles for the 5 sums before.
    assert [line[3:6] for line in lines[:2]] == [["324", "336", "12"], ["12", "39", str(12 + 5 * 3)]]
    # 3 rows take 3 x 4 folds and 5 x 2; each fills, drains 3 sums, and then the next one begins.
    assert [line[5] for line in lines[2:]] == [str(3 * 4 * 2 * 8), str(5 * 2 * 8)]


@pytest.mark.parametrize(
    ("cycles", "sums", "problem"),
    [(100, 0, ""), (27, 0, "27 cycles, not 100"), (100, 1, "sums differ from numpy's")],
)
def test_an_array_that_computes_or_takes_something_else_is_a_failure(monkeypatch, capsys, cycles, sums, problem):
    def array(products):
        return [Outcome(each.a @ each.b + sums, cycles) for each in products]

    for name, value in {
        "DESIGNS": (Design(3, 4, "int8"),),
        "TILES": (SHORT,),
        "simulate": array,
        "is_there": bool,
    }.items():
        monkeypatch.setattr(verilog, name, value)
    assert verilog.main([]) == int(bool(problem))
    last = capsys.readouterr().out.splitlines()[-1]
    expected = "all 1 runs: sums equal numpy's, cycles equal the equation's"
    assert last == (f"systolic_3x4_int8, 1x1, 2 to 5, 13 x 1: {problem}" if problem else expected)


def test_without_verilator_nothing_is_compared(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert verilog.main([]) == 0
    assert capsys.readouterr().err == "design_verilog: skipped: no verilator; make rtl-tools installs it\n"
