"""An observer of a search: it hears of the best schedule so far, and may end the search."""

from __future__ import annotations

from typing import Protocol


class SearchInterruptedError(Exception):
    """A search that cannot go on without its end was interrupted; nobody but its caller sees this."""


class SearchObserver(Protocol):
    """The receiver of a search's reports, which may end it."""

    @property
    def is_interrupted(self) -> bool:
        """Whether this search and every later one is to end with what it has."""

    def begin(self, bound: float) -> None:
        """Take note that a search begins, and of a product in pJ·cycles that no schedule is below."""

    def hear(self, evaluation_count: int, most: int, edp: float) -> None:
        """Take note of the evaluations so far, of how many, and of the best product so far in pJ·cycles."""


class Unobserved:
    is_interrupted = False

    def begin(self, bound: float) -> None:
        """Take no note."""

    def hear(self, evaluation_count: int, most: int, edp: float) -> None:
        """Take no note."""


UNOBSERVED = Unobserved()
