"""How a session uses its threads: nodes at once, spinning, processors, and whether it shares a pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from common.messages.errors import PipelineError, UnusableValueError
from common.runtime.library import ort
from common.runtime.providers.provider_table import CPU
from common.runtime.sessions.threads import available_processors

EXECUTIONS = ("sequential", "parallel")
INTER_THREADS = 3  # of parallel execution that names none: two nodes at once
Spinning = Literal["runs", "always", "never"]
_SPINNING = {  # entries of a session; the runtime's own default is to spin always
    # An idle pool that spins takes processors from the other session and doubles its latency.
    "runs": {"session.force_spinning_stop": "1"},
    "always": {"session.intra_op.allow_spinning": "1", "session.inter_op.allow_spinning": "1"},
    "never": {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"},
}
NO_EFFECT = "has no effect on sequential execution"
AFFINITIES = "session.intra_op_thread_affinities"
_shared: list[tuple[int, int]] = []  # sizes of this process's shared pools, once there are some


@dataclass(frozen=True, slots=True, order=True)
class ThreadPools:
    """The behaviour of a session's threads; their number is a setting of its own."""

    # Threads of parallel execution: the caller, which waits, and those that compute different nodes at once; 0: one
    # node at a time
    inter_threads: int = 0
    spinning: Spinning = "runs"  # whether threads without work spin: while a run lasts, always, or never
    shared_threads: int = 0  # threads of the pool that all sessions of this process share; 0: the session has a pool
    processors: tuple[int, ...] = ()  # processor of each thread of the session, the calling thread first; empty: any

    def enter(self, options: ort.SessionOptions, threads: int) -> None:
        """Set the options of a session of so many threads; the first one with a shared pool creates that pool.

        Raises:
            PipelineError: this process has a shared pool of another size, which can never be replaced.
            UnusableValueError: a processor is not among those of this process.
        """
        if self.inter_threads:
            options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
            options.inter_op_num_threads = self.inter_threads
        for name, value in _SPINNING[self.spinning].items():
            options.add_session_config_entry(name, value)
        options.use_per_session_threads = not self.shared_threads
        options.intra_op_num_threads = 0 if self.shared_threads else threads
        if self.shared_threads:
            _share(self.shared_threads, self.inter_threads)
        if others := _known(self.processors)[1:]:  # the runtime counts processors from 1, and leaves the caller to us
            options.add_session_config_entry(AFFINITIES, ";".join(str(processor + 1) for processor in others))


USUAL_POOLS = ThreadPools()


def inter_threads_of(execution: str, wanted: int | None, provider: str) -> int:
    """Return the threads of parallel execution; 0 in sequential execution.

    Raises:
        UnusableValueError: the execution is sequential and threads are wanted, or another provider than the CPU's
            computes.
    """
    if execution == "sequential":
        if wanted is not None:
            raise UnusableValueError("inter_threads", NO_EFFECT, "give <execution> parallel")
        return 0
    if provider != CPU:
        raise UnusableValueError("execution", not_parallel(provider), "give <execution> sequential")
    return wanted or INTER_THREADS


def not_parallel(provider: str) -> str:
    return f"parallel is for the CPU alone; with {provider} ONNX Runtime may compute one node at a time"


def _share(threads: int, inter_threads: int) -> None:
    """Create the shared pools of this process, or check that they are those that exist."""
    if not _shared:
        ort.set_global_thread_pool_sizes(threads, max(1, inter_threads))
        _shared.append((threads, inter_threads))
    if _shared[0] != (threads, inter_threads):
        raise PipelineError(
            "the shared thread pool", f"has {_shared[0][0]} threads, which cannot be changed", "use another process"
        )


def _known(processors: tuple[int, ...]) -> tuple[int, ...]:
    """Return the processors; the runtime would only log that it cannot use one."""
    if missing := {*processors} - {*available_processors()}:
        problem = f"processor {min(missing)} is not among those of this process"
        raise UnusableValueError("affinity", problem, "leave it out")
    return processors
