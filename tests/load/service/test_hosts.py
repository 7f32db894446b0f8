"""Sessions in processes of their own: the same answers, failures that arrive, and processes that end."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from common.load.generator.wall_clock import serve
from common.load.requests.batching import BatchPolicy
from common.load.requests.load_record import Batch
from common.load.requests.sources import ClosedLoop
from common.load.service import hosts
from common.load.service.concurrency import Concurrency
from common.load.service.hosts import open_service
from common.load.service.sessions import ServicePlan, SessionService, warm_up
from common.messages.errors import PipelineError
from common.runtime.sessions.limits import limited_runs
from common.runtime.sessions.session import SessionSettings
from common.runtime.sessions.thread_pools import ThreadPools
from common.runtime.sessions.threads import available_processors
from models.__main__ import BUILDERS
from tests.support.models.endless_models import endless_loop
from tests.support.paths import ROOT

PROCESSES, SHARED = Concurrency(workers="processes"), Concurrency(pool="shared", spinning="always")
NEVER_NS, MOST_S = 10**15, 60.0


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    path = tmp_path_factory.mktemp("hosts") / "mlp.onnx"
    path.write_bytes(BUILDERS["tiny-mlp"]().SerializeToString())
    return path


def plan_of(model, concurrency, sessions=2, threads=1, replicas=1):
    samples = [{"input": np.zeros((1, 13), np.float32)}]
    return ServicePlan(model, concurrency.settings_of(sessions, SessionSettings(threads)), samples, {}, replicas)


def opened(model, concurrency, *args, **kwargs):
    return open_service(plan_of(model, concurrency, *args), concurrency, **kwargs)


def pids(service):
    return [host.process.pid for host in service._hosts]


def is_there(pid):
    """Whether a process runs; one that ended, and that nobody has waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def comes(condition):
    """Whether something comes to pass, soon or, on a starved machine, late."""
    end_s = time.monotonic() + MOST_S
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.01)
    return condition()


@pytest.mark.slow
def test_the_time_limit_ends_a_run_in_another_process(tmp_path):
    onnx.save(endless_loop(10**15), path := tmp_path / "loop.onnx")
    samples = [{"x": np.zeros(3, np.float32)}]
    with limited_runs(0.02):
        service = open_service(ServicePlan(path, [SessionSettings(1)], samples, {}), PROCESSES)
        with pytest.raises(PipelineError, match=r"loop.onnx: a run took more than 0.02 s and was ended"):
            service.run(0, Batch(0, range(1), 1, 0))
        service.close()


# A process in whose runs a node hears of no end.
STUCK = """
import runpy
from common.process import interrupts
from common.runtime.sessions.limits import RuntimeCall
interrupts.GRACE_S = 0.01
RuntimeCall.end = lambda self: None
runpy.run_module("common.load.service.hosts", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
def test_a_process_with_a_node_that_does_not_end_is_explained_in_one_line(tmp_path, monkeypatch, capfd):
    onnx.save(endless_loop(10**15), path := tmp_path / "loop.onnx")
    (tmp_path / "stuck.py").write_text(STUCK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(hosts, "__name__", "stuck")  # the module that the process runs
    with limited_runs(0.02):
        service = open_service(ServicePlan(path, [SessionSettings(1)], [{"x": np.zeros(3, np.float32)}], {}), PROCESSES)
        with pytest.raises(PipelineError, match=r"a run took more than <run_timeout>, amid a node that does not end"):
            service.run(0, Batch(0, range(1), 1, 0))
        service.close()
    assert capfd.readouterr().err == ""


def tasks(service):
    """Numbers of the threads of the first process."""
    return [int(path.name) for path in Path(f"/proc/{pids(service)[0]}/task").iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize(("concurrency", "processes"), [(PROCESSES, 3), (SHARED, 1)])
def test_all_batches_are_served_in_other_processes(mlp, concurrency, processes):
    service = opened(mlp, concurrency, 3, 1, 2)
    assert len({*pids(service)} - {os.getpid()}) == processes
    assert service.worker_count == 6 and service.inputs.batched == {"input"}
    policy = BatchPolicy(most=4)
    warm_up(service, policy, 0)
    record = serve(ClosedLoop(24, NEVER_NS, most_requests=240), service, policy)
    assert record.counts["completed"] == 240
    assert {*record.batches.workers.tolist()} <= {*range(6)}
    assert (record.batches.stages_ns > 0).all()
    assert (record.batches.stages_ns.sum(axis=1) <= record.batches.ended_ns - record.batches.started_ns).all()
    service.close()
    assert not any(map(is_there, pids(service)))


@pytest.mark.slow
def test_the_usual_sessions_stay_in_this_process_unless_compared(mlp):
    assert isinstance(opened(mlp, Concurrency()), SessionService)
    (pid,) = pids(service := opened(mlp, Concurrency(), is_hosted=True))
    service.close()
    assert pid != os.getpid()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux alone lists the threads of a process")
def test_a_shared_pool_replaces_those_of_the_sessions(mlp):
    """Of n threads the runtime starts n - 1: the caller is one of them."""

    def thread_count(concurrency, sessions, threads):
        service = opened(mlp, concurrency, sessions, threads, is_hosted=True)
        count = len(tasks(service))
        service.close()
        return count - sessions  # each has a thread that serves it

    bare = thread_count(Concurrency(), 1, 1)
    assert thread_count(Concurrency(), 3, 4) == bare + 3 * (4 - 1)
    assert thread_count(SHARED, 3, 4) == bare + 3 * 4 - 1
    assert thread_count(replace(SHARED, inter_threads=3), 3, 4) == bare + 3 * 4 - 1 + 3 - 1


@pytest.mark.slow
@pytest.mark.skipif(len(available_processors()) < 2, reason="each thread needs a processor of its own")
def test_threads_and_their_caller_stay_where_they_are_put(mlp):
    first, last = available_processors()[0], available_processors()[-1]
    settings = SessionSettings(3, pools=ThreadPools(processors=(first, last, last)))
    service = open_service(replace(plan_of(mlp, PROCESSES), sessions=[settings]), PROCESSES)
    service.run(0, Batch(0, [0], 1, 0))

    def places():  # each thread of the pool pins itself, some time after the session was created
        return [os.sched_getaffinity(task) for task in tasks(service)]

    assert comes(lambda: places().count({last}) == 2)
    assert places().count({first}) == 1
    service.close()


def test_calls_that_pin_their_thread_leave_the_others_alone(mlp):
    before = os.sched_getaffinity(0)
    settings = SessionSettings(1, pools=ThreadPools(processors=(available_processors()[-1],)))
    service = replace(plan_of(mlp, Concurrency()), sessions=[settings]).opened()
    warm_up(service, BatchPolicy(), 0)
    assert os.sched_getaffinity(0) == before
    record = serve(ClosedLoop(3, NEVER_NS, most_requests=30), service, BatchPolicy())
    assert record.counts["completed"] == 30
    assert os.sched_getaffinity(0) == before


def test_a_model_that_is_refused_there_says_why(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(PipelineError, match=r"model\.onnx: ONNX Runtime refuses it"):
        opened(tmp_path / "model.onnx", PROCESSES)


@pytest.mark.slow
def test_a_failing_run_arrives_and_the_service_goes_on(mlp):
    plan = replace(plan_of(mlp, PROCESSES, 1), samples=[{"input": np.zeros((1, 11), np.float32)}])
    service = open_service(plan, PROCESSES)
    for _ in range(2):
        with pytest.raises(PipelineError, match="ONNX Runtime fails to run it"):
            service.run(0, Batch(0, [0], 1, 0))
    service.close()


@pytest.mark.slow
def test_what_a_dead_process_does_not_answer_has_failed(mlp):
    service = opened(mlp, PROCESSES, 1)
    answer = service.run

    def dying(worker, batch):
        if batch.index == 7:
            os.kill(pids(service)[0], signal.SIGKILL)
        return answer(worker, batch)

    service.run = dying
    record = serve(ClosedLoop(3, NEVER_NS, most_requests=30), service, BatchPolicy())
    assert len(record) == 30 == sum(record.counts.values())
    assert record.counts["completed"] in (7, 8)  # the signal may come after the answer
    assert record.counts["failed"] == 30 - record.counts["completed"]
    assert any("ended by itself" in reason for reason in record.failures)


@pytest.mark.slow
def test_a_run_is_stopped_in_its_process(tmp_path):
    onnx.save(endless_loop(), path := tmp_path / "loop.onnx")
    samples = [{"x": np.zeros((1,), np.float32), "count": np.array(10**15)}]
    service = open_service(ServicePlan(path, [SessionSettings(1)], samples, {}), PROCESSES)
    ended = threading.Event()

    def stop():
        while not ended.wait(0.01):  # the run may not have begun at the first call
            service.give_up(0)

    watch = threading.Thread(target=stop)
    watch.start()
    with pytest.raises(PipelineError, match="ONNX Runtime fails to run it"):
        service.run(0, Batch(0, [0], 1, 0))
    ended.set()
    watch.join()
    service.close()


@pytest.mark.slow
def test_a_service_that_nobody_holds_ends_its_processes(mlp):
    found = pids(opened(mlp, PROCESSES))
    gc.collect()
    assert not any(map(is_there, found))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups")
def test_processes_end_with_the_one_that_started_them(mlp):
    """Even where that one is killed and can do nothing about it."""
    code = (
        "import sys, time; import tests.load.service.test_hosts as t; from pathlib import Path\n"
        "service = t.opened(Path(sys.argv[1]), t.PROCESSES)\n"
        "print(*t.pids(service), flush=True); time.sleep(1000)"
    )
    streams = {"stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    with subprocess.Popen([sys.executable, "-c", code, str(mlp)], **streams) as process:
        found = [int(pid) for pid in process.stdout.readline().split()]
        assert len(found) == 2 and all(map(is_there, found))
        process.kill()
    assert comes(lambda: not any(map(is_there, found)))
