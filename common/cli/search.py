"""A search that ends at a time limit or at Ctrl-C with the best it has found, and shows how far it has come."""

from __future__ import annotations

import math
import time

from common import interrupts
from common.cli.settings import Settings
from common.cli.streams import say, search_line


class SearchWatch:
    """The clock of several searches, and the line that shows plan, bound and gap.

    Each search takes at most half of the time that is left for all of them.

    It is a context: within it, the first Ctrl-C ends this search and every later one with what they have.
    """

    def __init__(self, settings: Settings, limit_s: float) -> None:
        """Start no clock yet."""
        self._settings, self._limit_s, self._signal = settings, limit_s, interrupts.FirstNoted()
        self._draw = search_line(settings)
        self._begun_s = self._share_s = self._plan_us = self._bound_us = 0.0
        self._last_s: float | None = None  # when all searches must have ended

    def __enter__(self) -> SearchWatch:
        """Let the first Ctrl-C end the searches with what they have, and the next one the program."""
        self._signal.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Handle Ctrl-C as before."""
        self._signal.__exit__()

    @property
    def is_interrupted(self) -> bool:
        """Return whether Ctrl-C was pressed."""
        return self._signal.has_come

    def begin(self) -> None:
        """Start the clock of a search."""
        self._begun_s, self._plan_us = time.monotonic(), 0.0
        self._last_s = self._begun_s + self._limit_s if self._last_s is None else self._last_s
        self._share_s = max(0.0, self._last_s - self._begun_s) / 2

    def left_s(self) -> float:
        """Return the seconds until the search must end."""
        spent_s = time.monotonic() - self._begun_s
        if self._plan_us and self._share_s:
            self._draw(spent_s / self._share_s, self._plan_us, self._bound_us)
        return -math.inf if self.is_interrupted else self._share_s - spent_s

    def hear(self, plan_us: float, bound_us: float) -> None:
        """Take note of the best plan and bound so far."""
        self._plan_us, self._bound_us = plan_us, bound_us

    def end(self, plan_us: float, bound_us: float) -> None:
        """Print the result of a search in one line."""
        self._draw(1.0, 0.0, 0.0)
        gap = max(0.0, 1 - bound_us / plan_us) if plan_us else 0.0
        spent_s = time.monotonic() - self._begun_s
        say(
            self._settings,
            f"plan {plan_us / 1e3:.4g} ms, bound {bound_us / 1e3:.4g} ms, gap {gap:.2%} ({spent_s:.1f} s)",
        )
