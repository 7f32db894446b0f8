"""01 --from-trace on profiles that other programs and older runtimes recorded, and every stage after it."""

import csv
import json

import onnx
import pandas as pd
import pytest

from common.artifacts.provenance import Provenance
from common.artifacts.transaction import Transaction
from common.foreign_traces.programs import recognised
from models.small.tiny import build_tiny_cnn
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_stage
from tests.support.profiles.npu_profiles import device_run, write_csv
from tests.support.tables.energy import host_ceilings

DATA = ROOT / "tests/foreign_traces/data"
VERSIONS = ("1.10.0", "1.12.1", "1.15.1", "1.18.1", "1.23.2")
LATER = ("04_critical_path", "05_energy_estimate", "07_fpga_candidates", "09_trace_report")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny-cnn.onnx"
    onnx.save(build_tiny_cnn(), path)
    return path


@pytest.fixture(scope="module")
def counted(model, tmp_path_factory):
    """The tables of 02, which are the same for all profiles."""
    out = tmp_path_factory.mktemp("counted")
    assert run_stage("02_shapes_flops_bytes.py", "--model", model, "--dim", "batch=2", "--out", out).returncode == 0
    return pd.read_csv(out / "op_metrics.csv").set_index("source_node")


def bring_in(model, out, trace, *flags):
    known = ("--model", model, "--dim", "batch=2", "--out", out)
    return run_stage("01_profile_onnx.py", *known, "--from-trace", trace, *flags)


def placed(model, out):
    """Run 02 and 03, and return op_roofline."""
    assert run_stage("02_shapes_flops_bytes.py", "--model", model, "--dim", "batch=2", "--out", out).returncode == 0
    done = run_stage("03_merge_profile_metrics.py", "--out", out, "--peak-flops", "1e12", "--mem-bw", "5e10")
    assert done.returncode == 0, done.stderr
    return pd.read_csv(out / "op_roofline.csv", keep_default_na=False)


def kernel_us(trace):
    """The time of all nodes after the first run, by another reading of the trace."""
    total_us, runs = 0, 0
    for event in json.loads(trace.read_text()):
        runs += event["name"] == "model_run"
        total_us += event["dur"] if runs and event["name"].endswith("_kernel_time") else 0
    return total_us


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_trace_of_an_older_runtime_with_and_without_its_graph(version, model, counted, tmp_path):
    trace, graph = DATA / f"onnxruntime-{version}/trace.json", DATA / f"onnxruntime-{version}/optimized.onnx"
    owned = []
    for out, flags in ((tmp_path / "graph", ("--executed-graph", graph)), (tmp_path / "names", ())):
        done = bring_in(model, out, trace, "--threads", "2", "--warmup", "1", "--all-notes", *flags)
        assert done.returncode == 0, done.stderr
        assert ("the name of an executed node says what it computes" in done.stderr) == (not flags)
        assert ("the trace has no shapes" in done.stderr) == (version == "1.10.0")
        assert pd.read_csv(out / "op_latency.csv")["raw_total_us"].sum() == kernel_us(trace)
        roofline = placed(model, out)
        assert roofline["macs"].replace("", 0).astype(int).sum() == counted["macs"].sum()
        owned.append({row.executed_node: row.macs for row in roofline.itertuples() if row.macs})
    assert owned[0] == owned[1]


@pytest.mark.slow
def test_counters_of_openvino_pass_through_every_stage(model, counted, tmp_path):
    out, report = tmp_path / "out", DATA / "openvino/detailed.csv"
    (out / "ort_trace.json").parent.mkdir()
    (out / "ort_trace.json").write_text("of an earlier run")
    done = bring_in(model, out, report, "--threads", "2", "--executed-graph", DATA / "openvino/executed.xml")
    assert done.returncode == 0, done.stderr
    assert not (out / "ort_trace.json").exists()
    with report.open() as file:
        rows = [row for row in csv.reader(file, delimiter=";") if row and row[1].endswith("EXECUTED")]
    nodes = pd.read_csv(out / "op_latency.csv")
    assert nodes["raw_mean_us"].sum() == pytest.approx(1000 * sum(float(row[4]) for row in rows) / 2)
    unknown = ["raw_median_us", "raw_p95_us", "raw_std_us", "sample_count", "uses_thread_pool", "correction_us"]
    assert nodes[unknown].isna().all(axis=None)
    assert pd.read_csv(out / "run_latency.csv").empty
    summary = json.loads((out / "latency_summary.json").read_text())
    assert summary["p50_us"] is summary["profiled_median_us"] is summary["profiled_sample_count"] is None
    meta = json.loads((out / "op_latency.meta.json").read_text())
    assert meta["imported"]["program"] == "OpenVINO"
    assert meta["host"] == {}
    assert any(note.startswith("the profile has one mean per layer") for note in meta["notes"])
    roofline = placed(model, out)
    assert roofline["node_latency_us"].sum() == pytest.approx(nodes["raw_mean_us"].sum())
    assert roofline["macs"].replace("", 0).astype(int).sum() == counted["macs"].sum()
    convolutions = roofline[roofline["op_type"] == "Convolution"].set_index("executed_node")["macs"].astype(int)
    assert convolutions.tolist() == [counted.loc[name, "macs"] for name in ("/stem/Conv", "/block/Conv")]
    for script in LATER:
        done = run_stage(f"{script}.py", "--out", out)
        assert done.returncode == 0, done.stderr
    # Nobody knows which processor ran it, so its power is unknown.
    assert pd.read_csv(out / "ops_profile.csv")["energy_uj"].isna().all()
    assert json.loads((out / "energy_summary.json").read_text())["energy_uj"] is None


def tensorrt_profile(path, model):
    """Write a profile in TensorRT's shape in which each convolution has its epilogue, 10, 20, … µs each."""
    names = [
        "Reformatting CopyNode for Input Tensor 0 to /stem/Conv + /stem/Relu",
        "/stem/Conv + /stem/Relu",
        "/block/Conv + /block/Add + /block/Relu",
        "/pool/MaxPool",
        "{ForeignNode[/head/GlobalAveragePool.../head/Gemm]}",
    ]
    times = {name: 0.01 * place for place, name in enumerate(names, start=1)}
    share = {name: 100 * time / sum(times.values()) for name, time in times.items()}
    rows = [
        {"name": n, "timeMs": 3 * t, "averageMs": t, "medianMs": t, "percentage": share[n]} for n, t in times.items()
    ]
    path.write_text(json.dumps([{"count": 3}, *rows]))
    return path


@pytest.mark.slow
def test_a_profile_of_tensorrt(model, counted, tmp_path):
    out = tmp_path / "out"
    done = bring_in(model, out, tensorrt_profile(tmp_path / "profile.json", model))
    assert done.returncode == 0, done.stderr
    nodes = pd.read_csv(out / "op_latency.csv")
    assert nodes["raw_median_us"].tolist() == pytest.approx([10, 20, 30, 40, 50])
    assert nodes["raw_total_us"].tolist() == pytest.approx([30, 60, 90, 120, 150])
    assert nodes["raw_p95_us"].isna().all()
    roofline = placed(model, out).set_index("executed_node")
    sources = {name: json.loads(cell) for name, cell in roofline["source_nodes"].items()}
    assert [*sources.values()] == [
        [],
        ["/stem/Conv", "/stem/BatchNormalization", "/stem/Relu"],
        ["/block/Conv", "/block/BatchNormalization", "/block/Add", "/block/Relu"],
        ["/pool/MaxPool"],
        ["/head/GlobalAveragePool", "/head/Flatten", "/head/Gemm"],
    ]
    assert roofline["layout_of"].iloc[0] == "/stem/Conv + /stem/Relu"


@pytest.mark.slow
def test_a_profile_of_another_model_is_refused_unless_it_is_accepted(model, tmp_path):
    """Half of the time is in a layer of another model, and one of three contractions is named."""
    names, out = ("/stem/Conv + /stem/Relu", "/features/features.0/Conv"), tmp_path / "out"
    rows = [{"name": name, "timeMs": 3.0, "averageMs": 1.0, "percentage": 50.0} for name in names]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps([{"count": 3}, *rows]))
    done = bring_in(model, out, path)
    stated = "and the model match in 50.0% of its time and 33.3% of the model's contractions only"
    remedy = "give the model that was recorded, or --accept-partial"
    assert (done.returncode, done.stderr) == (1, f"01_profile_onnx.py: error: {path}: {stated}; {remedy}\n")
    done = bring_in(model, out, path, "--accept-partial")
    assert done.returncode == 0, done.stderr
    assert "names match for 50.0 % of the time and 33.3 % of the model's contractions" in done.stdout
    summary = json.loads((out / "latency_summary.json").read_text())
    assert (summary["matched_time_share"], summary["matched_contraction_share"]) == (0.5, pytest.approx(1 / 3))


@pytest.mark.slow
def test_a_profile_without_any_time(model, tmp_path):
    """It matches nothing, and accepting it gives shares of nothing, not a division by zero."""
    path = tmp_path / "profile.json"
    path.write_text(json.dumps([{"count": 3}, {"name": "/stem/Conv", "timeMs": 0.0, "averageMs": 0.0}]))
    done = bring_in(model, tmp_path / "out", path)
    assert (done.returncode, "match in 0.0% of its time" in done.stderr) == (1, True)
    done = bring_in(model, tmp_path / "out", path, "--accept-partial")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def test_accept_partial_is_for_imports(model, tmp_path):
    done = run_stage("01_profile_onnx.py", "--model", model, "--accept-partial", "--out", tmp_path)
    assert (done.returncode, "--accept-partial: needs --from-trace" in done.stderr) == (2, True)


HOSTILE = {
    "utf-16.json": "[{}]".encode("utf-16"),
    "packed.json.gz": b"\x1f\x8b\x08\x00",
    "other.txt": b"hello",
    "empty": b"",
    "object.json": b"{}",
    "half.csv": b"layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms)\na;EXECUTED;b;c_f32;0.1;",
    "half.json": b'[{"count": 1}, {"name": "a", "aver',
    "mixed.json": b'[\n{"cat": "Node", "name": "a_kernel_time"},\n',
    "report.csv": b"Command line parameters\n-m;x\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_one_line_and_leave_the_tables(name, model, tmp_path):
    path, out = tmp_path / name, tmp_path / "out"
    path.write_bytes(HOSTILE[name])
    done = bring_in(model, out, path, "--threads", "2")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"01_profile_onnx.py: error: {path}: ")
    assert done.stderr.count("\n") == 1
    assert not [file for file in out.glob("*") if file.name != ".lock"]


def test_each_program_is_recognised():
    assert recognised(DATA / "openvino/average.csv") == "OpenVINO"
    assert recognised(DATA / "onnxruntime-1.10.0/trace.json") == "ONNX Runtime"
    assert recognised(ROOT / "tests/npu/data/fp16/profile.csv") == "QNN"


def test_threads_of_a_host_are_asked_for(model, tmp_path):
    done = bring_in(model, tmp_path / "out", DATA / "openvino/average.csv")
    assert done.returncode == 2
    assert "--threads: is not given, and the profile does not say it; give the recorded count" in done.stderr


def test_a_profile_that_is_refused_fails_the_checks_which_write_nothing(model, tmp_path):
    out = tmp_path / "out"
    refused = bring_in(model, out, DATA / "openvino/average.csv", "--check")
    assert (refused.returncode, "--threads: is not given" in refused.stderr) == (2, True)
    of_another = bring_in(model, out, DATA / "pytorch/steps.json", "--threads", "1", "--check")
    assert (of_another.returncode, f"{DATA}/pytorch/steps.json: " in of_another.stderr) == (1, True)
    known = ("--executed-graph", DATA / "openvino/executed.xml", "--threads", "2", "--check")
    assert bring_in(model, out, DATA / "openvino/average.csv", *known).returncode == 0
    assert not [file for file in out.glob("*") if file.name != ".lock"]


def test_a_warm_up_needs_single_runs(model, tmp_path):
    done = bring_in(model, tmp_path / "out", DATA / "openvino/average.csv", "--threads", "2", "--warmup", "3")
    assert done.returncode == 2
    assert "--warmup: cannot be applied: the profile has no single runs" in done.stderr


@pytest.mark.slow
def test_a_devices_csv_is_under_no_roof_of_this_host(tmp_path):
    """The profile has one thread and the ceilings two: nothing is refused, and these ceilings judge no node."""
    model, out = tmp_path / "m.onnx", tmp_path / "out"
    onnx.save(proto := build_tiny_cnn(), model)
    nodes = [("Input", 1, 0), *((f"{node.name}_token_1_2", 20 + i, 97) for i, node in enumerate(proto.graph.node))]
    profile, ceilings = write_csv(tmp_path / "device.csv", *3 * [device_run(nodes)]), tmp_path / "host_ceilings.json"
    with Transaction(tmp_path, Provenance("00_host_ceilings.py", "")) as host:
        host.add_document("host_ceilings", host_ceilings(threads=2))
    flags = ("--model", model, "--dim", "batch=1", "--out", out)
    assert run_stage("01_profile_onnx.py", "--from-trace", profile, *flags).returncode == 0
    assert run_stage("02_shapes_flops_bytes.py", *flags).returncode == 0
    done = run_stage("03_merge_profile_metrics.py", "--all-notes", "--ceilings", ceilings, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "the ceilings of this host judge no node, since the profile is of an accelerator" in done.stderr
    rows = pd.read_csv(out / "op_roofline.csv")
    assert rows[["roof_share", "attainable_flop_per_s", "bound"]].isna().all(axis=None)
    assert rows.loc[rows["row_kind"] != "gap", "roof_share_reason"].unique().tolist() == ["other_device"]
    for script in LATER:
        done = run_stage(
            f"{script}.py", "--out", out, *(("--ceilings", ceilings) if script[:2] in ("05", "06") else ())
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["steps.json", "plain.json"])
def test_a_profile_of_pytorch_passes_through_every_stage(name, tmp_path):
    pytorch, out = DATA / "pytorch", tmp_path / "out"
    flags = ("--from-trace", pytorch / name, "--threads", "1", "--warmup", "1", "--out", out)
    done = run_stage("01_profile_onnx.py", "--model", pytorch / "model.onnx", *flags)
    assert done.returncode == 0, done.stderr
    nodes, runs = pd.read_csv(out / "op_latency.csv"), pd.read_csv(out / "run_latency.csv")
    assert nodes["sample_count"].tolist() == [2] * len(nodes)
    assert runs["is_warmup"].tolist() == [True, False, False]
    assert nodes["raw_total_us"].sum() <= runs.loc[~runs["is_warmup"], "latency_us"].sum() + 1
    assert run_stage("02_shapes_flops_bytes.py", "--model", pytorch / "model.onnx", "--out", out).returncode == 0
    given = ("--peak-flops", "1e12", "--mem-bw", "5e10")
    done = run_stage("03_merge_profile_metrics.py", "--out", out, *given)
    assert done.returncode == 0, done.stderr
    roofline = pd.read_csv(out / "op_roofline.csv").set_index("executed_node")
    assert roofline["macs"].fillna(0).astype(int)[["conv2d", "conv2d #2", "linear"]].tolist() == [
        2 * 7 * 3 * 9 * 13 * 17,
        2 * 7 * 7 * 9 * 13 * 17,
        2 * 7 * 5,
    ]
    for script in LATER:
        done = run_stage(f"{script}.py", "--out", out)
        assert done.returncode == 0, done.stderr
