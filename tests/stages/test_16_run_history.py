"""Stages 17, which records, and 16, which looks back: real working trees of git, known levels, and refusals."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.provenance import Provenance
from common.artifacts.transaction import Transaction
from common.history.record import Record, Revision
from common.history.store import VERSION, RecordFile
from common.view.comparison.history_tables import commit_name
from models.__main__ import BUILDERS
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_stage

RECORD, LOOK_BACK, PROFILE = "17_record_run.py", "16_run_history.py", "01_profile_onnx.py"
RUNS = 23
SAMPLE = re.compile(r'([a-z_:][a-z0-9_:]*)\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')
BUSY = "the host was busy: other work took 1.0 of its 2 processors during the runs; stop it"
with_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def measurement(folder, level_us, seed, *, notes=(), tools=None):
    """A folder with the runs of a session."""
    latencies_us = level_us * (1 + 0.004 * np.random.default_rng(seed).standard_normal(RUNS))
    empty = {
        column.name: None if column.nullable else {"string": "x", "integer": 1, "mapping": {}}.get(column.kind, 1.0)
        for column in ARTIFACTS["latency_summary"].columns
    }
    median = float(np.median(latencies_us))
    known = {"steady_state": "flat", "steady_start_index": 0, "provider": "CPUExecutionProvider", "threads": 3}
    stated = {"p50_us": median, "p50_low_us": median, "p50_high_us": median, "peak_memory_bytes": 1013}
    host = {"hostname": "quiet", "cpu_model": "CPU of 7 cores"}
    record = Provenance(
        PROFILE, PROFILE, model_id="m" * 64, model_path='a "b".onnx', host=host, notes=list(notes), tools=tools or {}
    )
    with Transaction(folder, record) as transaction:
        rows = [
            {"is_profiled": False, "run_index": run, "is_warmup": False, "start_us": 2e3 * run, "latency_us": one}
            for run, one in enumerate(latencies_us)
        ]
        transaction.add_rows("run_latency", rows)
        transaction.add_document("latency_summary", {**empty, **known, **stated})
    return folder


def append(root, level_us, seed, *flags, **changes):
    """Measure, and add the measurement to the history of a test."""
    out = measurement(
        root / "out", level_us * (1 + 0.01 * np.random.default_rng(seed + 101).uniform(-1, 1)), seed, **changes
    )
    done = run_stage(RECORD, "--append-to", root / "runs.sqlite", "--out", out, *flags, cwd=root)
    assert done.returncode == 0, done.stderr
    return done


def look_back(root, *flags, code=0):
    done = run_stage(LOOK_BACK, "--history", root / "runs.sqlite", "--out", root / "out", *flags, cwd=root)
    assert done.returncode == code, done.stderr
    return done


def tables(out):
    return (pd.read_csv(out / f"{name}.csv", keep_default_na=False) for name in ("run_history", "history_trends"))


def latency(table):
    return table[table["compared_figure"] == "p50_us"]


def git(root, *words):
    settings = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *settings, *words], cwd=root, capture_output=True, text=True, check=True).stdout


@with_git
@pytest.mark.slow
def test_a_change_of_level_names_the_commits_that_it_lies_between(tmp_path):
    git(tmp_path, "init", "--quiet")
    commits = []
    for run in range(12):
        (tmp_path / "source").write_text(str(run))
        git(tmp_path, "add", "source")
        git(tmp_path, "commit", "--quiet", "--message", f"change {run}")
        commits.append(git(tmp_path, "rev-parse", "HEAD").strip())
        level, version = (1009.0, "1.7") if run < 6 else (1103.0, "1.11")
        append(tmp_path, level, run, tools={"onnxruntime": version})
    done = look_back(tmp_path)
    values, trends = tables(tmp_path / "out")
    assert latency(values)["commit_name"].tolist() == commits
    assert set(values["is_dirty_tree"]) == {False}
    (change,) = latency(values)[latency(values)["is_change_point"]].to_dict("records")
    assert (change["history_run"], change["commit_before"], change["commit_name"]) == (7, commits[5], commits[6])
    assert float(change["level_change_share"]) == pytest.approx(94 / 1009, abs=0.0125)
    assert f"{commits[5][:10]}..{commits[6][:10]}" in done.stdout
    assert "differs since record 7: onnxruntime version: 1.7 against 1.11" in done.stdout
    assert f"{commits[5][:10]}..{commits[6][:10]}" in (tmp_path / "out/run_history.html").read_text()
    assert f"{commits[5][:10]}..{commits[6][:10]}" in (tmp_path / "out/run_history.md").read_text()
    assert int(latency(trends).iloc[0]["level_run_count"]) < 12
    drawn = run_stage("06_plots.py", "--out", tmp_path / "out", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "out/plots/history.png").stat().st_size > 10_000
    assert "Recorded runs" in (tmp_path / "out/report.html").read_text()


@with_git
def test_a_changed_file_makes_the_run_dirty(tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / "source").write_text("7")
    git(tmp_path, "add", "source")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    (tmp_path / "source").write_text("11")
    commit = git(tmp_path, "rev-parse", "HEAD")[:10]
    assert f"at {commit}+: recorded" in append(tmp_path, 1009.0, 0).stdout


@pytest.mark.slow
def test_without_a_working_tree_the_commit_is_unknown_and_may_be_given(tmp_path):
    append(tmp_path, 1009.0, 0)
    append(tmp_path, 1009.0, 1, "--commit", "v7")
    look_back(tmp_path)
    values, _ = tables(tmp_path / "out")
    assert latency(values)["commit_name"].tolist() == ["unknown", "v7"]
    assert latency(values)["is_dirty_tree"].tolist() == ["", ""]


@pytest.mark.slow
@pytest.mark.parametrize(("level_us", "code", "verdict"), [(1109.0, 4, "regressed"), (905.0, 0, "improved")])
def test_the_last_run_stands_against_the_level_before_it(tmp_path, level_us, code, verdict):
    for run in range(8):
        append(tmp_path, 1009.0, run)
    append(tmp_path, level_us, 8)
    done = look_back(tmp_path, "--fail-above", "5%", code=code)
    assert done.stdout.startswith(f"latency {verdict}: ")
    _, trends = tables(tmp_path / "out")
    row = latency(trends).iloc[0]
    with closing(sqlite3.connect(tmp_path / "runs.sqlite")) as base:
        query = "SELECT figure_value FROM recorded WHERE compared_figure = 'p50_us' ORDER BY run_number"
        stored = [value for (value,) in base.execute(query)]
    assert float(row["difference_share"]) == pytest.approx(stored[-1] / np.median(stored[:-1]) - 1)
    assert look_back(tmp_path).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(("level_us", "code"), [(1109.0, 4), (905.0, 0)])
def test_the_newest_level_fails_as_long_as_its_change_counts(tmp_path, level_us, code):
    for run in range(14):
        append(tmp_path, 1009.0 if run < 8 else level_us, run)
    look_back(tmp_path, "--fail-above", "5%", code=code)
    look_back(tmp_path, "--fail-above", "20%")
    look_back(tmp_path, "--fail-above", "5%", "--last", "6")


@pytest.mark.slow
def test_what_stays_on_its_level_is_unchanged(tmp_path):
    for run in range(8):
        append(tmp_path, 1009.0, run)
    done = look_back(tmp_path)
    assert done.stdout.startswith("latency unchanged: ")
    assert "no changed levels in 8 records" in done.stdout
    _, trends = tables(tmp_path / "out")
    assert trends.set_index("compared_figure").loc["peak_memory_bytes", "comparison_verdict"] == "unchanged"


@pytest.mark.slow
def test_few_runs_decide_nothing_and_say_how_many_would(tmp_path):
    append(tmp_path, 1009.0, 0)
    append(tmp_path, 2003.0, 1)
    done = look_back(tmp_path, "--fail-above", "5%")
    assert "1 record at the level before: 5 say how far a repeat is away" in done.stdout


def test_a_long_name_of_a_commit_keeps_both_ends():
    assert commit_name("d509baf879" + 30 * "7", is_dirty=True) == "d509baf879+"
    assert commit_name("release-2026.11", is_dirty=False) == "release-2026.11"
    name = commit_name("release-2026.11-candidate-for-the-second-board", is_dirty=False)
    assert len(name) <= 16 and name.startswith("rel") and name.endswith("board")


def test_the_same_measurement_is_one_run(tmp_path):
    append(tmp_path, 1009.0, 0)
    done = append(tmp_path, 1009.0, 0)
    assert done.stdout.startswith("record 1 with ")
    assert "was recorded before" in done.stdout
    look_back(tmp_path)
    values, _ = tables(tmp_path / "out")
    assert len(latency(values)) == 1


@pytest.mark.slow
def test_profiles_without_single_runs_are_told_apart_by_their_nodes(tmp_path):
    """Counters of OpenVINO hold no runs, so run_latency.csv is the same for all."""
    model, data = tmp_path / "tiny-cnn.onnx", ROOT / "tests/foreign_traces/data/openvino"
    model.write_bytes(BUILDERS["tiny-cnn"]().SerializeToString())
    numbers = []
    for file in ("average.csv", "detailed.csv", "average.csv"):
        flags = ("--model", model, "--dim", "batch=2", "--threads", "2", "--from-trace", data / file)
        done = run_stage(PROFILE, *flags, "--executed-graph", data / "executed.xml", "--out", tmp_path / "out")
        assert done.returncode == 0, done.stderr
        done = run_stage(RECORD, "--append-to", tmp_path / "runs.sqlite", "--out", tmp_path / "out", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        numbers.append(int(done.stdout.split()[1]))
    assert numbers == [1, 2, 1]
    assert "record 2 of commit unknown has no latency" in look_back(tmp_path).stdout


@pytest.mark.slow
def test_a_busy_run_is_kept_and_decides_nothing(tmp_path):
    for run in range(8):
        append(tmp_path, 1009.0, run)
    append(tmp_path, 2003.0, 8, notes=[BUSY])
    done = look_back(tmp_path, "--fail-above", "5%")
    assert done.stdout.startswith("latency undecided: ")
    assert "1 record of a disturbed host counts for no time" in done.stdout
    append(tmp_path, 1009.0, 9)
    done = look_back(tmp_path, "--fail-above", "5%")
    assert not done.stdout.startswith("latency regressed: ")
    values, _ = tables(tmp_path / "out")
    doubted = latency(values)[latency(values)["run_doubt"] != ""]
    assert doubted["history_run"].tolist() == [9]
    assert doubted["level_value"].tolist() == [""]


@pytest.mark.slow
def test_the_last_runs_alone_count(tmp_path):
    for run in range(6):
        append(tmp_path, 1009.0, run)
    look_back(tmp_path, "--last", "3")
    values, _ = tables(tmp_path / "out")
    assert latency(values)["history_run"].tolist() == [4, 5, 6]


def test_the_export_has_each_figure_in_base_units_by_one_name(tmp_path):
    append(tmp_path, 1009.0, 0)
    text = (tmp_path / "out" / "metrics.prom").read_text()
    assert text.endswith("# EOF\n")
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            samples[name, labels] = float(value)
    labels = r'model="a \"b\".onnx",source="measured",table="latency_summary"'
    assert samples["onnx_p50_seconds", labels] == pytest.approx(1009e-6, rel=0.02)
    assert samples["onnx_threads", labels] == 3
    lines = [json.loads(line) for line in (tmp_path / "out" / "metric_lines.jsonl").read_text().splitlines()]
    assert [line["value"] for line in lines] == list(samples.values())
    assert lines[0]["labels"]["model"] == 'a "b".onnx'


def test_the_export_is_read_by_the_parser_of_prometheus(tmp_path):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="prometheus_client is not installed")
    append(tmp_path, 1009.0, 0)
    families = list(parser.text_string_to_metric_families((tmp_path / "out" / "metrics.prom").read_text()))
    [median] = [family for family in families if family.name == "onnx_p50_seconds"]
    assert median.type == "gauge"
    assert median.samples[0].value == pytest.approx(1009e-6, rel=0.02)
    assert median.samples[0].labels["model"] == 'a "b".onnx'


def foreign(path):
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE runs (run_number)")


def damaged(path, **changes):
    """A history that is damaged after its first record: bytes in its middle, or a value in its head."""
    record = {"identity": "a", "revision": Revision(), "folder": "out", "model_id": "m", "model_path": "m.onnx"}
    with RecordFile(path).entering(Record(**record, dimensions={}, conditions={}, doubts=(), figures={})) as entry:
        entry.commit()
    for name, value in changes.items():
        with closing(sqlite3.connect(path)) as base:
            base.execute(f"PRAGMA {name} = {value}")
    if not changes:
        content = path.read_bytes()
        path.write_bytes(content[:4096] + bytes(len(content) - 4096))


def locked(path):
    """A history that somebody else writes to for longer than anyone waits."""
    damaged(path, user_version=VERSION)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    return writer


UNUSABLE = {
    "text": lambda path: path.write_text("a list of runs\n" * 97),
    "foreign": foreign,
    "torn": damaged,
    "too new": lambda path: damaged(path, user_version=VERSION + 1),
    "locked": locked,
    "folder": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "loop": lambda path: path.symlink_to(path),
    "link to a folder": lambda path: path.symlink_to(path.parent),
    "unwritable": lambda path: path.symlink_to("/proc/version"),  # for root, too
    "no folder": lambda path: path.symlink_to(path.parent / "no" / "file"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_nothing_is_exported_of_what_is_not_recorded(tmp_path, monkeypatch, kind):
    out, history = measurement(tmp_path / "out", 1009.0, 0), tmp_path / "runs.sqlite"
    exports = [out / "metrics.prom", out / "metric_lines.jsonl"]
    for path in exports:
        path.write_text("of an earlier record")
    monkeypatch.setattr("common.history.store.WAIT_S", 0.0)
    kept_open = UNUSABLE[kind](history)
    done = run_stage(RECORD, "--append-to", history, "--out", out)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith(f"{RECORD}: error: {history}: ")
    assert [path.read_text() for path in exports] == ["of an earlier record"] * 2
    assert not list(out.glob(".onnx-profile*"))
    if kind == "locked":
        kept_open.close()
        assert run_stage(RECORD, "--append-to", history, "--out", out).returncode == 0
        assert "# EOF" in exports[0].read_text()


def test_checks_alone_make_no_history(tmp_path):
    out, history = measurement(tmp_path / "out", 1009.0, 0), tmp_path / "runs.sqlite"
    done = run_stage(RECORD, "--check", "--append-to", history, "--out", out)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not history.exists()


def test_nothing_is_recorded_where_the_exports_cannot_be_written(tmp_path):
    out, history = measurement(tmp_path / "out", 1009.0, 0), tmp_path / "runs.sqlite"
    (out / "metric_lines.jsonl").mkdir()
    done = run_stage(RECORD, "--append-to", history, "--out", out)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "metric_lines.jsonl: cannot be written (it is a folder)" in done.stderr
    assert not history.exists() or not history.stat().st_size


@pytest.mark.parametrize(
    ("script", "flags", "code", "problem"),
    [
        (RECORD, ("--commit", "v7"), 2, "--append-to: is missing; give the file of the history, which may be new"),
        (RECORD, ("--append-to", "none.sqlite"), 3, "run_latency.csv: not found"),
        (LOOK_BACK, (), 2, "--history: is missing; give the file to which `make record` adds"),
        (
            LOOK_BACK,
            ("--history", "none.sqlite"),
            3,
            "none.sqlite: not found; record a measurement first, with 17_record_run.py",
        ),
        (LOOK_BACK, ("--history", "none.sqlite", "--last", "1"), 2, "a whole number of at least 2"),
        (
            LOOK_BACK,
            ("--history", "text.sqlite"),
            1,
            "text.sqlite: cannot be used as the history (file is not a database)",
        ),
        (LOOK_BACK, ("--history", ""), 2, "the path is empty"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path, script, flags, code, problem):
    (tmp_path / "text.sqlite").write_text("a list of runs\n" * 97)
    done = run_stage(script, *flags, "--out", tmp_path / "out", cwd=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1)
    assert problem in done.stderr
    assert not (tmp_path / "none.sqlite").exists()
    assert (tmp_path / "text.sqlite").read_text() == "a list of runs\n" * 97
