"""The history: its figures against those of the runs themselves, and what a kill leaves."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from scipy.signal import lfilter

from common.latency import statistics
from common.latency.statistics import QUANTILES, limit_ranks
from common.messages.errors import PipelineError
from common.monitor.history import History
from common.monitor.store import LEVELS_S, MOST_POINTS, Store, kept_step
from tests.support.paths import ROOT

START_S = 1_800_000_000  # divides by 60


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "history.sqlite")
    yield store
    store.close()


def recorded(store, seconds):
    """Runs of each second, and a gauge that is the number of the second."""
    random = np.random.default_rng(11)
    runs = [random.lognormal(13, 0.5, int(random.integers(0, 400))).astype(np.int64) for _ in range(seconds)]
    history = History(store, store.begin("m.onnx", START_S, {"threads": 2}))
    for second, durations_ns in enumerate(runs):
        history.add(START_S + second + 0.4, durations_ns, {"total_power_w": float(second), "energy_per_run_j": None})
    return history, runs


def points_of(store, now_s, duration_s, step_s=None):
    answer = json.loads(store.history(now_s, duration_s, step_s))
    return answer["step_s"], answer["points"]


@pytest.mark.slow
@pytest.mark.parametrize("step", LEVELS_S)
def test_figures_of_a_step_are_those_of_its_runs(store, step):
    _, runs = recorded(store, 127)
    length_s, points = points_of(store, START_S + 127, 1000, step)
    assert length_s == step
    assert len(points) == -(-127 // step)
    for place, (time_s, run_id, figures) in enumerate(points):
        within = np.concatenate(runs[place * step : (place + 1) * step])
        assert (time_s, run_id) == (START_S + place * step, 1)
        assert figures["run_count"] == len(within)
        for name, quantile in QUANTILES.items():
            if limit_ranks(len(within), quantile)[1] is None:
                assert f"{name}_us" not in figures
            else:
                rank = int(np.ceil(quantile * len(within)))
                assert figures[f"{name}_us"] == pytest.approx(np.sort(within)[rank - 1] / 1e3, rel=6e-4)
        seconds = range(place * step, min((place + 1) * step, 127))
        assert figures["total_power_w"] == pytest.approx(np.mean(seconds), rel=1e-5)
        assert "energy_per_run_j" not in figures


def test_the_summary_is_of_all_runs(store):
    history, runs = recorded(store, 61)
    every = np.concatenate(runs) / 1e3
    summary = history.summary()
    assert summary["run_count"] == len(every)
    assert summary["p99_us"] == pytest.approx(np.quantile(every, 0.99), rel=2e-3)
    assert summary["p99_low_us"] < summary["p99_us"] < summary["p99_high_us"]
    assert summary["mean_us"] == pytest.approx(every.mean())
    assert history.whole["whole_run_count"] == len(every)


def test_limits_of_the_summary_are_wider_where_runs_depend_on_each_other(store):
    """The limits are those of the whole series, not those of as many independent runs."""
    steps = np.random.default_rng(5).standard_normal(6000)
    walk = lfilter([1.0], [1.0, -0.9], steps)
    runs_ns = (1e6 * np.exp(0.1 * walk)).astype(np.int64)
    history = History(store, store.begin("m.onnx", START_S, {}))
    for second, durations_ns in enumerate(np.array_split(runs_ns, 30)):
        history.add(float(START_S + second), durations_ns, {})
    summary, expected = history.summary(), statistics.figures(runs_ns / 1e3)
    lower, upper = limit_ranks(len(runs_ns), 0.5)
    independent_us = np.diff(np.sort(runs_ns)[[lower - 1, upper - 1]])[0] / 1e3
    assert summary["p50_high_us"] - summary["p50_low_us"] > 2 * independent_us
    for name in ("p50_low_us", "p50_high_us", "p90_high_us"):
        assert summary[name] == pytest.approx(expected[name], rel=1e-3)


def test_an_empty_run_has_a_summary_without_figures(store):
    summary = History(store, 1).summary()
    assert summary.pop("run_count") == 0
    assert set(summary.values()) == {None}


@pytest.mark.parametrize(
    ("duration_s", "step_s", "step"),
    [(3600, None, 10), (60, None, 1), (86_400, None, 60), (3600, 1, 1), (3600, 9.9, 1), (60, 45, 10), (60, 7200, 60)],
)
def test_the_step_of_an_answer(duration_s, step_s, step):
    assert kept_step(duration_s, step_s) == step
    assert step_s is not None or step == 60 or duration_s / step <= MOST_POINTS


def test_what_is_old_is_forgotten(store):
    recorded(store, 61)
    now_s = START_S + LEVELS_S[1] + 31
    store.forget(now_s)
    assert [time_s for time_s, *_ in points_of(store, now_s, 1e7, 1)[1]] == [*range(START_S + 31, START_S + 61)]
    assert len(points_of(store, now_s, 1e7, 10)[1]) == 7
    store.forget(START_S + LEVELS_S[60] + 200)
    assert points_of(store, now_s, 1e9, 60)[1] == []
    assert store.runs() == []


def test_runs_of_the_monitor(store):
    recorded(store, 5)
    store.begin("other.onnx", START_S + 100, {})
    second, first = store.runs()
    assert (first["model"], first["settings"], first["ended_s"]) == ("m.onnx", {"threads": 2}, START_S + 4.4)
    assert (second["run_id"], second["run_count"]) == (2, 0)


KILLED = """
import sys
from pathlib import Path
import numpy as np
from common.monitor.history import History
from common.monitor.store import Store

store = Store(Path(sys.argv[1]))
history = History(store, store.begin("m.onnx", 0, {}))
second = 0
while True:
    history.add(float(second), np.full(7, 1_000_000), {})
    print(second, flush=True)
    second += 1
"""


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_was_entered(tmp_path):
    path = tmp_path / "history.sqlite"
    with subprocess.Popen([sys.executable, "-c", KILLED, path], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        entered = [int(process.stdout.readline()) for _ in range(23)]
        process.kill()
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store = Store(path)
    _, points = points_of(store, entered[-1] + 1, 1e6, 1)
    assert [time_s for time_s, *_ in points][: len(entered)] == entered
    assert store.runs()[0]["run_count"] >= 7 * len(entered)
    store.close()


def test_two_processes_share_a_file(tmp_path):
    one, other = Store(tmp_path / "h"), Store(tmp_path / "h")
    History(one, one.begin("a", START_S, {})).add(START_S, np.array([5]), {})
    History(other, other.begin("b", START_S, {})).add(START_S, np.array([5]), {})
    assert [(time_s, run_id) for time_s, run_id, _ in points_of(one, START_S + 1, 10, 1)[1]] == [
        (START_S, 1),
        (START_S, 2),
    ]
    one.close()
    other.close()


def test_only_its_owner_reads_the_history(tmp_path):
    Store(tmp_path / "h").close()
    assert (tmp_path / "h").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"no database at all", b"SQLite format 3\x00" + b"\x01" * 200])
def test_a_file_that_is_no_history_is_refused(tmp_path, content):
    path = tmp_path / "history.sqlite"
    path.write_bytes(content)
    with pytest.raises(PipelineError, match="cannot be used as the history"):
        Store(path)
    assert path.read_bytes() == content


def test_a_history_of_another_version_is_refused(tmp_path):
    path = tmp_path / "history.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 7")
    database.close()
    with pytest.raises(PipelineError, match="has the format 7, not 1"):
        Store(path)
