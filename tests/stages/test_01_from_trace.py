"""01 --from-trace on traces that a session of the runtime wrote itself, and every stage after it."""

import importlib
import json
import statistics
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.messages.errors import PipelineError
from common.process.host_identity import host_identity

RUNS = 11
NUMPY = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
profile, count, merge, chain, energy, plots, candidates = (
    importlib.import_module(name)
    for name in (
        "01_profile_onnx",
        "02_shapes_flops_bytes",
        "03_merge_profile_metrics",
        "04_critical_path",
        "05_energy_estimate",
        "06_plots",
        "07_fpga_candidates",
    )
)


def chain_model(width=32, output="y"):
    """A product of unknown batch, an activation and a second product."""
    weights = [numpy_helper.from_array(np.full((width, width), 0.01, np.float32), name) for name in ("w0", "w1")]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"], name="first"),
        helper.make_node("Tanh", ["h"], ["t"], name="squash"),
        helper.make_node("MatMul", ["t", "w1"], [output], name="second"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width]) for name in ("x", output)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def record(folder, model, batch=5, threads=1, runs=RUNS):
    """Profile a model with the runtime alone."""
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    onnx.save(model, path)
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.intra_op_num_threads, options.log_severity_level = True, threads, 3
    options.profile_file_prefix = str(folder / "recorded")
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {
        value.name: np.ones([size if isinstance(size, int) else batch for size in value.shape], NUMPY[value.type])
        for value in session.get_inputs()
    }
    for _ in range(runs):
        session.run(None, feeds)
    trace = folder / "trace.json"
    (folder / session.end_profiling().rpartition("/")[2]).rename(trace)
    return SimpleNamespace(model=path, trace=trace, graph=folder / "optimized.onnx", batch=batch)


def bring_in(recorded, out, *flags, dim=True):
    bound = ("--dim", f"batch={recorded.batch}") if dim else ()
    files = ("--model", recorded.model, "--from-trace", recorded.trace, "--executed-graph", recorded.graph)
    return profile.main([*map(str, (*files, *bound, "--threads", "1", "--out", out, *flags))])


def document(path):
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return record(tmp_path_factory.mktemp("recorded"), chain_model())


@pytest.fixture(scope="module")
def imported(recorded, tmp_path_factory):
    out = tmp_path_factory.mktemp("imported") / "out"
    assert bring_in(recorded, out, "--warmup", 3) == 0
    return out


def events(recorded, name):
    return [event for event in document(recorded.trace) if event["name"] == name]


@pytest.mark.slow
def test_node_times_are_those_of_the_trace(recorded, imported):
    nodes = pd.read_csv(imported / "op_latency.csv").set_index("executed_node")
    assert list(nodes.index) == ["first", "squash", "second"]
    for name, row in nodes.iterrows():
        times_us = [event["dur"] for event in events(recorded, f"{name}_kernel_time")][3:]
        assert (row["sample_count"], row["raw_total_us"]) == (RUNS - 3, sum(times_us))
        assert row["raw_median_us"] == row["corrected_median_us"] == statistics.median(times_us)


def test_what_was_not_measured_is_empty_and_no_zero(imported):
    nodes = pd.read_csv(imported / "op_latency.csv")
    assert nodes[["correction_us", "correction_low_us", "correction_high_us"]].isna().all(axis=None)
    assert not nodes["is_correction_dominated"].any()
    summary = document(imported / "latency_summary.json")
    unknown = {name for name, value in summary.items() if value is None}
    assert {"p50_us", "p99_us", "mean_us", "jitter_us", "min_us", "max_us", "first_run_us"} <= unknown
    assert {"graph_optimization", "steady_state", "profiling_overhead_fraction", "peak_resident_bytes"} <= unknown
    counters = document(imported / "hardware_counters.json")
    assert {name for name, value in counters.items() if value is not None} == {"window_s", "run_count"}
    for name in ("power_samples", "host_samples", "os_events", "run_disturbances", "provider_layers"):
        assert pd.read_csv(imported / f"{name}.csv").empty


def test_runs_are_the_model_run_events(recorded, imported):
    runs = pd.read_csv(imported / "run_latency.csv")
    traced = events(recorded, "model_run")
    assert runs["latency_us"].tolist() == [event["dur"] for event in traced]
    assert runs["start_us"].tolist() == [event["ts"] - traced[0]["ts"] for event in traced]
    assert runs["is_profiled"].all()
    assert runs["is_warmup"].tolist() == [True] * 3 + [False] * (RUNS - 3)
    summary = document(imported / "latency_summary.json")
    assert summary["profiled_median_us"] == statistics.median(event["dur"] for event in traced[3:])
    assert (summary["sample_count"], summary["profiled_sample_count"], summary["threads"]) == (0, RUNS - 3, 1)


def test_sidecars_say_imported_and_name_no_host(recorded, imported):
    for name in ("op_latency", "run_latency", "executed_graph"):
        meta = document(imported / f"{name}.meta.json")
        assert meta["host"] == {}
        assert "onnxruntime" not in meta["tools"]
        assert meta["imported"]["trace"] == recorded.trace.name
        assert meta["imported"]["executed_graph"] == recorded.graph.name
        assert (meta["imported"]["run_count"], meta["imported"]["provider"]) == (RUNS, "CPUExecutionProvider")
        assert "provider" not in meta["settings"]
        assert any(note.startswith("node times are not corrected") for note in meta["notes"])
    assert (imported / "ort_trace.json").read_bytes() == recorded.trace.read_bytes()
    graph = onnx.load(imported / "executed_graph.onnx", load_external_data=False)
    assert [node.op_type for node in graph.graph.node] == ["MatMul", "Tanh", "MatMul"]
    assert not any(tensor.raw_data for tensor in graph.graph.initializer if len(tensor.dims) == 2)


def test_every_stage_runs_on_an_imported_profile(recorded, imported, capsys):
    out = ["--out", str(imported)]
    assert count.main(["--model", str(recorded.model), "--dim", f"batch={recorded.batch}", *out]) == 0
    assert merge.main([*out, "--peak-flops", "1e12", "--mem-bw", "1e11"]) == 0
    assert chain.main(out) == 0
    assert energy.main([*out, "--cpu", "Intel Xeon Gold 6130"]) == 0  # the sidecars do not say which host it was
    for later in (candidates, plots):
        assert later.main(out) == 0
    nodes = pd.read_csv(imported / "op_latency.csv")
    nodes_us = nodes["raw_median_us"].sum()
    roofline = pd.read_csv(imported / "op_roofline.csv")
    assert "gap" not in set(roofline["row_kind"])
    assert roofline["node_latency_us"].sum() == nodes_us
    assert roofline["latency_share"].sum() == pytest.approx(1)
    assert roofline["flops"].sum() == pd.read_csv(imported / "op_metrics.csv")["flops"].sum()
    schedule = pd.read_csv(imported / "op_schedule.csv")
    assert schedule["sequential_finish_us"].max() == pytest.approx(nodes_us)
    efficiency = document(imported / "efficiency.json")
    assert efficiency["p50_us"] is None
    assert efficiency["whole_model_flop_per_s"] == pytest.approx(efficiency["model_flops"] / (1e-6 * nodes_us))
    energies = pd.read_csv(imported / "ops_profile.csv")["energy_uj"]
    assert energies.sum() == pytest.approx(document(imported / "energy_summary.json")["energy_uj"])
    assert "runs of an imported trace" in (imported / "summary.txt").read_text()
    assert "no gap between nodes is known" in capsys.readouterr().err


@pytest.mark.slow
def test_ceilings_of_a_host_are_taken_with_a_note_that_the_host_of_the_profile_is_unknown(recorded, tmp_path, capsys):
    out = tmp_path / "out"
    bring_in(recorded, out)
    count.main(["--model", str(recorded.model), "--dim", f"batch={recorded.batch}", "--out", str(out)])
    ceilings = importlib.import_module("00_host_ceilings")
    assert ceilings.main(["--threads", "1", "--seconds", "0.1", "--out", str(out)]) == 0
    assert merge.main(["--out", str(out), "--ceilings", str(out / "host_ceilings.json")]) == 0
    model = host_identity()["cpu_model"]
    assert f"measured on {model}; the processor of the profile is unknown" in capsys.readouterr().err


@pytest.mark.slow
def test_without_warmup_the_first_run_and_the_slow_ones_after_it_are_left_out(recorded, tmp_path):
    written = document(recorded.trace)
    runs = [event for event in written if event["name"] == "model_run"]
    shift_us = 0
    for event in written:  # runs of 1000 µs but for the first three, far from each other
        if event in runs:
            event["dur"] = (50_000, 20_000, 3000)[runs.index(event)] if runs.index(event) < 3 else 1000
            event["ts"] = 10**6 * (runs.index(event) + 1)
            shift_us += 10**6
    changed = tmp_path / "trace.json"
    changed.write_text(json.dumps(written))
    bring_in(SimpleNamespace(**{**vars(recorded), "trace": changed}), tmp_path / "out")
    assert pd.read_csv(tmp_path / "out/run_latency.csv")["is_warmup"].sum() == 3
    meta = document(tmp_path / "out/op_latency.meta.json")
    assert meta["settings"]["warmup"] == {"value": 3, "from": "the trace"}
    assert "the first 3 of 11 runs count as warm-up" in meta["notes"]


@pytest.mark.slow
def test_threads_come_from_the_trace_where_it_has_a_pool(tmp_path):
    recorded = record(tmp_path / "recorded", chain_model(width=256), batch=64, threads=3)
    kernels = [event["args"] for event in document(recorded.trace) if event["name"].endswith("_kernel_time")]
    loops = [args["thread_scheduling_stats"] for args in kernels if args["thread_scheduling_stats"]]
    threads = 1 + max(len(loop["sub_threads"]) for loop in loops)  # fewer than three if one has never started
    assert threads in (2, 3)
    files = ("--model", recorded.model, "--from-trace", recorded.trace, "--executed-graph", recorded.graph)
    flags = [*map(str, (*files, "--dim", "batch=64", "--out", tmp_path / "out"))]
    assert profile.main(flags) == 0
    assert document(tmp_path / "out/latency_summary.json")["threads"] == threads
    with pytest.raises(
        PipelineError, match=rf"--threads: 1 contradicts the trace: its thread pool has {threads} threads"
    ):
        profile.main([*flags, "--threads", "1"])


def test_an_unknown_thread_count_is_asked_for(recorded, tmp_path):
    files = ("--model", recorded.model, "--from-trace", recorded.trace, "--executed-graph", recorded.graph)
    with pytest.raises(PipelineError, match=r"--threads: is not given, and the trace does not state it; give the"):
        profile.main([*map(str, (*files, "--dim", "batch=5", "--out", tmp_path / "out"))])


# --- files that do not fit --------------------------------------------------------------------------------------------


def refused(recorded, out, problem, *flags, **changes):
    with pytest.raises(PipelineError, match=problem) as caught:
        bring_in(SimpleNamespace(**{**vars(recorded), **changes}), out, *flags)
    assert "\n" not in str(caught.value)
    assert not [path for path in out.glob("*") if path.name != ".lock"]


def test_a_trace_of_another_model(recorded, tmp_path):
    other = chain_model()
    for node in other.graph.node:
        node.name += "_other"
    trace = record(tmp_path / "other", other).trace
    problem = r"trace\.json: has nodes that the executed graph lacks: first_other, squash_other, second_other; give"
    refused(recorded, tmp_path / "out", problem, trace=trace)


def test_a_node_of_the_same_name_with_another_operator(recorded, tmp_path):
    graph = onnx.load(recorded.graph)
    graph.graph.node[1].op_type = "Sigmoid"
    path = tmp_path / "changed.onnx"
    onnx.save(graph, path)
    refused(recorded, tmp_path / "out", "nodes that the executed graph lacks: squash; give", graph=path)


def test_an_executed_graph_of_another_model(recorded, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(chain_model(output="z"), path)
    problem = r"optimized\.onnx: is not of this model: only one of them has the output y, z; give the model"
    refused(recorded, tmp_path / "out", problem, model=path)


def test_dimensions_other_than_those_that_were_recorded(recorded, tmp_path):
    problem = r"was recorded with \w of shape \[5, 32\], the model has \[7, 32\]; give the recorded sizes with --dim"
    refused(recorded, tmp_path / "out", problem, batch=7)


def widened():
    """The chain with other widths between the same ends, and the same names."""
    model = chain_model()
    for tensor, shape in zip(model.graph.initializer, ((32, 48), (48, 32)), strict=True):
        tensor.CopyFrom(numpy_helper.from_array(np.full(shape, 0.01, np.float32), tensor.name))
    return model


def with_gru(name, op_type):
    """A recurrent node whose neighbours have the same names whatever it is."""
    gates = {"GRU": 3, "LSTM": 4}[op_type]
    weights = {"w": (1, gates * 64, 32), "r": (1, gates * 64, 64)}
    held = [numpy_helper.from_array(np.full(shape, 0.01, np.float32), key) for key, shape in weights.items()]
    held.append(numpy_helper.from_array(np.full((64, 4), 0.01, np.float32), "v"))
    nodes = [
        helper.make_node(op_type, ["x", "w", "r"], ["", f"{name}_h"], name=name, hidden_size=64),
        helper.make_node("Squeeze", [f"{name}_h"], ["s"], name="squeeze"),
        helper.make_node("Gemm", ["s", "v"], ["y"], name="gemm"),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [40, 5, 32]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 4]),
    ]
    graph = helper.make_graph(nodes, "recurrent", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)


def test_a_model_of_the_same_names_with_other_sizes(recorded, tmp_path):
    """Exporters number their nodes, so another width of a network has the same names."""
    path = tmp_path / "model.onnx"
    onnx.save(widened(), path)
    trace = record(tmp_path / "wide", widened()).trace
    graph = tmp_path / "wide" / "optimized.onnx"
    problem = r"was recorded with h of shape \[5, 48\], the model has \[5, 32\]; give the model that was recorded"
    refused(recorded, tmp_path / "out", problem, trace=trace, graph=graph)
    assert bring_in(SimpleNamespace(**{**vars(recorded), "model": path, "trace": trace, "graph": graph}), tmp_path) == 0


def test_a_node_that_the_model_lacks_is_no_change_of_layout(tmp_path):
    trace = record(tmp_path / "other", with_gru("gru", "GRU"))
    onnx.save(with_gru("lstm", "LSTM"), path := tmp_path / "model.onnx")
    known = SimpleNamespace(**{**vars(trace), "model": path})
    with pytest.raises(PipelineError, match=r"match in [\d.]+% of its time"):
        bring_in(known, tmp_path / "out", dim=False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", r"is no profile of a known program"),
        ("[\n", r"is cut short"),
        ("{}", r"is no profile of a known program"),
        ("[]", r"has no complete run"),
        ('[{"name": "model_run", "cat": "Session", "dur": 1}]', r".*the event 'model_run' lacks its time"),
        (
            '[\n{"name": "a_kernel_time", "cat": "Node", "dur": "x", "ts": 1, "tid": 1, "args": {}},\n]',
            r".*a_kernel_time' lacks its time",
        ),
    ],
)
def test_a_file_that_is_no_trace(recorded, tmp_path, text, problem):
    path = tmp_path / "odd.json"
    path.write_text(text)
    refused(recorded, tmp_path / "out", rf"odd\.json: {problem}.*", trace=path)


@pytest.mark.parametrize("pool", [{"sub_threads": {"7": {"num_run": []}}}, {"sub_threads": [1]}, {"main_thread": "x"}])
def test_odd_figures_of_a_thread_pool(recorded, tmp_path, pool):
    written = document(recorded.trace)
    next(event for event in written if event["name"] == "first_kernel_time")["args"]["thread_scheduling_stats"] = pool
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(written))
    refused(
        recorded, tmp_path / "out", r"odd\.json: is damaged: the event 'first_kernel_time' has odd figures", trace=path
    )


def test_a_trace_that_ends_early(recorded, tmp_path):
    path = tmp_path / "cut.json"
    path.write_bytes(recorded.trace.read_bytes()[:-500])
    refused(recorded, tmp_path / "out", r"cut\.json: is cut short \(line \d+ is no whole event\); copy it", trace=path)


@pytest.mark.slow
def test_a_trace_that_the_runtime_cut_gives_its_complete_runs(recorded, tmp_path):
    written = [*document(recorded.trace)[:-1], {"name": "profile_truncated", "cat": "Session"}]
    path = tmp_path / "long.json"
    path.write_text(json.dumps(written))
    bring_in(SimpleNamespace(**{**vars(recorded), "trace": path}), tmp_path / "out")
    lacks = document(tmp_path / "out/op_latency.meta.json")["incomplete"]
    assert lacks == ["the trace has 10 complete runs only: the runtime cut the trace at 1,000,000 events"]


def test_runs_that_overlap(recorded, tmp_path):
    written = document(recorded.trace)
    runs = [event for event in written if event["name"] == "model_run"]
    runs[4]["dur"] = runs[5]["ts"] + 10 - runs[4]["ts"]
    path = tmp_path / "crowded.json"
    path.write_text(json.dumps(written))
    refused(recorded, tmp_path / "out", r"crowded\.json: has runs that overlap in time", trace=path)


def test_no_such_files(recorded, tmp_path):
    refused(recorded, tmp_path / "out", r"none\.json: cannot be read", trace=tmp_path / "none.json")
    refused(recorded, tmp_path / "out", r"none\.onnx: cannot be read", graph=tmp_path / "none.onnx")


def test_a_warm_up_that_leaves_no_run(recorded, tmp_path):
    refused(recorded, tmp_path / "out", r"--warmup: 11 leaves none of the trace's 11 runs", "--warmup", 11)


@pytest.mark.parametrize(
    "flags",
    [
        ("--runs", 5),
        ("--duration", "1s"),
        ("--provider", "cpu"),
        ("--optimization", "basic"),
        ("--seed", 1),
        ("--sensor-rate-hz", 5),
        ("--idle", "1s"),
        ("--powercap-root", "x"),
    ],
)
def test_flags_of_a_measurement_do_not_go_with_an_import(recorded, tmp_path, flags):
    refused(recorded, tmp_path / "out", f"{flags[0]}: does not go with --from-trace: nothing is measured", *flags)


def test_an_executed_graph_needs_its_profile(recorded, tmp_path):
    with pytest.raises(PipelineError, match=r"^--executed-graph: needs --from-trace"):
        profile.main(["--model", str(recorded.model), "--executed-graph", "x", "--out", str(tmp_path / "out")])
