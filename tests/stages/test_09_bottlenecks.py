"""Bottlenecks in the tables of real measurements: models that have a fault, and the same without it."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.__main__ import BUILDERS
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_stage, width
from tests.support.profiles.npu_profiles import DATA, device_run, write_csv, write_qhas
from tests.support.tables.bottlenecks import FILE

PROFILE, SCRIPT, NPU = "01_profile_onnx.py", "09_trace_report.py", "13_npu_profile.py"
FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def model(nodes, shape, returned, weights, kind=FLOAT):
    """A model of nodes (kind, operands, result, attributes) from ``x`` to ``y``; random weights by their shapes."""
    random = np.random.default_rng(3)
    made = [helper.make_node(name, reads.split(), [writes], **attributes) for name, reads, writes, attributes in nodes]
    arrays = {
        name: random.standard_normal(value).astype(np.float32) if isinstance(value, tuple) else value
        for name, value in weights.items()
    }
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    graph = helper.make_graph(
        made,
        "fault",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, returned)],
        [
            numpy_helper.from_array(array.astype(dtype) if array.dtype == np.float32 else array, name)
            for name, array in arrays.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def product(batch):
    nodes = [("MatMul", "x w", "c", {}), ("Add", "c b", "y", {})]
    return model(nodes, [batch, 3, 64], [batch, 3, 32], {"w": (64, 32), "b": (32,)})


def convolution(channels, kind=FLOAT):
    nodes = [("Conv", "x w", "y", {"pads": [1] * 4})]
    return model(nodes, [1, 8, 19, 19], [1, channels, 19, 19], {"w": (channels, 8, 3, 3)}, kind)


def widened():
    """An operator in fp64 between two others; casts of a model in fp16 are at its border, and two in a row cancel."""
    widened = [
        ("Cast", "s", "d", {"to": TensorProto.DOUBLE}),
        ("Softmax", "d", "e", {}),
        ("Cast", "e", "f", {"to": FLOAT}),
    ]
    return model([("Softmax", "x", "s", {}), *widened, ("Softmax", "f", "y", {})], [64, 256], [64, 256], {})


def plain_maximum():
    """A Max between two convolutions, which the blocked layout does not have."""
    nodes = [
        ("Conv", "x w", "c", {"pads": [1] * 4}),
        ("Max", "c zero", "m", {}),
        ("Conv", "m u", "y", {"pads": [1] * 4}),
    ]
    weights = {"w": (32, 8, 3, 3), "u": (32, 32, 3, 3), "zero": np.zeros((), np.float32)}
    return model(nodes, [1, 8, 19, 19], [1, 32, 19, 19], weights)


def running_sum():
    return model([("CumSum", "x axis", "y", {})], [1 << 20], [1 << 20], {"axis": np.array(0, np.int64)})


def positions(length):
    """Where a vector is not 0: the kernel asks the system for memory in each run, and gives it back."""
    made = model([("NonZero", "x", "y", {})], [length], [1, length], {})
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    return made


def profile(*flags):
    """Profile nine runs of a model within the process of the tests."""
    return run_stage(PROFILE, *flags, "--runs", "9")


def profile_in_own_process(*flags):
    """Profile for two seconds: faults are counted ten times a second, and nine runs may end before the first count.

    The heap of a process that has run other tests may hold a free block of any size. A new one has none, and takes
    buffers above 128 KiB from the system, whatever their size was before (mallopt(3), M_MMAP_THRESHOLD).
    """
    command = [sys.executable, PROFILE, *map(str, flags), "--duration", "2s"]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(1 << 17)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def profiled(folder, made, *flags, profile=profile):
    """Return the findings in the tables of a model, by rules for which no gain is too small."""
    path, out, rules = folder / "m.onnx", folder / "out", folder / "rules.yaml"
    path.write_bytes(made.SerializeToString())
    text = FILE.read_text(encoding="utf-8")
    rules.write_text(text.replace("above: 0.03", "above: -1"))
    of_model = ("--model", path, *flags)
    done = profile(*of_model, "--warmup", "2", "--idle", "10ms", "--threads", "2", "--out", out)
    assert done.returncode == 0, done.stderr
    for script, *settings in (
        ("02_shapes_flops_bytes.py", *of_model),
        ("03_merge_profile_metrics.py", "--peak-flops", "1e12", "--mem-bw", "1e11"),
        (SCRIPT, "--rules", rules),
    ):
        done = run_stage(script, *settings, "--out", out)
        assert done.returncode == 0, done.stderr
    found = pd.read_csv(out / "bottlenecks.csv")
    found = found[~found["is_near_miss"].astype(bool)]
    return {*found["finding"], *(name for names in found["also_found_by"] for name in json.loads(names))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "fault", "sound", "flags"),
    [
        ("unfused_product", product("n"), product(2), ("--dim", "n=2")),
        pytest.param("padding", convolution(9), convolution(32), (), marks=pytest.mark.exhaustive),
        pytest.param("format_conversions", widened(), convolution(32, HALF), (), marks=pytest.mark.exhaustive),
        pytest.param("layout_conversions", plain_maximum(), convolution(32), (), marks=pytest.mark.exhaustive),
        pytest.param("single_thread", running_sum(), product(2), (), marks=pytest.mark.exhaustive),
    ],
)
def test_a_model_with_a_fault_and_the_same_without_it(rule, fault, sound, flags, tmp_path):
    for folder in ("fault", "sound"):
        (tmp_path / folder).mkdir()
    assert rule in profiled(tmp_path / "fault", fault, *flags)
    assert rule not in profiled(tmp_path / "sound", sound)


@pytest.mark.exhaustive
def test_page_faults_of_runs_that_take_new_memory_each_time(tmp_path):
    for folder in ("fault", "sound"):
        (tmp_path / folder).mkdir()
    assert "page_faults" in profiled(tmp_path / "fault", positions(1 << 18), profile=profile_in_own_process)
    assert "page_faults" not in profiled(tmp_path / "sound", positions(1), profile=profile_in_own_process)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Tables of 01, 02, 03 and 09 of a tiny model."""
    folder = tmp_path_factory.mktemp("bottlenecks")
    profiled(folder, BUILDERS["tiny-cnn"](), "--dim", "batch=1")
    return folder


@pytest.fixture
def tables(measured, tmp_path):
    return shutil.copytree(measured, tmp_path / "copy") / "out"


def stored(tables, name):
    return pd.read_csv(tables / f"{name}.csv")


@pytest.mark.slow
def test_evidence_is_that_of_the_tables(tables):
    rows = stored(tables, "bottlenecks")
    checked = 0
    for row in rows[rows["finding_subject"] != "the runs"].to_dict("records"):
        for table, figures in json.loads(row["evidence"]).items():
            cells = stored(tables, table) if (tables / f"{table}.csv").exists() else pd.DataFrame()
            if "executed_node" in cells:
                of_nodes = cells[cells["executed_node"].isin(json.loads(row["executed_nodes"]))]
                for name in figures.keys() & set(of_nodes):
                    told = of_nodes[name].tolist()
                    if len(told) > 1 and name.endswith("_share"):
                        continue  # of the sums, not the sum of shares
                    assert figures[name] == pytest.approx(told[0] if len(told) == 1 else sum(told)), (table, name)
                    checked += 1
    assert checked


@pytest.mark.slow
def test_no_gain_is_more_than_the_nodes_take(tables):
    times = stored(tables, "op_roofline").set_index("executed_node")["node_latency_us"]
    rows = stored(tables, "bottlenecks")
    gains = rows[rows["gain_us"].notna() & (rows["executed_nodes"] != "[]") & (rows["finding"] != "tiny_nodes")]
    assert len(gains)
    for row in gains.to_dict("records"):
        most_us = times[json.loads(row["executed_nodes"])].sum() + 1e-3
        assert 0 <= row["gain_us"] <= most_us
        assert row["gain_low_us"] <= row["gain_us"] <= row["gain_high_us"]
        assert row["span_gain_us"] <= most_us  # the greatest one, of which mends gain a share


@pytest.mark.slow
def test_09_shows_the_first_and_the_report_has_a_section(tables):
    done = run_stage(SCRIPT, "--rules", tables.parent / "rules.yaml", "--out", tables)
    assert "bottleneck" in done.stdout
    assert width(done.stdout) <= 80
    assert run_stage("06_plots.py", "--out", tables).returncode == 0
    page = (tables / "report.html").read_text(encoding="utf-8")
    assert '<section id="bottlenecks">' in page
    assert "of one inference" in page or "No gain is shown" in page


@pytest.mark.slow
def test_without_03_the_runs_alone_are_judged(tables):
    for name in ("op_roofline", "executed_edges", "node_map"):
        (tables / f"{name}.csv").unlink()
        (tables / f"{name}.meta.json").unlink()
    done = run_stage(SCRIPT, "--out", tables)
    assert done.returncode == 0, done.stderr
    assert set(stored(tables, "bottlenecks")["finding_subject"]) <= {"the runs"}


@pytest.mark.slow
def test_a_trace_of_a_machine_with_a_gpu(tables):
    """The nodes that the runtime left to the processor are named, and the tensors between both providers."""
    model, cuda = tables.parent / "m.onnx", "CUDAExecutionProvider"
    events = json.loads((tables / "ort_trace.json").read_text())
    kernels = [event for event in events if event.get("args", {}).get("op_name")]
    left = next(event["args"]["op_name"] for event in kernels if "Pool" in event["args"]["op_name"])
    for event in kernels:
        event["args"]["provider"] = "CPUExecutionProvider" if event["args"]["op_name"] == left else cuda
        event["dur"] = 1  # so most of the time is the GPU's, whatever this host took
    trace, out = tables.parent / "trace.json", tables.parent / "imported"
    trace.write_text(json.dumps(events))
    flags = ("--model", model, "--dim", "batch=1")
    for script, *settings in (
        ("01_profile_onnx.py", *flags, "--from-trace", trace, "--executed-graph", tables / "executed_graph.onnx"),
        ("02_shapes_flops_bytes.py", *flags),
        ("03_merge_profile_metrics.py", "--peak-flops", "1e12", "--mem-bw", "1e11"),
        (SCRIPT, "--rules", tables.parent / "rules.yaml"),
    ):
        done = run_stage(script, *settings, "--out", out)
        assert done.returncode == 0, done.stderr
    rows = stored(out, "bottlenecks")
    nodes = stored(out, "op_latency")
    fallen = set(nodes[nodes["provider"] != cuda]["executed_node"])
    assert fallen
    fallbacks = rows[(rows["finding"] == "provider_fallback") | rows["also_found_by"].str.contains("provider_fallback")]
    assert {name for names in fallbacks["executed_nodes"] for name in json.loads(names)} == fallen
    borders = rows[rows["finding"] == "provider_border"]
    edges = stored(out, "executed_edges").dropna(subset=["producer", "consumer"])
    crossing = edges[edges["producer"].isin(fallen) != edges["consumer"].isin(fallen)]
    evidence = [json.loads(text)["executed_edges"] for text in borders["evidence"]]
    assert sum(one["tensor_count"] for one in evidence) == len(crossing)
    assert sum(one["tensor_bytes"] for one in evidence) == crossing["tensor_bytes"].sum()


@pytest.mark.slow
def test_a_wrong_file_of_rules_is_one_line(tables):
    before, rules = (tables / "bottlenecks.csv").read_bytes(), tables.parent / "rules.yaml"
    rules.write_text("rules: {own: {about: nothing}}")
    done = run_stage(SCRIPT, "--rules", rules, "--out", tables)
    assert done.returncode == 2
    assert "rules.own.about is 'nothing'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (tables / "bottlenecks.csv").read_bytes() == before


def test_a_device_that_waits_for_vtcm(tmp_path):
    """HVX threads work for 20 % of the run, the HMX for 70 %; waiting is 300 µs of 12,500."""
    runs = [device_run([("conv", 17, 3)], {"Time for initial VTCM acquire": us}) for us in (9_000, 1_900, 2_000, 2_300)]
    flags = ("--qnn-csv", write_csv(tmp_path / "device.csv", *runs), "--qhas", write_qhas(tmp_path / "qhas.json"))
    done = run_stage(NPU, *flags, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = stored(tmp_path / "out", "npu_bottlenecks").set_index("finding")
    assert set(rows.index) == {"vtcm_wait", "npu_wait", "low_hvx_use"}
    ends = [*rows.loc["vtcm_wait", ["gain_us", "gain_low_us", "gain_high_us"]]]
    assert ends == [2_000, 1_900, 2_300]  # the first run powers the processor up
    assert rows.loc["npu_wait", "gain_us"] == 300
    assert "vtcm wait" in done.stdout


@pytest.mark.slow
def test_a_profile_of_an_npu_beside_the_tables_of_the_host(tables, tmp_path):
    runs = [device_run([("conv", 17, 3)], {"Time for initial VTCM acquire": 2_000})] * 3
    rules = ("--rules", tables.parent / "rules.yaml")
    for script, *flags in ((NPU, "--qnn-csv", write_csv(tmp_path / "device.csv", *runs)), (SCRIPT,)):
        done = run_stage(script, *flags, *rules, "--out", tables)
        assert done.returncode == 0, done.stderr
    rows = stored(tables, "bottlenecks")
    assert {"vtcm_wait", "npu_wait"} < set(rows["finding"])
    assert any(rows["executed_nodes"] != "[]")


@pytest.mark.parametrize("name", ["fp16", "qdq"])
def test_the_emulator_leads_to_traffic_alone(name, tmp_path):
    files = {"--qnn-csv": "profile.csv", "--schematic": "schematic.bin", "--op-trace": "qnn_op_trace.json"}
    flags = [part for flag, file in files.items() for part in (flag, DATA / name / file)]
    done = run_stage(NPU, *flags, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = stored(tmp_path, "npu_bottlenecks")
    assert rows["gain_us"].isna().all()
    assert set(rows["finding"]) == {"dma_bound"}
    assert width(done.stdout) <= 80
