"""The bounds that a format must reach, and whether it reaches them."""

from __future__ import annotations

from dataclasses import dataclass

from common.precision.judgement.evaluation import OutputJudgement
from common.precision.judgement.samples import RANDOM

SURVIVES, UNDECIDED, BREAKS, NOT_JUDGED = "survives", "undecided", "breaks", "not judged"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least agreement and the least signal-to-noise ratio that a format must reach; None: no bound."""

    agreement: float
    sqnr_db: float | None = None

    def are_met(self, found: OutputJudgement) -> bool:
        """Return whether the agreement itself, and the noise, are within the bounds."""
        if found.is_lost:
            return False
        is_quiet = self.sqnr_db is None or (found.sqnr_db is not None and found.sqnr_db >= self.sqnr_db)
        return is_quiet and (found.top_1 is None or found.top_1.value >= self.agreement)

    def verdict(self, found: OutputJudgement, source: str) -> str:
        """Return whether the model survives a format, by the limits of the agreement and by the noise."""
        if source == RANDOM:
            return NOT_JUDGED
        if found.is_lost:
            return BREAKS
        if self.sqnr_db is not None and (found.sqnr_db is None or found.sqnr_db < self.sqnr_db):
            return BREAKS
        if found.top_1 is None:
            return NOT_JUDGED if self.sqnr_db is None else SURVIVES
        if found.top_1.high < self.agreement:
            return BREAKS
        return SURVIVES if found.top_1.low >= self.agreement else UNDECIDED
