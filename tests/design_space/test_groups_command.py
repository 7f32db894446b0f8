"""``python -m common.design_space groups`` on tables that the counting stage has written."""

from __future__ import annotations

import pytest

from common.design_space.__main__ import main
from common.design_space.bound import lower_bound
from common.design_space.fronts import best
from common.design_space.fusion import fused_front
from common.design_space.group_rows import group_rows
from common.design_space.hardware_files import load_hardware
from common.design_space.single_buffer import single_buffer
from common.view.fusion_text import fusion_report
from common.workload.map_layers import layer_graph
from models.__main__ import BUILDERS
from tests.support.command_lines import run_program, run_stage
from tests.support.paths import CONFIGS
from tests.support.source_tables import source_rows


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    model = folder / "tiny-resnet8.onnx"
    model.write_bytes(BUILDERS["tiny-resnet8"]().SerializeToString())
    out = folder / "out"
    written = run_stage("02_shapes_flops_bytes.py", "--model", model, "--dim", "batch=1", "--out", out)
    assert written.returncode == 0, written.stderr
    return out


def groups(*flags):
    return run_program("design_space", main, "groups", *flags)


def test_it_prints_every_group_and_the_bound(tables):
    done = groups("--out", tables, "--buffer-kib", 8)
    assert done.returncode == 0, done.stderr
    layers = layer_graph(*source_rows(BUILDERS["tiny-resnet8"](), batch=1))
    buffer = single_buffer(load_hardware("fa-dosa", CONFIGS / "hardware").resized(capacity_kib={"buffer": 8}))
    found = best(fused_front(layers, buffer))
    rows = group_rows(layers, found, buffer)
    lines = done.stdout.splitlines()
    assert lines[0] == "fa-dosa, buffer of 8 KiB"
    assert len(lines) == 2 + len(rows) + 3
    assert [int(line.split()[1]) for line in lines[2:-3]] == [row["layer_count"] for row in rows]
    assert max(map(len, lines)) <= 80
    assert f"EDP {found.edp:.4g} pJ·cycles" in lines[-2]
    assert f"bound {lower_bound(layers, buffer).edp:.4g}" in lines[-1]


def test_the_rows_add_up(tables):
    layers = layer_graph(*source_rows(BUILDERS["tiny-resnet8"](), batch=1))
    buffer = single_buffer(load_hardware("fa-dosa", CONFIGS / "hardware").resized(capacity_kib={"buffer": 8}))
    found = best(fused_front(layers, buffer))
    rows = group_rows(layers, found, buffer)
    assert sum(row["layer_count"] for row in rows) == len(layers.layers)
    assert sum(row["cycles"] for row in rows) == pytest.approx(found.cycles)
    assert sum(row["energy_pj"] for row in rows) == pytest.approx(found.energy_pj)
    assert all(0 <= row["peak_bytes"] <= 8 * 1024 for row in rows)


def test_a_schedule_at_the_bound_leaves_nothing():
    text = fusion_report("title", [], {"fused": 5.0, "unfused": 8.0, "bound": 5.0})
    assert "37.5 % below 8 without fusion" in text
    assert "better by more than 0.0 %" in text
    assert "better by more than 20.0 %" in fusion_report("title", [], {"fused": 5.0, "unfused": 8.0, "bound": 4.0})


@pytest.mark.parametrize(
    ("flags", "code", "problem"),
    [
        (("--buffer-kib", "0"), 2, "--buffer-kib"),
        (("--buffer-kib", "0.0625"), 2, "smallest tile"),
        (("--hardware", "gemmini"), 2, "has the memories"),
        (("--hardware", "nowhere"), 2, "nowhere"),
        (("--most-layers", "0"), 2, "--most-layers"),
        (("--describe",), 2, "--describe"),
    ],
)
def test_bad_input_gives_one_line(tables, flags, code, problem):
    done = groups("--out", tables, *flags)
    assert done.returncode == code
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert problem in line


def test_tables_that_are_not_there_name_the_stage_to_run(tmp_path):
    done = groups("--out", tmp_path)
    assert done.returncode == 3
    assert "run 02_shapes_flops_bytes.py first" in done.stderr
