"""29 on a model's tables, and 07 with the arrays that it found."""

from __future__ import annotations

import shutil

import onnx
import pytest

from common.artifacts.folder import Folder
from common.artifacts.provenance import Provenance
from common.fpga.rtl import programs
from models.__main__ import BUILDERS
from tests.support.processes.command_lines import run_stage
from tests.support.tables.fpga import small, write_tables

SCRIPT, PLAN = "29_board_arrays.py", "07_fpga_candidates.py"
BOARD = ("--board", "ultra96", "--precision", "int8")
BUDGET = ("--board-budget", "dsp=60")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Tables of the small model with the arrays of 29."""
    folder = write_tables(tmp_path_factory.mktemp("board"), *small())
    done = run_stage(SCRIPT, "--out", folder, *BOARD, *BUDGET)
    assert done.returncode == 0, done.stderr
    assert "ultra96 in int8: " in done.stdout
    assert "are on the front" in done.stdout
    return folder


def table(folder, name):
    return Folder(folder, Provenance("test", "test")).table(name)


@pytest.mark.slow
def test_the_front_is_written_from_the_fastest_on_within_its_budget(out):
    engines = table(out, "design_engines")
    assert len(engines) > 1
    assert engines["modelled_latency_us"].is_monotonic_increasing
    assert (engines["dsp_count"] <= 60).all()
    assert (engines["board_share"] <= 1).all()
    assert (engines["compute_cycles"] <= engines["modelled_cycles"]).all()
    latency = engines["modelled_cycles"] / engines["clock_mhz"]
    assert latency.tolist() == pytest.approx(engines["modelled_latency_us"].tolist())
    assert table(out, "design_simulation").empty


@pytest.mark.slow
def test_a_plan_takes_the_arrays_and_is_compared_without_them(out):
    done = run_stage(PLAN, "--out", out, *BOARD, "--designs", out, "--all-notes")
    assert done.returncode == 0, done.stderr
    rows = table(out, "offload_comparison").set_index("alternative")["plan_latency_likely_us"]
    own, given = rows["own arrays"], rows["given designs"]
    assert rows["plan"] <= min(own, given) * 1.001
    wins = "the designs win" if given < own else "its own arrays win" if own < given else "both are equal"
    (note,) = [line for line in done.stderr.splitlines() if "with the designs alone" in line]
    assert wins in note
    assert f"{given:,.0f} us (" in note
    assert f"{own:,.0f} us (" in note


@pytest.mark.slow
def test_arrays_of_another_board_or_model_are_refused(out, tmp_path):
    done = run_stage(PLAN, "--out", out, "--board", "kv260", "--precision", "int8", "--designs", out)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "--designs: they are for ultra96 in int8, not for kv260 in int8" in line
    shutil.copytree(out, tmp_path / "none")
    (tmp_path / "none" / "design_engines.csv").unlink()
    done = run_stage(PLAN, "--out", out, *BOARD, "--designs", tmp_path / "none")
    assert done.returncode == 3
    assert "design_engines.csv: not found; run 29_board_arrays.py" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--board", "nowhere"), "--board"),
        (("--board", "ultra96", "--precision", "int4"), "--precision: int4 has elements of 4 bits"),
        (("--board", "ultra96", "--board-budget", "dsp=1"), "--board: no array of the"),
        (("--board", "ultra96", "--board-budget", "cells=1"), "--board-budget: 'cells=1' is no budget"),
        (
            ("--board", "ultra96", "--precision", "bf16", "--simulate"),
            "--precision: there is no Verilog of arrays in bf16",
        ),
    ],
)
def test_bad_input_gives_one_line(out, flags, problem):
    before = (out / "design_engines.csv").read_bytes()
    done = run_stage(SCRIPT, "--out", out, *flags)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert problem in line
    assert (out / "design_engines.csv").read_bytes() == before


@pytest.mark.slow
@pytest.mark.skipif(not programs.is_there("verilator"), reason="no verilator: make rtl-tools")
def test_the_fastest_array_is_simulated(out, tmp_path):
    shutil.copytree(out, tmp_path / "out")
    done = run_stage(SCRIPT, "--out", tmp_path / "out", *BOARD, *BUDGET, "--simulate")
    assert done.returncode == 0, done.stderr
    simulated = table(tmp_path / "out", "design_simulation")
    assert (simulated["simulated_cycles"] == simulated["simulated_equation_cycles"]).all()
    assert set(simulated["array_design"]) == {table(tmp_path / "out", "design_engines")["array_design"].iloc[0]}
    assert f"in {len(simulated)} of {len(simulated)} contractions" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not programs.is_there("verilator"), reason="no verilator: make rtl-tools")
def test_a_model_goes_from_its_file_to_a_plan_with_the_simulated_array(tmp_path):
    model, out = tmp_path / "model.onnx", tmp_path / "out"
    onnx.save(BUILDERS["tiny-resnet8"](), model)
    chain = (
        ("01_profile_onnx.py", "--model", model, "--dim", "batch=1", "--runs", "20"),
        ("02_shapes_flops_bytes.py", "--model", model, "--dim", "batch=1"),
        ("03_merge_profile_metrics.py", "--peak-flops", "1e11", "--mem-bw", "1e10"),
        ("04_critical_path.py",),
        ("05_energy_estimate.py", "--avg-power-w", "20", "--static-power-w", "5"),
        (SCRIPT, *BOARD, *BUDGET, "--simulate"),
        (PLAN, *BOARD, "--designs", out),
    )
    for script, *flags in chain:
        done = run_stage(script, "--out", out, *flags)
        assert done.returncode == 0, (script, done.stderr)
    simulated, engines = table(out, "design_simulation"), table(out, "design_engines")
    counted = table(out, "op_metrics")
    assert len(simulated) == len(set(simulated["loop_nest"]))
    assert simulated["execution_count"].sum() == counted["op_type"].isin(["Conv", "Gemm"]).sum()
    assert (simulated["simulated_cycles"] == simulated["simulated_equation_cycles"]).all()
    # The winner's cycles by the cost, and by the equation that the Verilog keeps to.
    fastest = engines.iloc[0]
    estimated = (simulated["modelled_cycles"] * simulated["execution_count"]).sum()
    assert estimated == pytest.approx(fastest["modelled_cycles"])
    assert (simulated["compute_cycles"] <= simulated["modelled_cycles"]).all()
    rows = table(out, "offload_comparison").set_index("alternative")["plan_latency_likely_us"]
    assert rows["plan"] <= min(rows["own arrays"], rows["given designs"]) * 1.001
