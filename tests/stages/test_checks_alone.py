"""``--check``: a stage that works before it writes ends before that work, and leaves nothing."""

import importlib

import onnx
import pytest

from models.small.tiny import build_tiny_mlp
from tests.support.command_lines import run_stage


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
    monkeypatch.setattr(stage, "require_server", lambda: None, raising=False)  # its packages are optional
    onnx.save(build_tiny_mlp(), tmp_path / "m.onnx")
    model = ("--model", tmp_path / "m.onnx") if "12" in script else ()
    done = run_stage(script, "--check", "--out", tmp_path / "out", *model, *flags)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "out").exists()
