"""Interleaving, the checks of the trace, and the notes."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from common.errors import CommandLineError, PipelineError
from common.graph import Tensor
from common.profiling import session as sessions
from common.profiling.caveats import caveats
from common.profiling.correction import _node_latency
from common.profiling.inputs import random_input
from common.profiling.measurement import (
    RUNTIME_EVENT_LIMIT,
    TRACE_EVENT_LIMIT,
    interleave,
    require_same_nodes,
)
from common.profiling.overhead import OverheadClass, build, chains
from common.profiling.providers import require_provider
from common.profiling.session import SessionSettings, create_session, operands, resolve_provider, run
from common.profiling.trace import NodeTrace, Trace


class FakeSession:
    """Counts its runs."""

    def __init__(self):
        self.runs = 0

    def run(self, outputs, feeds):
        self.runs += 1


def interleaved(runs, warmup, events_per_run):
    plain, traced, seen = FakeSession(), FakeSession(), []
    laps = interleave(plain, traced, {}, runs, warmup, events_per_run, lambda done, total: seen.append((done, total)))
    assert (plain.runs, traced.runs) == (sum(not lap.is_profiled for lap in laps), sum(lap.is_profiled for lap in laps))
    assert seen == [(step + 1, runs + warmup) for step in range(runs + warmup)]
    return laps


def test_both_sessions_take_turns():
    laps = interleaved(7, 3, 10)
    assert [lap.is_profiled for lap in laps] == [False, True] * 10
    assert [lap.is_warmup for lap in laps] == [True] * 6 + [False] * 14
    assert [lap.run_index for lap in laps if lap.is_profiled] == [*range(10)]
    assert [lap.run_index for lap in laps if not lap.is_profiled] == [*range(10)]
    starts = [lap.start_s for lap in laps]
    assert starts == sorted(starts)


@pytest.mark.parametrize(
    ("runs", "warmup", "events"), [(1009, 11, 97), (307, 10, 1009), (53, 211, 401), (101, 7, 19999)]
)
def test_the_trace_stays_below_its_limit(runs, warmup, events):
    laps = interleaved(runs, warmup, events)
    profiled = [lap for lap in laps if lap.is_profiled]
    assert len(profiled) * events <= TRACE_EVENT_LIMIT == 40_000
    assert any(not lap.is_warmup for lap in profiled)
    assert sum(not lap.is_profiled and not lap.is_warmup for lap in laps) == runs


def test_fewer_profiled_runs_are_spread_evenly():
    laps = interleaved(103, 0, TRACE_EVENT_LIMIT // 7)  # 7 fit
    places = [index for index, lap in enumerate(laps) if lap.is_profiled]
    steps = np.diff([place - rank for rank, place in enumerate(places)])
    assert len(places) == 7
    assert set(steps) <= {103 // 7, 103 // 7 + 1}


@pytest.mark.parametrize(("events", "profiled"), [(23_003, 2), (499_979, 2), (500_009, 1), (999_979, 1)])
def test_two_runs_are_profiled_where_two_fit(events, profiled):
    laps = interleaved(53, 7, events)
    kept = [lap for lap in laps if lap.is_profiled]
    assert len(kept) == profiled
    assert sum(not lap.is_warmup for lap in kept) == 1
    assert profiled * events < RUNTIME_EVENT_LIMIT == 1_000_000


def trace_of(**providers):
    return Trace({name: NodeTrace(name, "Relu", provider, 0, [], [], []) for name, provider in providers.items()}, 1, 1)


def test_another_provider_in_the_trace_is_an_error():
    require_provider(trace_of(a="X", b="X"), "X")
    with pytest.raises(PipelineError, match=r"--provider X: did not take b \(Relu on Y\); profile on the CPU"):
        require_provider(trace_of(a="X", b="Y"), "X")
    with pytest.raises(PipelineError, match=r"and 2 more"):
        require_provider(trace_of(**{f"n{i}": "Y" for i in range(7)}), "X")


def test_a_node_that_the_executed_graph_lacks_is_an_error():
    require_same_nodes(trace_of(a="X"), {"a", "b"})
    with pytest.raises(PipelineError, match="nodes that the executed graph lacks: a"):
        require_same_nodes(trace_of(a="X"), {"b"})


def test_providers_by_short_or_full_name():
    assert resolve_provider("cpu") == resolve_provider("CPUExecutionProvider") == "CPUExecutionProvider"
    with pytest.raises(CommandLineError, match=r"--provider quantum: not in this build of onnxruntime; it has .*CPU"):
        resolve_provider("quantum")


def test_a_failing_run_is_one_line():
    content, feeds = build(chains(OverheadClass(False, 1))[0], 2)
    session = create_session(content, SessionSettings(1))
    with pytest.raises(PipelineError, match="the model: ONNX Runtime fails to run it"):
        run(session, {"x0": feeds["x0"][:, :1]})
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
    assert sessions._cgroup_quota(tmp_path) == quota


def test_a_quota_limits_the_threads(monkeypatch):
    monkeypatch.setattr(sessions, "available_processors", lambda: [0, 1, 2, 5, 7])
    for quota, threads in ((None, 5), (3, 3), (11, 5)):
        monkeypatch.setattr(sessions, "_cgroup_quota", lambda root, quota=quota: quota)
        assert sessions.available_threads() == threads


QUIET = {
    **{f"{name}_us": 100.0 for name in ("p50", "p90", "p95", "p99", "p99_9")},
    "sample_count": 3001,
    "profiled_sample_count": 3001,
    "profiling_overhead_fraction": 0.02,
    "jitter_us": 1.0,
}


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"p99_us": None, "p99_9_us": None, "sample_count": 61}, "p99, p99.9 left empty: 61 runs"),
        ({"profiling_overhead_fraction": 0.31}, "profiled runs take +31 %"),
        ({"profiling_overhead_fraction": -0.13}, "profiled runs take -13 %"),
        ({"profiled_sample_count": 211}, "211 of 3001 runs were profiled"),
        ({"jitter_us": 17.0}, "unstable: runs scatter by 17 %"),
    ],
)
def test_a_note_for_what_a_reader_must_know(changes, note):
    assert caveats(QUIET, []) == []
    assert [text for text in caveats(QUIET | changes, []) if note in text]


def test_dominated_nodes_are_counted():
    node = NodeTrace("a", "Relu", "X", 0, [], [], [], "", [7.0, 7.0], [1, 1])
    latencies = [_node_latency(node, 1, np.full((3, 2), cost), 0) for cost in (5.0, 1.0)]
    assert caveats(QUIET, latencies)[0].startswith("1 of 2 nodes (2 µs together) take less than four times")
