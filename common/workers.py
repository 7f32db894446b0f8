"""Executors of independent calls: this process, processes of this machine, or a cluster of Dask or Ray that runs.

All of them are executors with futures. A cluster gets this project's code with the calls, so its workers need only
Python and the packages. joblib has backends for both clusters, too, but Ray's backend gives all results at the end, and
Dask's waits for ever if a worker has died.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar

from common.messages.errors import PipelineError, UnusableValueError
from common.process.code_version import code_version

CLUSTERS = ("dask", "ray")
SOURCES = ("common",)
PACKAGES = ("numpy", "onnx", "onnxruntime", "torch", "cma", "nevergrad", "optuna")  # that compute or measure
CONNECT_S = 5
WATCH_S = 0.5
PREFETCH = 2  # calls that each process has at a time; where many wait as loky ends, its thread prints a traceback
LOOK_S = 0.2  # between two looks whether the results are still wanted
INSTALL = "python -m pip install -r requirements-cluster.txt"
Result = TypeVar("Result")
Submit = Callable[..., "Future[Any]"]
Around = Callable[[], contextlib.AbstractContextManager[None]]


class WorkersLostError(PipelineError):
    """The executor is gone; its earlier results are kept."""


@dataclass(frozen=True, slots=True)
class Workers:
    processes: int = 1
    cluster: str = ""  # one of ``CLUSTERS``; empty for none
    address: str = ""  # of the cluster; empty: the environment variable names it

    def are_here(self, call_count: int) -> bool:
        return not self.cluster and min(self.processes, call_count) < 2

    def results(
        self,
        calls: Sequence[Callable[[], Result]],
        around: Around | None = None,
        is_ended: Callable[[], bool] = lambda: False,
    ) -> Generator[tuple[int, Result]]:
        """Yield the place of each call and its result, as they come.

        Args:
            around: returns what each call runs in, such as a cache in use; on a cluster there is none.
            is_ended: whether the calls that are left are not wanted any more.

        Raises:
            PipelineError: a call raised it, or a worker is gone.
            UnusableValueError: there is no such cluster.
        """
        if self.are_here(len(calls)):
            for place, call in enumerate(calls):
                if is_ended():
                    return
                with around() if around else contextlib.nullcontext():
                    result = call()
                yield place, result
        elif self.cluster:
            connect = {"dask": _dask, "ray": _ray}[self.cluster]
            yield from _from_futures(connect(self.address), calls, None, is_ended, len(calls))
        else:
            count = min(self.processes, len(calls))
            yield from _from_futures(_processes(count), calls, around, is_ended, PREFETCH * count)


def _from_futures(
    executor: contextlib.AbstractContextManager[Submit],
    calls: Sequence[Callable[[], Result]],
    around: Around | None,
    is_ended: Callable[[], bool],
    most_open: int,
) -> Iterator[tuple[int, Result]]:
    with executor as submit:
        waiting, version = iter(enumerate(calls)), _version()
        places: dict[Future[Any], int] = {}
        while not is_ended():
            for place, call in islice(waiting, most_open - len(places)):
                places[submit(_answer, call, around, version)] = place
            if not places:
                return
            for future in wait(places, LOOK_S, FIRST_COMPLETED).done:
                answer = future.result()
                if isinstance(answer, PipelineError):
                    raise answer
                yield places.pop(future), answer


def _version() -> str:
    """Return the identity of this project, and of the packages that it computes with."""
    return code_version(SOURCES, PACKAGES)


def _answer(call: Callable[[], Result], around: Around | None, version: str) -> Result | PipelineError:
    if _version() != version:
        problem = "a worker runs another version of this project, or of a package that computes"
        return WorkersLostError("<cluster>", problem, "give all workers the same packages, and start them anew")
    try:
        with around() if around else contextlib.nullcontext():
            return call()
    except PipelineError as error:
        return error


@contextlib.contextmanager
def _processes(count: int) -> Iterator[Submit]:
    """Yield a function that submits a call to processes of this machine; they end with the block."""
    # joblib is needed only where several tasks run at once.
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.backend import resource_tracker as loky_tracker

    for tracker in (loky_tracker, resource_tracker):
        tracker.ensure_running()  # now, because a tracker that starts lets Ctrl-C through again
    executor = get_reusable_executor(max_workers=count, initializer=_end_with, initargs=(os.getpid(),))

    def submit(*call: Any) -> Future[Any]:
        # Ctrl-C is sent to every process of a terminal. What starts while it is blocked never sees it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            future: Future[Any] = executor.submit(*call)
            return future
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield submit
    except BrokenExecutor as error:
        problem = "a process ended by itself, probably because memory ran out"
        raise WorkersLostError("<jobs>", problem, "start again with fewer; what was found is kept") from error
    finally:
        executor.shutdown(wait=True, kill_workers=True)


def _end_with(parent: int) -> None:
    """End this process soon after the process that started it, which may be killed before it can end others."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _dask(address: str) -> Iterator[Submit]:
    """Yield a function that submits a call to a running Dask cluster."""
    try:
        import dask
        from distributed import Client, KilledWorker
        from distributed.comm import CommClosedError
        from distributed.core import rpc
    except ImportError:
        raise _not_installed("dask") from None
    place = address or dask.config.get("scheduler-address", "")
    if not place:
        raise _no_cluster("no address is given", "DASK_SCHEDULER_ADDRESS")

    async def workers() -> Any:
        async with rpc(place) as scheduler:
            return (await scheduler.identity())["workers"]

    try:  # a client would wait longer, and complain as it ends
        known = asyncio.run(asyncio.wait_for(workers(), CONNECT_S))
    except (OSError, ValueError) as error:
        raise _no_cluster(f"no scheduler answers at {place}", "DASK_SCHEDULER_ADDRESS") from error
    if not known:
        raise UnusableValueError("cluster", f"{place} has no workers", "start some")
    with Client(place, set_as_default=False) as client:
        with _archive() as archive:
            client.upload_file(str(archive))
        try:
            yield lambda *call: client.get_executor(pure=False).submit(*call)
        except (KilledWorker, CommClosedError, CancelledError) as error:
            raise _lost(error) from error


@contextlib.contextmanager
def _ray(address: str) -> Iterator[Submit]:
    """Yield a function that submits a call to a running Ray cluster."""
    try:
        import ray
    except ImportError:
        raise _not_installed("ray") from None
    place = address or os.environ.get("RAY_ADDRESS", "auto")
    if place != "auto" and not _answers(place):
        raise _no_cluster(f"nothing answers at {place}", "RAY_ADDRESS")
    with tempfile.TemporaryDirectory() as folder:
        modules = Path(folder, "code")
        with _archive() as archive, zipfile.ZipFile(archive) as packed:
            packed.extractall(modules)
        try:
            code = {"py_modules": [str(modules / "common")]}
            ray.init(address=place, runtime_env=code, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _no_cluster(f"no cluster answers at {place}", "RAY_ADDRESS") from error
    answer = ray.remote(_answer)
    try:
        yield lambda _, *arguments: answer.remote(*arguments).future()
    except ray.exceptions.RayTaskError:  # what a call raised
        raise
    except ray.exceptions.RayError as error:
        raise _lost(error) from error
    finally:
        ray.shutdown()


def _answers(address: str) -> bool:
    host, _, port = address.rpartition("/")[-1].rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


@contextlib.contextmanager
def _archive() -> Iterator[Path]:
    """Yield an archive of this project's modules; its name differs with the version."""
    package = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"onnx_profile_{_version()[:16]}.zip")
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(package.rglob("*.py")):
                archive.write(file, file.relative_to(package.parent))
        yield path


def _not_installed(package: str) -> UnusableValueError:
    return UnusableValueError("cluster", f"the package {package} is not installed", INSTALL)


def _no_cluster(problem: str, variable: str) -> UnusableValueError:
    return UnusableValueError("cluster", problem, f"start one, and give <cluster_address> or set {variable}")


def _lost(error: BaseException) -> WorkersLostError:
    problem = f"the cluster lost a worker or its scheduler ({type(error).__name__})"
    return WorkersLostError("<cluster>", problem, "start again; what was found is kept")
