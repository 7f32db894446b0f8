"""Paths that are no text: the runtime takes none, and says so by a TypeError of its binding."""

import os

import pytest

from common.messages.errors import PipelineError
from common.runtime.sessions.session import SessionSettings, create_session
from models.small.tiny import build_tiny_mlp

ONE_THREAD = SessionSettings(1)
CONTENT = build_tiny_mlp().SerializeToString()


@pytest.fixture
def odd(tmp_path):
    (folder := tmp_path / os.fsdecode(b"\xff")).mkdir()
    return folder


@pytest.mark.parametrize("given", ["trace_prefix", "optimized"])
def test_a_file_that_a_session_writes(odd, given):
    with pytest.raises(PipelineError, match="ONNX Runtime takes only paths in UTF-8; use another folder"):
        create_session(CONTENT, ONE_THREAD, **{given: odd / "x"})


@pytest.mark.parametrize("content", [None, CONTENT])
def test_a_model_and_the_folder_of_its_weights(odd, content):
    (odd / "m.onnx").write_bytes(CONTENT)
    with pytest.raises(PipelineError, match="ONNX Runtime takes only paths in UTF-8"):
        create_session(odd / "m.onnx", ONE_THREAD, content=content)
