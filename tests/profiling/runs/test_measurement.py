"""Interleaving, the checks of the trace, and the notes."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper

from common.graphs.graph import Tensor
from common.latency.recorder import Recorder
from common.messages.errors import PipelineError, UnusableValueError
from common.profiling.correction import correct, node_latency
from common.profiling.figures import latency_notes
from common.profiling.overhead import OverheadClass, build, chains
from common.profiling.runs.loop import (
    RUNTIME_EVENT_LIMIT,
    TRACE_EVENT_LIMIT,
    Budget,
    ColdStart,
    Runs,
    Sessions,
    TracedSession,
    take_turns,
)
from common.profiling.runs.measurement import conclude, require_provider
from common.profiling.trace.reader import NodeTrace, Trace
from common.runtime.inputs.given import random_input
from common.runtime.inputs.values import operands
from common.runtime.providers.provider_table import resolve_provider
from common.runtime.sessions import threads as runtime_threads
from common.runtime.sessions.session import SessionSettings, create_session, run

COLD = ColdStart(7.0, 5.0)
MODEL, EXECUTED = Path("m.onnx"), Path("executed.onnx")


class FakeSession:
    """Notes its runs in a common list; fails from the ``fails_at``-th on."""

    def __init__(self, is_profiled, ran, fails_at=None):
        self.is_profiled, self.ran, self.fails_at, self.count = is_profiled, ran, fails_at, 0

    def run(self, outputs, feeds, options):
        self.count += 1
        if self.fails_at and self.count >= self.fails_at:
            raise RuntimeError("out of memory")
        self.ran.append(self.is_profiled)


def fake_sessions(events_per_run, plain_fails_at=None, traced_fails_at=None):
    ran = []
    plain, traced = FakeSession(False, ran, plain_fails_at), FakeSession(True, ran, traced_fails_at)
    return Sessions(MODEL, plain, profiled(traced, events_per_run), {}, COLD), ran


def profiled(session, events_per_run=1):
    return TracedSession(session, events_per_run, SessionSettings(1, "P"), EXECUTED, None)


def interleaved(runs, warmup, events_per_run):
    """Which session ran, run by run, and how many of the profiled runs are warm-up."""
    (sessions, ran), seen, runs_at_calls = fake_sessions(events_per_run), [], []
    found = take_turns(
        [sessions], Budget(warmup, runs), lambda *done: seen.append(done), lambda: runs_at_calls.append(len(ran))
    )[0]
    assert runs_at_calls == [number for number in range(1, len(ran) + 1) if number == len(ran) or not ran[number]]
    plain, profiled = found.plain, found.profiled
    assert found.failure == ""
    assert (plain.count, profiled.count) == (ran.count(False), ran.count(True))
    assert plain.count == runs + warmup
    assert [done for done, _ in seen] == pytest.approx([0] * warmup + list(range(1, runs + 1)))
    assert {total for _, total in seen} == {runs}
    starts = np.sort(np.concatenate([plain.starts_s, profiled.starts_s]))
    assert (np.diff(starts) >= 0).all()
    return ran, int(np.searchsorted(profiled.starts_s, plain.starts_s[warmup]))


def test_both_sessions_take_turns():
    assert interleaved(7, 3, 10) == ([False, True] * 10, 3)


@pytest.mark.parametrize(
    ("runs", "warmup", "events"), [(1009, 11, 97), (307, 10, 1009), (53, 211, 401), (101, 7, 19999)]
)
def test_the_trace_stays_below_its_limit(runs, warmup, events):
    ran, profiled_warmup = interleaved(runs, warmup, events)
    assert ran.count(True) * events <= TRACE_EVENT_LIMIT == 40_000
    assert ran.count(True) > profiled_warmup


def test_fewer_profiled_runs_are_spread_evenly():
    ran, _ = interleaved(103, 0, TRACE_EVENT_LIMIT // 7)  # 7 fit
    places = [index for index, is_profiled in enumerate(ran) if is_profiled]
    steps = np.diff([place - rank for rank, place in enumerate(places)])
    assert len(places) == 7
    assert set(steps) <= {103 // 7, 103 // 7 + 1}


@pytest.mark.parametrize(("events", "profiled"), [(23_003, 2), (499_979, 2), (500_009, 1), (999_979, 1)])
def test_two_runs_are_profiled_where_two_fit(events, profiled):
    ran, profiled_warmup = interleaved(53, 7, events)
    assert ran.count(True) == profiled
    assert profiled - profiled_warmup == 1
    assert profiled * events < RUNTIME_EVENT_LIMIT == 1_000_000


def test_a_duration_ends_the_runs(monkeypatch):
    """Each look at the clock is 0.25 s later than the last: start, then one after each run."""
    clock = (0.25 * step for step in range(1000))
    monkeypatch.setattr("common.profiling.runs.loop.time.perf_counter", lambda: next(clock))
    (sessions, _), seen = fake_sessions(TRACE_EVENT_LIMIT // 9), []  # 9 fit, 3 of them in the warm-up
    found = take_turns([sessions], Budget(3, 5, duration_s=3.0), lambda *done: seen.append(done))[0]
    assert found.plain.count == 3 + 12
    assert found.profiled.count == 9
    assert seen[:4] == [(0, 3.0)] * 3 + [(0.25, 3.0)]
    assert seen[-1] == (3.0, 3.0)


def test_two_models_take_turns_and_the_first_one_is_last_in_every_second_turn():
    (one, ran), (other, _) = fake_sessions(10), fake_sessions(10)
    for name, sessions in (("one", one), ("other", other)):
        for session in (sessions.plain, sessions.traced.session):
            session.ran, session.is_profiled = ran, f"{name} {'traced' if session.is_profiled else 'plain'}"
    found = take_turns([one, other], Budget(1, 3), lambda *_: None)
    turn = [["one plain", "one traced"], ["other plain", "other traced"]]
    assert ran == [name for order in (turn, turn, turn[::-1], turn) for side in order for name in side]
    assert [(runs.plain.count, runs.profiled.count) for runs in found] == [(4, 4)] * 2


def test_pairs_end_with_the_run_that_failed_in_either_model():
    (one, _), (other, _) = fake_sessions(10), fake_sessions(10, plain_fails_at=7)
    found = take_turns([one, other], Budget(2, 50), lambda *_: None)
    assert [runs.plain.count for runs in found] == [6, 6] or [runs.plain.count for runs in found] == [7, 6]
    assert all("out of memory" in runs.failure for runs in found)


@pytest.mark.parametrize(("fails", "counts"), [({"plain_fails_at": 6}, (5, 5)), ({"traced_fails_at": 6}, (6, 5))])
def test_a_run_that_fails_ends_the_measurement_and_keeps_what_was_measured(fails, counts):
    sessions, _ = fake_sessions(10, **fails)
    found = take_turns([sessions], Budget(3, 50), lambda *done: None)[0]
    assert (found.plain.count, found.profiled.count) == counts
    assert found.failure.startswith(f"failed after {counts[0]} unprofiled and {counts[1]} profiled runs (")
    assert "out of memory" in found.failure


@pytest.mark.parametrize("fails", [{"plain_fails_at": 4}, {"traced_fails_at": 4}, {"plain_fails_at": 1}])
def test_a_failure_before_a_run_of_each_counts_leaves_nothing_to_keep(fails):
    sessions, _ = fake_sessions(10, **fails)
    with pytest.raises(PipelineError, match="out of memory"):
        take_turns([sessions], Budget(3, 50), lambda *done: None)


def recorded(*latencies_us):
    runs = Recorder(len(latencies_us))
    start = 0
    for latency_us in latencies_us:
        runs.record(start, start + 1000 * latency_us)
        start += 2000 * latency_us
    return runs


class Ended:
    """A profiled session whose trace is a file that stands."""

    def __init__(self, trace_file):
        self.trace_file = trace_file

    def end_profiling(self):
        return str(self.trace_file)


def concluded(plain, traced, warmup, trace_file, profiled_warmup=None):
    return conclude(profiled(Ended(trace_file)).end(), Runs(plain, traced, warmup, COLD, "", profiled_warmup))


def saved_trace(folder, durations_us, gap_us=100):
    """Runs of one node each, on a clock that starts at an hour of its own."""
    events, now = [], 777_000_000
    for duration_us in durations_us:
        node = {"cat": "Node", "name": "a_kernel_time", "ts": now + 1, "dur": duration_us - 3, "tid": 1, "pid": 1}
        events.append(node | {"ph": "X", "args": {"op_name": "Relu", "provider": "P"}})
        run_event = {"cat": "Session", "name": "model_run", "ts": now, "dur": duration_us, "tid": 1, "pid": 1}
        events.append(run_event | {"ph": "X", "args": {}})
        now += duration_us + gap_us
    lines = ",\n".join(json.dumps(event) for event in events)
    path = folder / "trace.json"
    path.write_text(f"[\n{lines}\n]\n")
    return path


def test_both_series_count_from_the_start_of_the_steady_part(tmp_path):
    plain = recorded(*[9000] * 20, *np.random.default_rng(0).integers(2990, 3010, 60).tolist())
    profiled = recorded(*[12_000 + 10 * step for step in range(40)])
    path = saved_trace(tmp_path, [12_000 + 10 * step - 2 for step in range(40)], gap_us=12_000)
    found = concluded(plain, profiled, 5, path)
    assert found.steady.kind == "warm-up"
    assert found.plain.warmup_count == found.steady.start_index == 20
    first_counted_s = plain.starts_s[20]
    assert found.profiled.warmup_count == sum(profiled.starts_s < first_counted_s) > 0
    assert found.plain.sample_count == 60
    assert found.trace.run_count == 40


def test_at_least_the_wanted_warm_up_is_left_out(tmp_path):
    runs = [3000 + step % 7 for step in range(30)]
    found = concluded(recorded(*runs), recorded(*runs), 11, saved_trace(tmp_path, runs, gap_us=3000))
    assert (found.steady.kind, found.plain.warmup_count, found.profiled.warmup_count) == ("flat", 11, 11)


def test_a_lost_trace_leaves_the_latencies(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("")
    found = concluded(recorded(*[500] * 9), recorded(*[600] * 9), 2, path)
    assert not found.trace.nodes
    assert "is no complete trace" in found.failure
    assert found.plain.counted_us.tolist() == [500.0] * 7
    assert found.timelines({3, 4}) == {}


def test_a_trace_that_was_cut_keeps_its_complete_runs(tmp_path):
    runs = [3000 + step % 7 for step in range(30)]
    path = saved_trace(tmp_path, runs, gap_us=3000)
    text = path.read_text()
    path.write_text(text[: int(0.6 * len(text))])
    found = concluded(recorded(*runs), recorded(*runs), 2, path)
    assert 15 <= found.trace.run_count < 20
    assert found.lacks[0].startswith(f"the trace holds {found.trace.run_count} of 30 runs")
    assert found.failure == ""


def trace_of(**providers):
    return Trace({name: NodeTrace(name, "Relu", provider, 0, [], [], []) for name, provider in providers.items()}, 1, 1)


def test_another_provider_in_the_trace_is_an_error():
    require_provider(trace_of(a="X", b="X"), "X")
    with pytest.raises(PipelineError, match=r"<provider> X: did not take b \(Relu on Y\); profile on the CPU"):
        require_provider(trace_of(a="X", b="Y"), "X")


def test_a_node_that_the_executed_graph_lacks_is_an_error(tmp_path):
    with pytest.raises(PipelineError, match="nodes that the executed graph lacks: a"):
        correct(SimpleNamespace(trace=trace_of(a="X")), {"b": 1}, tmp_path)


def test_providers_by_short_or_full_name():
    assert resolve_provider("cpu") == resolve_provider("CPUExecutionProvider") == "CPUExecutionProvider"
    with pytest.raises(UnusableValueError, match=r"<provider>: quantum is not in this build .*; it has .*CPU"):
        resolve_provider("quantum")


def test_a_failing_run_is_one_line():
    content, feeds = build(chains(OverheadClass(False, 1))[0], 2)
    session = create_session(content, SessionSettings(1))
    with pytest.raises(PipelineError, match=r"^m\.onnx: ONNX Runtime fails to run it"):
        run(session, {"x0": feeds["x0"][:, :1]}, MODEL)
    with pytest.raises(PipelineError, match="a calibration model: ONNX Runtime refuses it"):
        create_session(b"no model", SessionSettings(1))


def cast(source, target):
    ends = [helper.make_tensor_value_info(name, code, [3, 5]) for name, code in (("x", source), ("y", target))]
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=target)], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return create_session(model.SerializeToString(), SessionSettings(1))


FOREIGN = ("bfloat16", "float8e4m3fn", "float8e5m2", "int4", "uint4")


@pytest.mark.parametrize("dtype", FOREIGN)
def test_a_type_that_numpy_lacks_runs_as_input_and_as_output(dtype):
    """The runtime reads 0 and 1 as it is told to: 4-bit ones are stored by the byte here, the upper half zero."""
    code = TensorProto.DataType.Value(dtype.upper())
    array = random_input(Tensor("x", dtype, 8, (3, 5), "input"), np.random.default_rng(7))
    reads = cast(code, TensorProto.FLOAT)
    fed = operands(reads, {"x": array})
    run(reads, fed)
    found = reads.run_with_ort_values(None, fed)[0].numpy()
    if "int4" not in dtype:
        np.testing.assert_array_equal(found, array.astype(np.float32))
    writes = cast(TensorProto.FLOAT, code)
    run(writes, operands(writes, {"x": np.ones((3, 5), np.float32)}))


def test_arrays_of_types_that_numpy_has_are_fed_as_they_are():
    feeds = {"x": np.ones((3, 5), np.float32)}
    assert operands(cast(TensorProto.FLOAT, TensorProto.INT8), feeds) is feeds


def test_content_runs_in_place_of_the_file_and_an_error_names_the_file(tmp_path):
    content, feeds = build(chains(OverheadClass(False, 1))[0], 2)
    path = tmp_path / "absent.onnx"
    run(create_session(path, SessionSettings(1), content=content), feeds)
    with pytest.raises(PipelineError, match=r"absent\.onnx: ONNX Runtime refuses it"):
        create_session(path, SessionSettings(1), content=b"no model")


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "250000 100000"}, 3),  # two and a half, rounded up
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_the_control_groups_quota(tmp_path, files, quota):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert runtime_threads._cgroup_quota(tmp_path) == quota


def test_a_quota_limits_the_threads(monkeypatch):
    monkeypatch.setattr(runtime_threads, "available_processors", lambda: [0, 1, 2, 5, 7])
    for quota, threads in ((None, 5), (3, 3), (11, 5)):
        monkeypatch.setattr(runtime_threads, "_cgroup_quota", lambda root, quota=quota: quota)
        assert runtime_threads.available_threads() == threads


def test_no_pool_of_more_than_four_threads_a_processor(monkeypatch):
    monkeypatch.setattr(runtime_threads.os, "cpu_count", lambda: 3)
    assert runtime_threads.usable_threads(12) == 12
    with pytest.raises(UnusableValueError, match="<threads>: 13 is above 12, four times the processors here"):
        runtime_threads.usable_threads(13)
    assert runtime_threads.usable_threads(None) == runtime_threads.available_threads()


QUIET = {
    **{f"{name}_us": 100.0 for name in ("p50", "p90", "p95", "p99", "p99_9")},
    "sample_count": 3001,
    "profiled_sample_count": 3001,
    "profiling_overhead_fraction": 0.02,
    "is_alternating": True,
    "p50_low_us": 99.0,
    "p50_high_us": 101.0,
    "jitter_us": 1.0,
    "steady_state": "flat",
    "counts_for_limits": {},
}


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (
            {"p99_us": None, "p99_9_us": None, "sample_count": 61, "counts_for_limits": {"p99": 299, "p99_9": 2995}},
            "p99, p99.9 left empty: 61 runs give no upper confidence limit; raise <runs>: p99 needs about 299, p99.9",
        ),
        (
            {"counts_for_limits": {"p99": 4500, "mean": 900}},
            "p99 without an upper limit: each of the 3001 runs depends on those before it; raise <runs>: p99 needs",
        ),
        ({"profiling_overhead_fraction": 0.31}, "profiled runs took 31 % longer than unprofiled ones; trust"),
        (
            {"profiling_overhead_fraction": -0.13},
            "profiled runs took 13 % less than unprofiled ones; the host changed between them; rerun",
        ),
        ({"is_alternating": False}, "the profiled runs came after the unprofiled ones. What profiling costs, and"),
        ({"profiled_sample_count": 211}, "211 of 3001 runs were profiled"),
        ({"steady_state": "no steady state"}, "no steady state: the latency level still changes"),
        (
            {"steady_state": "no steady state", "p50_low_us": 91.0, "p50_high_us": 104.0},
            "unstable: no steady state: the interval of the median is 13% wide; stop",
        ),
        ({"p50_low_us": 91.0, "p50_high_us": 102.0}, "unstable: the interval of the median is 11% wide; stop"),
        ({"p90_us": 117.0}, "unstable: one run in ten takes over 17% longer than the median; stop"),
    ],
)
def test_a_note_for_what_a_reader_must_know(changes, note):
    assert latency_notes(QUIET, []) == []
    assert [text for text in latency_notes(QUIET | changes, []) if note in text]


def test_dominated_nodes_are_counted():
    node = NodeTrace("a", "Relu", "X", 0, [], [], [], run_us=[7.0, 7.0], run_events=[1, 1])
    latencies = [node_latency(node, 1, 0, np.full((3, 2), cost)) for cost in (5.0, 1.0)]
    assert latency_notes(QUIET, latencies)[0].startswith("1 of 2 nodes (2 µs together) take less than four times")
