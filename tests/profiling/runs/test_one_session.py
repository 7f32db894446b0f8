"""A large model: one session lives at a time, and the profiled runs come after the unprofiled ones."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from common.graphs.graph import Graph, Tensor
from common.messages.errors import PipelineError
from common.profiling.runs import loop, one_session
from common.profiling.runs.loop import Budget, SessionPlan
from common.profiling.runs.measurement import conclude
from common.profiling.runs.one_session import LARGE_BYTES, is_large, timed_runs
from common.runtime.sessions.session import SessionSettings, create_session, run
from models.__main__ import BUILDERS


@pytest.fixture
def alive(monkeypatch):
    """How many sessions of the runtime live, after each is created and in each run; they are real ones."""
    sessions, counts = weakref.WeakSet(), []

    def created(*arguments, **options):
        session = create_session(*arguments, **options)
        sessions.add(session)
        counts.append(len(sessions))
        return session

    def counted(session, feeds, model):
        counts.append(len(sessions))
        run(session, feeds, model)

    monkeypatch.setattr(loop, "create_session", created)
    monkeypatch.setattr(loop, "run", counted)
    return counts


def plan(folder, *, is_alone):
    onnx.save(BUILDERS["tiny-cnn"](batch=2), path := folder / "m.onnx")
    feeds = {"input": np.ones((2, 3, 13, 17), np.float32)}
    return SessionPlan(path, feeds, SessionSettings(1), is_alone=is_alone)


@pytest.mark.parametrize(("is_alone", "most"), [(True, 1), (False, 2)])
def test_of_a_large_model_one_session_lives_at_a_time(tmp_path, alive, is_alone, most):
    timed_runs(plan(tmp_path, is_alone=is_alone), tmp_path, Budget(2, 5))
    assert max(alive) == most


def test_the_profiled_runs_come_after_the_unprofiled_ones_and_have_a_warm_up_of_their_own(tmp_path):
    seen = []
    _, runs = timed_runs(
        plan(tmp_path, is_alone=True), tmp_path, Budget(3, 7), progress=lambda *done: seen.append(done)
    )
    assert (runs.plain.count, runs.profiled.count) == (10, 10)
    assert runs.plain.starts_s[-1] < runs.profiled.starts_s[0]
    assert [done for done, _ in seen] == pytest.approx(
        [0, 0, 0, *np.arange(0.5, 4, 0.5), *[3.5] * 3, *np.arange(4, 7.1, 0.5)]
    )
    assert {total for _, total in seen} == {7}


def test_each_run_of_a_duration_is_stored_although_the_first_one_is_slow(tmp_path, monkeypatch):
    """By the clock here, the first run takes 0.5 s and a later one 1 ms: a thousand fill half of 2 s."""
    clock_ns = [0]

    def timed(session, feeds, model):
        run(session, feeds, model)
        clock_ns[0] += 1_000_000 if clock_ns[0] else 500_000_000

    clock = SimpleNamespace(perf_counter=lambda: clock_ns[0] / 1e9, perf_counter_ns=lambda: clock_ns[0])
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(loop, "run", timed)
    _, runs = timed_runs(plan(tmp_path, is_alone=True), tmp_path, Budget(3, 5, duration_s=2))
    assert runs.cold.first_run_us == 5e5
    assert runs.plain.stored_count == runs.plain.count > 1000


def test_its_profiled_runs_count_from_the_end_of_their_warm_up(tmp_path):
    ended, runs = timed_runs(plan(tmp_path, is_alone=True), tmp_path, Budget(3, 30))
    found = conclude(ended, runs)
    assert not found.is_alternating
    assert found.profiled.warmup_count == found.profiled_warmup == 3
    assert found.trace.run_count == 33
    assert found.observed_count == 33  # sensors and counters saw the unprofiled runs


def test_sensors_watch_the_unprofiled_runs(tmp_path):
    class Watch:
        def __enter__(self):
            events.append("watch")

        def __exit__(self, *_):
            events.append("end")

    events = []
    timed_runs(
        plan(tmp_path, is_alone=True),
        tmp_path,
        Budget(1, 2),
        opened=lambda cold: events.append("opened"),
        observed=Watch(),
        between_runs=lambda: events.append("run"),
    )
    assert events == ["opened", "watch", *["run"] * 3, "end", *["run"] * 3]


@pytest.mark.parametrize(
    ("fails_at", "plain", "profiled"),
    # The first run is that of the cold start; one run of a further session counts events.
    [(9, 7, 7), (20, 13, 4)],
)
def test_runs_before_a_failure_stay(tmp_path, monkeypatch, fails_at, plain, profiled):
    calls = []

    def fails_once(session, feeds, model):
        calls.append(1)
        if len(calls) == fails_at:
            raise PipelineError(model, "ran out of memory")
        run(session, feeds, model)

    monkeypatch.setattr(loop, "run", fails_once)
    _, runs = timed_runs(plan(tmp_path, is_alone=True), tmp_path, Budget(3, 10))
    counts = f"{runs.plain.count} unprofiled and {runs.profiled.count} profiled runs"
    assert (runs.plain.count, runs.profiled.count) == (plain, profiled)
    assert runs.failure == f"failed after {counts} (ran out of memory)"


@pytest.mark.parametrize(
    ("second", "told"),
    [("ran out of memory", "ran out of memory"), ("lost its device", "ran out of memory; lost its device")],
)
def test_failures_of_both_sessions_are_told_each_once(tmp_path, monkeypatch, second, told):
    calls, problems = [], {9: "ran out of memory", 16: second}

    def fails_twice(session, feeds, model):
        calls.append(1)
        if len(calls) in problems:
            raise PipelineError(model, problems[len(calls)])
        run(session, feeds, model)

    monkeypatch.setattr(loop, "run", fails_twice)
    _, runs = timed_runs(plan(tmp_path, is_alone=True), tmp_path, Budget(3, 10))
    assert runs.failure == f"failed after 7 unprofiled and 5 profiled runs ({told})"


def test_a_model_is_large_by_its_weights_or_by_the_memory_that_is_free(monkeypatch):
    def graph(weight_bytes):
        weights, held = (
            Tensor("w", "int8", 8, (weight_bytes,), "weight"),
            Tensor("a", "int8", 8, (10**12,), "activation"),
        )
        return Graph((), {"w": weights, "a": held}, ())

    free = [64e9]
    monkeypatch.setattr(one_session, "free_bytes", lambda: free[0])
    assert [is_large(graph(int(LARGE_BYTES) + more)) for more in (0, 1)] == [False, True]
    free[0] = 7_000_001
    assert [is_large(graph(size)) for size in (3_500_000, 3_500_001)] == [False, True]
    free[0] = None
    assert not is_large(graph(3_500_001))
