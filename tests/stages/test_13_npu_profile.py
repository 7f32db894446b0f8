"""Stage 13 through its command line, on recorded profiles and on one that a device could have written."""

import json
from html.parser import HTMLParser

import pandas as pd
import pytest

from tests.support.processes.command_lines import run_stage
from tests.support.profiles.npu_profiles import DATA, device_run, write_csv, write_qhas

SCRIPT = "13_npu_profile.py"
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
    assert nodes[["npu_cycles_share", "attributed_npu_time_us"]].isna().all(axis=None)
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
    assert [*nodes["attributed_npu_time_us"]] == [2_800, 8_400]
    assert summary["execution_summary"]["node_times_ms"] == 11.2
    assert nodes["htp_op_count"].isna().all()
    assert "3 runs on a device" in done.stdout
    assert "needs --schematic" in done.stdout
    runs = pd.read_csv(tmp_path / "out" / "npu_runs.csv")
    assert [*runs["qnn_execute_us"]] == [12_500] * 3


@pytest.mark.slow
def test_a_device_has_a_trace_and_the_emulator_none(tmp_path):
    path = write_csv(tmp_path / "device.csv", *[device_run([("conv", 17, 3), ("relu", 23, 9)])] * 3)
    report(tmp_path / "out", "--qnn-csv", path)
    events = json.loads((tmp_path / "out" / "npu_trace.json").read_text(), parse_constant=pytest.fail)["traceEvents"]
    times = {event["name"]: event["dur"] for event in events if event["ph"] == "X"}
    runs = pd.read_csv(tmp_path / "out" / "npu_runs.csv")
    assert times["run 0: qnn_execute"] == runs.loc[0, "qnn_execute_us"]
    assert times["conv"] + times["relu"] == pytest.approx(runs.loc[0, "accelerator_busy_us"])
    assert times["relu"] == pytest.approx(3 * times["conv"])
    report(tmp_path / "out", *recorded_flags("fp16"))
    assert not (tmp_path / "out" / "npu_trace.json").exists()


@pytest.mark.slow
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
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "argument --runs: 'all' is not a whole number of at least 1" in done.stderr


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


@pytest.mark.slow
def test_one_of_several_graphs_is_reported(tmp_path):
    blocks = [device_run([("conv", 17, 3)]), device_run([("relu", 23, 9)])]
    path = write_csv(tmp_path / "device.csv", *blocks)
    refused = run_stage(SCRIPT, "--qnn-csv", path, "--out", tmp_path / "out")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "choose one with --graph" in refused.stderr
    _, summary, nodes = report(tmp_path / "out", "--qnn-csv", path, "--graph", "1")
    assert [*nodes["npu_node"]] == ["relu"]
    assert summary["is_emulated_source"].startswith("the profile has HVX threads")
    missing = run_stage(SCRIPT, "--qnn-csv", path, "--graph", "2", "--out", tmp_path / "out")
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


@pytest.mark.slow
def test_a_baseline(tmp_path):
    report(tmp_path / "a", *recorded_flags("fp16"))
    done, summary, _ = report(tmp_path / "b", *recorded_flags("qdq"), "--baseline", tmp_path / "a")
    changes = {row["figure"]: row for row in summary["since_baseline"]["changes"]}
    nodes = {name: pd.read_csv(tmp_path / name / "npu_nodes.csv")["vtcm_read_bytes"].sum() for name in "ab"}
    assert (changes["vtcm_read_bytes"]["before"], changes["vtcm_read_bytes"]["now"]) == (nodes["a"], nodes["b"])
    assert f"{100 * (nodes['b'] / nodes['a'] - 1):+.1f} %" in done.stdout
    assert "total_inference_time_ms" not in changes  # of two emulators
    page = (tmp_path / "b" / "npu_summary.html").read_text()
    assert "Since the baseline" in page
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.slow
def test_a_report_may_be_its_own_baseline(tmp_path):
    report(tmp_path, *recorded_flags("fp16"))
    _, summary, _ = report(tmp_path, *recorded_flags("fp16"), "--baseline", tmp_path)
    assert {row["change_share"] for row in summary["since_baseline"]["changes"]} == {0.0, None}


def test_a_model_or_a_profile_is_needed(tmp_path):
    done = run_stage(SCRIPT, "--baseline", report_folder(tmp_path), "--out", tmp_path / "out")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--qnn-csv: is missing; give the profile that QNN wrote as CSV, or --model" in done.stderr


def report_folder(tmp_path):
    report(tmp_path / "before", *recorded_flags("fp16"))
    return tmp_path / "before"


@pytest.mark.parametrize("soc", ["57,0", "57,", "x"])
def test_chips_are_numbers(tmp_path, soc):
    done = run_stage(SCRIPT, "--model", "m.onnx", "--soc", soc, "--out", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("suffix", [".dlc", ".BIN"])
def test_formats_of_the_sdk_are_refused_with_the_way_out(tmp_path, suffix):
    path = tmp_path / f"m{suffix}"
    path.write_bytes(b"DLC")
    done = run_stage(SCRIPT, "--model", path, "--out", tmp_path / "out")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "wraps a context in an ONNX model (EPContext): give that" in done.stderr


class Cells(HTMLParser):
    """The rows of a page's tables by the id of their section."""

    def __init__(self):
        super().__init__()
        self.rows, self.section, self.is_cell = {}, "", False

    def handle_starttag(self, tag, attrs):
        self.section = dict(attrs).get("id", self.section)
        self.is_cell = tag in ("td", "th")
        if tag == "tr":
            self.rows.setdefault(self.section, []).append([])
        elif self.is_cell:
            self.rows[self.section][-1].append("")

    def handle_endtag(self, tag):
        self.is_cell = False

    def handle_data(self, data):
        if self.is_cell:
            self.rows[self.section][-1][-1] += data


def test_the_page_has_every_figure_every_reason_and_every_node(tmp_path):
    _, summary, nodes = report(tmp_path, *recorded_flags("qdq"))
    cells = Cells()
    cells.feed((tmp_path / "npu_summary.html").read_text())
    figures = {name: (value, source) for name, value, source in cells.rows["figures"][1:]}
    resources = summary["resource_utilization"]
    assert figures.keys() == {name for name, value in resources.items() if value is not None}
    assert figures["vtcm_read_bytes"] == (f"{resources['vtcm_read_bytes']:,}", "schematic, static")
    reasons = {name for name, _ in cells.rows["unavailable"][1:]}
    assert reasons == {name for section in summary["unavailable"].values() for name in section}
    assert [row[0] for row in cells.rows["nodes"][1:]] == [*nodes["npu_node"]]
    assert not {"npu_cycles", "npu_cycles_share"} & {*cells.rows["nodes"][0]}


def test_the_page_of_a_device_has_cycles_and_escapes_names(tmp_path):
    path = write_csv(tmp_path / "device.csv", device_run([("<b>&", 17, 3), ("relu", 23, 9)]))
    report(tmp_path / "out", "--qnn-csv", path)
    text = (tmp_path / "out" / "npu_summary.html").read_text()
    assert "<b>" not in text
    cells = Cells()
    cells.feed(text)
    assert [row[-3:] for row in cells.rows["nodes"]] == [
        ["npu_cycles", "npu_cycles_share", "attributed_npu_time_us"],
        ["3", "25.0 %", "2,800"],
        ["9", "75.0 %", "8,400"],
    ]


def test_a_profile_without_nodes(tmp_path):
    """The level basic times the runs and names no node."""
    rows = [row for row in device_run([]) if "(cycles)" not in row]
    done, summary, nodes = report(tmp_path / "out", "--qnn-csv", write_csv(tmp_path / "p.csv", rows))
    assert (len(nodes), summary["execution_summary"]["htp_execution_time_ms"]) == (0, 11.2)
    assert "profiling level detailed does" in summary["unavailable"]["execution_summary"]["node_times_ms"]
    assert "0 nodes" in done.stdout
