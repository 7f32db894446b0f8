"""Sweeps of stage 08 that are interrupted, killed, repeated, spread over processes, or sent to a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pandas as pd
import pytest

from common.design_space import evaluation
from common.design_space.results.cache import FILE, ResultCache, default_folder
from models.__main__ import BUILDERS
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_stage

SCRIPT = "08_design_space.py"
TABLES = ("design_points", "design_budgets", "design_mappings", "design_groups")
SWEEP = ("--hardware", "fa-dosa", "--sweep", "buffer_kib=0.001,4,8,…,512")
COUNT = 9
LONG_SWEEP = ("--hardware", "fa-dosa", "--sweep", f"buffer_kib=0.001,{','.join(map(str, range(4, 84)))}")  # seconds
LONG_COUNT = 81


def counted(folder, name):
    """Write the tables of 02 of a tiny model."""
    model = folder / "m.onnx"
    model.write_bytes(BUILDERS[name]().SerializeToString())
    done = run_stage("02_shapes_flops_bytes.py", "--model", model, "--dim", "batch=1", "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return counted(tmp_path_factory.mktemp("tables"), "tiny-resnet8")


@pytest.fixture(scope="module")
def few_layers(tmp_path_factory):
    return counted(tmp_path_factory.mktemp("few"), "tiny-mlp")


def contents(folder):
    """The tables of the stage as they are written."""
    return {name: (folder / f"{name}.csv").read_bytes() for name in TABLES}


def run(tables, *flags):
    done = run_stage(SCRIPT, "--out", tables, *flags)
    assert done.returncode == 0, done.stderr
    return done, contents(tables)


@pytest.fixture
def searched(monkeypatch):
    """The designs that were searched in this process."""
    names, computed = [], evaluation.searched

    def noted(workload, design, **named):
        names.append(design.name)
        return computed(workload, design, **named)

    monkeypatch.setattr(evaluation, "searched", noted)
    return names


def design_names(cache):
    """The designs whose results are kept, read from the database by itself."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(cache / FILE)) as base:
        texts = [text for (text,) in base.execute("SELECT content FROM results")]
        values = [json.loads(text) for text in texts]
        points = [value["DesignResult"][0]["map"] for value in values if "DesignResult" in value]
        return {dict(map(tuple, (pair for pair in point if pair[0] == "design")))["design"] for point in points}
    return set()


# --- what earlier runs found ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sweep", [SWEEP, ("--sweep", "array=4x4,8x8"), ("--engine", "random", "--evaluations", "50")])
def test_a_repeated_command_computes_nothing_and_writes_the_same(few_layers, searched, sweep):
    tables = few_layers
    _, computed = run(tables, *sweep, "--cache-mb", 0)
    count = len(searched)
    first, kept = run(tables, *sweep)
    assert len(searched) == 2 * count
    again, known = run(tables, *sweep)
    assert len(searched) == 2 * count
    assert computed == kept == known
    assert "known from earlier runs" not in first.stdout
    assert again.stdout.endswith(f"\n{count} of {count} designs were known from earlier runs\n")
    assert again.stdout.startswith(first.stdout)


@pytest.mark.slow
def test_only_what_a_result_follows_from_decides_whether_it_is_known(tables, searched):
    run(tables, "--hardware", "fa-dosa", "--sweep", "buffer_kib=8,16")
    searched.clear()
    run(tables, "--hardware", "fa-dosa", "--sweep", "buffer_kib=16,32", "--objective", "log-sum")
    assert searched == ["fa-dosa buffer_kib=32"]
    searched.clear()
    run(tables, "--hardware", "fa-dosa", "--sweep", "buffer_kib=16", "--most-layers", 2)
    assert searched == ["fa-dosa buffer_kib=16"]


@pytest.mark.slow
def test_results_stand_where_they_are_wanted(few_layers, tmp_path, searched):
    run(few_layers, "--cache", tmp_path / "a" / "b")
    assert design_names(tmp_path / "a" / "b") == {"gemmini"}
    assert not default_folder().exists()
    run(few_layers)
    assert design_names(default_folder()) == {"gemmini"}
    assert len(searched) == 2


@pytest.mark.slow
def test_the_cache_is_no_larger_than_it_may_be(tables, tmp_path):
    run(tables, *SWEEP, "--cache", tmp_path, "--cache-mb", 256)
    cache = ResultCache(tmp_path)
    for number in range(40):
        cache.put(f"old{number}", "x" * 100_000)
    assert (tmp_path / FILE).stat().st_size > 3_000_000
    run(tables, *SWEEP, "--cache", tmp_path, "--cache-mb", 1)
    assert (tmp_path / FILE).stat().st_size <= 1_000_000


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_noted_and_costs_nothing_else(tables, tmp_path):
    (tmp_path / "file").touch()
    done, found = run(tables, *SWEEP, "--cache", tmp_path / "file")
    assert f"note: nothing is kept in {tmp_path / 'file'}: " in done.stderr
    _, computed = run(tables, *SWEEP, "--cache-mb", 0)
    assert found == computed


# --- several processes ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [2, pytest.param(3, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "sweep", [SWEEP, pytest.param(("--sweep", "array=4x4,8x8 scratchpad_kib=0.0001,32"), marks=pytest.mark.exhaustive)]
)
def test_any_number_of_jobs_writes_the_same_tables(few_layers, sweep, jobs, tmp_path):
    tables = few_layers
    _, one = run(tables, *sweep, "--cache-mb", 0)
    _, several = run(tables, *sweep, "--cache", tmp_path, "--jobs", jobs)
    assert several == one
    done, known = run(tables, *sweep, "--cache", tmp_path, "--jobs", jobs)
    assert known == one
    assert "designs were known" in done.stdout


# --- bad days -------------------------------------------------------------------------------------------------------


def started(tables, cache, *flags):
    """Start the stage as a process of its own group, and wait until it has kept some designs, but not all."""
    command = [sys.executable, SCRIPT, "--out", tables, "--cache", cache, *LONG_SWEEP, *flags]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(list(map(str, command)), cwd=ROOT, start_new_session=True, **streams)
    while len(design_names(cache)) < 3 and process.poll() is None:
        time.sleep(0.001)
    return process


def is_there(group):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_after_a_kill_the_same_command_computes_only_what_is_missing(tables, tmp_path, searched, jobs):
    _, expected = run(tables, *LONG_SWEEP, "--cache-mb", 0)
    searched.clear()
    for name in TABLES:
        (tables / f"{name}.csv").unlink()
    process = started(tables, tmp_path, "--jobs", jobs)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (tables / "design_points.csv").exists()
    kept = design_names(tmp_path)
    assert 3 <= len(kept) < LONG_COUNT
    done, found = run(tables, *LONG_SWEEP, "--cache", tmp_path)
    assert len(searched) == LONG_COUNT - len(kept)
    assert set(searched).isdisjoint(kept)
    assert found == expected
    assert f"{len(kept)} of {LONG_COUNT} designs were known from earlier runs" in done.stdout
    while is_there(process.pid):  # what a killed parent leaves ends by itself
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_ctrl_c_keeps_the_designs_that_are_finished(tables, tmp_path, searched, jobs):
    _, expected = run(tables, *LONG_SWEEP, "--cache-mb", 0)
    searched.clear()
    process = started(tables, tmp_path, "--jobs", jobs)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to all of them
    out, err = process.communicate()
    assert process.returncode == 0, err
    points = pd.read_csv(tables / "design_points.csv")
    assert 3 <= len(points) < LONG_COUNT
    assert "note: Ctrl-C ended the search" in err
    assert "Traceback" not in err
    assert out.startswith("fa-dosa buffer_kib=")
    for name in (*TABLES, "design_summary"):
        meta = json.loads((tables / f"{name}.meta.json").read_text())
        assert meta["incomplete"] == [f"{len(points)} of {LONG_COUNT} designs are finished"]
    while is_there(process.pid):  # its processes
        time.sleep(0.01)
    _, found = run(tables, *LONG_SWEEP, "--cache", tmp_path)
    assert set(searched).isdisjoint(points[points["is_complete"]]["design"])  # a search cut short is made again
    assert len(searched) >= LONG_COUNT - len(points)
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_cluster_that_is_not_there_is_one_line_and_keeps_the_tables(tables, name):
    _, before = run(tables, *SWEEP)
    flags = ("--cache-mb", 0, "--cluster", name, "--cluster-address", "127.0.0.1:1")
    done = run_stage(SCRIPT, "--out", tables, *SWEEP, *flags)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("08_design_space.py: error: --cluster: ")
    assert "127.0.0.1:1; start one, and give --cluster-address" in line or "is not installed; python -m pip" in line
    assert contents(tables) == before
