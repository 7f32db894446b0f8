"""The loop of runs: unprofiled and profiled runs of two sessions alternate, which also measures the cost of profiling.

Both sessions see the same machine in the same minute; only unprofiled runs give the latency. There are as many profiled
runs, unless the trace would exceed ``TRACE_EVENT_LIMIT`` events; fewer ones are spread evenly over the unprofiled runs.
A run that fails ends the loop; the runs before it are kept and marked as incomplete. Of a large model, only one session
lives at a time (:mod:`common.profiling.runs.one_session`).
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from common.latency.recorder import CAPACITY, Recorder
from common.messages.errors import PipelineError, UnusableValueError
from common.profiling.trace.reader import read_trace
from common.runtime.inputs.values import Feeds, Operands, operands
from common.runtime.providers.provider_check import AssignedNode, assigned_nodes
from common.runtime.providers.provider_table import compiles
from common.runtime.sessions.session import Session, SessionSettings, create_session, nameless_path, run

TRACE_EVENT_LIMIT = 40_000
RUNTIME_EVENT_LIMIT = 1_000_000  # beyond it the runtime drops events
ROUNDING = 1e-9  # error of a share times a whole number

Progress = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """Length of the measurement: ``warmup`` runs, then ``duration_s`` seconds, or ``runs`` runs if that is None."""

    warmup: int
    runs: int
    duration_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse a warm-up beyond the stored runs by an UnusableValueError: later runs could not be told from it."""
        if self.warmup >= CAPACITY:
            raise UnusableValueError("warmup", f"{self.warmup} is not below {CAPACITY:,}", "give fewer runs")

    @property
    def total(self) -> float:
        """Total amount, in seconds or runs."""
        return self.duration_s or self.runs

    @property
    def unit(self) -> str:
        return "seconds" if self.duration_s else "runs"

    def expected_runs(self, first_run_us: float) -> float:
        """Expected runs of one session, at most those that are stored; the first run may take ten times as long."""
        timed = 1e7 * self.duration_s / first_run_us if self.duration_s else self.runs
        return min(CAPACITY, self.warmup + timed)

    @property
    def stored_runs(self) -> int:
        """Unprofiled runs that are stored one by one."""
        return CAPACITY if self.duration_s else min(self.warmup + self.runs, CAPACITY)

    def share(self, runs: int, elapsed_s: float) -> float:
        return min((elapsed_s if self.duration_s else runs) / self.total, 1.0)


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What a session runs."""

    model: Path
    feeds: Feeds
    settings: SessionSettings
    content: bytes | None = None  # runs instead of the file's own, if it is given
    is_alone: bool = False  # whether only one session of the model is held at a time


class ColdStart(NamedTuple):
    """Cold start: creating the unprofiled session, and its first run."""

    session_creation_us: float
    first_run_us: float


@dataclass(frozen=True, slots=True)
class EndedSession:
    """What a profiled session leaves."""

    trace_file: Path
    settings: SessionSettings
    # Where the executed graph is saved, with its small weights: a link to a file without a name, which no kill leaves
    # behind. It is there as long as ``nameless``.
    executed: Path
    nameless: IO[bytes]
    assigned: Sequence[AssignedNode] = ()  # the nodes that the runtime gave to a compiling provider


@dataclass(frozen=True, slots=True)
class TracedSession:
    """A profiled session, and what stays of it."""

    session: Session
    events_per_run: int
    settings: SessionSettings
    executed: Path
    nameless: IO[bytes]

    def end(self) -> EndedSession:
        """End the profiling, which writes the trace."""
        assigned = assigned_nodes(self.session) if compiles(self.settings.provider) else ()
        trace_file = Path(self.session.end_profiling())
        return EndedSession(trace_file, self.settings, self.executed, self.nameless, assigned)


@dataclass(frozen=True, slots=True)
class Sessions:
    """An unprofiled and a profiled session of one model, their inputs, and the times of the cold start."""

    model: Path  # its file, which errors name
    plain: Session
    traced: TracedSession
    feeds: Operands
    cold: ColdStart


@dataclass(frozen=True, slots=True)
class Runs:
    """Recorded runs of both sessions."""

    plain: Recorder
    profiled: Recorder
    warmup: int  # unprofiled runs of the requested warm-up
    cold: ColdStart
    failure: str = ""  # why the runs ended early; empty if they did not
    # Profiled runs of the warm-up, where all of them came after the unprofiled ones; None where the sessions took turns
    profiled_warmup: int | None = None


def prepare(plan: SessionPlan, folder: Path) -> Sessions:
    """Create both sessions, and run the model for the first time; PipelineError: the runtime refuses or fails.

    The trace and the executed graph (``executed.onnx``) are left in the folder.
    """
    plain, feeds, cold = open_plain(plan)
    return Sessions(plan.model, plain, open_traced(plan, folder, feeds), feeds, cold)


def open_plain(plan: SessionPlan) -> tuple[Session, Operands, ColdStart]:
    """Create the unprofiled session, and run the model for the first time; errors are those of :func:`prepare`."""
    start = time.perf_counter()
    plain = create_session(plan.model, plan.settings, content=plan.content)
    session_creation_us = 1e6 * (time.perf_counter() - start)
    feeds = operands(plain, plan.feeds)
    first = Recorder(1)
    lap(plain, feeds, first, plan.model)
    return plain, feeds, ColdStart(session_creation_us, float(first.latencies_us[0]))


def open_traced(plan: SessionPlan, folder: Path, feeds: Operands) -> TracedSession:
    """Create the profiled session; arguments and errors are those of :func:`prepare`."""
    model, settings, content = plan.model, plan.settings, plan.content
    # No name keeps this session: its weights are freed before the next one takes its own.
    events = _events_per_run(
        create_session(model, settings, content=content, trace_prefix=folder / "count"), feeds, model
    )
    if not events:
        remedy = "<optimization> disable runs it unchanged"
        raise PipelineError(model, "ONNX Runtime ran no node: it folded the whole graph", remedy)
    executed = folder / "executed.onnx"
    nameless = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
    executed.symlink_to(nameless_path(nameless))
    traced = create_session(model, settings, content=content, trace_prefix=folder / "trace", optimized=executed)
    return TracedSession(traced, events, settings, executed, nameless)


def _events_per_run(session: Session, feeds: Operands, model: Path) -> int:
    """Count the trace events of one run; 0 if no node ran. A loop makes more events than the graph has nodes."""
    run(session, feeds, model)
    trace_file = Path(session.end_profiling())
    trace = read_trace(trace_file)
    trace_file.unlink()
    return trace.recorded_count if trace.nodes else 0


def take_turns(
    models: Sequence[Sessions],
    budget: Budget,
    progress: Progress,
    between_runs: Callable[[], None] = lambda: None,
) -> list[Runs]:
    """Run all sessions in turn, the warm-up first; profiled runs are spread evenly when they are fewer.

    The order of several models is turned round after each turn, so that drift meets all alike. The budget counts
    unprofiled runs. ``progress`` is called between runs with the amount done and the total, in runs or in seconds; the
    amount is 0 during the warm-up. ``between_runs`` is work to do while no run is timed, such as reading the events
    recorded so far. PipelineError: a run failed before one of each session was counted.
    """
    events = max(sessions.traced.events_per_run for sessions in models)
    warmup_due, due = traceable_runs(events, budget.warmup)
    due = due if budget.duration_s else min(budget.runs, due)
    recorded = [(sessions, Recorder(budget.stored_runs), Recorder(warmup_due + due)) for sessions in models]
    failure = ""

    def turn(step: int, share: float | None) -> None:
        counted = (
            step * warmup_due // budget.warmup if share is None else warmup_due + math.ceil(due * share - ROUNDING)
        )
        for sessions, plain, profiled in recorded[:: 1 if step % 2 else -1]:
            lap(sessions.plain, sessions.feeds, plain, sessions.model)
            if profiled.count < counted:
                lap(sessions.traced.session, sessions.feeds, profiled, sessions.model)

    try:
        repeat(budget, turn, progress, between_runs)
    except PipelineError as error:
        if not all(plain.count > budget.warmup and profiled.count > warmup_due for _, plain, profiled in recorded):
            raise
        counts = "; ".join(
            f"{plain.count} unprofiled and {profiled.count} profiled runs" for _, plain, profiled in recorded
        )
        failure = f"failed after {counts} ({error.problem})"
    return [Runs(plain, profiled, budget.warmup, own.cold, failure) for own, plain, profiled in recorded]


def repeat(
    budget: Budget, turn: Callable[[int, float | None], None], progress: Progress, between_runs: Callable[[], None]
) -> None:
    """Do the turns of the warm-up, and then those of the budget; the callables are as in :func:`take_turns`.

    A turn gets its number from 1 on, in the warm-up and after it, and the share of the budget that is done with it;
    None during the warm-up.
    """
    for step in range(1, budget.warmup + 1):
        turn(step, None)
        progress(0, budget.total)
        between_runs()
    share, step, start_s = 0.0, 0, time.perf_counter()
    while share < 1:
        step += 1
        share = budget.share(step, time.perf_counter() - start_s)
        turn(step, share)
        progress(share * budget.total, budget.total)
        between_runs()


def traceable_runs(events_per_run: int, warmup: int) -> tuple[int, int]:
    """Return how many runs a trace holds during the warm-up and after it, at most."""
    most = max(2 if 2 * events_per_run < RUNTIME_EVENT_LIMIT else 1, TRACE_EVENT_LIMIT // events_per_run)
    warmup_due = min(warmup, most // 2)
    return warmup_due, most - warmup_due


def lap(session: Session, feeds: Operands, runs: Recorder, model: Path) -> None:
    """Run once, and record the time."""
    start_ns = time.perf_counter_ns()
    run(session, feeds, model)
    runs.record(start_ns, time.perf_counter_ns())
