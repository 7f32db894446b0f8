"""The matrix of providers on a real model: the CPU agrees with itself, and what is not there is said."""

import numpy as np
import pytest

from common.messages.errors import PipelineError
from common.runtime import provider_matrix as matrix
from common.runtime.providers.provider_table import CPU
from common.runtime.sessions.session import SessionSettings
from models.small.tiny import build_tiny_mlp


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "tiny-mlp.onnx"
    path.write_bytes(build_tiny_mlp().SerializeToString())
    return path


@pytest.fixture
def feeds(model):
    session = matrix.create_session(model, SessionSettings(1))
    random = np.random.default_rng(0)
    return {
        one.name: random.standard_normal([3 if isinstance(n, str) else n for n in one.shape], dtype=np.float32)
        for one in session.get_inputs()
    }


def test_the_cpu_agrees_with_itself_and_others_are_compared(model, feeds):
    rows = matrix.provider_matrix(model, SessionSettings(1), feeds)
    first = rows[0]
    assert (first["compared_provider"], first["provider_problem"]) == (CPU, "")
    assert (first["max_abs_error"], first["max_rel_error"]) == (0.0, 0.0)
    assert first["cosine_error"] == pytest.approx(0.0, abs=1e-9)
    assert first["call_us"] > 0
    offered = {row["compared_provider"] for row in rows}
    assert offered == {*matrix.offered_providers()}


def test_a_provider_that_cannot_run_has_its_reason(model, feeds):
    rows = matrix.provider_matrix(model, SessionSettings(1), feeds, [CPU, "CUDAExecutionProvider"])
    assert [row["compared_provider"] for row in rows][-1] == "CUDAExecutionProvider"
    assert rows[-1]["provider_problem"]
    assert rows[-1]["max_abs_error"] is None


def test_a_model_that_the_cpu_refuses_ends_it(tmp_path):
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(PipelineError, match="refuses"):
        matrix.provider_matrix(path, SessionSettings(1), {})
