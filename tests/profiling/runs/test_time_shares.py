"""Time shares of nodes, from a trace whose shares are known, and from runs of a real model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from common.measurements.live_model import shares_of, time_shares
from common.messages.errors import PipelineError
from common.monitor.monitor import NodeShare
from common.profiling.trace.reader import NodeTrace, Trace
from common.runtime.sessions.session import SessionSettings
from models.small.tiny import build_tiny_mlp


def trace_of(**run_us):
    nodes = {
        name: NodeTrace(name, f"Op{name}", "CPUExecutionProvider", place, [], [], [], run_us=[*times])
        for place, (name, times) in enumerate(run_us.items())
    }
    return Trace(nodes, max(map(len, run_us.values()), default=0), 0)


def test_the_first_run_does_not_count_and_the_longest_comes_first():
    shares = shares_of(trace_of(add=(900.0, 5.0, 6.0), conv=(10.0, 40.0, 59.0)))
    assert shares == [NodeShare("conv", "Opconv", 99 / 110), NodeShare("add", "Opadd", 11 / 110)]


def test_nodes_without_time_have_no_share():
    assert shares_of(trace_of(add=(900.0, 0.0))) == []
    assert shares_of(trace_of()) == []


def test_shares_of_a_real_model_name_what_it_executed(tmp_path):
    path = tmp_path / "tiny-mlp.onnx"
    onnx.save(build_tiny_mlp(), path)
    (given,) = onnx.load(path).graph.input
    sizes = [axis.dim_value or 3 for axis in given.type.tensor_type.shape.dim]
    shares = time_shares(path, SessionSettings(1, optimization="disable"), {given.name: np.ones(sizes, np.float32)})
    assert {(share.node, share.op_type) for share in shares} <= {
        (node.name, node.op_type) for node in onnx.load(path).graph.node
    }
    assert sum(share.share for share in shares) == pytest.approx(1.0) or not shares  # nodes may take under 1 us each
    assert [*tmp_path.iterdir()] == [path]


def test_a_model_that_the_runtime_refuses(tmp_path):
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(PipelineError, match="ONNX Runtime refuses it"):
        time_shares(path, SessionSettings(1), {})
