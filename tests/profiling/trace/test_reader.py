"""The trace reader on hand-written events."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.messages.errors import PipelineError
from common.profiling.trace.nesting import nest
from common.profiling.trace.reader import collect, keep_runs, read_trace


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
    assert (trace.nodes["a"].run_events, trace.nodes["b"].run_events) == ([1, 2], [1, 0])
    assert trace.run_span_us == (12.0, 33.0)  # 0 to 5 + 7, and 20 to 40 + 13
    assert trace.recorded_count == 7
    assert [node.execution_index for node in trace.nodes.values()] == [0, 1]


def test_shapes_that_change_from_pass_to_pass_are_counted():
    def step(ts, rows):
        return node("step", ts, 1, input_type_shape=[{"float": [rows, 2]}], output_type_shape=[{"float": [rows]}])

    found = collect([step(0, 3), step(2, 5), step(4, 3), node("a", 6, 1), RUN, step(8, 5), RUN]).nodes
    assert found["step"].shapes.rows() == [[[[3, 2]], [[3]], 2], [[[5, 2]], [[5]], 2]]
    assert (found["step"].input_shapes, found["a"].shapes.rows()) == ([[3, 2]], [])


def test_a_node_that_first_runs_late_has_zeros_before():
    found = collect([node("a", 0, 3), RUN, node("b", 5, 7), RUN, RUN])
    assert (found.nodes["b"].run_us, found.nodes["b"].run_events) == ([0.0, 7.0, 0.0], [0, 1, 0])
    assert found.run_span_us == (3.0, 7.0, 0.0)


def times(trace):
    return {node.name: node.run_us for node in trace.nodes.values()}


def owners(trace):
    return {node.name: node.owner for node in trace.nodes.values()}


def test_a_loop_has_what_its_body_has_not():
    body = [node("body", ts, 5) for ts in (10, 20, 30)]
    trace = collect([node("before", 0, 5), *body, node("loop", 8, 40, op="Loop"), node("after", 50, 5), RUN])
    assert times(trace) == {"before": [5], "loop": [40 - 3 * 5], "body": [3 * 5], "after": [5]}
    assert owners(trace) == {"before": "", "loop": "", "body": "loop", "after": ""}
    assert [node.execution_index for node in trace.nodes.values()] == [0, 1, 2, 3]  # as they started
    assert trace.nodes["body"].run_events == [3]
    assert trace.event_count == 6


def test_a_loop_inside_an_if_gives_each_its_own():
    bodies = [node("body", 12, 2), node("body", 15, 3), node("inner", 11, 8, op="Loop"), node("beside", 23, 5)]
    trace = collect([*bodies, node("outer", 10, 20, op="If"), RUN])
    assert times(trace) == {"outer": [20 - 8 - 5], "inner": [8 - 2 - 3], "body": [5], "beside": [5]}
    assert owners(trace) == {"outer": "", "inner": "outer", "body": "inner", "beside": "outer"}


def test_any_operator_may_own_a_body():
    assert times(collect([node("step", 12, 2), node("search", 10, 20, op="BeamSearch"), RUN])) == {
        "search": [18],
        "step": [2],
    }


def test_a_branch_that_runs_in_some_runs_only():
    one = [node("then", 12, 2), node("if", 10, 5, op="If"), RUN]
    two = [node("else", 32, 3), node("if", 30, 7, op="If"), RUN]
    assert times(collect([*one, *two])) == {"if": [3, 4], "then": [2, 0], "else": [0, 3]}


def test_an_overlap_in_time_on_another_thread_is_no_nesting():
    trace = collect([node("other", 12, 2, tid=2), node("loop", 10, 20, op="Loop"), RUN])
    assert times(trace) == {"other": [2], "loop": [20]}


def test_a_body_that_seems_to_outlast_its_owner_by_the_cut_of_its_start_is_inside():
    # From 10.9 to 13.9 and, inside, from 11.0 to 13.95 cut to (11, 2); (12, 2) from 12.0 to 14.0 in 10.9 to 14.1.
    assert times(collect([node("body", 12, 2), node("loop", 10, 3, op="Loop"), RUN])) == {"loop": [1], "body": [2]}


LOOP_RUN = [node("before", 0, 5), node("body", 11, 3), node("body", 15, 4), node("loop", 10, 12, op="Loop"), RUN]


def moved(events, by):
    return [{**event, "ts": event["ts"] + by} for event in events]


@pytest.mark.parametrize(
    "jumped",
    [
        [node("before", 0, 5), node("body", 11, 3), node("body", -985, 4), node("loop", 10, -988, op="Loop")],
        [node("before", 0, 5), node("body", 11, 3), node("body", 15, -996), node("loop", 10, -988, op="Loop")],
        [node("before", 0, 5), node("body", 11, 3), node("body", 15, 4), node("loop", 10, -988, op="Loop")],
        [node("before", 1000, 5), node("body", 11, 3), node("body", 15, 4), node("loop", 10, 12, op="Loop")],
    ],
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_clock_set_back_in_one_run_leaves_the_others_alone(jumped, position):
    runs = [LOOP_RUN, moved(LOOP_RUN, 50)]
    runs.insert(position, [*jumped, RUN])
    found = collect([event for run in runs for event in run])
    assert found.run_is_orderly == tuple(index != position for index in range(3))
    assert owners(found) == {"before": "", "loop": "", "body": "loop"}
    kept = keep_runs(found, found.run_is_orderly)
    assert times(kept) == {"before": [5, 5], "loop": [5, 5], "body": [7, 7]}  # 12 - 3 - 4
    assert (kept.run_count, kept.event_count, kept.run_span_us) == (2, 8, (22, 22))


def test_a_negative_duration_is_no_order_even_if_the_ends_go_forward():
    assert collect([node("a", 1000, -500), node("b", 510, 10), RUN]).run_is_orderly == (False,)


def test_a_clock_set_back_while_no_node_ran_is_seen_by_the_runs_own_duration():
    assert collect([node("a", 5, 3), {**RUN, "dur": -7}, node("a", 5, 3), RUN]).run_is_orderly == (False, True)


def test_one_microsecond_of_the_cut_is_no_jump():
    # From 10.9 to 13.9 is (10, 3), then from 13.9 to 14.0 (13, 0), and from 10.2 to 14.1 around both (10, 3).
    assert collect([node("a", 10, 3), node("b", 13, 0), node("loop", 10, 3), RUN]).run_is_orderly == (True,)
    assert collect([node("a", 10, 3), node("b", 10, 1), RUN]).run_is_orderly == (False,)


def test_threads_have_an_order_each():
    assert collect([node("a", 90, 3), node("b", 10, 3, tid=2), RUN]).run_is_orderly == (True,)


def test_runs_are_left_out_with_the_nodes_that_ran_in_no_other():
    found = collect([node("a", 0, 3), node("b", 5, 7), RUN, node("a", 20, 11), node("c", 40, 13), RUN])
    kept = keep_runs(found, [False, True])
    assert times(kept) == {"a": [11], "c": [13]}
    assert [part.execution_index for part in kept.nodes.values()] == [0, 1]
    assert (kept.run_count, kept.event_count, kept.run_span_us, kept.recorded_count) == (1, 2, (33.0,), 6)
    assert times(found)["b"] == [7, 0]  # as it was


@pytest.mark.parametrize("duration", [0, 3])
def test_neighbours_of_one_microsecond_are_no_nesting(duration):
    found = collect([node("a", 10, 0), node("b", 10, duration), RUN])
    assert (times(found), owners(found)) == ({"a": [0], "b": [duration]}, {"a": "", "b": ""})


def test_a_body_that_starts_in_the_microsecond_of_its_owner():
    found = collect([node("body", 10, 2), node("loop", 10, 3, op="Loop"), RUN])
    assert times(found) == {"loop": [1], "body": [2]}
    assert [*found.nodes] == ["loop", "body"]


@st.composite
def exact_events(draw, start=0.0, depth=0):
    """Nested events at exact times, in quarters of a microsecond: (start, end, events inside), one after the other."""
    events, now = [], start
    for _ in range(draw(st.integers(0, 4 if depth else 5))):
        now += draw(st.integers(1, 9)) / 4
        begin = now
        inside = draw(exact_events(now + 0.25, depth + 1)) if depth < 3 and draw(st.booleans()) else []
        now = (inside[-1][1] if inside else now) + draw(st.integers(4, 17)) / 4
        events.append((begin, now, inside))
    return events


def recorded(events, path=""):
    """As the runtime writes them down: when they end, start and duration cut to whole microseconds."""
    for index, (begin, end, inside) in enumerate(events):
        name = f"{path}/{index}"
        yield from recorded(inside, name)
        yield node(name, int(begin), int(end - begin))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(exact_events())
def test_no_microsecond_is_lost_or_invented(events):
    traced = list(recorded(events))
    trace = collect([*traced, RUN])
    own = [found.run_us[0] for found in trace.nodes.values()]
    assert sum(own) == sum(int(end - begin) for begin, end, _ in events)  # the top level's
    assert all(time >= 0 for time in own)
    assert owners(trace) == {name: name.rpartition("/")[0] for name in trace.nodes}
    assert [*trace.nodes] == sorted(trace.nodes)  # 0 starts before 0/0, and 0/0 before 1


@pytest.mark.slow
def test_many_events_are_nested_in_one_pass():
    """Each event is put on the stack and taken from it once: so many comparisons as events, and not their square."""
    count = 20011
    inspected = 0

    class Counted(dict):
        def __getitem__(self, key):
            nonlocal inspected
            inspected += key == "ts"
            return super().__getitem__(key)

    body = [Counted(node("body", 10 * step, 5)) for step in range(count)]
    spans = nest([*body, Counted(node("loop", 0, 10 * count, op="Loop"))])
    assert (spans[0].name, spans[0].own_us) == ("loop", 5 * count)
    assert inspected < 12 * count


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


CUT = {"cat": "Session", "name": "profile_truncated", "args": {"max_num_events": "1000000"}}


def written(path, events, end="\n]\n"):
    """As the runtime writes it: an event to a line."""
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + end)
    return path


@pytest.mark.parametrize(
    ("runs", "remedy"),
    [
        (7, r"\(complete runs: 7\); give <runs> and <warmup> that add up to no more"),
        (0, r"\(complete runs: 0\); one run has too many: shorten its loops with smaller inputs \(<dim>, <input>\)"),
    ],
)
def test_the_runtimes_own_cut_is_refused(tmp_path, runs, remedy):
    path = written(tmp_path / "trace.json", [*[node("a", 0, 3), RUN] * runs, *[node("a", 0, 3)] * 101, CUT])
    problem = rf"trace\.json: the runtime cut the trace at 1,000,000 events {remedy}"
    with pytest.raises(PipelineError, match=problem):
        read_trace(path)
    if runs:
        found = read_trace(path, partial=True)
        assert (times(found), found.cut) == ({"a": [3] * 7}, "the runtime cut the trace at 1,000,000 events")
    else:
        with pytest.raises(PipelineError, match=problem):
            read_trace(path, partial=True)


TWO_RUNS = [node("ä", 0, 3), node("b", 4, 7), RUN, node("ä", 20, 11), node("b", 31, 13), RUN]


@pytest.mark.slow
def test_a_trace_without_its_end_gives_its_complete_runs_wherever_it_ends(tmp_path):
    whole = written(tmp_path / "whole.json", TWO_RUNS).read_bytes()
    closed = [whole.index(b"}", at) + 1 for at in (whole.index(b"model_run"), whole.rindex(b"model_run"))]
    path = tmp_path / "trace.json"
    for size in range(len(whole) - 1):  # the last byte is the end of the last line
        path.write_bytes(whole[:size])
        runs = sum(size >= end for end in closed)
        if not runs:
            with pytest.raises(PipelineError, match=r"is no complete trace \(.+\); lower <runs>, or"):
                read_trace(path, partial=True)
            continue
        found = read_trace(path, partial=True)
        assert times(found) == {"ä": [3, 11][:runs], "b": [7, 13][:runs]}
        assert found.cut
        with pytest.raises(PipelineError, match="is no complete trace"):
            read_trace(path)
    path.write_bytes(whole)
    assert read_trace(path, partial=True) == read_trace(path)
    assert not read_trace(path).cut


def test_what_a_crash_leaves_of_a_file(tmp_path):
    path = written(tmp_path / "trace.json", TWO_RUNS, end=",\n")
    path.write_bytes(path.read_bytes() + bytes(4096))
    found = read_trace(path, partial=True)
    assert (found.run_count, found.cut) == (2, "line 8 is no whole event")


def test_a_line_that_is_no_event(tmp_path):
    with pytest.raises(PipelineError, match="no trace of ONNX Runtime"):
        read_trace(written(tmp_path / "trace.json", [*TWO_RUNS, 7]), partial=True)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_trace_that_another_program_wrote_has_no_lines(tmp_path, indent):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([*TWO_RUNS, CUT], indent=indent))
    assert times(read_trace(path, partial=True)) == {"ä": [3, 11], "b": [7, 13]}
    path.write_text(json.dumps(TWO_RUNS, indent=indent))
    assert read_trace(path) == collect(TWO_RUNS)


def test_only_one_run_is_held_at_a_time():
    """A list of events of all runs would keep them alive."""

    class Run(dict):
        alive = 0

        def __init__(self, event):
            super().__init__(event)
            Run.alive += 1

        def __del__(self):
            Run.alive -= 1

    most = 0

    def events():
        nonlocal most
        for step in range(1000):
            yield Run(node(f"n{step % 5}", 10 * step, 3))
            if step % 5 == 4:
                yield RUN
            most = max(most, Run.alive)

    assert collect(events()).event_count == 1000
    assert most <= 2 * 5


@pytest.mark.parametrize(
    ("text", "problem"),
    [('[{"name": "a"', "is no complete trace"), ('{"a": 1}', "not a trace of ONNX"), ("[1]", "no trace of ONNX")],
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


GELU = {
    "": ({"Gelu": "Gelu", "loop": "loop", "if": "if"},),
    "loop": ({"Gelu": "loop/Gelu_0", "on": "on"},),
    "if": ({"Gelu": "if/Gelu_0", "then": "then"}, {"Gelu": "if/Gelu_0_"}),
}


def test_nodes_of_one_name_in_several_bodies_are_told_apart():
    outer = [node("Gelu", 0, 7), node("Gelu", 11, 2), node("on", 14, 1), node("loop", 10, 13, op="Loop")]
    then = [node("Gelu", 31, 3), node("then", 35, 1), node("if", 30, 8, op="If"), RUN]
    other = [node("Gelu", 31, 5), node("if", 30, 9, op="If"), RUN]
    found = collect([*outer, *then, *outer, *other], GELU)
    assert times(found) == {
        "Gelu": [7, 7],
        "loop": [10, 10],
        "loop/Gelu_0": [2, 2],
        "on": [1, 1],
        "if": [4, 4],
        "if/Gelu_0": [3, 0],
        "then": [1, 0],
        "if/Gelu_0_": [0, 5],  # the smallest body that has a Gelu
    }
    assert owners(found)["if/Gelu_0_"] == "if"


def test_a_name_that_no_body_has_stays():
    assert [*times(collect([node("new", 1, 2), node("loop", 0, 5, op="Loop"), RUN], GELU))] == ["loop", "new"]


@pytest.mark.parametrize(
    ("field", "value", "odd"),
    [
        ("input_type_shape", 1.5, "shapes"),
        ("output_type_shape", [7], "shapes"),
        ("input_type_shape", [{"float": 7}], "shapes"),
        ("input_type_shape", [{"float": [{}]}], "shapes"),
        ("mem_in_use_peak", "many", "figures of its memory"),
        ("thread_scheduling_stats", {"main_thread": {"Run": "long"}}, "figures of its thread pool"),
    ],
)
def test_figures_that_the_runtime_did_not_write_are_refused(tmp_path, field, value, odd):
    args = {"op_name": "Relu", "provider": "P", field: value}
    events = [{"cat": "Node", "name": "a_kernel_time", "ts": 1, "dur": 1, "tid": 1, "args": args}]
    (path := tmp_path / "trace.json").write_text(json.dumps([*events, {"name": "model_run", "ts": 0, "dur": 3}]))
    with pytest.raises(PipelineError, match=rf"trace.json: is damaged: the event 'a_kernel_time' has odd {odd}"):
        read_trace(path)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"tid": []}, "has odd thread"),
        ({"tid": {}}, "has odd thread"),
        ({"dur": "1E72864"}, "lacks its time, thread or arguments"),
    ],
)
def test_events_with_an_odd_time_or_thread_are_refused(tmp_path, changed, problem):
    event = {"cat": "Node", "name": "a_kernel_time", "ts": 1, "dur": 1, "tid": 1, "args": {}} | changed
    text = json.dumps([event, {"name": "model_run", "ts": 0, "dur": 3}]).replace('"1E72864"', "1E72864")
    (path := tmp_path / "trace.json").write_text(text)
    with pytest.raises(PipelineError, match=problem):
        read_trace(path)
