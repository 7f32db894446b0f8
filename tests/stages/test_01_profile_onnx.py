"""01 through its real command line on the tiny models. No figure is compared with a clock."""

import importlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.artifacts.journal import STAGING
from common.measurements import measured_profile
from common.messages.errors import CommandLineError, PipelineError
from common.onnx_graph.load import load_model
from common.profiling.runs import more_sessions
from common.runtime.sessions.session import create_session, run
from common.view.profile.latency_text import latency_report
from models.__main__ import BUILDERS
from tests.support.paths import ROOT

SCRIPT = "01_profile_onnx.py"
stage = importlib.import_module("01_profile_onnx")
WRITTEN = {
    "op_latency.csv",
    "run_latency.csv",
    "session_latency.csv",
    "latency_summary.json",
    "power_samples.csv",
    "host_samples.csv",
    "hardware_counters.json",
    "os_events.csv",
    "run_disturbances.csv",
    "provider_layers.csv",
    "executed_graph.onnx",
    "ort_trace.json",
}


def saved(folder, name="tiny-cnn", **changes):
    model = BUILDERS[name](batch=2)
    for field, value in changes.items():
        setattr(model, field, value)
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path


def process(*flags):
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, flags)], cwd=ROOT, capture_output=True, text=True, check=False
    )


def profile(model, out, *flags):
    return stage.main(["--model", str(model), "--out", str(out), "--threads", "1", *map(str, flags)])


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """The tiny CNN, five runs after three of warm-up."""
    folder = tmp_path_factory.mktemp("profiled")
    profile(saved(folder), folder / "out", "--runs", 5, "--warmup", 3)
    return folder / "out"


@pytest.mark.slow
def test_five_runs_have_no_tails_and_a_note(profiled):
    summary = json.loads((profiled / "latency_summary.json").read_text())
    assert all(summary[f"p50{limit}_us"] > 0 for limit in ("_low", "", "_high"))
    tails = [f"{name}{limit}_us" for name in ("p90", "p95", "p99", "p99_9") for limit in ("_low", "", "_high")]
    assert [summary[name] for name in tails] == [None] * 12
    notes = json.loads((profiled / "latency_summary.meta.json").read_text())["notes"]
    assert any(note.startswith("p90, p95, p99, p99.9 left empty: 5 runs") for note in notes)


@pytest.mark.slow
def test_runs_and_warm_up_of_both_series(profiled):
    runs = pd.read_csv(profiled / "run_latency.csv")
    counts = runs.groupby(["is_profiled", "is_warmup"]).size().to_dict()
    assert counts == {(False, True): 3, (False, False): 5, (True, True): 3, (True, False): 5}
    assert runs["start_us"].min() == 0
    nodes = pd.read_csv(profiled / "op_latency.csv")
    assert set(nodes["sample_count"]) == {5}


def test_every_microsecond_of_the_trace_is_in_one_row(profiled):
    events = json.loads((profiled / "ort_trace.json").read_text())
    kernels = [event["dur"] for event in events if event["name"].endswith("_kernel_time")]
    counted = kernels[len(kernels) * 3 // 8 :]  # 3 of 8 runs are warm-up
    nodes = pd.read_csv(profiled / "op_latency.csv")
    assert nodes["raw_total_us"].sum() == sum(counted)
    assert len(nodes) * 5 == len(counted)


def test_the_correction_is_the_difference_or_the_floor(profiled):
    for row in pd.read_csv(profiled / "op_latency.csv").itertuples():
        assert row.corrected_median_us == pytest.approx(max(0, row.raw_median_us - row.correction_us))
        assert row.correction_low_us <= row.correction_us <= row.correction_high_us
        assert row.is_correction_dominated == (row.raw_median_us < 4 * row.correction_us)


def test_the_executed_graph_has_no_weights(profiled):
    model = onnx.load(profiled / "executed_graph.onnx", load_external_data=False)
    assert {node.name for node in model.graph.node} == set(pd.read_csv(profiled / "op_latency.csv")["executed_node"])
    assert [tensor.name for tensor in model.graph.initializer if tensor.raw_data and tensor.data_type != 7] == []
    assert not [*profiled.glob("*.data")]


def test_nothing_else_is_left(profiled):
    names = {path.name for path in profiled.iterdir()}
    assert names == WRITTEN | {f"{Path(name).stem}.meta.json" for name in WRITTEN} | {".lock"}


@pytest.mark.slow
def test_no_sensor_gives_a_header_and_no_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("common.measurements.observer.available_sensors", lambda root: ([], ["power: no sensor here"]))
    profile(saved(tmp_path), tmp_path / "out", "--runs", 5)
    assert (tmp_path / "out/power_samples.csv").read_text() == "sensor,sensor_domain,time_us,phase,measured_power_w\n"
    assert "power: no sensor here" in (tmp_path / "out/power_samples.meta.json").read_text()


@pytest.mark.slow
def test_given_inputs_and_output_of_80_columns(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 13, 17), np.float32))
    profile(saved(tmp_path), tmp_path / "out", "--runs", 5, "--input", f"input={tmp_path}/x.npy")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_doubts_of_a_busy_host_are_of_80_columns_too(profiled):
    summary = json.loads((profiled / "latency_summary.json").read_text())
    doubt = "the host was busy: " + 20 * "other work took 2.0 of its 2 processors, "
    shown = latency_report(summary, [], [doubt]).splitlines()
    assert max(map(len, shown)) <= 80
    assert " ".join(shown).startswith(doubt.strip())


@pytest.mark.slow
def test_the_operator_that_does_the_work_names_a_node_in_the_printed_table(tmp_path, monkeypatch):
    """The runtime calls the first node /stem/Relu_output_0_nchwc."""
    shown = []
    monkeypatch.setattr(stage, "latency_report", lambda summary, nodes, doubts: shown.extend(nodes) or "")
    profile(saved(tmp_path), tmp_path / "out", "--runs", 5)
    labels = {node["executed_node"]: node["op_type"] for node in shown}
    assert (labels["stem"], labels["block"], labels["pool"], labels["head"]) == ("Conv", "Conv", "MaxPool", "Gemm")
    table = (tmp_path / "out/op_latency.csv").read_text()
    assert "/stem/Relu_output_0_nchwc," in table  # tables keep the full name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-mlp", "tiny-unnamed", "tiny-transformer", "tiny-two-inputs"])
def test_every_tiny_model_profiles(tmp_path, name):
    dims = ("--dim", "seq=7") if name in ("tiny-transformer", "tiny-two-inputs") else ()
    assert profile(saved(tmp_path, name), tmp_path / "out", "--runs", 5, *dims) == 0


# --- names, functions and bodies --------------------------------------------------------------------------------------


def ends(*names):
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 5]) for name in names]


def saved_nodes(folder, nodes, *weights, functions=()):
    """A model of these nodes from x to y, both float [3, 5]."""
    proto = helper.make_graph(nodes, "g", ends("x"), ends("y"), weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    model = helper.make_model(proto, opset_imports=imports, functions=functions)
    model.ir_version = 9
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def looped(folder, trips):
    """Relu, a Loop over Mul and an unnamed Relu, and a Relu that has the name of the first."""
    inner = [
        helper.make_node("Identity", ["go"], ["on"], name="on"),
        helper.make_node("Mul", ["v", "half"], ["h"], name="mul"),
        helper.make_node("Relu", ["h"], ["g"]),
    ]
    takes = [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go", 9, [])]
    gives = [helper.make_tensor_value_info("on", TensorProto.BOOL, []), *ends("g")]
    body = helper.make_graph(inner, "body", [*takes, *ends("v")], gives)
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="same"),
        helper.make_node("Loop", ["m", "", "a"], ["b"], name="loop", body=body),
        helper.make_node("Relu", ["b"], ["y"], name="same"),
    ]
    weights = (np.array(trips, np.int64), "m"), (np.array(0.5, np.float32), "half")
    return saved_nodes(folder, nodes, *(numpy_helper.from_array(*weight) for weight in weights))


@pytest.mark.slow
def test_every_event_of_a_body_is_in_one_row_and_no_time_twice(tmp_path):
    profile(looped(tmp_path, trips=7), tmp_path / "out", "--runs", 5, "--warmup", 3)
    nodes = pd.read_csv(tmp_path / "out/op_latency.csv").set_index("executed_node")
    counts = nodes["events_per_run_count"].to_dict()
    assert counts == {"same": 1, "loop": 1, "on": 7, "mul": 7, "loop/Relu_2": 7, "Relu_2": 1}
    events = json.loads((tmp_path / "out/ort_trace.json").read_text())
    outer = [e["dur"] for e in events if e["name"].removesuffix("_kernel_time") in ("same", "loop", "Relu_2")]
    assert len(outer) == 3 * 8
    assert nodes["raw_total_us"].sum() == sum(outer[3 * 3 :])  # 3 of 8 runs are warm-up
    notes = json.loads((tmp_path / "out/op_latency.meta.json").read_text())["notes"]
    assert "2 nodes without a name of their own were named, as in op_metrics.csv" in notes


@pytest.mark.slow
def test_a_renamed_model_finds_its_weights_beside_the_file(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    path = looped(tmp_path / "models", trips=3)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    monkeypatch.chdir(tmp_path)
    assert profile("models/m.onnx", tmp_path / "out", "--runs", 5) == 0
    counts = pd.read_csv(tmp_path / "out/op_latency.csv").set_index("executed_node")["events_per_run_count"]
    assert (counts["mul"], counts["Relu_2"]) == (3, 1)


@pytest.mark.slow
def test_local_functions_run_under_the_names_of_op_metrics(tmp_path):
    inside = [helper.make_node("Relu", ["a"], ["t"], name="r"), helper.make_node("Neg", ["t"], ["b"])]
    function = helper.make_function("local", "F", ["a"], ["b"], inside, [helper.make_opsetid("", 17)])
    calls = [helper.make_node("F", [a], [b], domain="local", name=f"{a}{b}") for a, b in (("x", "h"), ("h", "y"))]
    path = saved_nodes(tmp_path, calls, functions=[function])
    profile(path, tmp_path / "out", "--runs", 5, "--optimization", "disable")
    counted = [node.name for node in load_model(path, {}).graph.nodes]
    assert [*pd.read_csv(tmp_path / "out/op_latency.csv")["executed_node"]] == counted
    assert len(counted) == 4


# --- what the user can put right --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_unbound_dimension_is_named_with_its_flag(tmp_path):
    path = tmp_path / "free.onnx"
    onnx.save(BUILDERS["tiny-two-inputs"](), path)
    done = process("--model", path, "--out", tmp_path / "out", "--runs", 5)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "'batch'" in done.stderr and "'seq'" in done.stderr
    assert "--dim batch=1 --dim seq=1" in done.stderr
    assert not (tmp_path / "out").exists()


def refused(folder, kind):
    """A file of this kind that the stage must refuse."""
    path = folder / f"{kind}.onnx"
    if kind == "not-onnx":
        path.write_text("<html>no model</html>" * 50)
    elif kind == "truncated":
        path.write_bytes(saved(folder).read_bytes()[:-1009])
    elif kind == "ir-version":
        path = saved(folder, ir_version=999)
    elif kind == "opset":
        model = BUILDERS["tiny-mlp"](batch=2)
        model.opset_import[0].version = 999
        onnx.save(model, path)
    elif kind == "operator":
        nodes = [helper.make_node("Teleport", ["x"], ["y"], name="beam", domain="com.example")]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 5]) for name in "xy"]
        imports = [helper.make_opsetid("", 13), helper.make_opsetid("com.example", 1)]
        model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=imports)
        model.ir_version = 8
        onnx.save(model, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["no-file", "not-onnx", "truncated", "ir-version", "opset", "operator"])
def test_a_refused_model_is_one_line_and_leaves_earlier_artifacts(tmp_path, profiled, kind):
    out = tmp_path / "out"
    out.mkdir()
    for name in WRITTEN:
        (out / name).write_bytes((profiled / name).read_bytes())
    path = refused(tmp_path, kind)
    done = process("--model", path, "--out", out, "--runs", 5)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith(f"{SCRIPT}: error: {path}: ")
    assert {path.name for path in out.iterdir()} - {".lock"} == WRITTEN
    assert all((out / name).read_bytes() == (profiled / name).read_bytes() for name in WRITTEN)


@pytest.mark.slow
def test_a_graph_that_the_runtime_folds_away_has_nothing_to_profile(tmp_path):
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 5])
    weight = numpy_helper.from_array(np.ones((3, 5), np.float32), "w")
    folded = helper.make_graph([helper.make_node("Relu", ["w"], ["y"], name="r")], "g", [], [y], [weight])
    path = tmp_path / "folded.onnx"
    onnx.save(helper.make_model(folded, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(PipelineError, match=r"folded\.onnx: ONNX Runtime ran no node: .*; --optimization disable"):
        profile(path, tmp_path / "out", "--runs", 5)
    assert profile(path, tmp_path / "out", "--runs", 5, "--optimization", "disable") == 0


def test_an_unknown_provider(tmp_path):
    with pytest.raises(PipelineError, match=r"(<provider>|--provider): quantum is not in this build"):
        profile(saved(tmp_path), tmp_path / "out", "--provider", "quantum")


def test_a_failure_after_the_runs_keeps_the_runs(tmp_path, monkeypatch):
    def fails(*_):
        raise PipelineError("a calibration model", "is refused")

    monkeypatch.setattr(measured_profile, "correct", fails)
    with pytest.raises(PipelineError, match=r"a calibration model: is refused; what was measured is in .*/incomplete"):
        profile(saved(tmp_path), tmp_path / "out", "--runs", 5)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".lock", "incomplete"}
    kept = {path.name for path in (tmp_path / "out/incomplete").iterdir() if ".meta" not in path.name}
    assert kept == WRITTEN - {"op_latency.csv"}
    meta = json.loads((tmp_path / "out/incomplete/latency_summary.meta.json").read_text())
    assert meta["incomplete"] == ["a calibration model: is refused"]


@pytest.mark.slow
def test_further_sessions_have_processes_of_their_own_and_enter_the_figures(tmp_path):
    out = tmp_path / "out"
    assert profile(saved(tmp_path), out, "--runs", 20, "--warmup", 3, "--sessions", 3) == 0
    runs, more = pd.read_csv(out / "run_latency.csv"), pd.read_csv(out / "session_latency.csv")
    assert more.groupby("session_index").size().to_dict() == {1: 23, 2: 23}
    assert more["is_warmup"].sum() >= 6
    firsts = [runs["start_us"].max(), *more.groupby("session_index")["start_us"].min()]
    assert firsts == sorted(firsts)  # one after the other, on one clock
    counted = [runs[~runs["is_profiled"] & ~runs["is_warmup"]], more[~more["is_warmup"]]]
    latencies_us = pd.concat(counted)["latency_us"]
    summary = json.loads((out / "latency_summary.json").read_text())
    assert summary["sample_count"] == len(latencies_us)
    assert summary["p50_us"] == pytest.approx(latencies_us.median())
    notes = json.loads((out / "latency_summary.meta.json").read_text())["notes"]
    assert any(note.startswith("3 sessions: the limits of all figures include their differences") for note in notes)


@pytest.mark.slow
def test_a_further_session_that_fails_keeps_the_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(more_sessions, "__name__", "no.such.module")  # what the new process runs
    with pytest.raises(PipelineError, match=r"a process with a session: ended by itself .*incomplete"):
        profile(saved(tmp_path), tmp_path / "out", "--runs", 5, "--sessions", 2)
    kept = pd.read_csv(tmp_path / "out/incomplete/run_latency.csv")
    assert (~kept["is_profiled"]).sum() >= 5


@pytest.mark.parametrize(
    "flags", [("--runs", "4"), ("--sessions", "0"), ("--warmup", "0"), ("--optimization", "most"), ("--input", "x")]
)
def test_bad_flags(tmp_path, flags):
    with pytest.raises(CommandLineError):
        profile(saved(tmp_path), tmp_path / "out", *flags)


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_half_written(tmp_path):
    out, log = tmp_path / "out", tmp_path / "stderr"
    command = [sys.executable, SCRIPT, "--model", str(saved(tmp_path)), "--out", str(out), "--runs", "1000000000"]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background job ignores it
    # Not under coverage: an interrupt that hits its tracer while that holds its lock waits for it for ever.
    bare = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, cwd=ROOT, stdout=stderr, stderr=stderr, env=bare, preexec_fn=heard) as running,  # noqa: PLW1509
    ):
        while running.poll() is None and not [*out.glob(f"{STAGING}/scratch/trace*")]:
            time.sleep(0.01)  # until the runs go on
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=600) == 130
    assert log.read_text() == f"{SCRIPT}: interrupted; nothing was replaced\n"
    assert {path.name for path in out.iterdir()} == {".lock"}


@pytest.mark.slow
def test_a_kill_leaves_no_weights_behind(tmp_path):
    """Not even small ones: the files that the runtime writes them to have no names."""
    model, out = saved(tmp_path), tmp_path / "out"
    weights = [numpy_helper.to_array(tensor).tobytes() for tensor in onnx.load(model).graph.initializer]
    command = [sys.executable, SCRIPT, "--model", str(model), "--out", str(out), "--runs", "1000000000"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as running:
        while running.poll() is None and not [*out.glob(f"{STAGING}/scratch/trace*")]:
            time.sleep(0.01)
        running.kill()
    left = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    assert left
    assert not [weight for weight in weights for content in left if any(weight) and weight[:16] in content]


# --- how long, and what is kept of a measurement that fails -----------------------------------------------------------


@pytest.mark.slow
def test_a_duration_in_place_of_runs(tmp_path):
    profile(saved(tmp_path), tmp_path / "out", "--duration", "50ms", "--warmup", 3)
    runs = pd.read_csv(tmp_path / "out/run_latency.csv")
    summary = json.loads((tmp_path / "out/latency_summary.json").read_text())
    counted = runs[~runs["is_profiled"]][summary["warmup_count"] :]
    assert summary["sample_count"] == len(counted) > 0
    assert not counted["is_warmup"].any()


def test_the_profiled_runs_of_a_large_model_come_last_and_are_said_to(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stage, "is_large", lambda graph: True)
    profile(saved(tmp_path), tmp_path / "out", "--runs", 5, "--warmup", 3)
    summary = json.loads((tmp_path / "out" / "latency_summary.json").read_text())
    assert (summary["is_alternating"], summary["sample_count"], summary["profiled_sample_count"]) == (False, 5, 5)
    runs = pd.read_csv(tmp_path / "out" / "run_latency.csv").groupby("is_profiled")["start_us"]
    assert runs.max()[False] < runs.min()[True]
    assert "% compared with unprofiled runs before them\n" in capsys.readouterr().out
    notes = json.loads((tmp_path / "out" / "op_latency.meta.json").read_text())["notes"]
    assert any("the profiled runs came after the unprofiled ones" in note for note in notes)
    assert json.loads((tmp_path / "out" / "hardware_counters.json").read_text())["run_count"] == 8


def test_runs_and_duration_exclude_each_other(tmp_path):
    with pytest.raises(CommandLineError, match="--runs and --duration: exclude each other; give one of them"):
        profile(saved(tmp_path), tmp_path / "out", "--runs", 5, "--duration", "1s")


@pytest.mark.slow
def test_what_was_measured_before_a_failure_is_set_aside(tmp_path, monkeypatch, profiled, capsys):
    out, calls = tmp_path / "out", itertools.count(1)
    shutil.copytree(profiled, out)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.name != ".lock"}

    def fails_at_last(session, feeds, model):
        if next(calls) > 40:
            raise PipelineError(model, "ONNX Runtime fails to run it (out of memory)")
        run(session, feeds, model)

    monkeypatch.setattr("common.profiling.runs.loop.run", fails_at_last)
    path = saved(tmp_path)
    with pytest.raises(PipelineError) as failed:
        profile(path, out, "--runs", 50, "--warmup", 3)
    # Of the 40 runs one was the first, one counted events.
    problem = "failed after 19 unprofiled and 19 profiled runs (ONNX Runtime fails to run it (out of memory))"
    aside = out / "incomplete"
    remedy = f"what was measured is in {aside}, marked incomplete"
    assert str(failed.value) == f"{path}: {problem}; {remedy}"
    assert failed.value.exit_code == 1
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file() and path.name != ".lock"} == before
    assert {path.name for path in aside.iterdir()} == WRITTEN | {f"{Path(name).stem}.meta.json" for name in WRITTEN}
    assert json.loads((aside / "op_latency.meta.json").read_text())["incomplete"] == [problem]
    assert len(pd.read_csv(aside / "run_latency.csv")) == 38
    # On a busy host a line that says so comes first.
    assert re.search(r"^latency of \d+ unprofiled runs", capsys.readouterr().out, re.MULTILINE)


def can_mount():
    """Whether this process may mount a file system of its own; root in a container may not."""
    command = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="mounts a small file system: needs root and CAP_SYS_ADMIN")
def test_a_disk_that_fills_while_the_trace_is_written_keeps_what_was_measured(tmp_path):
    """Space for the reserve, the executed graph and a part of the trace, on a file system of this process alone."""
    small, model = tmp_path / "small", saved(tmp_path)
    small.mkdir()
    flags = f"--model {model} --out {small}/out --runs 2000 --warmup 3 --threads 1 --idle 1ms"
    keeps = f"code=$?; cp -r {small}/out {tmp_path}/kept; exit $code"
    mounted = f"mount -t tmpfs -o size=6m none {small} && {sys.executable} {SCRIPT} {flags}; {keeps}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    kept = tmp_path / "kept"
    runs = pd.read_csv(next(kept.rglob("run_latency.csv")))
    assert (~runs["is_profiled"]).sum() == 2003
    lacks = json.loads(next(kept.rglob("op_latency.meta.json")).read_text())["incomplete"]
    assert re.match(r"the trace holds \d+ of \d+ runs \(", lacks[0]), done.stderr


@pytest.mark.parametrize("changed", ["m.onnx", "weights.bin"])
def test_a_model_that_is_replaced_before_it_runs_is_refused(tmp_path, monkeypatch, changed):
    """What was read and what would be timed are then two models, and the tables would be filed under the first."""
    model = onnx.load(saved(tmp_path))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    path = tmp_path / changed

    def swapped(*given, **options):
        (tmp_path / "other").write_bytes(path.read_bytes())
        (tmp_path / "other").replace(path)
        return create_session(*given, **options)

    monkeypatch.setattr("common.profiling.runs.loop.create_session", swapped)
    with pytest.raises(PipelineError, match=rf"{changed}: was replaced or written while it was used; run the stage"):
        profile(tmp_path / "m.onnx", tmp_path / "out", "--runs", 5)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {".lock"}


@pytest.mark.slow
def test_a_busy_host_is_said_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "common.sensors.other_work.OtherWork.notes", lambda work, threads: ["the host was busy: 1 of 2"]
    )
    profile(saved(tmp_path), tmp_path / "out", "--runs", 5)
    printed = capsys.readouterr()
    assert printed.out.startswith("the host was busy: 1 of 2\nlatency of 5 unprofiled runs")
    assert printed.err.count("note: ") > 1
    assert printed.err[printed.err.index("note: ") :].startswith("note: the host was busy: 1 of 2")
    notes = json.loads((tmp_path / "out/op_latency.meta.json").read_text())["notes"]
    assert notes[0] == "the host was busy: 1 of 2"
