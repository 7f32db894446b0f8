"""A profile of request rates over the time of a load: steps of one rate each, or of a rate that changes evenly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from common.messages.errors import UnusableValueError

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RateStep:
    duration_s: float
    begin_hz: float | None = None  # requests per second at its begin; None where no rate is asked for
    end_hz: float | None = None  # at its end; another one than at the begin is a ramp: the rate changes evenly

    @property
    def expected_count(self) -> float:
        return self.duration_s * ((self.begin_hz or 0.0) + (self.end_hz or 0.0)) / 2

    def time_s(self, expected: Numbers) -> Numbers:
        """Return when that many requests are expected, from the begin of the step.

        It is the root t of ``expected = begin·t + (end − begin)·t² / (2·duration)``, in the form that loses no digits
        where the rate hardly changes.
        """
        begin_hz, end_hz = self.begin_hz or 0.0, self.end_hz or 0.0
        root = np.sqrt(np.maximum(0.0, begin_hz**2 + 2 * expected * (end_hz - begin_hz) / self.duration_s))
        with np.errstate(invalid="ignore"):  # nothing is expected at the begin of a ramp from 0
            return np.where(expected > 0, 2 * expected / (begin_hz + root), 0.0)


@dataclass(frozen=True)
class RateProfile:
    steps: tuple[RateStep, ...]

    @classmethod
    def of(cls, steps: Iterable[tuple[float, float, float]]) -> RateProfile:
        """Return the profile of durations in s, each with the rates at its begin and end.

        Raises:
            UnusableValueError: no request comes.
        """
        profile = cls(tuple(RateStep(*step) for step in steps))
        if not profile.expected_count:
            raise UnusableValueError("profile", "no request comes: every rate is 0", "give a rate above 0")
        return profile

    @property
    def duration_s(self) -> float:
        return sum(step.duration_s for step in self.steps)

    @property
    def expected_count(self) -> float:
        return float(self._expected[-1])

    @cached_property
    def _expected(self) -> Numbers:
        """Requests that are expected up to the begin of each step, and up to the end of the last one."""
        return np.concatenate([[0.0], np.cumsum([step.expected_count for step in self.steps])])

    def times_s(self, expected: Numbers) -> Numbers:
        """Return when that many requests are expected; they are in order, and fewer than those of the whole profile."""
        ends = np.searchsorted(expected, self._expected)
        begin_s, parts = 0.0, []
        for index, (step, (first, end)) in enumerate(zip(self.steps, pairwise(ends), strict=True)):
            own_s = step.time_s(expected[first:end] - self._expected[index])
            parts.append(begin_s + np.minimum(own_s, step.duration_s))
            begin_s += step.duration_s
        return np.concatenate(parts)
