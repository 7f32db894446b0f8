"""Limits of the runtime's calls: a signal, a time limit and the free memory end them.

Until a call of the runtime has ended, Python handles no signal, and the thread cannot measure its time. So other
threads end the call: the thread that waits for signals (:mod:`common.process.interrupts`), and the thread of the time
limit. The runtime then returns after the current node. If it does not, the process ends.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import weakref
from collections.abc import Iterator

from common.messages.errors import PipelineError
from common.process import interrupts, startup
from common.runtime.library import ort

IDLE = math.inf
NO_MEMORY = (*startup.NO_MEMORY, "Failed to allocate memory")
SMALLER = "give smaller sizes (<dim>, <input>), or use a host with more memory"
_lock = threading.Lock()
_calls: weakref.WeakSet[RuntimeCall] = weakref.WeakSet()
_of_thread = threading.local()
_limits_s: list[float] = []  # of the blocks of `limited_runs`


def _run_options() -> ort.RunOptions:
    """Return options that name the default graph: looking up a missing entry takes the runtime's Python 50 to 65 µs."""
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", "0")
    return options


class RuntimeCall:
    """The work of the runtime for one caller: a run, or the creation of a session, one at a time."""

    def __init__(self, model: object = "") -> None:
        self.options = _run_options()  # of the current or the next run
        self.model = model
        self.begin_s = IDLE  # start of the current run on the clock of ``time.monotonic``; ``IDLE`` between runs
        self.was_ended = False  # whether its options end every run
        self._creation: ort.SessionOptions | None = None
        self._thread = threading.get_ident()
        self._limit_s = self._told_s = IDLE
        with _lock:
            _calls.add(self)

    def begin_anew(self) -> None:
        """Begin a run of this thread with new options, in which no run was ended."""
        self.options, self.was_ended, self._limit_s = _run_options(), False, IDLE
        self._thread, self.begin_s = threading.get_ident(), time.monotonic()

    def end(self) -> None:
        """Let the run or the creation end after the node that it is in, with an error."""
        self.was_ended = self.options.terminate = True
        if self._creation is not None:
            self._creation.set_load_cancellation_flag(True)

    def end_beyond(self, limit_s: float, now_s: float) -> float:
        """End a run that takes longer than a limit, and return in how many seconds to ask again.

        If a run does not leave its node within the time of grace, the process ends.
        """
        left_s = self.begin_s + limit_s - now_s
        if left_s > 0:
            return min(left_s, limit_s)
        if self._limit_s == IDLE:  # told now, however late: the process may have been stopped meanwhile
            self._limit_s, self._told_s = limit_s, now_s
            self.end()
        elif now_s - self._told_s > interrupts.GRACE_S:
            problem = f"a run took more than {limit_s:g} s, amid a node that does not end"
            interrupts.end_now(1, f"error: {PipelineError(self.model, problem, 'give inputs that let it end')}")
        return interrupts.GRACE_S

    def end_in(self, thread: int) -> None:
        """End the call if it keeps a thread from handling signals."""
        if self._thread == thread and (self.begin_s != IDLE or self._creation is not None):
            self.end()

    @contextlib.contextmanager
    def creating(self, options: ort.SessionOptions) -> Iterator[None]:
        """Let a signal end the creation of a session."""
        self._creation = options
        try:
            yield
        finally:
            self._creation = None

    def failure(self, reason: str) -> PipelineError:
        """Return the error of a run that failed: a limit ended it, or the runtime for a reason of its own."""
        if self._limit_s != IDLE:
            remedy = "give inputs that let it end, or raise <run_timeout>"
            return PipelineError(self.model, f"a run took more than {self._limit_s:g} s and was ended", remedy)
        if is_of_memory(reason):
            return PipelineError(self.model, f"a run needs more memory than is free ({reason})", SMALLER)
        return PipelineError(self.model, f"ONNX Runtime fails to run it ({reason})")


def is_of_memory(reason: str) -> bool:
    """Return whether the runtime failed because it was refused memory."""
    return any(words in reason for words in NO_MEMORY)


def call_of_thread() -> RuntimeCall:
    """Return the call of this thread, in which no run was ended."""
    call: RuntimeCall | None = getattr(_of_thread, "call", None)
    if call is None or call.was_ended:
        call = _of_thread.call = RuntimeCall()
    return call


@contextlib.contextmanager
def limited_runs(timeout_s: float | None) -> Iterator[None]:
    """While the block lasts, end each run of any thread that takes longer, with an error; None: there is no limit."""
    with contextlib.ExitStack() as stack:
        if timeout_s is not None:
            has_ended = threading.Event()
            watch = threading.Thread(target=_watch, args=(timeout_s, has_ended), name="run-timeout", daemon=True)
            watch.start()
            stack.callback(watch.join)
            stack.callback(has_ended.set)
            _limits_s.append(timeout_s)
            stack.callback(_limits_s.remove, timeout_s)
        yield


def time_limit_s() -> float | None:
    """Return the time after which a run of this process is ended; None without a limit."""
    return min(_limits_s, default=None)


def _watch(limit_s: float, has_ended: threading.Event) -> None:
    """End runs that take too long; between two looks it sleeps until the next one can be due."""
    wait_s = limit_s
    while not has_ended.wait(wait_s):
        now_s = time.monotonic()
        wait_s = min((call.end_beyond(limit_s, now_s) for call in _known()), default=limit_s)


def _known() -> list[RuntimeCall]:
    with _lock:
        return [*_calls]


def _end_calls_of_main_thread() -> None:
    for call in _known():
        call.end_in(threading.main_thread().ident or 0)


interrupts.on_signal(_end_calls_of_main_thread)
