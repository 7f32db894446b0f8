"""The trace's clock against the caller's, on a real trace and on the same with jumps put in by hand."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from common.latency.run import NodeSpan
from common.profiling.trace.reader import collect, keep_runs, read_trace
from common.profiling.trace.timeline import run_timelines, sound_runs

NODES, RUNS = 5, 7


@dataclass(frozen=True)
class Recorded:
    """A real trace, the caller's clock at each run, and the offset of the two clocks as read beside it."""

    events: list
    clocks: list
    offset_us: float


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    nodes = [helper.make_node("Erf", [f"v{step}"], [f"v{step + 1}"], name=f"n{step}") for step in range(NODES)]
    value = helper.make_tensor_value_info
    ends = [[value(name, onnx.TensorProto.FLOAT, [101, 103])] for name in ("v0", f"v{NODES}")]
    graph = helper.make_graph(nodes, "g", *ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path_factory.mktemp("timeline") / "trace")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    clocks = []
    for _ in range(RUNS):
        start = time.perf_counter_ns()
        session.run(None, {"v0": np.ones((101, 103), np.float32)})
        clocks.append((start / 1e9, (time.perf_counter_ns() - start) / 1e3))
    pairs = [(time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()) for _ in range(20)]
    before, wall, after = min(pairs, key=lambda pair: pair[2] - pair[0])
    offset_us = (wall - session.get_profiling_start_time_ns() - (before + after) / 2) / 1e3
    return Recorded(json.loads(Path(session.end_profiling()).read_text()), clocks, offset_us)


def run_events(events, run):
    """Positions of the events of one run, the closing one included."""
    ends = [position for position, event in enumerate(events) if event["name"] == "model_run"]
    start = ends[run - 1] + 1 if run else next(i for i, event in enumerate(events) if event["cat"] == "Node")
    return range(start, ends[run] + 1)


def jumped(events, at_us, by_us):
    """The trace as it would be had the clock been set at a time: later times move, what lasts over it grows."""
    moved = []
    for event in events:
        start, end = (time_us + by_us * (time_us >= at_us) for time_us in (event["ts"], event["ts"] + event["dur"]))
        moved.append({**event, "ts": start, "dur": end - start})
    return moved


def written(path, events):
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    return path


def test_a_quiet_clock_spoils_no_run(recorded):
    assert sound_runs(collect(recorded.events), recorded.clocks) == (True,) * RUNS


SECOND = 1_000_000


@pytest.mark.parametrize("by_us", [SECOND, -SECOND, 3_600 * SECOND, -3_600 * SECOND])
@pytest.mark.parametrize("run", range(RUNS))
def test_a_jump_inside_a_node_spoils_its_run_and_no_other(recorded, run, by_us):
    inside = [recorded.events[position] for position in run_events(recorded.events, run)]
    hit = next(event for event in inside if event["name"] == "n2_kernel_time")
    trace = collect(jumped(recorded.events, hit["ts"] + 1, by_us))
    sound = sound_runs(trace, recorded.clocks)
    assert sound == tuple(index != run for index in range(RUNS))
    whole = collect(recorded.events)
    kept, wanted = keep_runs(trace, sound), keep_runs(whole, sound)
    assert {name: node.run_us for name, node in kept.nodes.items()} == {
        name: node.run_us for name, node in wanted.nodes.items()
    }


@pytest.mark.parametrize("by_us", [SECOND, -SECOND])
@pytest.mark.parametrize("run", range(1, RUNS))
def test_a_jump_between_two_runs_spoils_none(recorded, run, by_us):
    started = recorded.events[run_events(recorded.events, run)[-1]]["ts"]  # its model_run: the first to start
    trace = collect(jumped(recorded.events, started, by_us))
    assert sound_runs(trace, recorded.clocks) == (True,) * RUNS


def test_two_jumps(recorded):
    first, second = (recorded.events[run_events(recorded.events, run)[2]]["ts"] + 1 for run in (2, 4))
    later = jumped(recorded.events, second, -SECOND)
    assert sound_runs(collect(jumped(later, first, SECOND)), recorded.clocks) == (
        *(True, True, False, True, False),
        *(True, True),
    )


def test_a_shorter_trace_than_runs(recorded):
    trace = collect(recorded.events[: run_events(recorded.events, 3)[-1] + 1])
    assert sound_runs(trace, recorded.clocks) == (True,) * 4


def test_a_run_that_threw_is_in_the_trace_and_not_sound(recorded):
    trace = collect(recorded.events)
    assert sound_runs(trace, recorded.clocks[:-1]) == (*(True,) * (RUNS - 1), False)


def exact(runs, lap_us=100, slack_us=10, offset_us=5000, period_us=1000):
    """Hand-written runs: ``model_run`` starts slack/2 after the lap's start, and ends so before its end."""
    events, clocks = [], []
    for run in range(runs):
        start = run * period_us
        clocks.append((start / 1e6, lap_us))
        traced = start + offset_us + slack_us // 2
        events.append(
            {"cat": "Node", "name": "a_kernel_time", "ts": traced + 20, "dur": 30, "tid": 1, "args": {"op_name": "A"}}
        )
        events.append({"cat": "Session", "name": "model_run", "ts": traced, "dur": lap_us - slack_us})
    return events, clocks


def test_a_jump_back_that_is_shorter_than_the_node_it_hits():
    """4000 µs of a node of 9000: no time goes backwards; only the other runs tell."""
    events, clocks = exact(5, lap_us=10_000, period_us=20_000)
    for event in events[::2]:
        event["dur"] = 9000
    found = collect(jumped(events, events[4]["ts"] + 4500, -4000))
    assert found.run_is_orderly == (True,) * 5
    assert sound_runs(found, clocks) == (True, True, False, True, True)


def test_every_run_that_may_have_had_the_jump_is_left_out():
    """Run 1 had it; run 2 was held up for 6000 µs before its model_run, so that it suits the old offset as well."""
    events, clocks = exact(5, lap_us=10_000, period_us=20_000)
    for event in events[::2]:
        event["dur"] = 9000
    clocks[2] = (clocks[2][0] - 0.006, 16_000)
    found = collect(jumped(events, events[2]["ts"] + 4500, -4000))
    assert sound_runs(found, clocks) == (True, False, False, True, True)


def test_a_lap_that_was_held_up_outside_of_the_runtime_is_no_jump():
    events, clocks = exact(5)
    clocks[2] = (clocks[2][0], 700)  # 600 longer than its model_run
    assert sound_runs(collect(events), clocks) == (True,) * 5


def test_clocks_of_slightly_different_rates_do_not_jump():
    events, clocks = exact(200, period_us=10**6)
    drifting = [(start_s * (1 + 5e-6), latency_us) for start_s, latency_us in clocks]  # 5 µs in each period
    assert sound_runs(collect(events), drifting) == (True,) * 200


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 8), st.integers(-50_000, 50_000), st.integers(0, 8000), st.integers(2, 90))
def test_any_jump_beyond_the_slack_is_found_where_it_was(runs, by_us, at_us, slack_us):
    """At most the run that it hit is left out; a run whose own times it changed is, if another run follows."""
    events, clocks = exact(runs, slack_us=slack_us)
    trace = collect(jumped(events, 5000 + at_us, by_us))
    sound = sound_runs(trace, clocks)
    hit = at_us // 1000
    assert all(fine for run, fine in enumerate(sound) if run != hit)
    changed = hit < runs - 1 and trace.run_duration_us[hit] != 100 - slack_us
    if changed and abs(by_us) > 100 + 2 * slack_us:
        assert not sound[hit]


# --- the time line --------------------------------------------------------------------------------------------------


def test_times_on_the_callers_clock_are_those_by_the_offset_of_the_clocks(tmp_path, recorded):
    """The offset read beside the runs: an independent way to the same times."""
    trace_file = written(tmp_path / "trace.json", recorded.events)
    found = run_timelines(trace_file, read_trace(trace_file), recorded.clocks, range(RUNS))
    assert [*found] == [*range(RUNS)]
    for run, spans in found.items():
        assert [span.executed_node for span in spans] == [f"n{step}" for step in range(NODES)]
        inside = [recorded.events[position] for position in run_events(recorded.events, run)]
        start_us, latency_us = 1e6 * recorded.clocks[run][0], recorded.clocks[run][1]
        unknown_us = (latency_us - inside[-1]["dur"] + 1) / 2  # at most: the other runs narrow the offset
        for span, event in zip(spans, inside[:NODES], strict=True):
            assert span.end_us - span.start_us == pytest.approx(event["dur"], abs=1e-3)
            assert abs(span.start_us - (event["ts"] - recorded.offset_us)) <= unknown_us + 5
        assert spans[0].start_us >= start_us - unknown_us
        assert spans[-1].end_us <= start_us + latency_us + unknown_us


def test_the_offset_is_known_as_well_as_the_closest_runs_tell(tmp_path):
    """Laps of 10 and 16 µs beyond their model_run: 5 before and 11 after, and the other way round: both at 5000."""
    events, clocks = exact(2)
    clocks[0] = (clocks[0][0], 106)
    clocks[1] = (clocks[1][0] - 6e-6, 106)
    trace_file = written(tmp_path / "trace.json", events)
    found = run_timelines(trace_file, collect(events), clocks, [0, 1])
    # Run 0: 5095 - 106 = 4989 to 5005 + 1; run 1: 6095 - 1100 = 4995 to 6005 + 1 - 994 = 5012; both: 4995 to 5006.
    assert found[1] == (NodeSpan("a", pytest.approx(6025 - 5000.5), pytest.approx(6055 - 5000.5), 1),)


def test_only_wanted_and_sound_runs_are_there(tmp_path, recorded):
    at_us = recorded.events[run_events(recorded.events, 3)[2]]["ts"] + 1
    events = jumped(recorded.events, at_us, SECOND)
    trace_file = written(tmp_path / "trace.json", events)
    whole = collect(events)
    assert [*run_timelines(trace_file, whole, recorded.clocks, [5, 3, 1])] == [1, 5]
    one_line = tmp_path / "one.json"
    one_line.write_text(json.dumps(events))
    assert run_timelines(one_line, whole, recorded.clocks, [1, 5]) == run_timelines(
        trace_file, whole, recorded.clocks, [1, 5]
    )


def test_the_other_runs_are_not_parsed(tmp_path):
    events, clocks = exact(3)
    lines = written(tmp_path / "trace.json", events).read_text().splitlines(keepends=True)
    lines[3] = "not parsed\n"  # the node of run 1; the first event tells that there are lines
    broken = tmp_path / "broken.json"
    broken.write_text("".join(lines))
    assert [*run_timelines(broken, collect(events), clocks, [0, 2])] == [0, 2]


def test_a_body_lies_within_its_owner(tmp_path):
    def event(name, ts, dur, op="Relu"):
        return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "tid": 1, "args": {"op_name": op}}

    run = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 100}
    events = [event("a", 1, 9), event("g", 21, 10), event("g", 41, 10), event("loop", 15, 40, "Loop"), run]
    trace_file = written(tmp_path / "trace.json", events)
    bodies = {"loop": ({"g": "loop/g"},)}
    spans = run_timelines(trace_file, collect(events, bodies), [(0.0, 100)], [0], bodies)[0]
    shown = [(span.executed_node, span.start_us, span.end_us) for span in spans]  # offset: 0 to 1
    assert shown == [("a", 0.5, 9.5), ("loop", 14.5, 54.5), ("loop/g", 20.5, 30.5), ("loop/g", 40.5, 50.5)]
