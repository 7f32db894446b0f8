"""Stage 30 through its command line, on a network whose weights a caller may replace, so that nothing is fused."""

from __future__ import annotations

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import helper

from tests.support.models.onnx_models import model
from tests.support.processes.command_lines import run_stage
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


def staged(script, out, *flags):
    done = run_stage(script, "--out", out, *flags)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of a measurement of the network, its model, and rules for which no gain is too small."""
    folder = tmp_path_factory.mktemp("measured")
    path, out = network(folder / "net.onnx"), folder / "out"
    staged("01_profile_onnx.py", out, "--model", path, "--runs", "20", "--warmup", "2", "--idle", "10ms", *THREADS)
    staged("02_shapes_flops_bytes.py", out, "--model", path)
    staged("03_merge_profile_metrics.py", out, "--peak-flops", "1e11", "--mem-bw", "1e10")
    rules = folder / "rules.yaml"
    rules.write_text(FILE.read_text(encoding="utf-8").replace("above: 0.03", "above: -1"))
    staged("09_trace_report.py", out, "--rules", rules)
    return out, path, rules


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
    assert "--rule: 'throttled' has no mend" in done.stderr
    other = model([helper.make_node("Relu", ["x"], ["y"], "r")], {"x": (1, 3)}, {"y": (1, 3)})
    onnx.save(other, tmp_path / "other.onnx")
    done = run_stage(SCRIPT, "--out", out, "--model", tmp_path / "other.onnx", "--rule", "unfused_conv")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)


@pytest.mark.slow
def test_09_names_the_command_that_tries_its_findings(measured):
    out, path, rules = measured
    done = staged("09_trace_report.py", out, "--rules", rules)
    assert f"30_try_mend.py --model {path} " in done.stdout
