"""Times of a decoder on the host at any length, from the tokens that were generated there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from common.generation.figures import counted
from common.generation.phases import DECODE, PREFILL
from common.graphs.grouping import grouped
from common.messages.errors import UnusableValueError
from common.table_rows import GenerationRow


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Times on the host in µs."""

    prompts: Sequence[tuple[int, float]]  # length and mean time of each prompt that was measured
    base_us: float  # time per token at no past, and its growth with each token in the caches
    per_past_us: float
    fast: float  # of the fastest and the slowest answer, over the mean one
    slow: float
    longest: int  # tokens in the caches at the last token that was measured
    answer_count: int  # answers with tokens after the first; one alone says nothing of the spread

    def prompt_us(self, length: int) -> float:
        """Return the time of a prompt: between measured lengths on a line, beyond them in proportion to the length.

        No prompt that is shorter than the measured ones takes less than one token.

        An UnusableValueError says that no prompt was measured.
        """
        if not self.prompts:
            raise UnusableValueError("generation", "holds no prompt", "generate with a prompt")
        lengths, times = (np.array(column, float) for column in zip(*sorted(self.prompts), strict=True))
        if lengths[0] <= length <= lengths[-1]:
            return float(np.interp(length, lengths, times))
        if length < lengths[0]:
            return max(self.token_us(0), float(times[0] * length / lengths[0]))
        return float(times[-1] * length / lengths[-1])

    @property
    def doubts(self) -> list[str]:
        """Why the times decide nothing: without a second answer, their spread would be none."""
        return ["one counted answer gives the host's times no interval"] if self.answer_count < 2 else []

    def token_us(self, past: int) -> float:
        """Return the time of one token after ``past`` ones."""
        return self.base_us + self.per_past_us * past


def host_times(rows: Sequence[GenerationRow], *, is_loop: bool = False) -> HostTimes:
    """Return the times that the tokens after the warm-up give: for those of decode, a line over the past.

    A growth within twice its standard error is noise, so the mean is taken then.

    Args:
        is_loop: of a loop of states, whose first step counts as its prompt.

    Raises:
        UnusableValueError: no token was generated with others before it.
    """
    used = counted(rows)
    decode = [row for row in used if row["generation_phase"] == DECODE]
    if not decode:
        raise UnusableValueError("generation", "holds no token after the first one", "generate more tokens")
    past, times = (np.array([row[name] for row in decode], float) for name in ("past_token_count", "token_us"))
    slope = _growth(past, times)
    base = float(times.mean() - slope * past.mean())
    prefill = (row for row in used if row["generation_phase"] == PREFILL)
    lengths = grouped((row["new_token_count"], row["token_us"]) for row in prefill)
    prompts = [(1, base)] if is_loop else [(length, float(np.mean(us))) for length, us in lengths.items()]
    answers = {row["answer_index"] for row in decode}
    return HostTimes(prompts, base, slope, *_spread(decode, base, slope), int(past.max()), len(answers))


def _growth(past: npt.NDArray[np.float64], times: npt.NDArray[np.float64]) -> float:
    """Return the growth of the times per token in the caches: of their least-squares line, which starts above zero."""
    spread = float(((past - past.mean()) ** 2).sum())
    if len(past) < 3 or not spread:
        return 0.0
    slope = float(((past - past.mean()) * (times - times.mean())).sum()) / spread
    rest = times - times.mean() - slope * (past - past.mean())
    error = sqrt(float((rest**2).sum()) / (len(past) - 2) / spread)
    return min(slope, float(times.mean() / past.mean())) if slope > 2 * error else 0.0


def _spread(decode: Sequence[GenerationRow], base: float, slope: float) -> tuple[float, float]:
    """Return the fastest and the slowest answer over the line, by the tokens of each."""
    shares = [
        sum(row["token_us"] for row in of_answer) / sum(base + slope * row["past_token_count"] for row in of_answer)
        for of_answer in grouped((row["answer_index"], row) for row in decode).values()
    ]
    return min(1.0, *shares), max(1.0, *shares)
