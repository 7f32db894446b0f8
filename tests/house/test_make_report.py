"""`make report` from a device's profile to the report, with the scripts and files of the project as they are."""

import os
import subprocess
import sys

import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper

from tests.support.paths import ROOT
from tests.support.profiles.npu_profiles import device_run, write_csv

QNN = ROOT / "tests/npu/data/fp16/profile.csv"
KINETO = ROOT / "tests/foreign_traces/data/pytorch"


def make_report(folder, **variables):
    """Run make in the project, with the running Python in place of an environment that make would set up."""
    environment = folder / "environment"
    environment.mkdir()
    (environment / ".ready").touch()
    known = {
        "VENV": environment,
        "PYTHON": sys.executable,
        "OUT": folder / "out",
        "PEAK_FLOPS": "1e12",
        "MEM_BW": "5e10",
    }
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    command = ["make", "report", *(f"{name}={value}" for name, value in (known | variables).items())]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def result_of(folder, done):
    assert done.returncode == 0, done.stderr
    page = (folder / "out/report.html").read_text(encoding="utf-8")
    return page, pd.read_csv(folder / "out/op_roofline.csv").set_index("executed_node")


def convolution():
    """The model of the device's profile (tests/npu/data/README.md); its weights have no part in a profile."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, (5, 3, 3, 3), [0.5] * 135)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y"], ["z"], "relu"),
    ]
    ends = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, channels, 7, 11))]
        for name, channels in (("x", 3), ("z", 5))
    )
    return helper.make_model(helper.make_graph(nodes, "g", *ends, [weights]))


@pytest.mark.slow
def test_a_devices_csv_ends_with_the_report(tmp_path):
    """Names as in the recorded profile of this model, and times as a device writes them."""
    onnx.save(convolution(), tmp_path / "conv.onnx")
    nodes = [("Input", 2, 0), ("conv_token_1", 22, 9_973), ("relu", 26, 9_429), ("Output", 3, 0)]
    profile = write_csv(tmp_path / "device.csv", *3 * [device_run(nodes)])
    page, rows = result_of(tmp_path, make_report(tmp_path, TRACE=profile, MODEL=tmp_path / "conv.onnx"))
    assert "<title>Profile of conv.onnx</title>" in page
    assert rows["source_nodes"].to_dict() == {"conv_token_1": '["conv"]', "relu": '["relu"]'}
    assert rows.loc["conv_token_1", "macs"] == 5 * 7 * 11 * 3 * 9
    assert rows["latency_share"].tolist() == pytest.approx([9_973 / 19_402, 9_429 / 19_402])


@pytest.mark.slow
def test_a_csv_of_the_emulator_is_refused_before_anything_is_made(tmp_path):
    onnx.save(convolution(), tmp_path / "conv.onnx")
    done = make_report(tmp_path, TRACE=QNN, MODEL=tmp_path / "conv.onnx")
    assert done.returncode == 2
    assert "they are the emulator's" in done.stderr
    assert not list((tmp_path / "out").glob("[!.]*"))


@pytest.mark.slow
def test_a_trace_of_kineto_ends_with_the_report(tmp_path):
    trace, model = KINETO / "plain.json", KINETO / "model.onnx"
    page, rows = result_of(tmp_path, make_report(tmp_path, TRACE=trace, MODEL=model, THREADS=1))
    assert "<title>Profile of model.onnx</title>" in page
    assert set(rows["source_nodes"]) >= {'["/a/Conv"]', '["/b/Conv"]', '["/f/Gemm"]'}
    assert rows["latency_share"].sum() == pytest.approx(1)
