"""How sessions share a host: threads or processes, pools, nodes at once, spinning, processors of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, TypedDict

from common.messages.errors import UnusableValueError
from common.runtime.providers.provider_table import CPU
from common.runtime.sessions.session import SessionSettings
from common.runtime.sessions.thread_pools import (
    EXECUTIONS,
    INTER_THREADS,
    NO_EFFECT,
    Spinning,
    ThreadPools,
    not_parallel,
)
from common.runtime.sessions.threads import available_processors

SHARING = {  # the usual first
    "workers": ("threads", "processes"),
    "pool": ("own", "shared"),
    "execution": EXECUTIONS,
    "spinning": ("runs", "always", "never"),
    "affinity": ("free", "pinned"),
}


class SharingColumns(TypedDict):
    """How sessions share a host, by the columns of tables."""

    session_workers: str
    thread_pool: str
    execution_mode: str
    inter_op_threads: int
    spinning: str
    affinity: str


@dataclass(frozen=True, slots=True, order=True)
class Concurrency:
    """How sessions share a host, beside their number and their threads."""

    workers: Literal["threads", "processes"] = "threads"  # whether sessions share a process or have one each
    pool: Literal["own", "shared"] = "own"  # a pool of threads for each session, or one of as many threads for all
    inter_threads: int = 0  # of each session in parallel execution, with the caller; 0: one node at a time
    spinning: Spinning = "runs"  # whether threads without work spin: while a run lasts, always, or never
    affinity: Literal["free", "pinned"] = "free"  # whether each thread stays on a processor of its own

    @property
    def execution(self) -> str:
        return EXECUTIONS[self.inter_threads > 0]

    @property
    def is_hosted(self) -> bool:
        """Whether sessions need another process; a shared pool does, since it is for ever and for all sessions."""
        return self.workers == "processes" or self.pool == "shared"

    @property
    def columns(self) -> SharingColumns:
        return {
            "session_workers": self.workers,
            "thread_pool": self.pool,
            "execution_mode": self.execution,
            "inter_op_threads": self.inter_threads,
            "spinning": self.spinning,
            "affinity": self.affinity,
        }

    def require_possible(self, sessions: int, base: SessionSettings, replicas: int = 1) -> None:
        """Refuse what the runtime would not do, or ignore, by an UnusableValueError."""
        for problem in self._problems(sessions, base, replicas):
            raise UnusableValueError(*problem)

    def is_possible(self, sessions: int, base: SessionSettings, replicas: int = 1) -> bool:
        return not any(self._problems(sessions, base, replicas))

    def _problems(self, sessions: int, base: SessionSettings, replicas: int) -> Iterator[tuple[str, str, str]]:
        """Yield which setting cannot be, why, and the remedy."""
        threads, processors = sessions * base.threads, len(available_processors())
        if self.pool == "shared":
            own, unavailable = "give <pool> own", "is unavailable for a shared pool: ONNX Runtime for Python"
            if self.workers == "processes":
                yield "pool", "shared, but sessions in processes of their own cannot share one", own
            if self.spinning != "always":
                yield "spinning", f"{self.spinning} {unavailable} lets it spin always", own
            if self.affinity == "pinned":
                yield "affinity", f"pinned {unavailable} ignores it", own
        if self.inter_threads and base.provider != CPU:
            yield "execution", not_parallel(base.provider), "give <execution> sequential"
        if self.affinity == "pinned":
            if threads > processors:
                problem = f"pinned, but there are {threads} threads and {processors} processors"
                yield "affinity", problem, "give fewer <sessions> or <threads>"
            if replicas > 1:
                problem = "pinned, but all runs of a session would share a processor"
                yield "affinity", problem, "leave <replicate> out"
            if self.inter_threads:
                yield "affinity", "pinned holds for intra-op threads alone", "give <affinity> free"

    def settings_of(self, sessions: int, base: SessionSettings) -> list[SessionSettings]:
        shared = sessions * base.threads if self.pool == "shared" else 0
        every = available_processors() if self.affinity == "pinned" else []
        parts = [tuple(every[i * base.threads : (i + 1) * base.threads]) for i in range(sessions)]
        return [replace(base, pools=ThreadPools(self.inter_threads, self.spinning, shared, own)) for own in parts]


USUAL = Concurrency()


def every_concurrency(
    workers: Sequence[str],
    pools: Sequence[str],
    executions: Sequence[str],
    inter_threads: Sequence[int],
    spinnings: Sequence[str],
    affinities: Sequence[str],
) -> list[Concurrency]:
    """Return all combinations.

    Args:
        inter_threads: of parallel execution; empty for ``INTER_THREADS``.
        spinnings: when threads spin; empty for what is usual: a shared pool spins always, others while runs last.

    Raises:
        UnusableValueError: there are inter-op threads, but every execution is sequential.
    """
    if inter_threads and "parallel" not in executions:
        raise UnusableValueError("inter_threads", NO_EFFECT, "give <execution> parallel")
    at_once = {"sequential": (0,), "parallel": inter_threads or (INTER_THREADS,)}
    return [
        Concurrency(own, pool, count, spinning, affinity)  # type: ignore[arg-type]
        for own, pool, execution, affinity in product(workers, pools, executions, affinities)
        for count in at_once[execution]
        for spinning in spinnings or ("always" if pool == "shared" else "runs",)
    ]
