"""Settings of all tests, and fixtures that several folders share; what tests call stands in tests/support/."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import HealthCheck, settings

# On a machine whose cores are all busy, examples take as long as they take: time is not what a property test judges.
settings.register_profile("any_load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_load")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Run where there is no out/ of an earlier run; a test module that needs this asks for it by ``usefixtures``."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def out(tmp_path):
    """A folder for the tables of one test; it is not there yet."""
    return tmp_path / "tables"


@pytest.fixture
def load(tmp_path):
    """Save a model and load it as the stages do."""
    from common.onnx_graph.load import LoadedModel, load_model

    def loaded(proto, values=None, *, symbolic=False, **dims) -> LoadedModel:
        onnx.save(proto, tmp_path / "m.onnx")
        return load_model(tmp_path / "m.onnx", dims, values=values, symbolic=symbolic)

    return loaded
