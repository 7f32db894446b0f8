"""Sessions in processes of their own: a service here whose batches are served there.

Each worker here has a pipe to a thread there, which copies the requests into a batch and runs it, as
:class:`~common.load.service.sessions.SessionService` does. Requests are sent by their numbers: like any server, a
process receives its own inputs. What the way there and back takes is within the time of the batch, beside its stages.

A process ends with the service that it belongs to, and with the process that started it. Ctrl-C does not reach it. The
time limit of runs holds there as here, and its memory is bounded by what is free when it begins.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from common.load.requests.load_record import Batch
from common.load.service.concurrency import Concurrency
from common.load.service.sessions import Inputs, ServicePlan, SessionService
from common.messages.errors import PipelineError
from common.process import interrupts
from common.process.free_memory import bounded_memory
from common.runtime.sessions.limits import limited_runs, time_limit_s

ENDLESS = 1  # status of a process that the time limit ended (:mod:`common.runtime.sessions.limits`)
GONE = (EOFError, OSError)  # a pipe whose other end is closed


def open_service(
    plan: ServicePlan, concurrency: Concurrency, *, is_hosted: bool = False
) -> SessionService | HostedService:
    """Create the sessions of a plan, in this process or in others.

    Args:
        concurrency: whether they need other processes.
        is_hosted: let them have other processes in any case, so that each one pays the same for the way there.

    Raises:
        PipelineError: the runtime refuses the model.
    """
    if not (concurrency.is_hosted or is_hosted):
        return plan.opened()
    apart = concurrency.workers == "processes"
    return HostedService([replace(plan, sessions=[one]) for one in plan.sessions] if apart else [plan])


class _Host(NamedTuple):
    """A process with sessions: its control, and a pipe per worker."""

    process: subprocess.Popen[bytes]
    control: Connection
    workers: Sequence[Connection]


class HostedService:
    """A service whose sessions live in other processes, one per plan. PipelineError: the model is refused."""

    def __init__(self, plans: Sequence[ServicePlan]) -> None:
        self.stages = plans[0].stages
        self._hosts = [_started(len(plan.sessions) * plan.replicas) for plan in plans]
        self._end = weakref.finalize(self, _end, self._hosts)
        for host, plan in zip(self._hosts, plans, strict=True):
            host.control.send((plan, time_limit_s()))
        batched = [_answer(host, host.control) for host in self._hosts]
        self.inputs = Inputs(plans[0].samples, batched[0], plans[0].variable)
        self._places = [(host, index) for host in self._hosts for index in range(len(host.workers))]
        self._turns = [threading.Lock() for _ in self._places]
        self.worker_count = len(self._places)

    def run(self, worker: int, batch: Batch) -> Sequence[int]:
        """Let the worker's process serve a batch; return what its stages took there in ns.

        Raises:
            PipelineError: the run fails there, or the process is gone.
        """
        host, index = self._places[worker]
        pipe = host.workers[index]
        with self._turns[worker]:  # the thread of a call that was given up still waits for its answer
            with contextlib.suppress(*GONE):  # the answer says that it is gone
                pipe.send(batch)
            stages_ns: Sequence[int] = _answer(host, pipe)
        return stages_ns

    def give_up(self, worker: int) -> None:
        """Ask the process to stop the worker's run after its current node."""
        host, index = self._places[worker]
        with contextlib.suppress(*GONE):
            host.control.send(index)

    def close(self) -> None:
        self._end()


def _started(worker_count: int) -> _Host:
    pairs = [Pipe() for _ in range(worker_count + 1)]
    there = [str(pipe.fileno()) for _, pipe in pairs]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    command = [sys.executable, "-m", __name__, *there]
    process = subprocess.Popen(
        command, env=environment, pass_fds=[*map(int, there)], stdin=subprocess.DEVNULL, start_new_session=True
    )
    for _, pipe in pairs:
        pipe.close()
    control, *workers = (pipe for pipe, _ in pairs)
    return _Host(process, control, workers)


def _answer(host: _Host, pipe: Connection) -> Any:
    """Return what a process answers; raise the PipelineError that it answers, or one because it is gone."""
    try:
        answer = pipe.recv()
    except GONE:
        status = host.process.wait()
        if status == ENDLESS:
            problem = "ended itself: a run took more than <run_timeout>, amid a node that does not end"
            raise PipelineError("a process with sessions", problem, "give inputs that let it end") from None
        problem = f"ended by itself (status {status}), perhaps because memory ran out"
        raise PipelineError("a process with sessions", problem, "start fewer of them") from None
    if isinstance(answer, PipelineError):
        raise answer
    return answer


def _end(hosts: Sequence[_Host]) -> None:
    for host in hosts:
        host.process.kill()
    for host in hosts:
        host.process.wait()


# --- in the other process -------------------------------------------------------------------------------------------


def _serve(service: SessionService, worker: int, pipe: Connection) -> None:
    with contextlib.suppress(*GONE):
        while True:
            batch: Batch = pipe.recv()
            try:
                pipe.send(service.run(worker, batch))
            except PipelineError as error:
                pipe.send(error)


def _host(control: Connection, workers: Sequence[Connection]) -> None:
    """Open the plan that comes, and serve it until nobody is there any more."""
    plan, limit_s = control.recv()
    with limited_runs(limit_s), bounded_memory():
        try:
            service = plan.opened()
        except PipelineError as error:
            control.send(error)
            return
        for worker, pipe in enumerate(workers):
            threading.Thread(target=_serve, args=(service, worker, pipe), daemon=True).start()
        control.send(service.inputs.batched)
        with contextlib.suppress(*GONE):
            while True:
                service.give_up(control.recv())


if __name__ == "__main__":
    interrupts.stderr_descriptor = os.open(os.devnull, os.O_WRONLY)  # the process that started this one says why
    first, *others = (Connection(int(number)) for number in sys.argv[1:])
    _host(first, others)
    os._exit(0)  # a run that cannot be stopped would hold the process
