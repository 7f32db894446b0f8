"""The trace reader on hand-written events."""

import json

import pytest

from common.errors import PipelineError
from common.profiling.trace import collect, read_trace


def node(name, ts, dur, op="Relu", tid=1, **args):
    return {
        "cat": "Node",
        "name": f"{name}_kernel_time",
        "ts": ts,
        "dur": dur,
        "tid": tid,
        "args": {"op_name": op, **args},
    }


RUN = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 1}


def test_times_are_summed_by_node_and_run_and_an_unfinished_run_is_dropped():
    events = [node("a", 0, 3), node("b", 5, 7), RUN, node("a", 20, 11), node("a", 40, 13), RUN, node("a", 60, 99)]
    trace = collect(events)
    assert (trace.run_count, trace.event_count) == (2, 4)
    assert [node.name for node in trace.nodes.values()] == ["a", "b"]
    assert trace.nodes["a"].run_us == [3.0, 24.0]  # 11 + 13
    assert trace.nodes["b"].run_us == [7.0, 0.0]  # did not run in the second
    assert trace.nodes["a"].event_count == 3
    assert [node.execution_index for node in trace.nodes.values()] == [0, 1]


def test_a_node_that_first_runs_late_has_zeros_before():
    assert collect([node("a", 0, 3), RUN, node("b", 5, 7), RUN]).nodes["b"].run_us == [0.0, 7.0]


def test_what_ran_inside_a_loop_is_counted_in_the_loop_only():
    body = [node("body", ts, 5) for ts in (10, 20, 30)]
    trace = collect([node("before", 0, 5), *body, node("loop", 8, 40, op="Loop"), node("after", 50, 5), RUN])
    assert {node.name: node.run_us for node in trace.nodes.values()} == {"before": [5], "loop": [40], "after": [5]}
    assert trace.event_count == 6  # the body's events fill the trace as well


def test_a_loop_inside_an_if_is_counted_once():
    events = [node("body", 12, 2), node("inner", 11, 8, op="Loop"), node("outer", 10, 20, op="If"), RUN]
    assert [*collect(events).nodes] == ["outer"]


def test_an_overlap_in_time_on_another_thread_is_no_nesting():
    assert set(collect([node("other", 12, 2, tid=2), node("loop", 10, 20, op="Loop"), RUN]).nodes) == {"other", "loop"}


def test_provider_shapes_and_pool():
    described = node(
        "a",
        0,
        3,
        provider="CPUExecutionProvider",
        input_type_shape=[{"float": [2, 3]}, {"int64": [5]}],
        output_type_shape=[{"float": [2, 7]}],
        thread_scheduling_stats={"main_thread": {"block_size": [128]}},
    )
    found = collect([described, node("b", 5, 1, thread_scheduling_stats=""), RUN]).nodes
    assert (found["a"].provider, found["a"].uses_thread_pool) == ("CPUExecutionProvider", True)
    assert (found["a"].input_shapes, found["a"].output_shapes) == ([[2, 3], [5]], [[2, 7]])
    assert (found["b"].input_shapes, found["b"].uses_thread_pool) == ([], False)


def test_other_events_are_no_nodes():
    fence = {"cat": "Node", "name": "a_fence_before", "ts": 0, "dur": 9, "args": {}}
    assert collect([fence, {"cat": "Session", "name": "x_kernel_time"}, node("a", 0, 3), RUN]).nodes.keys() == {"a"}


def test_the_runtimes_own_cut_is_refused(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([node("a", 0, 3), RUN, {"name": "profile_truncated"}]))
    with pytest.raises(
        PipelineError, match=r"trace\.json: the runtime cut the trace at 1,000,000 events; profile fewer"
    ):
        read_trace(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [('[{"name": "a"', "is no complete trace"), ('{"a": 1}', "no trace of ONNX Runtime"), ("[1]", "no trace of ONNX")],
)
def test_no_trace(tmp_path, text, problem):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(PipelineError, match=problem):
        read_trace(path)


def test_a_missing_trace(tmp_path):
    with pytest.raises(PipelineError, match="is no complete trace"):
        read_trace(tmp_path / "none.json")


def test_a_whole_trace_is_read(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([node("a", 0, 3), RUN]))
    assert read_trace(path).nodes["a"].run_us == [3.0]
