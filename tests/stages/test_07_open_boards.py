"""07 plans for boards whose tools are open, in each number format, and says what it plans for."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from tests.support.processes.command_lines import run_stage
from tests.support.tables.fpga import small, write_tables

OPEN = ("crosslink_nx_vip", "ecpix5", "ulx3s")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("out"), *small())


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "fp32"])
@pytest.mark.parametrize("board", OPEN)
def test_a_small_board_is_planned_for(tables, board, precision):
    done = run_stage("07_fpga_candidates.py", "--out", tables, "--board", board, "--precision", precision)
    assert done.returncode == 0, done.stderr
    resources = pd.read_csv(tables / "board_resources.csv")
    assert set(resources["board"]) == {board}
    assert (resources["used_count"] <= resources["budget_count"] * (1 + 1e-9)).all()
    settings = json.loads((tables / "offload_plan.meta.json").read_text())["settings"]
    assert settings["board"]["value"] == board


def test_a_hand_off_for_vitis_is_refused_where_vitis_has_no_tools(tables, tmp_path):
    folder = tmp_path / "design"
    done = run_stage("07_fpga_candidates.py", "--out", tables, "--board", "ulx3s", "--hand-off", folder)
    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        "--hand-off: is for Vitis, which has no tools for the ecp5 of the ulx3s; leave it out; 32_build_engine.py "
        "builds an engine for open tools"
    )
    assert not folder.exists()
