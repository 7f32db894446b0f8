"""Stage 09 through its command line, on recorded profiles and on one that a device could have written."""

import json

import pandas as pd
import pytest

from tests.support.command_lines import run_stage
from tests.support.npu_profiles import DATA, device_run, write_csv, write_qhas

SCRIPT = "09_trace_report.py"
FILES = {"--qnn-csv": "profile.csv", "--schematic": "schematic.bin", "--op-trace": "qnn_op_trace.json"}


def recorded_flags(name, *flags):
    return [part for flag in flags or FILES for part in (flag, DATA / name / FILES[flag])]


def report(out, *flags):
    done = run_stage(SCRIPT, *flags, "--out", out)
    assert done.returncode == 0, done.stderr
    return done, json.loads((out / "npu_summary.json").read_text()), pd.read_csv(out / "npu_nodes.csv")


@pytest.mark.parametrize("name", ["fp16", "qdq"])
def test_an_emulated_profile(tmp_path, name):
    done, summary, nodes = report(tmp_path, *recorded_flags(name))
    assert (summary["is_emulated"], summary["run_count"], summary["soc_models"]) == (True, 3, [57])
    assert set(summary["execution_summary"].values()) == {None}
    assert summary["resource_utilization"]["dram_write_bytes"] == nodes["dram_write_bytes"].sum() == 1540
    assert nodes["is_emulated"].all()
    assert nodes["npu_cycles_share"].isna().all()
    assert "3 runs on the HTP emulator, SoC model 57" in done.stdout
    assert "needs --qhas" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_device_with_its_qhas(tmp_path):
    path = write_csv(tmp_path / "device.csv", *[device_run([("conv", 17, 3), ("relu", 23, 9)])] * 3)
    flags = ("--qnn-csv", path, "--qhas", write_qhas(tmp_path / "qhas.json"))
    done, summary, nodes = report(tmp_path / "out", *flags)
    assert summary["execution_summary"]["total_inference_time_ms"] == 12.5
    assert summary["resource_utilization"]["vtcm_peak_usage_kb"] == 6464
    assert [*nodes["npu_cycles_share"]] == [0.25, 0.75]
    assert nodes["htp_op_count"].isna().all()
    assert "3 runs on a device" in done.stdout
    assert "needs --schematic" in done.stdout
    runs = pd.read_csv(tmp_path / "out" / "npu_runs.csv")
    assert [*runs["qnn_execute_us"]] == [12_500] * 3


def test_two_reports_are_the_same(tmp_path):
    for folder in ("a", "b"):
        report(tmp_path / folder, *recorded_flags("fp16"))
    assert (tmp_path / "a" / "npu_nodes.csv").read_bytes() == (tmp_path / "b" / "npu_nodes.csv").read_bytes()


def test_a_profile_is_needed_beside_its_other_files(tmp_path):
    done = run_stage(SCRIPT, "--schematic", DATA / "fp16" / "schematic.bin", "--out", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--qnn-csv: is missing; give the profile that QNN wrote as CSV, or --model" in done.stderr


def test_a_number_of_inferences_is_needed(tmp_path):
    done = run_stage(SCRIPT, "--model", "m.onnx", "--runs", "all", "--out", tmp_path)
    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1


def test_a_model_and_a_profile_exclude_each_other(tmp_path):
    done = run_stage(SCRIPT, "--model", "m.onnx", "--qnn-csv", DATA / "fp16" / "profile.csv", "--out", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--model: does not go with --qnn-csv: nothing is run; leave one of them out" in done.stderr


def test_files_of_two_sessions_are_refused_and_nothing_is_written(tmp_path):
    flags = ("--qnn-csv", DATA / "fp16" / "profile.csv", "--schematic", DATA / "qdq" / "schematic.bin")
    done = run_stage(SCRIPT, *flags, "--out", tmp_path / "out")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "is of another graph than the profile" in done.stderr
    assert not (tmp_path / "out" / "npu_summary.json").exists()


def test_files_of_an_earlier_session_do_not_stand_beside_a_new_one(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    old = ("qnn_profile.csv", "qnn_profile.meta.json", "qnn_schematic.bin", "qnn_op_trace.json")
    for name in old:
        (out / name).write_text("old")
    report(out, *recorded_flags("fp16"))
    assert not [name for name in old if (out / name).exists()]


def test_one_of_several_graphs_is_reported(tmp_path):
    blocks = [device_run([("conv", 17, 3)]), device_run([("relu", 23, 9)])]
    path = write_csv(tmp_path / "device.csv", *blocks)
    refused = run_stage(SCRIPT, "--qnn-csv", path, "--out", tmp_path / "out")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "choose one with --graph" in refused.stderr
    _, summary, nodes = report(tmp_path / "out", "--qnn-csv", path, "--graph", "1")
    assert [*nodes["npu_node"]] == ["relu"]
    assert summary["is_emulated_source"].startswith("the profile tells of HVX threads")
    missing = run_stage(SCRIPT, "--qnn-csv", path, "--graph", "2", "--out", tmp_path / "out")
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
