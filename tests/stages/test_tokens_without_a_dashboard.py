"""Scripts that post tokens, where nothing takes them: these tests need no package of the dashboard."""

from __future__ import annotations

import importlib

import pytest

from common.messages.errors import UnusableValueError
from models.__main__ import BUILDERS, save


@pytest.mark.parametrize(
    ("script", "table", "flags"),
    [
        ("26_generation", "generation_summary.json", ("--prompt", "5", "--tokens", "4")),
        ("27_token_streams", "stream_summary.json", ("--duration", "100ms")),
    ],
)
def test_without_a_dashboard_the_load_does_not_begin(tmp_path, script, table, flags):
    save(BUILDERS["tiny-decoder"](), tmp_path / "m.onnx")
    (tmp_path / "dashboard.token").write_text("secret-" * 6)
    common = ("--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path), "--post", "http://127.0.0.1:9")
    with pytest.raises(UnusableValueError, match="no answer"):
        importlib.import_module(script).main([*common, *flags])
    assert not (tmp_path / table).exists()
