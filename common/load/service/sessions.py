"""The service that is measured: ONNX Runtime sessions that run batches of one model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.load.requests.batching import BatchPolicy
from common.load.requests.load_record import Batch
from common.load.service.service import Service
from common.load.service.side_work import NO_SIDE_WORK, SideWork
from common.messages.errors import PipelineError, UnusableValueError
from common.process.free_memory import free_bytes
from common.runtime.inputs.images import Array
from common.runtime.providers.provider_table import device_of
from common.runtime.sessions.session import Session, SessionSettings, create_session
from common.runtime.sessions.stoppable import StoppableRuns, dynamic_axes, stages_on

BATCH_AXIS = 0
MOST_CALLS, PATIENCE_S = 64, 5.0  # with which a size is tried while all of them fail


@dataclass(frozen=True, slots=True)
class Inputs:
    samples: Sequence[Mapping[str, Array]]  # of one request of the longest length each; requests take them in turn
    batched: frozenset[str]  # inputs that have a row per request; the others are the same for all
    variable: Mapping[str, int]  # the axis of each input whose size is the length of the request


def batched_inputs(session: Session) -> frozenset[str]:
    """Return the inputs whose first axis may have any size: those that batching stacks."""
    return frozenset(name for name, axes in dynamic_axes(session).items() if BATCH_AXIS in axes)


def require_batches(model: str, inputs: Inputs, most: int, worker_count: int = 1) -> None:
    """Refuse batches that the model does not take, or the memory does not hold.

    Args:
        worker_count: each has room for such a batch.
    """
    if most > 1 and not inputs.batched:
        problem = f"{most}, but no input of {model} has a first axis of any size, so it takes no batches"
        raise UnusableValueError("batch_max", problem, "use <replicate> for concurrent runs, or export it with one")
    row_bytes = sum(array.nbytes for name, array in inputs.samples[0].items() if name in inputs.batched)
    needed, free = most * row_bytes * worker_count, free_bytes()
    if free is not None and needed > free:
        sizes = f"take {needed / 1e9:,.3g} GB, and {free / 1e9:,.3g} GB are free"
        raise UnusableValueError("batch_max", f"{most:,}, but the inputs of its batches {sizes}", "give a smaller one")


def warm_up(service: Service, policy: BatchPolicy, length: int) -> None:
    """Run every worker once with each size and length that is sent at once, and with a single request.

    A service some of whose calls fail is loaded all the same, and its failures are counted there. If all calls with one
    of them fail, the last PipelineError is raised.
    """
    with _processors_kept():
        for size in sorted({1, *policy.sizes}):
            for padded in policy.buckets or (length,):
                _warm_up_with(service, Batch(0, range(size), size, padded))


def _warm_up_with(service: Service, batch: Batch) -> None:
    """Let each worker run a batch; if none can, they try again for a while."""
    begin_s, is_warm = time.monotonic(), False
    for call in range(max(service.worker_count, MOST_CALLS)):
        if is_warm and call >= service.worker_count:
            return
        try:
            service.run(call % service.worker_count, batch)
            is_warm = True
        except PipelineError as error:
            problem = error
            if not is_warm and time.monotonic() - begin_s > PATIENCE_S:
                break
    if not is_warm:
        raise problem


@contextmanager
def _processors_kept() -> Iterator[None]:
    """Let this thread run on its processors again, after calls that pin their threads."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    try:
        yield
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)


class SessionService:
    """Sessions that serve batches, each for one worker or for several at once.

    Args:
        replicas: workers that share each session, for concurrent runs.
        processors: on which the worker of each session stays; empty: on any.
        device: see :class:`~common.runtime.sessions.stoppable.StoppableRuns`.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        model: object,
        inputs: Inputs,
        replicas: int = 1,
        processors: Sequence[int] = (),
        side_work: SideWork = NO_SIDE_WORK,
        device: str = "",
    ) -> None:
        self._processors, self._side_work = processors, side_work
        self.stages = stages_of(side_work, device)
        self.worker_count, self.inputs = len(sessions) * replicas, inputs
        self._runs = [StoppableRuns(session, model, device) for session in sessions for _ in range(replicas)]
        self._buffers: list[dict[tuple[int, int], dict[str, Array]]] = [{} for _ in self._runs]

    def run(self, worker: int, batch: Batch) -> tuple[int, ...]:
        """Prepare the requests, copy them into one batch, run it and answer; return what each stage took in ns.

        The runtime pins the threads of its pool, and the calling thread is one more.
        """
        if self._processors:
            os.sched_setaffinity(0, {self._processors[worker]})  # a microsecond; each run of a load has new threads
        samples = self.inputs.samples
        rows = [samples[request % len(samples)] for request in batch.requests]
        rows, prepared_ns = self._side_work.prepared(batch.requests, rows)
        begin_ns = time.perf_counter_ns()
        feeds = self._assembled(worker, batch, rows)
        assembled_ns = time.perf_counter_ns() - begin_ns
        outputs, run_ns = self._runs[worker].run(feeds)
        return *prepared_ns, assembled_ns, *run_ns, *self._side_work.answered(outputs, len(rows))

    def give_up(self, worker: int) -> None:
        """Stop the worker's run after its current node; its buffers stay with it."""
        self._runs[worker].stop()
        self._buffers[worker] = {}

    def _assembled(self, worker: int, batch: Batch, rows: Sequence[Mapping[str, Array]]) -> Mapping[str, Array]:
        """Return the inputs of a batch, in buffers that the worker's next batch of this size uses again."""
        first, variable = rows[0], self.inputs.variable
        if batch.padded_size == 1 and not (batch.length and variable):
            return first
        key = (batch.padded_size, batch.length)
        if (buffers := self._buffers[worker].get(key)) is None:
            made = {name: self._buffer(name, array, *key) for name, array in first.items()}
            buffers = self._buffers[worker].setdefault(key, made)
        for name, buffer in buffers.items():
            if name in self.inputs.batched:
                for index, row in enumerate(rows):
                    buffer[index] = _cut(row[name], variable.get(name), batch.length)[0]
        return buffers

    def _buffer(self, name: str, sample: Array, size: int, length: int) -> Array:
        """Return room for a batch of an input; where it is the same for all requests, its value."""
        cut = _cut(sample, self.inputs.variable.get(name), length)
        return np.zeros((size, *cut.shape[1:]), cut.dtype) if name in self.inputs.batched else cut


def stages_of(side_work: SideWork, device: str) -> tuple[str, ...]:
    return *side_work.before, "assemble", *stages_on(device), *side_work.after


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """A service that can be opened in this process or in another one; samples and axes are as in :class:`Inputs`."""

    model: Path
    sessions: Sequence[SessionSettings]
    samples: Sequence[Mapping[str, Array]]
    variable: Mapping[str, int]
    replicas: int = 1
    side_work: SideWork = NO_SIDE_WORK

    @property
    def stages(self) -> tuple[str, ...]:
        return stages_of(self.side_work, device_of(self.sessions[0].provider))

    def opened(self) -> SessionService:
        """Create the sessions, unless the runtime refuses the model."""
        sessions = [create_session(self.model, settings) for settings in self.sessions]
        callers = [processors[0] for own in self.sessions if (processors := own.pools.processors)]
        inputs = Inputs(self.samples, batched_inputs(sessions[0]), self.variable)
        device = device_of(self.sessions[0].provider)
        return SessionService(sessions, self.model, inputs, self.replicas, callers, self.side_work, device)


def _cut(sample: Array, axis: int | None, length: int) -> Array:
    return sample if axis is None or not length else sample[(slice(None),) * axis + (slice(length),)]
