"""A search that ends at its limit or at Ctrl-C with the best it has found, and shows how far it has come."""

from __future__ import annotations

import math
import time

from common.cli.flags.settings import Settings
from common.cli.streams import say, search_line
from common.process import interrupts


class Interruptible(interrupts.FirstNoted):
    """A context within which the first Ctrl-C ends this search and every later one with what they have."""

    @property
    def is_interrupted(self) -> bool:
        """Return whether Ctrl-C was pressed."""
        return self.has_come

    @property
    def notes(self) -> list[str]:
        """What the tables of a search hold that Ctrl-C ended."""
        return ["Ctrl-C ended the search: the tables hold the best that it had found"] if self.is_interrupted else []


class SearchWatch(Interruptible):
    """The clock of several searches for a plan, and the line that shows plan, bound and gap.

    It counts the process's own processor time, so that other work on the host changes no plan. Each search takes at
    most half of the time that is left for all of them.
    """

    def __init__(self, settings: Settings, limit_s: float) -> None:
        """Start no clock yet."""
        super().__init__()
        self._settings, self._limit_s = settings, limit_s
        self._draw = search_line(settings, "time")
        self._begun_s = self._share_s = self._plan_us = self._bound_us = 0.0
        self._has_ended = False
        self._last_s: float | None = None  # when all searches must have ended

    def begin(self) -> None:
        self._begun_s, self._plan_us = time.process_time(), 0.0
        self._last_s = self._begun_s + self._limit_s if self._last_s is None else self._last_s
        self._share_s = max(0.0, self._last_s - self._begun_s) / 2

    def left_s(self) -> float:
        """Return the seconds of a processor until the search must end."""
        spent_s = time.process_time() - self._begun_s
        if self._plan_us and self._share_s:
            plan_us, bound_us = self._plan_us, self._bound_us
            gap = f"gap {1 - bound_us / plan_us:.2%}"
            self._draw(spent_s / self._share_s, f"plan {plan_us / 1e3:.4g} ms  bound {bound_us / 1e3:.4g} ms  {gap}")
        return -math.inf if self.is_interrupted else self._share_s - spent_s

    def hear(self, plan_us: float, bound_us: float) -> None:
        """Take note of the best plan and bound so far."""
        self._plan_us, self._bound_us = plan_us, bound_us

    def end(self, plan_us: float, bound_us: float) -> None:
        """Print one line on the first search, which is the plan's; with ``--all-notes`` a line on each search."""
        self._draw(1.0, "")
        if self._has_ended and not self._settings.all_notes:
            return
        self._has_ended = True
        gap = max(0.0, 1 - bound_us / plan_us) if plan_us else 0.0
        figures = f"plan {plan_us / 1e3:.4g} ms, bound {bound_us / 1e3:.4g} ms, gap {gap:.2%}"
        say(self._settings, f"{figures} ({time.process_time() - self._begun_s:.1f} s of a processor)")


class DesignWatch(Interruptible):
    """The line that shows the best energy-delay product of a search so far, its bound and the gap."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._draw = search_line(settings, "evaluations")
        self._bound = 0.0

    def begin(self, bound: float) -> None:
        """Take note that a search begins, and of a product in pJ·cycles that no schedule is below."""
        self._bound = bound

    def hear(self, evaluation_count: int, most: int, edp: float) -> None:
        """Show the evaluations so far, of how many, and the best product so far in pJ·cycles."""
        gap = edp / self._bound - 1 if self._bound else 0.0
        figures = f"EDP {edp:.4e} pJ·cycles  bound {self._bound:.4e}  gap {gap:.2%}"
        self._draw(evaluation_count / most, figures)
        if evaluation_count == most:
            self._draw(1.0, "")
