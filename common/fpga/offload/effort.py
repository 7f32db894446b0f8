"""The budget of a search: deterministic effort, and time on a clock that its caller holds."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from common.process import interrupts

LEAST_STEPS = 300  # a smaller program gets the effort of one with so many steps
POLL_S = 0.05  # between two looks at the clock while a solver works
GRACE_S = 0.5  # for a solver that was told to stop, before it is left alone


class Watch(Protocol):
    """The caller's clock, which also hears of the progress of the search."""

    def begin(self) -> None:
        """Start the clock."""

    def left_s(self) -> float:
        """Return the seconds until the search must end, on whatever clock; 0 or less at once."""

    def hear(self, plan_us: float, bound_us: float) -> None:
        """Take note of the finish of the best plan so far and of the best proven bound."""

    def end(self, plan_us: float, bound_us: float) -> None:
        """Take note of the last plan and bound."""


class Endless:
    """A watch without a limit, which reports to nobody."""

    def begin(self) -> None:
        """Start nothing."""

    def left_s(self) -> float:
        return math.inf

    def hear(self, plan_us: float, bound_us: float) -> None:
        """Take no note."""

    def end(self, plan_us: float, bound_us: float) -> None:
        """Take no note."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Limit of a search in CP-SAT's deterministic seconds per 1,000 steps of the host, and its seed.

    Deterministic seconds are equal on every machine. One is 5 to 15 seconds of a core on these programs.
    """

    deterministic_limit: float = 1.0
    seed: int = 7


@dataclass
class Spending:
    """The rest of an effort, and a watch. A search whose watch leaves time is the same on every machine."""

    left: float  # deterministic seconds
    seed: int = 7
    watch: Watch = field(default_factory=Endless)

    @classmethod
    def of(cls, effort: Effort, steps: int, watch: Watch | None = None) -> Spending:
        whole = effort.deterministic_limit * max(LEAST_STEPS, steps) / 1000
        return cls(whole, effort.seed, watch or Endless())

    @property
    def is_spent(self) -> bool:
        return self.left <= 0 or self.is_late

    @property
    def is_late(self) -> bool:
        return self.watch.left_s() <= 0

    def wait_for(self, work: Callable[[], Any], stop: Callable[[], None] | None = None) -> Any:
        """Return the result of work in a thread of its own; None if the watch runs out and the work does not end soon.

        A solver does not hear signals: while it works, they reach this thread.
        """
        if self.is_late:
            return None
        future = Future[Any]()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as failure:
                future.set_exception(failure)

        thread = threading.Thread(target=run, daemon=True)  # the process may end without it
        thread.start()
        while thread.is_alive():
            thread.join(POLL_S)
            if thread.is_alive() and self.is_late:
                if stop is not None:
                    stop()
                    thread.join(GRACE_S)
                if thread.is_alive():
                    interrupts.leave_alone(thread)
                    return None
        return future.result()
