"""The QNN provider on its emulator, where the package is installed (`make npu`), and what is said where it is not."""

import importlib
import importlib.util
import json
import os
import subprocess
from dataclasses import replace
from itertools import product

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.messages.errors import PipelineError
from common.npu.qnn_csv import read_qnn_csv
from common.npu.schematic import read_schematic
from common.runtime import qnn
from common.runtime.qnn import LEVELS, QnnSettings, record
from models.__main__ import BUILDERS

stage = importlib.import_module("13_npu_profile")
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


def test_a_session_that_never_ends_is_ended(convolution, folder, monkeypatch):
    """The compilation and each of two runs may take the limit."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(qnn, "START", "import time; time.sleep(3600)")
    settings = replace(SETTINGS, timeout_s=0.1)
    with pytest.raises(
        PipelineError, match=r"took more than 0\.3 s and was ended; give fewer <runs>, or raise <run_tim"
    ):
        record(convolution, FEEDS, {}, settings, folder)


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
        PipelineError, match=r"provider qnn, SoC model 57: did not take .*conv.* \(Conv on CPUExecutionProvider\)"
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
@pytest.mark.parametrize("level", LEVELS)
def test_every_level_is_recorded_as_one_that_the_provider_has(convolution, tmp_path, capsys, level):
    flags = ["--model", str(convolution), "--runs", "1", "--level", level, "--performance", "burst"]
    assert stage.main([*flags, "--out", str(tmp_path / "out")]) == 0
    summary = json.loads((tmp_path / "out" / "npu_summary.json").read_text())["profiling_level"]
    is_native = level in ("backend", "client", "linting")
    assert (summary["asked"], summary["recorded"] == level) == (level, not is_native)
    assert ("Qualcomm's native SDK has the profiling level" in capsys.readouterr().err) == is_native
    assert bool(summary["unavailable"]) == is_native
    assert (tmp_path / "out" / "qnn_schematic.bin").is_file() == (level == "optrace")
    nodes = pd.read_csv(tmp_path / "out" / "npu_nodes.csv")
    assert (len(nodes) == 0) == (summary["recorded"] == "basic")


@with_qnn
def test_chips_are_compared(convolution, tmp_path, capsys):
    out = tmp_path / "out"
    assert stage.main(["--model", str(convolution), "--runs", "1", "--soc", "57,69", "--out", str(out)]) == 0
    chips, nodes = pd.read_csv(out / "npu_chips.csv"), pd.read_csv(out / "npu_chip_nodes.csv")
    assert [*chips["soc_model"]] == [57, 69]
    assert [*chips["dram_write_bytes"]] == [1540, 1540]
    for column in ("htp_op_count", "dram_read_bytes", "vtcm_read_bytes", "vtcm_write_bytes"):
        assert [*nodes.groupby("soc_model")[column].sum()] == [*chips[column]]
    assert "SoC  nodes" in capsys.readouterr().out
    assert stage.main(["--model", str(convolution), "--runs", "1", "--out", str(out)]) == 0
    assert not (out / "npu_chips.csv").exists()  # of the session before


COMPILE = """
import sys, onnxruntime as ort
from common.runtime.providers.provider_table import plug_in_devices
from common.runtime.qnn_session import PROVIDER, onnxruntime_qnn, provider_options
ort.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
options = ort.SessionOptions()
for key, value in (("enable", "1"), ("file_path", sys.argv[2]), ("embed_mode", sys.argv[3])):
    options.add_session_config_entry(f"ep.context_{key}", value)
settings = {"level": "optrace", "soc_model": 57, "performance_mode": "default"}
library = onnxruntime_qnn.get_qnn_htp_path()
options.add_provider_for_devices(plug_in_devices(PROVIDER)[:1], provider_options(settings, library))
ort.InferenceSession(sys.argv[1], options)
"""


@with_qnn
@pytest.mark.parametrize("is_embedded", ["0", "1"])
def test_a_model_that_was_compiled_before(convolution, folder, tmp_path, is_embedded):
    """Its schematic was written as it was compiled; the CPU cannot run it."""
    compiled, out = folder / "compiled.onnx", tmp_path / "out"
    command = [qnn.sys.executable, "-c", COMPILE, convolution, compiled, is_embedded]
    environment = {**os.environ, "PYTHONPATH": str(qnn.ROOT)}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    (schematic,) = folder.glob("*_schematic.bin")
    flags = ["--model", str(compiled), "--schematic", str(schematic), "--runs", "1"]
    assert stage.main([*flags, "--out", str(out)]) == 0
    summary = json.loads((out / "npu_summary.json").read_text())
    assert summary["resource_utilization"]["dram_write_bytes"] == 1540
    assert (summary["precision"], "the CPU cannot run" in summary["precision_unavailable"]) == ([], True)
    nodes, run = pd.read_csv(out / "npu_nodes.csv"), pd.read_csv(out / "npu_runs.csv").iloc[0]
    assert nodes["npu_cycles"].sum() == run["accelerator_cycles"]
    assert not (out / "qnn_schematic.bin").exists()  # the session wrote none


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
        [qnn.sys.executable, "13_npu_profile.py", "--model", convolution, "--runs", "1", "--out", tmp_path / "out"],
        cwd=qnn.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in qnn.ROOT.iterdir()) == before
    assert "LIBNATIVE" not in done.stdout + done.stderr  # what the libraries print
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"npu_summary.json", "qnn_profile.csv"}


class Batches:
    """Random inputs for the calibration of a quantized model."""

    def __init__(self, model):
        shapes = {
            value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input
        }
        generator = np.random.default_rng(3)
        self.batches = [
            {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
            for _ in range(2)
        ]

    def get_next(self):
        return self.batches.pop() if self.batches else None


def fixed(model):
    """Bind the dynamic dimensions of a model in place, because QNN's quantization needs static shapes."""
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = {"seq": 5}.get(dim.dim_param, 1)
    return model


def in_form(model, form, folder):
    """Save a model in float32, which runs as float16, or quantized: uint8, or uint16 with uint8 weights."""
    source, target = folder / "float.onnx", folder / f"{form}.onnx"
    onnx.save(model, source)
    if form == "fp16":
        return source
    qnn_quantization = pytest.importorskip("onnxruntime.quantization.execution_providers.qnn")
    quantization = importlib.import_module("onnxruntime.quantization")
    activation = quantization.QuantType.QUInt8 if form == "qdq" else quantization.QuantType.QUInt16
    options = {"activation_type": activation, "weight_type": quantization.QuantType.QUInt8}
    quantization.quantize(source, target, qnn_quantization.get_qnn_qdq_config(source, Batches(model), **options))
    return target


FORMS = ("fp16", "qdq", "a16w8")
IN_ALL_FORMS = [*product(("tiny-mlp", "tiny-cnn", "tiny-densenet"), FORMS), ("tiny-transformer", "fp16")]


@with_qnn
@pytest.mark.parametrize(("name", "form"), IN_ALL_FORMS)
def test_models_in_all_forms_keep_the_invariants(name, form, tmp_path):
    """In the transformer QNN inserts nodes without a name, and fuses the five operators of a GELU."""
    model, out = fixed(BUILDERS[name]()), tmp_path / "out"
    path = in_form(model, form, tmp_path)
    assert stage.main(["--model", str(path), "--runs", "2", "--out", str(out)]) == 0
    nodes, runs = pd.read_csv(out / "npu_nodes.csv"), pd.read_csv(out / "npu_runs.csv")
    rows = [row.split(",") for row in (out / "qnn_profile.csv").read_text().splitlines()]
    blocks = "".join("|" if "QNN (execute)" in row[6] else f"+{row[2]}" if row[1] == "NODE" else "" for row in rows)
    sums = [sum(map(int, block[1:].split("+"))) for block in blocks.split("|")[:-1]]
    assert sums == [*runs["accelerator_cycles"]]
    outputs = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.output]
    written = nodes.loc[nodes["npu_node"] == "Output", "dram_write_bytes"].item()
    assert written == sum(4 * int(np.prod(shape)) for shape in outputs)
    assert ((nodes["htp_op_count"] == 0) == (nodes["fused_into"] != "[]")).all()
    summary = json.loads((out / "npu_summary.json").read_text())
    assert set(summary["execution_summary"].values()) == {None}
    for error in summary["precision"]:
        assert error["max_error"] < (0.01 if form == "fp16" else 0.5) * error["max_magnitude"]
