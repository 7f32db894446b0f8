"""Further sessions of a measurement, each in a new process: by how much one session differs from the next.

The place of its memory and of its threads moves all runs of a session alike, by a percent or more. The runs of one
session show nothing of that. So each further session is measured as the first one is, profiled runs between the
unprofiled ones, in a process of its own that begins when the one before has ended.

A process ends with the one that started it. Ctrl-C does not reach it. The time limit of runs holds there as here, and
its memory is bounded by what is free when it begins.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import numpy as np

from common.latency.steady_state import steady_state
from common.messages.errors import PipelineError
from common.process import interrupts
from common.process.free_memory import bounded_memory
from common.profiling.runs.loop import Budget, Progress, SessionPlan
from common.profiling.runs.measurement import Measurement, SessionRuns
from common.profiling.runs.one_session import timed_runs
from common.runtime.sessions.limits import limited_runs, time_limit_s
from common.table_rows import SessionLatencyRow

GONE = (EOFError, OSError)  # a pipe whose other end is closed


def with_more_sessions(
    measurement: Measurement, plan: SessionPlan, budget: Budget, count: int, new_bar: Callable[[str], Progress]
) -> Measurement:
    """Measure further sessions, one after the other, until a measurement has ``count`` of them.

    A failure of one is the failure of the measurement, which keeps its runs. The new bar hears of the number of
    sessions that are done, and of all.
    """
    progress = new_bar("sessions")
    while len(measurement.more) + 1 < count and not measurement.failure:
        progress(len(measurement.more) + 1, count)
        try:
            runs = _in_a_new_process(plan, budget)
            measurement = replace(measurement, more=(*measurement.more, runs), failure=runs.failure)
        except PipelineError as error:
            measurement = measurement.failed(error)
    return measurement


def session_rows(measurement: Measurement) -> list[SessionLatencyRow]:
    """Return the rows of session_latency: the runs of each further session, on the clock of the first one."""
    rows = [
        {
            "session_index": index,
            "run_index": run,
            "is_warmup": run < session.warmup_count,
            "start_us": 1e6 * (start_s - measurement.start_s),
            "latency_us": latency_us,
        }
        for index, session in enumerate(measurement.more, 1)
        for run, (start_s, latency_us) in enumerate(
            zip(session.starts_s.tolist(), session.latencies_us.tolist(), strict=True)
        )
    ]
    return cast("list[SessionLatencyRow]", rows)


def _in_a_new_process(plan: SessionPlan, budget: Budget) -> SessionRuns:
    """Return the runs of a session of another process; raise the error that it raised, or one if it is gone."""
    here, there = Pipe()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(there.fileno())],
        env=environment,
        pass_fds=[there.fileno()],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    there.close()
    try:
        here.send((plan, budget, time_limit_s()))
        answer: SessionRuns | PipelineError = here.recv()
    except GONE:
        problem = f"ended by itself (status {process.wait()}), perhaps because memory ran out"
        raise PipelineError("a process with a session", problem, "give fewer <sessions>") from None
    finally:
        process.kill()
        process.wait()
    if isinstance(answer, PipelineError):
        raise answer
    return answer


# --- in the other process -------------------------------------------------------------------------------------------


def _measured(plan: SessionPlan, budget: Budget) -> SessionRuns:
    """Return the runs of a session, of which those before its steady part do not count."""
    with tempfile.TemporaryDirectory() as folder:
        _, runs = timed_runs(plan, Path(folder), budget)
    latencies_us = np.array(runs.plain.latencies_us)
    warmup = max(runs.warmup, steady_state(latencies_us).start_index or 0)
    return SessionRuns(np.array(runs.plain.starts_s), latencies_us, warmup, runs.failure)


def _end_with(control: Connection) -> None:
    """End this process once the one that started it is gone."""
    with contextlib.suppress(*GONE):
        control.recv()
    os._exit(0)


def _serve(control: Connection) -> None:
    plan, budget, limit_s = control.recv()
    threading.Thread(target=_end_with, args=(control,), daemon=True).start()
    answer: SessionRuns | PipelineError
    with limited_runs(limit_s), bounded_memory():
        try:
            answer = _measured(plan, budget)
        except PipelineError as error:
            answer = error
    control.send(answer)


if __name__ == "__main__":
    interrupts.stderr_descriptor = os.open(os.devnull, os.O_WRONLY)  # the process that started this one says why
    _serve(Connection(int(sys.argv[1])))
