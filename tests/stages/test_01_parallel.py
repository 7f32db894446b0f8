"""01 on the executor that computes independent nodes at once, and what the later stages make of its trace."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.models.onnx_models import model
from tests.support.processes.command_lines import run_stage

PROFILE, SHAPES, MERGE, REPORT = (
    *("01_profile_onnx.py", "02_shapes_flops_bytes.py"),
    *("03_merge_profile_metrics.py", "09_trace_report.py"),
)
BRANCHES, SIZE = 8, 128


@pytest.fixture(scope="module")
def branches(tmp_path_factory):
    """A model of products that need nothing of each other, and of their sum."""
    random, names = np.random.default_rng(3), [f"w{index}" for index in range(BRANCHES)]
    weights = {name: random.standard_normal((SIZE, SIZE)).astype(np.float32) for name in names}
    nodes = [helper.make_node("MatMul", ["x", name], [f"y{name}"], name) for name in names]
    nodes.append(helper.make_node("Sum", [f"y{name}" for name in names], ["y"], "sum"))
    path = tmp_path_factory.mktemp("parallel") / "branches.onnx"
    onnx.save(model(nodes, {"x": (SIZE, SIZE)}, {"y": (SIZE, SIZE)}, weights), path)
    return path


@pytest.mark.slow
def test_every_node_is_profiled_and_shown_on_the_thread_that_computed_it(branches, tmp_path):
    parallel = ("--execution", "parallel", "--inter-threads", "3", "--threads", "1")
    for script, *flags in (
        (PROFILE, "--model", branches, *parallel, "--runs", "9", "--warmup", "2", "--idle", "10ms"),
        (SHAPES, "--model", branches),
        (MERGE, "--peak-flops", "1e12", "--mem-bw", "1e11"),
        (REPORT,),
    ):
        done = run_stage(script, *flags, "--out", tmp_path)
        assert done.returncode == 0, done.stderr
    traced = json.loads((tmp_path / "ort_trace.json").read_text(encoding="utf-8"))
    callers = {event["tid"] for event in traced if event["name"] == "model_run"}
    computing = {event["tid"] for event in traced if event["name"].endswith("_kernel_time")}
    assert computing
    assert not computing & callers
    shown = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    tracks = {event["args"]["name"] for event in shown if event["name"] == "thread_name"}
    of_threads = {track for track in tracks if track.startswith("CPUExecutionProvider")}
    assert len(of_threads) == len(computing) or not any(", thread " in track for track in of_threads)


def test_threads_at_once_need_parallel_execution(branches, tmp_path):
    done = run_stage(PROFILE, "--model", branches, "--inter-threads", "3", "--out", tmp_path)
    assert done.returncode == 2
    assert "--inter-threads: has no effect on sequential execution; give --execution parallel" in done.stderr
