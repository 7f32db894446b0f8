"""The hand-off of a plan, read again by other means and compared with the tables of the same run."""

from __future__ import annotations

import configparser
import ctypes
import importlib
import itertools
import json
import re
import shutil
from collections import Counter
from math import ceil, prod

import numpy as np
import pandas as pd
import pytest

from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import ARRAY_SIDES, ARRAY_SIMD, array_ports, streaming
from common.fpga.hand_off.designs import array_design
from common.fpga.hand_off.units import compute_units, connectivity
from common.fpga.kernels.systolic.array import build_array
from common.fpga.planning.planned_kernels import PlannedKernel
from common.intervals import ThreePoint
from tests.support.kernels.hls import SUM, Memory, Program, Step, View, as_bytes, compiled, elements
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_stage
from tests.support.tables.fpga import Executed, Model, executed_resnet50, resnet50, write_tables

stage = importlib.import_module("07_fpga_candidates")
CONFIGS = ROOT / "configs"
NONE = ThreePoint.exactly(0.0)


@pytest.fixture(scope="module")
def handed(tmp_path_factory):
    """ResNet-50 in int8 on a U280: the folder of the tables and that of the hand-off."""
    model = resnet50()
    out = write_tables(tmp_path_factory.mktemp("resnet"), model, executed_resnet50(model))
    folder = tmp_path_factory.mktemp("handed") / "off"
    assert stage.main(["--out", str(out), "--precision", "int8", "--hand-off", str(folder), "--quiet"]) == 0
    return out, folder


def table(handed, name):
    return pd.read_csv(handed[0] / f"{name}.csv")


def document(handed, name):
    return json.loads((handed[1] / name).read_text(encoding="utf-8"))


# --- connectivity.cfg -------------------------------------------------------------------------------------------------


def linked(text):
    """Compute units with their designs, regions, and memory channels by port, as a linker would read the file."""
    section = re.findall(r"^\[(\w+)\]$", text, re.MULTILINE)
    assert section == ["connectivity"]
    assert configparser.ConfigParser(strict=False).read_string(text) is None
    units, regions, memories = {}, {}, {}
    for key, value in re.findall(r"^(\w+)=(\S+)$", text, re.MULTILINE):
        if key == "nk":
            design, count, names = value.split(":")
            assert re.fullmatch(r"[A-Za-z_]\w*", design)
            assert int(count) == len(names.split(","))
            units |= dict.fromkeys(names.split(","), design)
        elif key == "slr":
            unit, region = value.split(":")
            regions[unit] = region
        else:
            assert key == "sp"
            port, memory = value.split(":")
            assert port not in memories, "a port is connected twice"
            memories[port] = memory
    assert {port.split(".")[0] for port in memories} == set(units)
    assert set(regions) <= set(units)
    return units, regions, memories


def channels(memories, unit):
    return {memory for port, memory in memories.items() if port.split(".")[0] == unit}


@pytest.mark.slow
def test_the_linker_gets_the_plans_kernels_regions_and_channels(handed):
    units, regions, memories = linked((handed[1] / "connectivity.cfg").read_text())
    plan, board = table(handed, "offload_plan"), table(handed, "board_resources")
    assert set(units) == set(plan["kernel"])
    used, kinds = Counter(), {}
    for row in plan.itertuples():
        kinds[row.kernel] = row.engine.split("-")[0]
        ports = "_8p" if kinds[row.kernel] == "rowwise" else ""  # those of the array whose maps it pools
        assert units[row.kernel] == row.engine.replace("-", "_") + ports
        assert regions.get(row.kernel, "board") == row.region
        mine = channels(memories, row.kernel)
        assert ports or len(mine) == row.memory_channel_count
        used.update(mine if not ports else ())
    assert max(used.values()) == 1, "two arrays share a channel"
    arrays, others = ({name for name, kind in kinds.items() if (kind == "systolic") is so} for so in (True, False))
    assert len(arrays) == 1
    assert others
    assert all(channels(memories, other) == channels(memories, *arrays) for other in others)
    counted = board[(board["resource"] == "memory_channels") & (board["region"] == "board")].iloc[0]
    assert sum(used.values()) < counted["used_count"] <= counted["total_count"]
    assert all(0 <= int(memory.removeprefix("HBM[").removesuffix("]")) < 32 for memory in used)


def planned(name, engine, region):
    return PlannedKernel(name, engine, engine.name, region, (), None, NONE, None, 0, 0, NONE, NONE)


def engines(board_name):
    board, models = load_board(board_name, CONFIGS / "boards"), load_models(CONFIGS)
    array = build_array((4, 8, 2), "int8", array_ports(board), board.macs_per_dsp["int8"], models.systolic)
    return board, array, streaming(board, "int8", models)


def test_two_units_of_one_design_and_a_stream_share_no_channel():
    board, array, stream = engines("u280")
    kernels = [planned("K1", array, "SLR0"), planned("K2", stream, None), planned("K3", array, "SLR2")]
    units, regions, memories = linked(connectivity(compute_units(kernels, board)))
    assert units == {"K1": "systolic_4x8x2_int8", "K2": "streaming_16ch_int8", "K3": "systolic_4x8x2_int8"}
    assert regions == {"K1": "SLR0", "K3": "SLR2"}
    assert channels(memories, "K1") == {f"HBM[{n}]" for n in range(8)}
    assert channels(memories, "K2") == {f"HBM[{n}]" for n in range(8, 25)}  # 16 for the matrix, one for x and y
    assert memories["K2.x0"] == memories["K2.y0"] == "HBM[24]"
    assert channels(memories, "K3") == {f"HBM[{n}]" for n in range(25, 33)}


@pytest.mark.parametrize(
    ("name", "memories"),
    [("u250", {"DDR[0]", "DDR[1]"}), ("kv260", {"HP0", "HP1"}), ("vck190", {"DDR"}), ("u50", None)],
)
def test_memories_are_called_as_the_platform_calls_them(name, memories):
    board, array, _ = engines(name)
    kernels = [planned("K1", array, board.regions[0].name)]
    _, regions, found = linked(connectivity(compute_units(kernels, board)))
    assert set(found.values()) == (memories or {f"HBM[{n}]" for n in range(8)})
    assert regions == ({} if name in ("kv260", "vck190") else {"K1": "SLR0"})


def test_ports_of_a_zynq_are_used_again_where_they_run_out():
    board, array, stream = engines("kv260")
    kernels = [planned("K1", array, "device"), planned("K2", stream, None)]
    _, _, found = linked(connectivity(compute_units(kernels, board)))
    order = [found[f"K1.p{n}"] for n in (0, 1)] + [found[f"K2.{port}"] for port in ("p0", "p1", "x0", "y0")]
    assert order == ["HP0", "HP1", "HP2", "HP3", "HP0", "HP1"]


# --- specifications ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_calls_add_up_to_the_plans_kernel(handed):
    for row in table(handed, "offload_plan").itertuples():
        kernel = document(handed, f"{row.kernel}.json")
        calls = kernel["calls"]
        assert len(calls) == row.call_count
        assert sum(call["is_launched"] for call in calls) == row.launch_count
        assert sum(call["kernel_likely_us"] for call in calls) == pytest.approx(row.kernel_latency_likely_us)
        assert sum(call["kernel_pessimistic_cycles"] for call in calls) == pytest.approx(row.kernel_pessimistic_cycles)
        assert sum(call["weight_bytes"] for call in calls) == row.onboard_weight_bytes
        assert sum(macs(call) for call in calls) == row.macs
        assert kernel["resources"]["dsp"] == row.dsp_count
        of_plan = 8 if kernel["engine_kind"] == "rowwise" else row.memory_channel_count  # it has the array's ports
        assert len({port["memory"] for port in kernel["ports"]}) == of_plan


def macs(call):
    names = ("rows", "depth", "columns", "batch_count")
    return sum(prod(product[name] for name in names) for product in call.get("products", []))


@pytest.mark.slow
def test_products_are_those_of_the_layers_in_one_of_two_orientations(handed):
    calls = document(handed, "K1.json")["calls"]
    for call in calls:
        layers = [layer for layer in call["layers"] if layer["layer"] in ("Convolution", "Matmul")]
        for layer, product in zip(layers, call["products"], strict=True):
            if layer["layer"] == "Matmul":
                m, k, n = layer["m"], layer["k"], layer["n"]
            else:
                m = layer["batch"] * layer["out_height"] * layer["out_width"]
                k = layer["in_channels"] * layer["kernel_height"] * layer["kernel_width"]
                n = layer["out_channels"]
            found = product["rows"], product["depth"], product["columns"]
            assert found == ((n, k, m) if product["is_transposed"] else (m, k, n))


def test_array_cycles_are_those_of_folds_one_after_the_other(handed):
    kernel = document(handed, "K1.json")
    rows, columns, simd = (kernel["sizes"][name] for name in ("rows", "columns", "products_per_element"))
    drain = ceil(rows / kernel["sums_per_column_and_cycle"])
    for product in (product for call in kernel["calls"] for product in call["products"]):
        cycles = 0
        tiles = len(range(0, product["rows"], rows)), len(range(0, product["columns"], columns))
        folds = product["batch_count"] * tiles[0] * tiles[1]
        steps = len(range(0, product["depth"], simd))
        for fold in range(folds):
            cycles += steps if fold == 0 else max(steps, drain)
        fill = product["array_cycles"] - cycles
        assert fill == rows + drain + columns - 2


def test_buffers_hold_the_tile_twice(handed):
    kernel = document(handed, "K1.json")
    held = {buffer["buffer"]: buffer for buffer in kernel["buffers"]}
    tile = kernel["tile"]
    bits = {name: held[name]["bank_count"] * held[name]["depth_words"] * held[name]["width_bits"] for name in held}
    assert bits["a"] >= 2 * tile["rows"] * tile["depth"] * 8  # and deeper where a chain is kept
    assert bits["b"] >= 2 * tile["columns"] * tile["depth"] * 8
    assert (bits["a"] + bits["b"]) / 8 >= max(call["on_chip_bytes"] for call in kernel["calls"])
    assert bits["sums"] == tile["rows"] * tile["columns"] * kernel["sum_bits"]
    assert {buffer["memory"] for buffer in kernel["buffers"]} <= {"block RAM", "LUT RAM", "UltraRAM"}


# --- Verilog ----------------------------------------------------------------------------------------------------------


def test_the_array_has_its_planned_size(handed):
    kernel = document(handed, "K1.json")
    rows, columns, simd = (kernel["sizes"][name] for name in ("rows", "columns", "products_per_element"))
    text = (handed[1] / "rtl" / f"{kernel['design']}.v").read_text()
    top = text[text.rindex("module ") :]
    segments = ceil(rows / ceil(rows / kernel["sums_per_column_and_cycle"]))
    assert simd > 1
    assert f".ROWS({rows}), .COLS({columns}), .WIDTH(8), .ACC_WIDTH({kernel['sum_bits']})" in top
    assert f"input [{rows * simd * 8 - 1}:0] a," in top
    assert f"input [{columns * simd * 8 - 1}:0] b," in top
    assert f"output [{segments * columns * 32 - 1}:0] result" in top


def test_every_size_of_the_catalogue_has_verilog():
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    for precision, rate in (("int16", 1.0), ("int8", 2.0), ("int4", 4.0)):
        for size in itertools.product(ARRAY_SIDES, (4, 64), ARRAY_SIMD):
            array = build_array(size, precision, array_ports(board), rate, models.systolic)
            design = array_design(array)
            assert (design.rows, design.cols, design.simd) == size
            assert design.drain == ceil(array.rows / array.sums_per_cycle)


def test_an_array_of_floats_has_none():
    board, models = load_board("u280", CONFIGS / "boards"), load_models(CONFIGS)
    assert array_design(build_array((4, 4, 2), "fp32", array_ports(board), 0.2, models.systolic)) is None


# --- C++ --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")
def test_every_kernel_compiles_and_its_pools_are_right_in_their_planned_size(handed, tmp_path):
    ran = []
    for path in sorted(handed[1].glob("K*.json")):
        kernel = document(handed, path.name)
        text = (handed[1] / "hls" / f"{kernel['design']}.cpp").read_text()
        function = compiled(text, tmp_path, kernel["design"], kernel["design"])
        assert set(re.findall(r"m_axi port=(\w+)", text)) == {port["port"] for port in kernel["ports"]}
        for call in kernel["calls"]:
            if [layer["layer"] for layer in call["layers"]] == ["Pooling"]:
                ran.append(call["layers"][0]["op_type"])
                run_pool(function, kernel["ports"], call["layers"][0])
    assert ran == ["MaxPool", "GlobalAveragePool"]


def run_pool(function, ports, layer):
    """Compute a pool as the plan calls it, and compare it with numpy; a window of 3 is padded by 1."""
    kernel, stride = layer["kernel_height"], layer["stride_height"]
    size, result, channels, pad = layer["in_height"], layer["out_height"], layer["channels"], int(kernel == 3)
    x = np.random.default_rng(1).integers(-128, 128, (size, size, channels))
    is_mean = layer["op_type"] == "GlobalAveragePool"
    memory = Memory(len(ports), ports[0]["width_bits"] // 8)
    source = View(memory.add(as_bytes(x, 8)), (0, size * channels, channels, 1))
    target = View(memory.add(bytes(result * result * channels)), (0, result * channels, channels, 1))
    program = Program(
        kind=4,
        extents=(1, result, result, channels),
        settings=(size, size, kernel, kernel, stride, stride, 1, 1, pad, pad, int(is_mean), 0),
        after=(Step(SUM, shift=8 if is_mean else 0),),
        result=target,
        operands=(source,),
    )
    content = memory.run(function, ctypes.c_int64(memory.add(program.content())))
    found = elements(memory.after(content, target.base), result * result * channels, 8)
    padded = np.pad(x, ((pad, pad), (pad, pad), (0, 0)), constant_values=-128)
    taps = [padded[y::stride, c::stride][:result, :result] for y in range(kernel) for c in range(kernel)]
    expected = np.floor(np.mean(taps, axis=0) + 0.5) if is_mean else np.max(taps, axis=0)
    assert (np.abs(found.reshape(result, result, channels) - expected) <= (1 if is_mean else 0)).all()
    assert np.mean(found.reshape(result, result, channels) == expected) > 0.99


# --- schedule.json ----------------------------------------------------------------------------------------------------


def test_the_schedule_is_that_of_the_table(handed):
    steps = document(handed, "schedule.json")["steps"]
    rows = table(handed, "offload_schedule")
    rows = rows[rows["scenario"] == "after"]
    ends = dict(zip(("host", "kernel", "transfer", "conversion"), ("host", "call", "d2h h2d", "convert"), strict=True))
    for activity, kinds in ends.items():
        expected = rows[rows["activity"] == activity]["interval_finish_us"].tolist()
        lasting = [step for step in steps if step["finish_us"] > step["start_us"]]
        found = [step["finish_us"] for step in lasting if step["activity"] in kinds]
        assert sorted(found) == pytest.approx(sorted(expected))
    assert sum(step["launch_us"] for step in steps) == pytest.approx(table(handed, "offload_plan")["launch_us"].sum())


def test_every_source_node_is_in_one_step_and_finds_its_tensors(handed):
    document_ = document(handed, "schedule.json")
    steps = document_["steps"]
    nodes = Counter(node for step in steps for node in step.get("source_nodes", []))
    assert set(nodes) == set(table(handed, "op_metrics")["source_node"])
    assert set(nodes.values()) == {1}
    there = {"host": {"input"}, "card": set()}  # what each side has
    for step in sorted(steps, key=lambda step: (step["start_us"], step["finish_us"])):
        if step["activity"] in ("host", "call"):
            side = "host" if step["activity"] == "host" else "card"
            assert set(step["reads"]) <= there[side], step
            there[side] |= set(step["writes"])
        elif step["activity"] in ("h2d", "d2h"):
            source, target = ("host", "card") if step["activity"] == "h2d" else ("card", "host")
            assert step["tensor"] in there[source]
            there[target].add(step["tensor"])
    assert {tensor["tensor"] for tensor in document_["tensors"] if tensor["is_output"]} <= there["host"]


# --- the page and the command -----------------------------------------------------------------------------------------


def test_the_page_names_every_file(handed):
    page = (handed[1] / "README.md").read_text()
    for verdict in table(handed, "offload_verdict").itertuples():
        assert f"* {verdict.objective} {verdict.verdict}" in page
        assert all(f"* doubt: {doubt}" in page for doubt in json.loads(verdict.doubts))
    for path in handed[1].rglob("*"):
        name = re.sub(r"^K\d+.json$", "K*.json", str(path.relative_to(handed[1])))
        assert f"`{name}`" in page or name == "README.md" or path.is_dir()
    assert "$" not in page
    assert " share the channels then; the plan does not charge that." in page
    assert "neither slows the other down" not in page  # no others share one
    assert "expected to take 0.46 to 2.2 times the LUT" in " ".join(page.split())  # by the factors of systolic_rtl.yaml


@pytest.mark.slow
def test_a_plan_that_leaves_all_on_the_host_says_so(tmp_path):
    model = Model(outputs=["y"])
    model.floats(x=(1, 7), y=(1, 7))
    model.add("Relu", "x", "y", flops=7)
    out = write_tables(tmp_path / "out", model, Executed([("relu", "node", ["/y"], 3.0, 101.0)]))
    ran = run_stage("07_fpga_candidates.py", "--out", out, "--hand-off", tmp_path / "off")
    assert ran.returncode == 0, ran.stderr
    assert "there is nothing to build" in (tmp_path / "off" / "README.md").read_text()
    assert not list((tmp_path / "off").glob("K*.json"))
    assert f"wrote {tmp_path / 'off'} (3 files)" in ran.stderr


@pytest.mark.slow
def test_an_edited_folder_is_refused_before_the_search(tmp_path, handed):
    folder = tmp_path / "off"
    folder.mkdir()
    (folder / "kernel.cpp").write_text("mine")
    ran = run_stage("07_fpga_candidates.py", "--out", handed[0], "--hand-off", folder)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].endswith(
        f"{folder}: kernel.cpp is not as an earlier run left it; give --hand-off a new folder"
    )
    assert (folder / "kernel.cpp").read_text() == "mine"
