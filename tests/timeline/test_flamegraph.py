"""Folded stacks: module paths, bodies, fused nodes, and sums that are the table's."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.timeline.flamegraph import folded_stacks, whole_parts


def node(name, latency_us, sources=(), op_types=(), op_type="Op", row_kind="node"):
    facts = {"executed_node": name, "row_kind": row_kind, "op_type": op_type, "node_latency_us": latency_us}
    return {**facts, "source_nodes": [*sources], "op_types": [*op_types]}


def metric(name, macs=0, body=None):
    return {"source_node": name, "macs": macs, "flops": 0, "bytes": None, "body": body}


def stacks(nodes, metrics=(), scopes=None):
    text = folded_stacks(nodes, metrics, scopes or {}, "m.onnx")
    lines = (re.fullmatch(r"(.*) (\d+)", line) for line in text.splitlines())
    return {tuple(line[1].split(";")): int(line[2]) for line in lines}


def test_a_fused_node_stands_where_most_of_its_work_is():
    nodes = [node("x", 17, ["/a/bn/BatchNormalization", "/a/conv/Conv"], ["BatchNormalization", "Conv"])]
    metrics = [metric("/a/bn/BatchNormalization"), metric("/a/conv/Conv", macs=3)]
    assert stacks(nodes, metrics) == {("m.onnx", "a", "conv", "Conv (BatchNormalization+Conv)"): 17}


def test_modules_that_the_exporter_left_come_before_names():
    assert stacks([node("x", 5, ["node_conv2d"], ["Conv"])], scopes={"node_conv2d": ("c", "c.0", "conv2d")}) == {
        ("m.onnx", "c", "c.0", "conv2d"): 5
    }


def test_nodes_of_a_body_stand_above_their_owner():
    metrics = [metric("/Loop"), metric("step", body="/Loop.body"), metric("/Loop/If", body="/Loop.body")]
    metrics.append(metric("deep", body="/Loop/If.then_branch"))
    nodes = [node(name, us, [name], ["Op"]) for name, us in (("/Loop", 3), ("step", 5), ("/Loop/If", 7), ("deep", 11))]
    assert stacks(nodes, metrics) == {
        ("m.onnx", "Loop"): 3,
        ("m.onnx", "Loop", "step"): 5,
        ("m.onnx", "Loop", "If"): 7,
        ("m.onnx", "Loop", "If", "deep"): 11,
    }


@pytest.mark.parametrize(("gap_us", "lines"), [(13, {("m.onnx", "between nodes"): 13}), (-13, {})])
def test_inserted_nodes_and_the_gap(gap_us, lines):
    nodes = [node("reorder", 2, op_type="ReorderInput"), node("(gap)", gap_us, row_kind="gap")]
    assert stacks(nodes) == {("m.onnx", "inserted by the runtime", "ReorderInput", "reorder"): 2, **lines}


@pytest.mark.parametrize(("name", "frame"), [("a;b\nc d", "a:b\\nc d"), ("conv 2", "conv_2"), ("v 1.5", "v_1.5")])
def test_names_keep_what_separates_frames_and_columns_out(name, frame):
    assert folded_stacks([node("x", 5, [name], ["Op"])], [], {}, "m.onnx") == f"m.onnx;{frame} 5\n"


@given(st.lists(st.floats(0, 1e6), max_size=50))
def test_rounding_keeps_the_sum(values):
    parts = whole_parts(values)
    assert sum(parts) == round(sum(values))
    assert all(abs(part - value) <= 1 for part, value in zip(parts, values, strict=True))
