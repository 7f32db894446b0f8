"""Stage 30 through its command line, on a network whose weights a caller may replace, so that nothing is fused."""

from __future__ import annotations

import signal

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import helper

from tests.support.models.endless_models import endless_loop
from tests.support.models.onnx_models import model
from tests.support.processes.command_lines import run_stage
from tests.support.processes.interrupted_stage import interrupted
from tests.support.tables.bottlenecks import FILE

SCRIPT = "30_try_mend.py"
THREADS = ("--threads", "1")


def network(path):
    """Two convolutions with a normalization behind each."""
    random, nodes, weights, tensor = np.random.default_rng(3), [], {}, "x"
    for layer in range(2):
        parameters = [f"{part}{layer}" for part in "gbmv"]
        nodes.append(helper.make_node("Conv", [tensor, f"w{layer}"], [f"c{layer}"], f"conv{layer}"))
        nodes.append(helper.make_node("BatchNormalization", [f"c{layer}", *parameters], [f"n{layer}"], f"norm{layer}"))
        weights |= {name: random.uniform(0.5, 1, 7).astype(np.float32) for name in parameters}
        weights[f"w{layer}"] = random.uniform(-1, 1, (7, 3 if layer == 0 else 7, 1, 1)).astype(np.float32)
        tensor = f"n{layer}"
    proto = model(nodes, {"x": (1, 3, 32, 32)}, {tensor: (1, 7, 32, 32)}, weights)
    proto.graph.input.extend(helper.make_tensor_value_info(name, 1, held.shape) for name, held in weights.items())
    onnx.save(proto, path)
    return path


def looped(path):
    """The network, and a loop behind it whose trips are an input: it ends, or it does not."""
    proto, graph = onnx.load(network(path)), endless_loop().graph
    result = proto.graph.output[0].name
    body = graph.node[0].attribute[0].g
    for value in (body.input[2], body.output[1]):  # the state: its shape is that of the network's result
        value.type.tensor_type.ClearField("shape")
    graph.node[0].input[2] = result
    proto.graph.node.append(graph.node[0])
    proto.graph.input.append(next(value for value in graph.input if value.name == "count"))
    proto.graph.output[0].name = "sum"
    onnx.save(proto, path)
    return path


def staged(script, out, *flags):
    done = run_stage(script, "--out", out, *flags)
    assert done.returncode == 0, done.stderr
    return done


def measured_on(path, out, folder, *flags):
    """Measure a model, find its bottlenecks, and return the rules by which they were found."""
    quick = ("--runs", "20", "--warmup", "2", "--idle", "10ms", *THREADS)
    staged("01_profile_onnx.py", out, "--model", path, *flags, *quick)
    staged("02_shapes_flops_bytes.py", out, "--model", path, *flags)
    staged("03_merge_profile_metrics.py", out, "--peak-flops", "1e11", "--mem-bw", "1e10")
    rules = folder / "rules.yaml"
    rules.write_text(FILE.read_text(encoding="utf-8").replace("above: 0.03", "above: -1"))
    staged("09_trace_report.py", out, "--rules", rules)
    return rules


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of a measurement of the network, its model, and rules for which no gain is too small."""
    folder = tmp_path_factory.mktemp("measured")
    path, out = network(folder / "net.onnx"), folder / "out"
    return out, path, measured_on(path, out, folder)


@pytest.mark.slow
def test_findings_are_mended_and_both_models_are_measured(measured):
    out, path, _ = measured
    done = staged(SCRIPT, out, "--model", path, "--rule", "unfused_conv", "--runs", "10", "--warmup", "1", *THREADS)
    (row,) = pd.read_csv(out / "mend_trials.csv").to_dict("records")
    assert row["mends"] == '["freeze_weights","fold_batch_normalization"]'
    assert row["output_error_share"] <= row["output_tolerance_share"]
    found = pd.read_csv(out / "bottlenecks.csv")
    found = found[(found["finding"] == "unfused_conv") | found["also_found_by"].str.contains("unfused_conv")]
    median_us = pd.read_json(out / "latency_summary.json", typ="series")["p50_us"]
    assert row["gain_us"] == pytest.approx(min(found["gain_us"].sum(), median_us))
    assert row["mend_outcome"] in ("gains", "no gain", "loses", "undecided")  # the host decides
    assert (out / "mended.onnx").exists() == (row["mend_outcome"] == "gains")
    assert "unfused conv: freeze weights, fold batch normalization" in done.stdout


@pytest.mark.slow
def test_a_rule_without_a_mend_and_another_model_are_refused(measured, tmp_path):
    out, path, _ = measured
    done = run_stage(SCRIPT, "--out", out, "--model", path, "--rule", "throttled")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "--rule: 'throttled' has no rewrite" in done.stderr
    other = model([helper.make_node("Relu", ["x"], ["y"], "r")], {"x": (1, 3)}, {"y": (1, 3)})
    onnx.save(other, tmp_path / "other.onnx")
    done = run_stage(SCRIPT, "--out", out, "--model", tmp_path / "other.onnx", "--rule", "unfused_conv")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)


@pytest.mark.slow
def test_09_names_the_command_that_tries_its_findings(measured):
    out, path, rules = measured
    done = staged("09_trace_report.py", out, "--rules", rules)
    assert f"30_try_mend.py --model {path} " in done.stdout


@pytest.mark.slow
def test_a_mended_model_that_never_ends_is_ended_by_the_time_limit_and_by_a_signal(tmp_path):
    path, out = looped(tmp_path / "net.onnx"), tmp_path / "out"
    for name, trips in (("few", 2), ("endless", 10**15)):
        np.save(tmp_path / f"{name}.npy", np.array(trips))
    measured_on(path, out, tmp_path, "--input", f"count={tmp_path / 'few.npy'}")
    words = ("--out", out, "--model", path, "--input", f"count={tmp_path / 'endless.npy'}", "--rule", "unfused_conv")
    before = sorted(out.glob("[!.]*"))
    done = run_stage(SCRIPT, *words, "--run-timeout", "20ms", *THREADS)
    assert done.returncode == 1
    assert "a run took more than 0.02 s and was ended" in done.stderr.splitlines()[-1]
    done = interrupted([SCRIPT, *words, "--run-timeout", "1h", *THREADS], signal.SIGINT)
    assert (done.returncode, done.stderr) == (130, f"{SCRIPT}: interrupted; nothing was replaced\n")
    assert sorted(out.glob("[!.]*")) == before
