"""Outputs of networks on the engine against ONNX Runtime, also where the model arranges an output in its own way."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from common.messages.errors import PipelineError
from common.precision.judgement.evaluation import engine_outputs
from common.precision.judgement.samples import Samples
from common.runtime.sessions.session import SessionSettings
from tests.support.engine.rows import network, numbers

HEADS, TOGETHER = np.array([1, 6, 2, 8]), np.array([1, 6, 16])


def bias_of_a_head():
    return network(
        (1, 6, 16),
        "s = Sigmoid(input) q = Reshape(s, heads) h = Transpose <perm = [0, 2, 1, 3]> (q) b = Add(h, c)"
        " k = Transpose <perm = [0, 2, 3, 1]> (q) output = MatMul(b, k)",
        heads=HEADS,
        c=numbers(2, 1, 8),
    )


CASES = {
    "rows": lambda: network((1, 6, 16), "output = Sigmoid(input)"),
    "heads apart": lambda: network((1, 6, 16), "s = Sigmoid(input) output = Reshape(s, heads)", heads=HEADS),
    "heads in front": lambda: network(
        (1, 6, 16), "s = Sigmoid(input) q = Reshape(s, heads) output = Transpose <perm = [0, 2, 1, 3]> (q)", heads=HEADS
    ),
    "a bias of each head": bias_of_a_head,
    "one factor for all channels": lambda: network(
        (1, 5, 11), "output = LayerNormalization <axis = -1, epsilon = 0.1> (input, g)", g=np.float32([1.0])
    ),
    "a map": lambda: network((1, 3, 6, 5), "output = Conv <kernel_shape = [2, 2]> (input, w)", w=numbers(4, 3, 2, 2)),
    "turned rows": lambda: network((1, 6, 16), "s = Sigmoid(input) output = Transpose <perm = [0, 2, 1]> (s)"),
    "pixels that are turned": lambda: network(
        (1, 3, 6, 5),
        "m = Conv <kernel_shape = [2, 2]> (input, w) output = Reshape(m, rows)",
        w=numbers(4, 3, 2, 2),
        rows=np.array([1, 4, 20]),
    ),
}
REFUSED = {
    "a product of a tensor and its turn": (
        lambda: network((1, 8, 8), "t = Transpose <perm = [0, 2, 1]> (input) output = Mul(t, input)"),
        r"multiplies \[1, 8, 8\] by \[1, 8, 8\] element by element",
    ),
    "a sum of a tensor and its turn": (
        lambda: network((1, 8, 8), "t = Transpose <perm = [0, 2, 1]> (input) output = Add(input, t)"),
        "arranged in different orders",
    ),
    "a constant of more extents": (
        lambda: network((1, 5, 8), "s = Sigmoid(input) output = Add(s, c)", c=numbers(2, 5, 8)),
        "adds a constant of",
    ),
}


def run(model, x, tmp_path):
    onnx.save(model, tmp_path / "net.onnx")
    return engine_outputs(tmp_path / "net.onnx", Samples([{"input": x}], 1, "given"), SessionSettings(1))["output"]


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_onnx_runtime(case, tmp_path):
    """Each of a few layers may round to the next number; a wrong arrangement is off by many steps."""
    model = CASES[case]()
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = numbers(*shape, seed=9)
    found = run(model, x, tmp_path)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    (expected,) = onnxruntime.InferenceSession(tmp_path / "net.onnx", options).run(None, {"input": x})
    (step,) = (held for held in model.graph.initializer if held.name == model.graph.node[-1].input[1])
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 2.5 * onnx.numpy_helper.to_array(step)
    assert np.ptp(expected) > 20 * onnx.numpy_helper.to_array(step)


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_host_would_read_wrongly_is_refused(case, tmp_path):
    build, problem = REFUSED[case]
    model = build()
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    with pytest.raises(PipelineError, match=problem):
        run(model, numbers(*shape, seed=9), tmp_path)
