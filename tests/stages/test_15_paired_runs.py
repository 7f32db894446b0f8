"""Stage 15 through its command line: two small models that run in turn."""

from __future__ import annotations

import json
from itertools import count
from types import SimpleNamespace

import pandas as pd
import pytest
from onnx import helper

from common.sensors import other_work
from tests.support.models.onnx_models import model, weight
from tests.support.processes.command_lines import run_stage

SCRIPT = "15_paired_runs.py"


def compared(out, *flags):
    done = run_stage(SCRIPT, "--out", out, *flags)
    assert done.returncode == 0, done.stderr
    return done, pd.read_csv(out / "paired_comparison.csv", keep_default_na=False, na_values={"difference_share": [""]})


def latency(table):
    return table[table["compared_figure"] == "p50_us"].iloc[0]


def network(path, *, with_inserted=False):
    """A product, and in the changed network a node behind it."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="product")]
    nodes += [helper.make_node("Erf", ["h"], ["e"], name="inserted")] if with_inserted else []
    nodes.append(helper.make_node("Softmax", ["e" if with_inserted else "h"], ["y"], name="end"))
    path.write_bytes(model(nodes, {"x": (7, 11)}, {"y": (7, 13)}, {"w": weight(11, 13)}).SerializeToString())
    return path


TURNS = ("--runs", "11", "--warmup", "2", "--threads", "1")


def test_an_inserted_node_is_named_and_the_others_are_compared_in_pairs(tmp_path):
    models = network(tmp_path / "a.onnx"), network(tmp_path / "b.onnx", with_inserted=True)
    done, table = compared(tmp_path / "out", "--ab", *models, *TURNS)
    nodes = table[table["compared_kind"] == "node"].set_index("compared_subject")
    assert [*nodes.index] == ["product", "end", "inserted"]
    assert json.loads(nodes.loc["inserted", "candidate_nodes"]) == ["inserted"]
    assert nodes.loc["inserted", "baseline_nodes"] == "[]"
    assert nodes.loc["inserted", "verdict_reason"] == "only the candidate executes it"
    assert json.loads(nodes.loc["product", "source_nodes"]) == ["product"]
    kinds = table[table["compared_kind"] == "op_type"]["compared_subject"]
    assert sorted(kinds) == ["Erf", "MatMul", "Softmax"]  # the models differ
    row = latency(table)
    assert int(row["baseline_run_count"]) == int(row["candidate_run_count"]) <= 11
    assert "B (b.onnx)" in (tmp_path / "out/paired_comparison.md").read_text()
    assert "baseline: A (a.onnx)" in done.stdout


@pytest.mark.slow
def test_the_view_draws_the_differences_of_the_pair(tmp_path):
    models = network(tmp_path / "a.onnx"), network(tmp_path / "b.onnx", with_inserted=True)
    compared(out := tmp_path / "out", "--ab", *models, *TURNS)
    stacks = [line.split(" ") for line in (out / "paired_stacks.folded").read_text().splitlines()]
    assert {one[-3].rpartition(";")[2] for one in stacks} <= {"product", "end", "inserted"}
    done = run_stage("06_plots.py", "--out", out, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (out / "plots/paired_differences.svg").is_file()
    assert "Two models that ran in turn" in (out / "report.html").read_text()


def test_one_model_under_two_settings_differs_in_what_b_has(tmp_path):
    one = network(tmp_path / "a.onnx")
    done, table = compared(tmp_path / "out", "--ab", one, one, *TURNS, "--b-with", "optimization=disable")
    assert "differs: optimization: all against disable" in done.stdout
    assert {*table["compared_kind"]} == {"end_to_end", "node"}
    meta = json.loads((tmp_path / "out/paired_comparison.meta.json").read_text())
    assert meta["model_path"] == "a.onnx"


def test_a_busy_host_is_said_before_the_pairs_are(tmp_path, monkeypatch):
    """Between two readings of a system with 3 processors, 100 s of 300 s are busy with something else."""
    times = (SimpleNamespace(_fields=("user", "idle"), user=100 * step, idle=200 * step) for step in count())
    monkeypatch.setattr(other_work.psutil, "cpu_times", lambda: next(times))
    monkeypatch.setattr(other_work.psutil, "cpu_count", lambda: 3)
    monkeypatch.setattr(other_work.time, "process_time", lambda: 0.0)
    one = network(tmp_path / "a.onnx")
    done, table = compared(tmp_path / "out", "--ab", one, one, *TURNS)
    said = "the host was busy: other work took 1.0 of its 3 processors during the runs"
    assert done.stdout.splitlines()[1].startswith(said)
    assert done.stderr.count(said) == 1
    assert "busy" not in str(latency(table)["verdict_reason"])  # what moves both cancels: they are judged
    assert "the host was busy" in (tmp_path / "out/paired_comparison.md").read_text()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--b-with", "color=red"), "--b-with: 'color' is no setting; it takes threads, provider, optimization"),
        (("--b-with", "threads=many"), "--b-with: threads=many is no whole number"),
        (("--b-with", "threads=0"), "--b-with: threads=0 is no whole number above 0"),
        (("--b-with", "threads=-1"), "--b-with: threads=-1 is no whole number above 0"),
        (("--b-with", "optimization=most"), "--b-with: 'most' is no level"),
        (("--optimization", "most"), "--optimization: 'most' is no level"),
        (("--provider", "none"), "--provider: none is not in this build"),
    ],
)
def test_settings_of_a_pair_that_cannot_be_are_refused_in_one_line(tmp_path, flags, problem):
    one = network(tmp_path / "a.onnx")
    done = run_stage(SCRIPT, "--ab", one, one, *TURNS, *flags, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert problem in done.stderr


def test_without_models_nothing_is_measured(tmp_path):
    done = run_stage(SCRIPT, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--ab: is missing; give two models, or one model twice and --b-with" in done.stderr
