"""Search for the configuration that sustains the highest rate within a bound of p99, by successive halving.

Each configuration has a rate that it is believed to sustain, at first the predicted one. In each rung, every remaining
configuration is tried at its rate. A trial within the bound raises the rate, a trial beyond it lowers the rate, and the
better half stays. The rungs share the time equally, so each halving doubles the time for each remaining configuration
(Jamieson, Talwalkar 2016, Non-stochastic best arm identification and hyperparameter optimization, AISTATS).
Configurations are ranked by rate, energy and cost in turn, so that the best by each of them stay.

Near saturation a queue takes long to fill, so a short trial shows less than a service that stays at that rate. The
best is therefore tried again for longer, and loses its rate if it does not hold it. The rest of the time narrows
the limits of the best and of the runner-up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from common.latency.statistics import Estimate
from common.load.results.validity import VALID, LoadValidity
from common.load.service.concurrency import USUAL, Concurrency

MOST_STARTED = 16  # configurations in the first rung, if the budget has time for them
LAST = 2  # configurations in the last rung: the best and the runner-up
HIGHER, LOWER, OVERLOADED = 1.25, 0.8, 0.5  # the next rate over the last one
FEWEST_REQUESTS = 400  # of a trial: p99 needs 299 for an upper limit, and a quarter is not counted
LEAST_S = 0.5  # duration of a trial
MOST_RUNS = 4  # trials of a configuration in a rung
RETEST_SHARE = 0.3  # of the time is for retests
LONGER = 2.0  # duration of a retest over that of the longest trial
FULLEST = 0.97  # highest rate to try, over the rate that full batches answer
CHANCE_COUNT = 3.0  # with so many failures expected, one trial in twenty sees none
LIGHT = 0.2  # rate of the last trial where nothing met the bound, over the lowest rate that was tried


Shape = tuple[int, int, Concurrency]  # sessions, threads of each, and how they share the host


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    batch_max: int
    wait_s: float  # how long its oldest request waits
    session_count: int
    thread_count: int  # threads of each session
    concurrency: Concurrency = USUAL

    @property
    def shape(self) -> Shape:
        return self.session_count, self.thread_count, self.concurrency


@dataclass(frozen=True, slots=True)
class Trial:
    configuration: Configuration
    rung: int | None  # of the search; None for a trial outside it
    rate_hz: float  # requests per second that came
    completed_hz: float  # requests per second that were answered
    p50_us: Estimate  # median from the intended start to the answer
    p99_us: Estimate  # the same for p99; without a value where the trial is overloaded
    validity: LoadValidity = VALID  # an invalid one cannot be judged against the bound
    power_w: float | None = None  # mean power during the trial, where it is known
    good_share: float = 1.0  # share of the requests that were answered within the bound
    sent_count: int = 0
    failed_count: int = 0

    @property
    def is_judged(self) -> bool:
        return self.validity.status != "invalid"

    @property
    def is_beyond(self) -> bool:
        """Whether the service did not sustain the load, whatever the bound."""
        return self.validity.status in ("overload", "failing")

    def is_within(self, bound_us: float) -> bool:
        value = self.p99_us.value
        return self.validity.status == "valid" and value is not None and value <= bound_us

    def is_surely_within(self, bound_us: float) -> bool:
        """Whether the upper limit of p99 meets the bound, too."""
        return self.is_within(bound_us) and self.p99_us.high is not None and self.p99_us.high <= bound_us

    def is_surely_beyond(self, bound_us: float) -> bool:
        """Whether even the lower limit of p99 exceeds the bound."""
        return self.is_judged and (self.is_beyond or (self.p99_us.low or 0.0) > bound_us)


@dataclass(slots=True)
class Standing:
    """Knowledge of a configuration: its trials, and the rates between which it begins to exceed the bound."""

    configuration: Configuration
    bound_us: float
    first_hz: float
    cost_per_s: float | None = None
    most_hz: float = math.inf
    max_error_share: float = 1.0
    trials: list[Trial] = field(default_factory=list)
    longest_s: float = 0.0  # of its trials that were no retests
    retest_rung: int | None = None

    @property
    def is_retested(self) -> bool:
        """Whether a longer trial has confirmed its rate."""
        return any(
            trial.rung == self.retest_rung and trial.rate_hz == self.rate_hz and trial.is_within(self.bound_us)
            for trial in self.trials
            if trial.rung is not None
        )

    @property
    def rate_hz(self) -> float | None:
        """The highest rate at which it met the bound in its longest trials: in the last rung that has such trials.

        None where too many requests fail (:meth:`_fails_at`).
        """
        within = [trial for trial in self._upheld if trial.is_within(self.bound_us)]
        within = [trial for trial in within if not self._fails_at(trial.rate_hz)]
        last = max((trial.rung or 0 for trial in within), default=0)
        return max((trial.rate_hz for trial in within if (trial.rung or 0) == last), default=None)

    def _holds(self, own: Trial) -> bool:
        """Whether no later rung, whose trials are longer, overrules a trial within the bound."""
        failed = (trial for trial in self._judged if not trial.is_within(self.bound_us))
        return not any((trial.rung or 0) > (own.rung or 0) and trial.rate_hz <= own.rate_hz for trial in failed)

    def _fails_at(self, rate_hz: float) -> bool:
        """Whether too many requests failed in the trials up to a rate, taken together: a single one may be lucky.

        The share that failed in all trials counts, too, until those up to the rate have so many requests that it is no
        chance if none fails (the rule of three: Hanley, Lippman-Hand 1983, JAMA 249).
        """
        own = [trial for trial in self._judged if trial.rate_hz <= rate_hz]
        share = _failed_share(self._judged)
        if _failed_share(own) > self.max_error_share:
            return True
        return share > self.max_error_share and share * sum(trial.sent_count for trial in own) < CHANCE_COUNT

    @property
    def goodput_hz(self) -> float | None:
        """Requests per second that it answers within the bound at its rate."""
        if (rate := self.rate_hz) is None:
            return None
        shares = [trial.good_share for trial in self.trials if trial.rate_hz == rate and trial.is_within(self.bound_us)]
        return rate * sum(shares) / len(shares)

    @property
    def limits_hz(self) -> tuple[float | None, float | None]:
        """The highest rate at which it surely met the bound, and the lowest one above at which it surely did not.

        Where no trial was beyond, the upper one is what full batches answer.
        """
        low = max((trial.rate_hz for trial in self._upheld if trial.is_surely_within(self.bound_us)), default=None)
        beyond = [trial.rate_hz for trial in self.trials if trial.is_surely_beyond(self.bound_us)]
        beyond += [self.most_hz] if self.most_hz < math.inf else []
        return low, min((rate for rate in beyond if rate > (low or 0.0)), default=None)

    @property
    def _judged(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.is_judged]

    @property
    def _upheld(self) -> list[Trial]:
        return [trial for trial in self.trials if self._holds(trial)]

    @property
    def next_hz(self) -> float:
        """The rate to try next: between the last one within and the first one beyond, below what it can answer."""
        return min(self._next_hz, FULLEST * self.most_hz)

    @property
    def retest_hz(self) -> float:
        """The rate of the next retest: the current one, a lower one after it failed, or one that narrows limits."""
        retests = [trial for trial in self._judged if trial.rung == self.retest_rung]
        if self.is_retested or self.rate_hz is None:
            return self.next_hz
        return min([self.rate_hz, *(LOWER * trial.rate_hz for trial in retests)])

    @property
    def _next_hz(self) -> float:
        if not self._judged:
            return self.first_hz * LOWER ** len(self.trials)
        low = self.rate_hz
        above = [trial for trial in self._judged if not trial.is_within(self.bound_us) and trial.rate_hz > (low or 0.0)]
        if not above:
            return (low or self.first_hz) * HIGHER
        first = min(above, key=lambda trial: trial.rate_hz)
        if low is not None:
            return math.sqrt(low * first.rate_hz)
        return first.rate_hz * (OVERLOADED if first.validity.status == "overload" else LOWER)

    @property
    def power_w(self) -> float | None:
        known = [trial.power_w for trial in self.trials if trial.power_w is not None]
        return sum(known) / len(known) if known else None

    def score(self, objective: str, rate_hz: float | None) -> float:
        """Return what is to be small: time, energy or cost of a request at a rate of them; infinite where unknown."""
        per_s = {"rate": 1.0, "energy": self.power_w, "cost": self.cost_per_s}[objective]
        return math.inf if per_s is None or not rate_hz else per_s / rate_hz


def _failed_share(trials: Iterable[Trial]) -> float:
    counts = [(trial.failed_count, trial.sent_count) for trial in trials]
    return sum(failed for failed, _ in counts) / max(1, sum(sent for _, sent in counts))


OBJECTIVES = ("rate", "energy", "cost")
Measure = Callable[[Configuration, float, float, int], Trial]  # configuration, rate in 1/s, duration in s, rung


@dataclass(frozen=True, slots=True)
class SearchResult:
    standings: Sequence[Standing]
    best: Mapping[str, Standing]  # the best by each objective that is known; empty where nothing met the bound
    nearest: Trial | None  # the trial with the lowest p99; None where every one was overloaded
    is_interrupted: bool = False

    @property
    def runner_up(self) -> Standing | None:
        ranked = _ranked([standing for standing in self.standings if standing.rate_hz], "rate")
        return ranked[1] if len(ranked) > 1 else None

    @property
    def margin(self) -> Estimate | None:
        """How far the best goodput exceeds the runner-up's, as a share of the latter, with limits by both rates."""
        if (second := self.runner_up) is None or not second.goodput_hz:
            return None
        first = self.best["rate"]
        (low, high), (other_low, other_high) = first.limits_hz, second.limits_hz
        return Estimate(
            (first.goodput_hz or 0.0) / second.goodput_hz - 1,
            low / other_high - 1 if low and other_high else None,
            high / other_low - 1 if high and other_low else None,
        )

    @property
    def trials(self) -> list[Trial]:
        return [trial for standing in self.standings for trial in standing.trials]


def search(
    first_hz: Mapping[Configuration, float],
    bound_us: float,
    budget_s: float,
    measure: Measure,
    clock: Callable[[], float],
    costs_per_s: Mapping[Configuration, float] | None = None,
    most_hz: Mapping[Configuration, float] | None = None,
    max_error_share: float = 1.0,
) -> SearchResult:
    """Find the best configurations within a time budget; a signal (KeyboardInterrupt) ends the search with what it has.

    Args:
        first_hz: the rate that each configuration is predicted to sustain.
        costs_per_s: what each configuration costs in a second.
        most_hz: the rate that each configuration can answer at most.
        max_error_share: most requests that may fail.
    """
    affordable = int((1 - RETEST_SHARE) * budget_s / (2 * LEAST_S))  # half of the rungs' time is for the first trials
    most_started = max(LAST, min(MOST_STARTED, affordable))
    promising = sorted(first_hz, key=lambda configuration: (-first_hz[configuration], configuration))[:most_started]
    costs, most = costs_per_s or {}, most_hz or {}
    standings = [
        Standing(one, bound_us, first_hz[one], costs.get(one), most.get(one, math.inf), max_error_share)
        for one in promising
    ]
    is_interrupted = False
    try:
        _halve(standings, budget_s, measure, clock)
    except KeyboardInterrupt:
        is_interrupted = True
    return _result([standing for standing in standings if standing.trials], is_interrupted=is_interrupted)


def _halve(standings: Sequence[Standing], budget_s: float, measure: Measure, clock: Callable[[], float]) -> None:
    """Let all run, then the better half for longer, and so on, and then the best again.

    Where nothing met the bound, one runs lightly instead.
    """
    left, end_s = standings, clock() + budget_s
    halved_s = end_s - RETEST_SHARE * budget_s
    rungs = max(1, math.ceil(math.log2(len(left) / LAST)) + 1) if left else 0
    for rung in range(rungs):
        rung_s = max(0.0, halved_s - clock()) / (rungs - rung)
        _climb(left, rung, rung_s / len(left), measure, lambda: clock() >= halved_s)
        left = _better_half(left)
    tried = [standing for standing in standings if standing.trials]
    if tried and not any(standing.rate_hz for standing in tried):
        _try_lightly(tried, rungs, measure, end_s - clock())
    else:
        _retest(tried, rungs, measure, lambda: end_s - clock())


def _climb(
    standings: Sequence[Standing], rung: int, each_s: float, measure: Measure, is_late: Callable[[], bool]
) -> None:
    """Let each configuration run; those of equal sessions follow each other, so that these stay."""
    for standing in sorted(standings, key=lambda standing: standing.configuration.shape):
        wanted_s = max(LEAST_S, FEWEST_REQUESTS / standing.next_hz)
        runs = min(MOST_RUNS, max(1, int(each_s / wanted_s)))
        duration_s = max(LEAST_S, each_s / runs)
        for _ in range(runs):
            if is_late() and standing.trials:
                break
            standing.longest_s = max(standing.longest_s, duration_s)
            standing.trials.append(measure(standing.configuration, standing.next_hz, duration_s, rung))


def _retest(standings: Sequence[Standing], rung: int, measure: Measure, left_s: Callable[[], float]) -> None:
    """Run the best ones again for longer, until each of these has a rate that holds; then narrow their limits.

    A retest is never shorter than a trial that it judges: where the time does not suffice for that, it ends. Which ones
    are retested is settled before. Otherwise each that loses its rate would give way to one with short trials alone.
    """
    leaders = _leaders(standings)
    longest_s = max((standing.longest_s for standing in standings), default=0.0)
    for standing in leaders:
        standing.retest_rung = rung
    for turn in count():
        own = next((one for one in leaders if not one.is_retested), leaders[turn % len(leaders)] if leaders else None)
        duration_s = min(left_s(), max(LONGER * longest_s, FEWEST_REQUESTS / own.retest_hz)) if own else 0.0
        if own is None or duration_s < longest_s:
            return
        own.trials.append(measure(own.configuration, own.retest_hz, duration_s, rung))


def _leaders(standings: Sequence[Standing]) -> list[Standing]:
    """Return the best by each objective that is known, and the runner-up by rate."""
    ranking = _result(standings, is_interrupted=False)
    leaders = [*ranking.best.values(), *([ranking.runner_up] if ranking.runner_up else [])]
    return [
        standing for place, standing in enumerate(leaders) if all(standing is not other for other in leaders[:place])
    ]


def _better_half(standings: Sequence[Standing]) -> list[Standing]:
    """Return the better half, at least two, by each objective in turn."""
    wanted = max(LAST, math.ceil(len(standings) / 2))
    orders = [_ranked(standings, objective, is_sure=False) for objective in OBJECTIVES]
    chosen: dict[int, Standing] = {}
    for standing in (one for place in zip(*orders, strict=True) for one in place):
        if len(chosen) < wanted:
            chosen.setdefault(id(standing), standing)
    return [*chosen.values()]


def _ranked(standings: Iterable[Standing], objective: str, *, is_sure: bool = True) -> list[Standing]:
    """Return the best first; by the rate that was reached, or by the one to try next.

    A rate that a longer trial has confirmed goes before others. Where an objective is unknown for all, the rate orders.
    """

    def key(standing: Standing) -> tuple[bool, float, float]:
        rate = standing.goodput_hz if is_sure else standing.next_hz
        return not standing.is_retested, standing.score(objective, rate), standing.score("rate", rate)

    return sorted(standings, key=key)


def _try_lightly(standings: Sequence[Standing], rung: int, measure: Measure, left_s: float) -> None:
    """Let the one with the lowest p99 run once more in the time left, under a light load: nothing has met the bound."""
    nearest = min(standings, key=lambda standing: min(map(_p99, standing.trials)))
    rate_hz = LIGHT * min(trial.rate_hz for trial in nearest.trials)
    duration_s = max(LEAST_S, min(left_s, FEWEST_REQUESTS / rate_hz))
    nearest.trials.append(measure(nearest.configuration, rate_hz, duration_s, rung))


def _p99(trial: Trial) -> float:
    return trial.p99_us.value if trial.p99_us.value is not None and trial.is_judged else math.inf


def _result(standings: Sequence[Standing], *, is_interrupted: bool) -> SearchResult:
    meeting = [standing for standing in standings if standing.rate_hz]
    best = {}
    for objective in OBJECTIVES:
        ranked = _ranked(meeting, objective)
        if known := [one for one in ranked if one.score(objective, one.goodput_hz) < math.inf]:
            best[objective] = known[0]
    trials = [trial for standing in standings for trial in standing.trials]
    nearest = min((trial for trial in trials if _p99(trial) < math.inf), key=_p99, default=None)
    return SearchResult(standings, best, nearest, is_interrupted)


def on_front(trials: Sequence[Trial]) -> list[bool]:
    """Whether each trial is on the Pareto front: no other one has a higher rate and no higher p99, or the reverse."""

    def beats(one: Trial, other: Trial) -> bool:
        figures, others = (one.completed_hz, -_p99(one)), (other.completed_hz, -_p99(other))
        return figures != others and all(a >= b for a, b in zip(figures, others, strict=True))

    return [_p99(own) < math.inf and not any(beats(other, own) for other in trials) for own in trials]
