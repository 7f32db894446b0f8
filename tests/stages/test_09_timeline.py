"""The timeline of stage 09, on the tables of a real measurement."""

import json
import shutil
from collections import Counter

import onnx
import pandas as pd
import pytest

from models.__main__ import BUILDERS
from tests.support.models.fused_bodies import fused_everywhere
from tests.support.processes.command_lines import run_stage, width
from tests.support.profiles.npu_profiles import device_run, write_csv

SCRIPT = "09_trace_report.py"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Tables of 01 to 05 and 07 of a tiny model."""
    folder = tmp_path_factory.mktemp("timeline")
    model, out = folder / "m.onnx", folder / "out"
    model.write_bytes(BUILDERS["tiny-cnn"]().SerializeToString())
    flags = ("--model", model, "--dim", "batch=1")
    profile = ("--runs", "7", "--warmup", "1", "--idle", "10ms", "--threads", "1")
    roofs = ("--peak-flops", "1e12", "--mem-bw", "1e11")
    for script, *settings in (
        ("01_profile_onnx.py", *flags, *profile),
        ("02_shapes_flops_bytes.py", *flags),
        ("03_merge_profile_metrics.py", *roofs),
        ("04_critical_path.py",),
        ("05_energy_estimate.py", "--avg-power-w", "23", "--static-power-w", "7"),
        ("07_fpga_candidates.py", "--effort", "0.1"),
    ):
        done = run_stage(script, *settings, "--out", out)
        assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def tables(measured, tmp_path):
    return shutil.copytree(measured, tmp_path / "out")


def report(out, *flags):
    done = run_stage(SCRIPT, *flags, "--out", out)
    assert done.returncode == 0, done.stderr
    content = json.loads((out / "trace.json").read_text(), parse_constant=pytest.fail)
    events, zero_us = content["traceEvents"], content["otherData"]["time_zero_us"]
    return done, [{**event, "ts": event["ts"] - zero_us} if "ts" in event else event for event in events]


def slices(events, category):
    return [event for event in events if event["ph"] == "X" and event["cat"] == category]


def name_of(event):
    """The node of a slice; the slice itself has its label."""
    return event["args"]["executed_node"]


def own_times(events):
    """Return the time of each node without the events that lie within its own: the nodes of its bodies."""
    own_us, around = {}, []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        while around and around[-1]["ts"] + around[-1]["dur"] <= event["ts"] + 0.5:
            around.pop()
        own_us[name_of(event)] = own_us.get(name_of(event), 0) + event["dur"]
        if around:
            own_us[name_of(around[-1])] -= event["dur"]
        around.append(event)
    return own_us


def test_runs_are_those_of_the_table(tables):
    _, events = report(tables)
    runs = pd.read_csv(tables / "run_latency.csv")
    assert sorted(e["dur"] for e in slices(events, "runs")) == pytest.approx(sorted(runs["latency_us"]), abs=2e-3)
    assert sorted(e["ts"] for e in slices(events, "runs")) == pytest.approx(sorted(runs["start_us"]))


@pytest.mark.slow
def test_times_of_nodes_are_those_of_the_table(tables):
    """With all runs shown, the median of a node's events after the warm-up is the table's, and so is their sum."""
    _, events = report(tables, "--runs", "all")
    latencies = pd.read_csv(tables / "op_latency.csv").set_index("executed_node")
    runs = pd.read_csv(tables / "run_latency.csv")
    counted = set(runs[runs["is_profiled"] & ~runs["is_warmup"]]["run_index"])
    nodes = pd.DataFrame(
        {"node": name_of(event), "dur": event["dur"]}
        for event in slices(events, "executed nodes")
        if event["args"]["run_index"] in counted
    ).groupby("node")["dur"]
    assert set(nodes.groups) == set(latencies.index)
    for name, durations in nodes:
        assert durations.median() == pytest.approx(latencies.loc[name, "raw_median_us"])
        assert durations.sum() == pytest.approx(latencies.loc[name, "raw_total_us"])


@pytest.mark.slow
def test_nodes_lie_within_their_run(tables):
    _, events = report(tables)
    runs = {e["args"]["run_index"]: e for e in slices(events, "runs") if "role" in e["args"]}
    assert 1 <= len(runs) <= 3
    for node in slices(events, "executed nodes"):
        run = runs[node["args"]["run_index"]]
        assert run["ts"] - 1 <= node["ts"]
        assert node["ts"] + node["dur"] <= run["ts"] + run["dur"] + 1


@pytest.mark.slow
def test_a_node_opens_with_its_work_and_energy(tables):
    _, events = report(tables)
    profile = pd.read_csv(tables / "ops_profile.csv").set_index("executed_node")
    for node in slices(events, "executed nodes"):
        facts = node["args"]
        row = profile.loc[facts["executed_node"]]
        assert facts["source_nodes"] == json.loads(row["source_nodes"])
        assert (facts["energy_uj"], facts["macs"]) == (row["energy_uj"], row["macs"])
        assert len(node["name"]) <= 28
        assert "bound" in facts or not facts["macs"]


@pytest.mark.slow
def test_arrows_follow_the_critical_path(tables):
    done, events = report(tables)
    chain = pd.read_csv(tables / "critical_path.csv")
    assert len([event for event in events if event["ph"] == "s"]) == len(chain) - 1
    assert f"{len(chain) - 1} arrows along the critical path" in done.stdout
    assert width(done.stdout) <= 80


@pytest.mark.slow
def test_the_tables_of_01_are_enough(tables):
    report(tables)
    for name in ("op_roofline", "ops_profile", "critical_path", "offload_schedule", "fpga_candidates"):
        (tables / f"{name}.csv").unlink()
        (tables / f"{name}.meta.json").unlink()
    done, events = report(tables, "--all-notes")
    assert not {"plan_trace.json", "flamegraph.folded", "annotated.onnx"} & {path.name for path in tables.iterdir()}
    assert slices(events, "executed nodes")
    assert "note: absent: critical_path.csv; run 04_critical_path.py\n" in done.stderr


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Tables of a load test of two models: that of 01's tables, and another one."""
    folder = tmp_path_factory.mktemp("loaded")
    flags = ("--rate", "300", "--duration", "200ms", "--batch-max", "4", "--replicate", "2", "--threads", "1")
    for name in ("tiny-cnn", "tiny-mlp"):
        (folder / "m.onnx").write_bytes(BUILDERS[name]().SerializeToString())
        done = run_stage("10_load_test.py", "--model", folder / "m.onnx", *flags, "--out", folder / name)
        assert done.returncode == 0, done.stderr
    return folder


def add_load(loaded, name, out):
    for file in (loaded / name).glob("load_*"):
        shutil.copy(file, out)
    return pd.read_csv(out / "load_requests.csv"), pd.read_csv(out / "load_batches.csv")


def has_times_of(events, requests, batches):
    shown = slices(events, "requests (clock of the load test)")
    whole = {event["name"].split()[1]: event for event in shown if event["name"] != "waits"}
    assert {int(index) for index in whole} == {*requests["request_index"]}
    durations = [whole[str(index)]["dur"] for index in requests["request_index"]]
    assert durations == pytest.approx(requests["request_latency_us"].tolist(), abs=2e-3)
    waits_us = sum(event["dur"] for event in shown if event["name"] == "waits")
    assert waits_us == pytest.approx((requests["started_us"] - requests["intended_us"]).sum(), abs=2e-3 * len(requests))
    calls = slices(events, "sessions (clock of the load test)")
    for stage in ("assemble", "session_run"):
        spent_us = sum(event["dur"] for event in calls if event["name"] == stage)
        assert spent_us == pytest.approx(batches[f"{stage}_us"].sum(), abs=2e-3 * len(batches))


@pytest.mark.slow
def test_a_load_test_in_the_folder_is_shown_beside(tables, loaded):
    requests, batches = add_load(loaded, "tiny-cnn", tables)
    done, events = report(tables)
    has_times_of(events, requests, batches)
    assert slices(events, "executed nodes")
    assert f"{len(requests)} load requests" in " ".join(done.stdout.split())
    assert width(done.stdout) <= 80


def lacking(out):
    """What each table of a folder lacks."""
    return {path.name: json.loads(path.read_text())["incomplete"] for path in out.glob("*.meta.json")}


@pytest.mark.slow
def test_a_load_test_that_a_signal_ended_leaves_only_the_timeline_incomplete(tables, loaded):
    add_load(loaded, "tiny-cnn", tables)
    report(tables)
    before = lacking(tables)  # a host may have kept an observer of the profile from its turn
    sidecar = tables / "load_requests.meta.json"
    record = json.loads(sidecar.read_text())
    sidecar.write_text(json.dumps(record | {"incomplete": ["a signal ended the run after 3 s"]}))
    report(tables)
    lacks = lacking(tables)
    added = {name: [*(Counter(reasons) - Counter(before[name]))] for name, reasons in lacks.items()}
    assert {name: reasons for name, reasons in added.items() if reasons} == {
        "load_requests.meta.json": ["a signal ended the run after 3 s"],
        "trace.meta.json": ["made from load_requests.csv: a signal ended the run after 3 s"],
    }
    assert lacks.keys() > {"bottlenecks.meta.json", "plan_trace.meta.json", "flamegraph.meta.json"}


@pytest.mark.slow
def test_a_later_load_test_makes_no_bottleneck_stale(tables, loaded):
    add_load(loaded, "tiny-cnn", tables)
    report(tables)
    flags = ("--rate", "100", "--duration", "50ms", "--threads", "1")
    model = json.loads((tables / "run_latency.meta.json").read_text())["settings"]["model"]["value"]
    assert run_stage("10_load_test.py", "--model", model, *flags, "--out", tables).returncode == 0
    done = run_stage("06_plots.py", "--out", tables)
    assert done.returncode == 0 and "stale" not in done.stderr


@pytest.mark.slow
def test_a_load_test_of_another_model_is_left_out(tables, loaded):
    add_load(loaded, "tiny-mlp", tables)
    done, events = report(tables)
    assert "note: the load test is left out: " in done.stderr and "of model" in done.stderr
    assert not slices(events, "requests (clock of the load test)")
    assert slices(events, "executed nodes")


def test_a_load_test_alone_is_enough(tmp_path, loaded):
    requests, batches = add_load(loaded, "tiny-mlp", tmp_path)
    done, events = report(tmp_path)
    has_times_of(events, requests, batches)
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(("load_", "."))} == {
        *("trace.json", "trace.meta.json")
    }
    assert "no runs of 01_profile_onnx.py are in this folder" in done.stderr


def test_without_a_measurement_01_is_named(tmp_path):
    done = run_stage(SCRIPT, "--out", tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "01_profile_onnx.py" in done.stderr


def plan_sums(out):
    """Time of each activity on each track, after offloading."""
    events = json.loads((out / "plan_trace.json").read_text())["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    sums = {}
    for event in events:
        if event["ph"] == "X":
            key = event["pid"], tracks[event["pid"], event["tid"]], event["args"]["activity"]
            sums[key] = sums.get(key, 0.0) + event["dur"]
    return sums, max(e["ts"] + e["dur"] for e in events if e["ph"] == "X" and e["pid"] == 2)


@pytest.mark.slow
def test_the_trace_of_the_plan_has_its_verdict_and_every_doubt(tables):
    report(tables)
    trace = json.loads((tables / "plan_trace.json").read_text())
    verdicts = pd.read_csv(tables / "offload_verdict.csv").set_index("objective")
    words = verdicts["verdict"]
    said = trace["otherData"]
    assert all(said[f"verdict on {objective}"].startswith(word) for objective, word in words.items())
    for doubt in json.loads(verdicts["doubts"].iloc[0]):
        assert doubt in said["doubts"]


@pytest.mark.slow
def test_times_of_the_plan_are_those_of_its_tables(tables):
    report(tables)
    sums, finish_us = plan_sums(tables)
    speedup = pd.read_csv(tables / "speedup.csv").set_index(["objective", "term"])["likely"]
    after = {(track, activity): time_us for (process, track, activity), time_us in sums.items() if process == 2}
    kinds = {kind: sum(us for (_, found), us in after.items() if found == kind) for kind in ("launch", "conversion")}
    assert sums[1, "host", "host"] == pytest.approx(speedup["latency", "host_total"])
    assert finish_us == pytest.approx(speedup["latency", "new_total"])
    assert after.get(("host", "host"), 0.0) == pytest.approx(speedup["throughput", "busy_host"])
    assert after.get(("link to the card", "transfer"), 0.0) == pytest.approx(speedup["throughput", "busy_h2d"])
    assert after.get(("link to the host", "transfer"), 0.0) == pytest.approx(speedup["throughput", "busy_d2h"])
    assert kinds == pytest.approx({name: speedup["latency", name] for name in kinds})
    plan = pd.read_csv(tables / "offload_plan.csv")
    kernels = plan[plan["kernel_latency_likely_us"] > 0].groupby("engine")["kernel_latency_likely_us"].sum()
    assert {t: us for (t, kind), us in after.items() if kind == "kernel"} == pytest.approx(kernels.to_dict())


@pytest.mark.slow
def test_the_flame_graph_has_the_time_of_the_table(tables):
    report(tables)
    lines = (tables / "flamegraph.folded").read_text().splitlines()
    latency_us = pd.read_csv(tables / "op_roofline.csv")["node_latency_us"].clip(lower=0)
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == round(latency_us.sum())
    assert all(line.startswith("m.onnx;") for line in lines)


@pytest.mark.slow
def test_the_annotated_graph_has_the_time_of_the_table(tables):
    report(tables)
    model = onnx.load(tables / "annotated.onnx")
    onnx.checker.check_model(model)
    texts = {node.name: {entry.key: entry.value for entry in node.metadata_props} for node in model.graph.node}
    profile = pd.read_csv(tables / "ops_profile.csv").set_index("executed_node")
    metrics = pd.read_csv(tables / "op_metrics.csv").set_index("source_node")
    assert {name: int(text["macs"]) for name, text in texts.items()} == metrics["macs"].to_dict()
    outside = {entry.key: float(entry.value) for entry in model.metadata_props}
    times_us = sum(float(text.get("node_latency_us", 0)) for text in texts.values())
    assert times_us + outside["inserted_nodes_latency_us"] == pytest.approx(
        profile.loc[profile["row_kind"] != "gap", "node_latency_us"].sum()
    )
    assert outside["gap_us"] == pytest.approx(profile.loc["(gap)", "node_latency_us"])
    for text in texts.values():
        assert "executed_node" in text or "computed_with" in text
        if "energy_uj" in text:
            assert float(text["energy_uj"]) == pytest.approx(profile.loc[text["executed_node"], "energy_uj"])


@pytest.mark.slow
def test_another_model_is_not_annotated(tables):
    report(tables)
    source = json.loads((tables / "op_metrics.meta.json").read_text())
    other = tables.parent / "other.onnx"
    other.write_bytes(BUILDERS["tiny-mlp"]().SerializeToString())
    source["settings"]["model"]["value"] = str(other)
    (tables / "op_metrics.meta.json").write_text(json.dumps(source))
    done, _ = report(tables)
    assert f"no annotated graph: {other}: has changed since 02_shapes_flops_bytes.py read it" in done.stderr
    assert not (tables / "annotated.onnx").exists()
    assert (tables / "flamegraph.folded").exists()
    other.unlink()
    done, _ = report(tables)
    assert f"no annotated graph: {other}: no such model file" in done.stderr


@pytest.mark.slow
def test_nodes_of_bodies_open_with_their_work_although_their_traced_name_is_not_unique(tmp_path):
    model, out = tmp_path / "m.onnx", tmp_path / "out"
    onnx.save(fused_everywhere([197, 89]), model)
    for script, *flags in (
        ("01_profile_onnx.py", "--runs", "5", "--warmup", "1", "--idle", "10ms", "--threads", "1"),
        ("02_shapes_flops_bytes.py",),
        ("03_merge_profile_metrics.py", "--peak-flops", "1e12", "--mem-bw", "1e11"),
    ):
        done = run_stage(script, *flags, *(("--model", model) if script < "03" else ()), "--out", out)
        assert done.returncode == 0, done.stderr
    trace = json.loads((out / "ort_trace.json").read_text())
    names = {event["name"] for event in trace if event.get("args", {}).get("op_name") == "Gelu"}
    assert names == {"Gelu_kernel_time"}
    _, events = report(out)
    shown = {name_of(event): event["args"] for event in slices(events, "executed nodes")}
    latencies = pd.read_csv(out / "op_latency.csv").set_index("executed_node")
    assert set(shown) == set(latencies.index)
    gelus = [facts for facts in shown.values() if facts["op_type"] == "Gelu"]
    assert len(gelus) == 2
    assert all(facts["flops"] > 0 and len(facts["source_nodes"]) == 5 for facts in gelus)
    _, events = report(out, "--runs", "all")
    runs = pd.read_csv(out / "run_latency.csv")
    counted = set(runs[runs["is_profiled"] & ~runs["is_warmup"]]["run_index"])
    own_us = own_times([e for e in slices(events, "executed nodes") if e["args"]["run_index"] in counted])
    cut_us = len(counted)  # times are cut to whole µs: the last node of a body may seem to end after the body's owner
    assert own_us == pytest.approx(latencies["raw_total_us"].to_dict(), abs=cut_us)


@pytest.mark.slow
def test_a_profile_of_an_npu_in_the_folder_is_shown_beside(tables):
    path = write_csv(tables.parent / "device.csv", *[device_run([("conv", 17, 3), ("relu", 23, 9)])] * 3)
    assert run_stage("13_npu_profile.py", "--qnn-csv", path, "--out", tables).returncode == 0
    _, events = report(tables)
    assert {"conv", "relu"} <= {event["name"] for event in events if event["ph"] == "X"}
    assert slices(events, "executed nodes")
    (tables / "npu_nodes.csv").write_text("")
    done, events = report(tables)
    assert "the NPU is left out: " in done.stderr
    assert not {"conv", "relu"} & {event["name"] for event in events}
