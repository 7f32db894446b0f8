"""``--check``: a stage that works before it writes ends before that work, and leaves nothing."""

import importlib
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from models.small.tiny import build_tiny_mlp
from tests.support.processes.command_lines import run_stage


@pytest.mark.parametrize(
    ("script", "work", "flags"),
    [
        ("08_design_space.py", "searched", ("--hardware", "fa-dosa")),
        ("12_dashboard.py", "serve_live", ("--port", 0)),
    ],
)
def test_a_stage_ends_before_its_work(tmp_path, monkeypatch, script, work, flags):
    stage = importlib.import_module(script.removesuffix(".py"))
    monkeypatch.setattr(stage, work, lambda *_: pytest.fail("it works"))
    monkeypatch.setattr("common.monitor.server.serving.require_server", lambda: None)  # its packages are optional
    onnx.save(build_tiny_mlp(), tmp_path / "m.onnx")
    model = ("--model", tmp_path / "m.onnx", "--dim", "batch=1") if "12" in script else ()
    done = run_stage(script, "--check", "--out", tmp_path / "out", *model, *flags)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "out").exists()


LOAD_STAGES = (
    *("10_load_test.py", "14_load_search.py", "18_load_fleet.py", "19_endurance_test.py", "20_load_interference.py"),
    *("21_loadgen_scenario.py", "22_provider_comparison.py"),
)


def with_length(path: Path) -> Path:
    """Save a model of one operator, whose second dimension has no size."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "seq"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def check_load(script: str, folder: Path, *flags: str):
    """Check a load of a model with a length; LoadGen, which is optional, is taken for installed."""
    model = with_length(folder / "m.onnx")
    named = ("--models", model) if "18" in script else ("--model", model)
    other = ("--with", model, *(("--with-dim", "seq=7") if flags else ())) if "20" in script else ()
    return run_stage(script, "--check", "--out", folder / "out", *named, *other, *flags)


@pytest.mark.parametrize("script", LOAD_STAGES)
def test_the_check_of_a_load_finds_what_is_wrong_with_its_model_and_creates_no_session(tmp_path, monkeypatch, script):
    stage = importlib.import_module(script.removesuffix(".py"))
    monkeypatch.setattr("common.load.settings.prepare", lambda *_: pytest.fail("it creates sessions"))
    monkeypatch.setattr(stage, "require_loadgen", lambda: None, raising=False)
    unbound = check_load(script, tmp_path)
    assert unbound.returncode == 2
    assert "seq" in unbound.stderr
    assert "--dim seq=" in unbound.stderr
    unknown = check_load(script, tmp_path, "--dim", "seq=7", "--dim", "sq=3")
    assert unknown.returncode == 2
    assert "sq" in unknown.stderr
    bound = check_load(script, tmp_path, "--dim", "seq=7")
    assert (bound.returncode, bound.stdout, bound.stderr) == (0, "", "")
    assert not (tmp_path / "out").exists()
