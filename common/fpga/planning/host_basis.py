"""The source of the host's times of a plan: the profile, a factor on it, or the board's own processor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from common.fpga.device.board import Board
from common.intervals import ThreePoint
from common.messages.errors import UnusableValueError
from common.messages.host_doubts import OTHER_HOST
from common.messages.names import quoted

LEAST_FACTOR, MOST_FACTOR = 1e-6, 1e6  # beyond, no two hosts are apart
HostKind = Literal["profiled", "scaled", "measured"]


@dataclass(frozen=True, slots=True)
class HostBasis:
    """Where the host's times of a plan come from."""

    # The source: the profile, the profile times a factor, or a profile on the host of the plan
    kind: HostKind = "profiled"
    processor: str = ""  # name of the processor on which the times were measured
    scaling: str = ""  # the factor and its source, in words; empty without one

    @property
    def measured_on(self) -> str:
        return self.processor or "another machine"

    def of_plan(self, board: Board) -> str:
        if self.kind == "scaled":
            return f"{board.own_processor or 'another host'}: the times of {self.measured_on}, {self.scaling}"
        return self.measured_on

    def mismatch(self, board: Board) -> str:
        """Return why the times do not hold for the host of a board with its own processor; empty if they hold."""
        is_own = self.kind == "scaled" or (self.kind == "measured" and self.processor == board.own_processor)
        if is_own or not board.own_processor:
            return ""
        own = f"{OTHER_HOST} {board.name} is its own {board.own_processor}"
        return f"{own}, and the times are those of {self.measured_on}"


@dataclass(frozen=True, slots=True)
class HostScale:
    """The factor from the profiled host's time to another host's, and its source."""

    factor: ThreePoint
    source: str

    def __str__(self) -> str:
        low, likely, high = (f"{value:.3g}" for value in self.factor.cases)
        interval = "" if low == high else f" ({low} to {high})"
        return f"times {likely}{interval}: {self.source}"


def host_scale(factor: ThreePoint | None, source: str | None, *, has_tables: bool) -> HostScale | None:
    """Return the factor on the host's times if one is given.

    An UnusableValueError says that it has no source, or the host has tables of its own, which have the times.
    """
    if factor is None:
        return None
    if has_tables:
        problem = "does not go with <host_tables>, which has the times"
        raise UnusableValueError("host_scale", problem, "leave one out")
    if not source:
        raise UnusableValueError("host_scale", "has no source", "add <host_scale_source> with the source of the factor")
    return HostScale(factor, source)


def host_basis(processor: str, scale: HostScale | None, *, may_be_of_board: bool) -> HostBasis:
    """Return the basis of times of a processor; ``may_be_of_board``: they hold for a board that has this processor."""
    kind: HostKind = "measured" if may_be_of_board else "profiled" if scale is None else "scaled"
    return HostBasis(kind, processor, "" if scale is None else str(scale))


def read_host_scale(text: str) -> ThreePoint:
    """Return the factor of ``8``, ``6..10`` or ``6..8..10``; the likely one of two ends is their geometric mean.

    An UnusableValueError says that the text is no such factor.
    """
    try:
        values = [float(part) for part in text.split("..")]
    except ValueError:
        values = []
    is_rising = values == sorted(values) and all(LEAST_FACTOR <= value <= MOST_FACTOR for value in values)
    if not is_rising or not 1 <= len(values) <= 3:
        raise UnusableValueError("host_scale", f"{quoted(text)} is no factor", "give for example 8, 6..10 or 6..8..10")
    return ThreePoint(values[0], values[1] if len(values) == 3 else math.sqrt(values[0] * values[-1]), values[-1])
