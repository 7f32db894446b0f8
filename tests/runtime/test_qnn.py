"""The QNN provider on its emulator, where the package is installed (`make npu`), and what is said where it is not."""

import importlib
import importlib.util
import json
import subprocess

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.errors import PipelineError
from common.npu.qnn_csv import read_qnn_csv
from common.npu.schematic import read_schematic
from common.runtime import qnn
from common.runtime.qnn import QnnSettings, record
from models.__main__ import BUILDERS

stage = importlib.import_module("09_trace_report")
SETTINGS = QnnSettings(2, 57, "optrace", "default")
SHAPE = (1, 3, 7, 11)
FEEDS = {"file": np.random.default_rng(7).standard_normal(SHAPE).astype(np.float32)}  # a name that numpy's savez takes
is_installed = importlib.util.find_spec("onnxruntime_qnn") is not None
with_qnn = pytest.mark.skipif(not is_installed, reason="onnxruntime-qnn is not installed; make npu runs this")


def saved(path, *nodes, shape=SHAPE, outputs=("y",), element=TensorProto.FLOAT):
    weights = np.random.default_rng(5).normal(0, 0.2, (5, 3, 1, 1)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("file", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, element, None) for name in outputs],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


CONVOLUTION = (
    helper.make_node("Conv", ["file", "w"], ["c"], "conv"),
    helper.make_node("Relu", ["c"], ["y"], "relu"),
)


@pytest.fixture
def convolution(tmp_path):
    return saved(tmp_path / "conv.onnx", *CONVOLUTION)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


@pytest.mark.skipif(is_installed, reason="onnxruntime-qnn is installed")
def test_where_it_is_missing_one_line_says_what_to_do(convolution, folder):
    with pytest.raises(PipelineError, match=r"onnxruntime-qnn is not installed here; make npu sets it up") as error:
        record(convolution, FEEDS, {}, SETTINGS, folder)
    assert error.value.exit_code == 1


def test_a_type_that_qnn_does_not_take_is_refused(convolution, folder, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    with pytest.raises(PipelineError, match=r"input x has the type object, which QNN does not take"):
        record(convolution, {"x": np.array(["a"], object)}, {}, SETTINGS, folder)


def test_a_process_that_dies_is_one_line(convolution, folder, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(qnn, "START", "import os; os.abort()")
    with pytest.raises(PipelineError, match=r"ended with code -6 and left no result"):
        record(convolution, FEEDS, {}, SETTINGS, folder)


@with_qnn
def test_a_recording_keeps_the_invariants(convolution, folder):
    recording = record(convolution, FEEDS, {}, SETTINGS, folder)
    profile, schematic = read_qnn_csv(recording.profile), read_schematic(recording.schematic)
    assert (len(profile.runs), profile.is_emulated) == (2, True)
    assert schematic.written_result_bytes == 5 * 7 * 11 * 4
    assert {op.op_id for op in schematic.ops} == {
        op_id for run in profile.runs for op_id, cycles in run.node_cycles.items() if cycles
    }
    (error,) = recording.errors
    assert 0 < error.max_error < 2**-9 * error.max_magnitude  # rounded to float16 a few times


@with_qnn
def test_a_dynamic_dimension_is_bound(folder, tmp_path):
    path = saved(tmp_path / "m.onnx", *CONVOLUTION, shape=("N", *SHAPE[1:]))
    assert record(path, FEEDS, {"N": 1}, SETTINGS, folder).schematic is not None


@with_qnn
def test_a_silent_fallback_is_refused_and_its_nodes_are_named(folder, tmp_path):
    """Unbound, QNN takes nothing, and the runtime would compute all on the CPU without a word."""
    path = saved(tmp_path / "m.onnx", *CONVOLUTION, shape=("N", *SHAPE[1:]))
    with pytest.raises(
        PipelineError, match=r"provider qnn: did not take .*conv.* \(Conv on CPUExecutionProvider\)"
    ) as error:
        record(path, FEEDS, {}, SETTINGS, folder)
    assert error.value.exit_code == 1


@with_qnn
def test_a_node_that_it_does_not_take_is_named(folder, tmp_path):
    unique = helper.make_node("Unique", ["c"], ["y"], "unique")
    path = saved(tmp_path / "m.onnx", CONVOLUTION[0], unique)
    with pytest.raises(PipelineError, match=r"did not take unique \(Unique on CPUExecutionProvider\)"):
        record(path, FEEDS, {}, SETTINGS, folder)


@with_qnn
def test_a_chip_that_qnn_does_not_know_is_one_line(convolution, folder):
    with pytest.raises(PipelineError) as error:
        record(convolution, FEEDS, {}, QnnSettings(1, 85, "optrace", "default"), folder)
    assert "\n" not in str(error.value)


@with_qnn
def test_a_level_without_a_schematic(convolution, folder):
    recording = record(convolution, FEEDS, {}, QnnSettings(1, 57, "detailed", "burst"), folder)
    assert recording.schematic is None
    assert sum(read_qnn_csv(recording.profile).runs[0].node_cycles.values()) > 0


@with_qnn
def test_the_stage_profiles_a_model(convolution, tmp_path, capsys):
    out = tmp_path / "out"
    assert stage.main(["--model", str(convolution), "--runs", "2", "--soc", "69", "--out", str(out)]) == 0
    summary, nodes = json.loads((out / "npu_summary.json").read_text()), pd.read_csv(out / "npu_nodes.csv")
    assert (summary["soc_models"], summary["run_count"], summary["is_emulated"]) == ([69], 2, True)
    assert summary["resource_utilization"]["dram_write_bytes"] == nodes["dram_write_bytes"].sum() == 1540
    assert [row["output"] for row in summary["precision"]] == ["y"]
    assert "largest error" in capsys.readouterr().out
    sidecar = json.loads((out / "npu_summary.meta.json").read_text())
    assert sidecar["model_path"] == "conv.onnx"
    assert (out / "qnn_schematic.bin").is_file()


@with_qnn
def test_its_files_stand_nowhere_else(convolution, tmp_path):
    """The provider writes into the working directory, which is not the user's."""
    before = sorted(path.name for path in qnn.ROOT.iterdir())
    done = subprocess.run(
        [qnn.sys.executable, "09_trace_report.py", "--model", convolution, "--runs", "1", "--out", tmp_path / "out"],
        cwd=qnn.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in qnn.ROOT.iterdir()) == before
    assert "LIBNATIVE" not in done.stdout + done.stderr  # what the libraries print
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"npu_summary.json", "qnn_profile.csv"}


@with_qnn
@pytest.mark.parametrize("name", ["tiny-transformer", "tiny-cnn"])
def test_other_models_keep_the_invariants(name, tmp_path):
    """In the transformer QNN inserts nodes without a name, and fuses the five operators of a GELU."""
    path, out = tmp_path / f"{name}.onnx", tmp_path / "out"
    path.write_bytes(BUILDERS[name]().SerializeToString())
    dims = ["--dim", "batch=1", "--dim", "seq=5"] if name == "tiny-transformer" else ["--dim", "batch=1"]
    assert stage.main(["--model", str(path), *dims, "--runs", "1", "--out", str(out)]) == 0
    nodes, run = pd.read_csv(out / "npu_nodes.csv"), pd.read_csv(out / "npu_runs.csv").iloc[0]
    assert nodes["npu_cycles"].sum() == run["accelerator_cycles"]
    assert ((nodes["htp_op_count"] == 0) == (nodes["fused_into"] != "[]")).all()
