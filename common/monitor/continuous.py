"""The model that runs for as long as the dashboard does: one run after another, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from common.messages.errors import PipelineError
from common.monitor.figures.gauges import Conditions, derived_figures
from common.monitor.monitor import LiveSource, NodeShare
from common.monitor.slow_runs import SlowRuns
from common.process import interrupts

MOST_FAILURES = 10  # runs in a row
END_S = 5.0  # for the thread to end
STOP_S = 0.1  # between two tries to stop a run: one that begins between them is not stopped


@dataclass(frozen=True, slots=True)
class LiveModel:
    """A model that is loaded: its runs, its nodes' shares of their time, operations and compulsory bytes of a run."""

    run: Callable[[], object]
    nodes: Sequence[NodeShare] = ()
    flop_count: float | None = None
    byte_count: float | None = None


class ContinuousRuns:
    """Runs a model from :meth:`begin` to the end of a ``with`` block; nothing waits for the model to be ready.

    Args:
        prepare: makes the model ready; called in the thread, with these runs. None where other processes run it.
    """

    def __init__(
        self, source: LiveSource, prepare: Callable[[ContinuousRuns], LiveModel] | None, slow: SlowRuns
    ) -> None:
        self._source, self._slow, self._is_here = source, slow, prepare is not None
        self.model: LiveModel | None = None  # until it is ready
        self._over = threading.Event()
        self._stops: list[Callable[[], object]] = []
        self._thread = threading.Thread(target=self._work, args=(prepare,), name="model", daemon=True)

    def __enter__(self) -> ContinuousRuns:
        return self

    def begin(self) -> None:
        if self._is_here:
            self._thread.start()

    @property
    def are_over(self) -> bool:
        return self._over.is_set()

    def stop_by(self, stop: Callable[[], object]) -> None:
        """Register a function that ends the run in progress when another thread calls it."""
        self._stops.append(stop)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        until_s = time.monotonic() + END_S
        while self._thread.is_alive() and time.monotonic() < until_s:
            for stop in [*self._stops]:
                stop()
            self._thread.join(STOP_S)
        if self._thread.is_alive():
            interrupts.leave_alone(self._thread)

    def _work(self, prepare: Callable[[ContinuousRuns], LiveModel]) -> None:
        """Make the model ready and run it until the end; what went wrong is said where the figures are."""
        try:
            with self._slow:
                self.model = prepare(self)
                self._source.nodes = self.model.nodes
                self._source.is_ready = True
                self._run_on(self.model.run)
        except PipelineError as error:
            if not self.are_over:
                self._source.error = error
        except BaseException as error:
            self._source.error = error
            raise

    def derived(
        self, known: Conditions, power_w: Callable[[], float | None], runs_per_s: float
    ) -> dict[str, float | None]:
        """Return figures that follow from the runs per s: with the work of the model, once it is loaded."""
        if model := self.model:
            known = replace(known, flop_count=model.flop_count, byte_count=model.byte_count)
        return derived_figures(runs_per_s, power_w(), known)

    def _run_on(self, run: Callable[[], object]) -> None:
        feed, in_a_row, clock_ns = self._source.feed, 0, time.perf_counter_ns
        while not self.are_over:
            began_ns = clock_ns()
            try:
                run()
            except PipelineError as error:
                if self.are_over:
                    return
                in_a_row += 1
                self._source.failed_run_count += 1
                if in_a_row == MOST_FAILURES:
                    raise error
            else:
                ended_ns = clock_ns()
                feed.record(ended_ns, ended_ns - began_ns)
                in_a_row = 0
                self._slow.between()
