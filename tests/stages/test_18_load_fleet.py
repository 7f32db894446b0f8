"""Stage 18 on several models: one table with a row per model, and what a signal or a bad model leaves of it."""

import pandas as pd
import pytest

from common.load.fleet import ModelTask
from models.__main__ import BUILDERS
from tests.support.processes.command_lines import run_stage
from tests.support.processes.load_runs import document

SCRIPT = "18_load_fleet.py"

SHORT = ("--rate", "100", "--duration", "200ms", "--threads", "1")


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    for name in ("tiny-mlp", "tiny-cnn"):
        (folder / f"{name}.onnx").write_bytes(BUILDERS[name]().SerializeToString())
    (folder / "bad.onnx").write_bytes(b"no model")
    return [str(folder / f"{name}.onnx") for name in ("tiny-mlp", "tiny-cnn", "bad")]


@pytest.mark.slow
def test_each_model_has_a_row_and_a_bad_one_the_reason(paths, tmp_path):
    done = run_stage(SCRIPT, "--models", ",".join(paths), *SHORT, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "load_fleet.csv")
    assert table["model_file"].tolist() == paths
    assert table["validity"].tolist()[2] == "invalid" and table["sent_count"].tolist()[2] == 0
    assert (table["sent_count"][:2] == table["completed_count"][:2]).all() and (table["sent_count"][:2] > 5).all()
    assert table["hostname"].nunique() == 1
    assert done.stdout.count("\n") == 4 and "bad.onnx" in done.stdout
    drawn = run_stage("06_plots.py", "--out", tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert "tiny-cnn" in (tmp_path / "plots" / "fleet.svg").read_text()
    assert table["hostname"][0] in (tmp_path / "report.html").read_text()


def test_a_signal_leaves_the_models_that_were_measured(paths, tmp_path, monkeypatch):
    measured, names = ModelTask.measured, []

    def interrupted(self):
        if names:
            raise KeyboardInterrupt
        names.append(self.path)
        return measured(self)

    monkeypatch.setattr(ModelTask, "measured", interrupted)
    done = run_stage(SCRIPT, "--models", ",".join(paths), *SHORT, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(tmp_path / "load_fleet.csv")["model_file"].tolist() == paths[:1]
    incomplete = document(tmp_path / "load_fleet.meta.json")["incomplete"]
    assert incomplete == ["a signal ended the load tests: 1 of 3 models were measured"]


@pytest.mark.slow
def test_a_model_that_is_answered_too_rarely_has_an_exit_code(paths, tmp_path):
    done = run_stage(SCRIPT, "--models", paths[0], *SHORT, "--min-goodput", "1000", "--out", tmp_path)
    assert done.returncode == 4
    assert f"note: threshold broken: {paths[0]}: " in done.stderr and "--min-goodput is 1000" in done.stderr
    assert len(pd.read_csv(tmp_path / "load_fleet.csv")) == 1
