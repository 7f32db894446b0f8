"""Settings of all tests, and fixtures that several folders share; what tests call stands in tests/support/."""

from __future__ import annotations

import signal
from hashlib import sha256

import onnx
import pytest
from hypothesis import HealthCheck, settings

import common  # noqa: F401  (it forbids telemetry, before a test imports onnxruntime itself)

# On a machine whose cores are all busy, examples take as long as they take: time is not what a property test judges.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A test says of one commit what it said before; `make test-random` looks for new examples.
settings.register_profile("repeatable", settings.get_profile("random"), derandomize=True)
settings.load_profile("repeatable")

# A shell starts what runs in the background with SIGINT ignored, and nohup with SIGHUP: the stages would keep that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


# A worker takes one module after another. The longest go first, so that none runs alone at the end.
LONGEST = (
    "test_nothing_leaves",
    "test_fuzz",
    "test_best_schedule",
    "test_optimum",
    "test_08_design_space",
    "test_07_fpga_candidates",
    "test_06_plots",
    "test_coverage_levels",
    "test_cli",
    "test_03_merge_profile_metrics",
)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    """Mark the tests of stages. Order the modules of tests by their time; within a module nothing moves."""
    for item in items:
        if "stages" in item.path.parts:
            item.add_marker(pytest.mark.stage)
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_session(tmp_path_factory):
    """Keep results of fixtures away from the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path_factory, request):
    """Let no test find what another one has computed."""
    own = sha256(request.node.nodeid.encode()).hexdigest()[:16]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "caches" / own))


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
