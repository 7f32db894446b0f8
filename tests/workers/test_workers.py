"""Calls that are computed in this process, in processes of this machine, and on clusters that are started here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import onnx
import pytest

from common.design_space.accelerator.hardware import NothingFitsError
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.results.cache import ResultCache
from common.load.fleet import ModelTask, tasks_of
from common.load.requests.batching import BatchPolicy
from common.load.requests.demand import Demand
from common.load.service.served_model import SessionShape
from common.messages.errors import PipelineError, UnusableValueError
from common.runtime.sessions.session import SessionSettings
from common.workers import Workers, WorkersLostError
from models.__main__ import BUILDERS
from tests.support.paths import CONFIGS

WHO = partial(subprocess.check_output, ["sh", "-c", "sleep 0.2; echo $PPID"])  # the process that computes
WHERE = partial(eval, "__import__('common').__file__")
ADDRESSES = {"dask": "DASK_SCHEDULER_ADDRESS", "ray": "RAY_ADDRESS"}


def powers(workers, count=9, cache=None):
    return sorted(workers.results([partial(pow, 3, exponent) for exponent in range(count)], cache and cache.in_use))


EXPECTED = [(exponent, 3**exponent) for exponent in range(9)]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_any_number_of_processes_gives_the_same(tmp_path, count):
    assert powers(Workers(count)) == powers(Workers(count), cache=ResultCache(tmp_path)) == EXPECTED
    assert powers(Workers(count), 0) == []


def test_one_process_needs_no_other_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)  # an import would fail
    assert powers(Workers(1)) == EXPECTED
    assert powers(Workers(2), 1) == EXPECTED[:1]  # one task needs one process


@pytest.mark.slow
def test_two_processes_compute_and_end():
    pids = {int(pid) for _, pid in Workers(2).results([WHO] * 4, None)}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def no_room():
    """A call that refuses an accelerator."""
    hardware = load_hardware("gemmini", CONFIGS / "hardware")
    return partial(hardware.resized, None, None, {"scratchpad": 0.0001})


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_an_error_of_a_call_arrives_as_it_is(count):
    with pytest.raises(NothingFitsError, match=r"<scratchpad_kib>: holds .* below one tile; give a larger memory"):
        list(Workers(count).results([no_room()] * 2, None))
    with pytest.raises(ValueError, match="invalid literal"):  # a bug stays one
        list(Workers(count).results([partial(int, "x")] * 2, None))


@pytest.mark.parametrize("error", [NothingFitsError("a, b", "problem", "remedy"), PipelineError("s", "p", "r")])
def test_an_error_goes_through_a_pipe(error):
    import pickle

    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))


@pytest.mark.slow
def test_a_process_that_dies_is_named():
    calls = [partial(time.sleep, 0.01), partial(os.kill, 0, signal.SIGCONT), partial(os.abort)] * 2
    with pytest.raises(WorkersLostError, match="a process ended by itself"):
        list(Workers(2).results(calls, None))


@pytest.mark.slow
def test_whoever_takes_no_more_results_ends_the_processes():
    results = Workers(2).results([WHO, *[partial(time.sleep, 60)] * 3], None)
    begin = time.monotonic()
    _, pid = next(results)
    results.close()
    assert not Path(f"/proc/{int(pid)}").exists()
    assert time.monotonic() - begin < 50  # nobody waits for the sleepers


# --- clusters -------------------------------------------------------------------------------------------------------

DIE_ONCE = """
import os, pathlib, sys
mark = pathlib.Path(sys.argv[1])
if not mark.exists():
    mark.touch()
    os.kill(os.getppid(), 9)
"""
DASK = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    options = {"dashboard_address": None, "host": "127.0.0.1"}
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **options) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture(scope="module")
def dask_address(tmp_path_factory):
    """A scheduler and two workers, each a process, none of which can import this project."""
    pytest.importorskip("distributed", reason="the package distributed (requirements-cluster.txt) is not installed")
    folder = tmp_path_factory.mktemp("dask")
    (folder / "cluster.py").write_text(DASK)
    command = [sys.executable, "-P", "cluster.py"]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=own_environment(), **streams) as process:
        yield process.stdout.readline().strip()
        process.stdin.close()


def own_environment():
    """The environment without this project."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def ray_address(tmp_path_factory):
    """The head of a cluster with two processors."""
    pytest.importorskip("ray", reason="the package ray (requirements-cluster.txt) is not installed")
    folder = tmp_path_factory.mktemp("ray")
    port = 20_000 + os.getpid() % 10_000
    ray = str(Path(sys.executable).with_name("ray"))
    start = [ray, "start", "--head", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
    start += ["--disable-usage-stats", f"--temp-dir={folder}"]
    subprocess.run(start, check=True, cwd=folder, env=own_environment(), capture_output=True)
    yield f"127.0.0.1:{port}"
    subprocess.run([ray, "stop", "--force"], check=True, capture_output=True)


@pytest.fixture(scope="module", params=ADDRESSES)
def cluster(request):
    return Workers(1, request.param, request.getfixturevalue(f"{request.param}_address"))


@pytest.mark.slow
def test_two_workers_of_a_cluster_compute(cluster):
    assert powers(cluster) == EXPECTED
    pids = {int(pid) for _, pid in cluster.results([WHO] * 8, None)}
    assert len(pids) == 2
    assert os.getpid() not in pids


@pytest.mark.slow
def test_a_worker_gets_the_code_with_the_calls(dask_address):  # Ray's on this machine also see where the driver looks
    ((_, path),) = Workers(1, "dask", dask_address).results([WHERE], None)
    assert not path.startswith(str(Path(__file__).parents[2]))


@pytest.mark.slow
def test_the_usual_variable_names_a_cluster_too(cluster, monkeypatch):
    monkeypatch.setenv(ADDRESSES[cluster.cluster], cluster.address)
    if cluster.cluster == "dask":  # it reads its environment once
        import dask

        monkeypatch.setitem(dask.config.config, "scheduler-address", cluster.address)
    assert powers(Workers(1, cluster.cluster)) == EXPECTED


@pytest.mark.slow
def test_an_error_of_a_worker_arrives(cluster):
    with pytest.raises(NothingFitsError, match="below one tile"):
        list(cluster.results([no_room()], None))
    with pytest.raises(ZeroDivisionError):
        list(cluster.results([partial(divmod, 1, 0)], None))


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(cluster, tmp_path):
    mark = tmp_path / "mark"
    calls = [partial(subprocess.check_call, [sys.executable, "-c", DIE_ONCE, str(mark)]), *[partial(pow, 2, 3)] * 3]
    assert sorted(cluster.results(calls, None)) == [(0, 0), (1, 8), (2, 8), (3, 8)]
    assert mark.exists()


@pytest.mark.slow
def test_a_worker_measures_a_model_whose_files_it_does_not_have(cluster, tmp_path):
    path = tmp_path / "apart.onnx"
    onnx.save_model(BUILDERS["tiny-mlp"](), path, save_as_external_data=True, size_threshold=0, location="apart.bin")
    settings = Demand(50.0, 0.5, seed=3), BatchPolicy(), SessionShape(1, SessionSettings(1))
    tasks = tasks_of([path] * 2, [{}] * 2, ModelTask(Path(), {}, {}, {}, *settings), is_sent=True)
    path.unlink()
    (tmp_path / "apart.bin").unlink()
    rows = dict(cluster.results([task.measured for task in tasks]))
    assert {*rows} == {0, 1}
    for row in rows.values():
        assert row["hostname"] == socket.gethostname() and row["failed_count"] == 0, row["validity_reason"]
        assert row["sent_count"] == row["completed_count"] > 5


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no-such-host.invalid:8786", "not an address"])
@pytest.mark.parametrize("name", ADDRESSES)
def test_a_cluster_that_is_not_there_is_one_line(name, address):
    pytest.importorskip({"dask": "distributed", "ray": "ray"}[name], reason=f"{name} is not installed")
    begin = time.monotonic()
    with pytest.raises(UnusableValueError, match=r"answers at .*; start one, and give <cluster_address> or set "):
        powers(Workers(1, name, address))
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(("name", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_package_that_is_missing_is_named(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnusableValueError, match=f"the package {name} is not installed; .*requirements-cluster.txt"):
        powers(Workers(1, name, "127.0.0.1:1"))
