"""A whole int8 network: its integers against ONNX Runtime, its plan's calls, and the comparison with the Verilog."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.plans import cosim
from benchmarks.plans.quantized_network import CONTRACTIONS, run
from common.fpga.rtl import programs
from common.fpga.rtl.simulate import Outcome
from models.classifiers.resnet8 import build_tiny_resnet8

needs_verilator = pytest.mark.skipif(not programs.is_there("verilator"), reason="no verilator: make rtl-tools")


@pytest.fixture(scope="module")
def model():
    return build_tiny_resnet8(batch=1)


@pytest.fixture(scope="module")
def plan(model):
    return cosim.plan_of(model, "ultra96", 2e8)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_integers_by_numpy_are_within_a_step_of_the_runtime(seed, level):
    model, feeds = build_tiny_resnet8(seed=seed, batch=1), cosim.image_of(seed)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    output = run(model, feeds)["output"]
    assert np.abs(session.run(None, feeds)[0] / output.scale - output.values).max() < 1.001
    assert len(np.unique(output.values)) >= 8, "the outputs say little"


def test_every_tensor_uses_its_range(model):
    tensors = run(model, cosim.image_of(0))
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            assert len(np.unique(tensors[node.output[0]])) > 8, node.name
    for node in model.graph.node:
        if node.op_type in CONTRACTIONS:
            assert np.abs(tensors[node.output[0]].values).max() > 1 << 8, node.name


@pytest.mark.slow
def test_multiply_accumulates_are_those_of_the_paper(plan):
    # By hand: stem, then two 3×3 convolutions a stage, two 1×1 shortcuts, and the classifier.
    stages = 32**2 * 16 * 9 * (3 + 16 + 16) + 16**2 * 32 * (9 * 16 + 9 * 32 + 16) + 8**2 * 64 * (9 * 32 + 9 * 64 + 32)
    assert sum(work.macs or 0 for work in plan.workload.work.values()) == stages + 640 == 12_501_632


def test_the_plan_has_most_of_the_network_on_one_array(model, plan):
    calls = cosim.array_calls(plan)
    nodes = [node for call in calls for node in call.nodes]
    assert len(set(nodes)) == len(nodes) >= 8
    assert set(nodes) <= {node.name for node in model.graph.node if node.op_type in CONTRACTIONS}
    for call in calls:
        assert call.planned_cycles <= call.call.estimate.cycles.likely


def pretend(monkeypatch, change):
    """Let numpy stand for the Verilog, with one outcome changed; return the command's exit code."""

    def simulated(products):
        outcomes = []
        for product in products:
            design = product.design
            steps, drain = product.steps, design.drain
            cycles = design.rows + drain + design.cols + steps - 2 + (product.folds - 1) * max(steps, drain)
            outcomes.append(Outcome(product.a @ product.b, cycles))
        return [change(outcomes[0]), *outcomes[1:]]

    monkeypatch.setattr(cosim, "simulate", simulated)
    monkeypatch.setattr(cosim, "is_there", lambda _: True)
    return cosim.main(["--board", "ultra96"])


def one_sum_off(outcome):
    changed = outcome.product.copy()
    changed[0, 0] += 1 << 14
    return replace(outcome, product=changed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda outcome: outcome, 0),
        (one_sum_off, 1),
        (lambda outcome: replace(outcome, cycles=outcome.cycles + 1), 1),
    ],
)
def test_a_sum_or_a_cycle_that_differs_fails(monkeypatch, capsys, change, code):
    assert pretend(monkeypatch, change) == code
    out = capsys.readouterr().out
    assert ("NO" in out or "DIFFER" in out) == (code == 1 and change is one_sum_off)
    assert "of 10 contractions are on the array" in out


def test_it_is_skipped_with_a_reason(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert cosim.main([]) == 0
    assert capsys.readouterr().err == "cosim: skipped: no verilator; make rtl-tools installs it\n"


@needs_verilator
@pytest.mark.exhaustive
def test_the_network_runs_on_the_verilog_of_its_plan(capsys):
    assert cosim.main(["--board", "ultra96"]) == 0
    assert "outputs equal numpy's" in capsys.readouterr().out
