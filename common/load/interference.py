"""How two services that run together slow each other down: each alone and both together, under the same requests.

The three loads take turns in rounds, so that what else changes on the host hits all of them. In a round a service gets
the same arrivals alone and together. The figures are of all rounds; the first quarter of each load is not counted,
since the queue starts empty. The limits of a ratio follow from leaving out one round after the other (the grouped
jackknife of the logarithm, with Student's distribution: Shao, Wu 1989, A general theory for jackknife variance
estimation, Annals of Statistics 17(3)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from common.latency.dependence import Samples
from common.latency.statistics import Estimate, estimate_columns, percentile
from common.load.generator.harness import Harness, load_together
from common.load.requests.load_record import OUTCOMES, LoadRecord, error_share
from common.load.results.load_figures import LoadTest
from common.load.results.thresholds import LoadThresholds
from common.load.results.validity import LoadValidity, judge, undelayed_us, utilization, widened
from common.load.search.trials import FILLING_SHARE
from common.table_rows import LoadInterferenceRow

ROUNDS = 8
STUDENT_7 = 2.365  # 0.975 quantile of Student's t with 7 degrees of freedom (NIST/SEMATECH e-Handbook, 1.3.6.7)
ALONE, TOGETHER = "alone", "together"
MAIN, OTHER = "main", "other"
ROLES = (MAIN, OTHER)
QUANTILES = {"p50": 0.5, "p99": 0.99}

Loads = Callable[[int, Sequence[int]], list[LoadTest]]  # number of a round, services that run in it: their tests


@dataclass(slots=True)
class Rounds:
    """The tests of one service, alone or together, one per round."""

    tests: list[LoadTest] = field(default_factory=list)

    @property
    def validity(self) -> LoadValidity:
        first = self.tests[0]
        most_running = first.worker_count * first.policy.most
        records, max_share = [test.record for test in self.tests], first.thresholds.max_error_share
        return judge(records, is_open=first.is_open, most_running=most_running, max_error_share=max_share)

    def latencies_us(self, left_out: int | None = None, *, is_delayed: bool = True) -> Samples:
        """Return the latencies of all rounds but one; ``is_delayed``: with the generator's own delays."""
        records = self._records(left_out)
        parts = [record.waited_us if is_delayed else undelayed_us(record) for record in records]
        return np.concatenate([part[int(FILLING_SHARE * len(part)) :] for part in parts])

    def answered_hz(self, left_out: int | None = None) -> float:
        """Return the requests per second that were answered in all rounds but one."""
        records = self._records(left_out)
        answered = sum(record.counts["completed"] for record in records)
        return answered / max(sum(record.answering_s for record in records), 1e-9)

    def _records(self, left_out: int | None) -> list[LoadRecord]:
        return [test.record for index, test in enumerate(self.tests) if index != left_out]


RoundsByState = Mapping[tuple[str, str], Rounds]  # by role, and by alone or together


@dataclass(frozen=True, slots=True)
class Interference:
    last: LoadTest  # the last test of the main service beside the other one
    rows: list[LoadInterferenceRow]
    lacks: list[str]  # why these are incomplete; empty where they are not


def load_alone_and_together(main: Harness, other: Harness) -> Interference:
    """Load two services alone and together; each of the three loads has the time of the main service's demand."""
    duration_s = main.demand.duration_s / ROUNDS

    def loads(index: int, services: Sequence[int]) -> list[LoadTest]:
        return load_together([(main, other)[service].part(index, duration_s) for service in services])

    states = measure_interference(loads)
    tests = states[MAIN, TOGETHER].tests
    lacks = [f"a signal ended round {len(tests) + 1} of {ROUNDS}"] if len(tests) < ROUNDS else []
    models = {role: str(one.model.figures["served_model"]) for role, one in zip(ROLES, (main, other), strict=True)}
    return Interference(tests[-1], interference_rows(states, models), lacks)


def measure_interference(loads: Loads) -> RoundsByState:
    """Load two services alone and together in turn, until a signal comes; only whole rounds count.

    Raises:
        KeyboardInterrupt: the signal came in the first round.
    """
    states = {(role, state): Rounds() for role in ROLES for state in (ALONE, TOGETHER)}
    for index in range(ROUNDS):
        try:
            tests = dict(_round(loads, index))
        except KeyboardInterrupt:
            if not index:
                raise
            break
        for key, test in tests.items():
            states[key].tests.append(test)
    return states


def _round(loads: Loads, index: int) -> Iterator[tuple[tuple[str, str], LoadTest]]:
    """Yield the tests of a round; every other round is in reverse order."""
    order: list[tuple[str, Sequence[int]]] = [(ALONE, (0,)), (ALONE, (1,)), (TOGETHER, (0, 1))]
    for state, services in order[:: -1 if index % 2 else 1]:
        for service, test in zip(services, loads(index, services), strict=True):
            if test.record.is_interrupted:
                raise KeyboardInterrupt
            yield (ROLES[service], state), test


def ratio(together: Rounds, alone: Rounds, figure: Callable[[Rounds, int | None], float]) -> Estimate:
    """Return a figure together over the same alone, with its 95 % interval; no interval from less than all rounds."""
    count = len(alone.tests)

    def log_ratio(left_out: int | None) -> float:
        over, under = figure(together, left_out), figure(alone, left_out)
        return math.log(over / under) if over > 0 and under > 0 else math.nan

    value, parts = log_ratio(None), np.array([log_ratio(index) for index in range(count)])
    if math.isnan(value):
        return Estimate()
    if count < ROUNDS or np.isnan(parts).any():
        return Estimate(math.exp(value))
    reach = STUDENT_7 * math.sqrt((count - 1) / count * float(((parts - parts.mean()) ** 2).sum()))
    return Estimate(math.exp(value), math.exp(value - reach), math.exp(value + reach))


def interference_rows(states: RoundsByState, models: Mapping[str, str]) -> list[LoadInterferenceRow]:
    """Return a row per service and state; those of both together have ratios to those alone."""
    return [_row(states, role, state, models[role]) for role in ROLES for state in (ALONE, TOGETHER)]


def _row(states: RoundsByState, role: str, state: str, model: str) -> LoadInterferenceRow:
    own, alone = states[role, state], states[role, ALONE]
    records, validity = [test.record for test in own.tests], own.validity
    valid = {state: states[role, state].validity.status == "valid" for state in (ALONE, TOGETHER)}
    latencies_us, undelayed = own.latencies_us(), own.latencies_us(is_delayed=False)
    factor = max(test.latency_factor for test in own.tests)
    row: dict[str, object] = {
        "model_role": role,
        "load_state": state,
        "served_model": model,
        "validity": validity.status,
        "validity_reason": validity.reason,
        "sent_count": sum(map(len, records)),
        **{f"{name}_count": sum(record.counts[name] for record in records) for name in OUTCOMES[1:]},
        "error_share": error_share(records),
        "offered_requests_per_s": _offered_hz(own),
        "answered_requests_per_s": own.answered_hz(),
        "utilization_share": _utilization(own),
    }
    for name, quantile in QUANTILES.items():
        estimates = (percentile(samples, quantile, factor) for samples in (latencies_us, undelayed))
        known = widened(*estimates) if valid[state] else Estimate()
        row |= estimate_columns(f"request_{name}", known)
        is_compared = state == TOGETHER and all(valid.values()) and known.value is not None
        slowdown = ratio(own, alone, _quantile(quantile)) if is_compared else Estimate()
        row |= estimate_columns(f"request_{name}_slowdown", slowdown, "factor")
    rates = ratio(own, alone, Rounds.answered_hz) if state == TOGETHER else Estimate()
    return cast("LoadInterferenceRow", row | estimate_columns("answered_rate", rates, "factor"))


def interference_figures(rows: Iterable[LoadInterferenceRow]) -> dict[str, dict[str, object]]:
    """Return what running together does to each service: its model, and the ratios with their limits."""
    together = [row for row in rows if row["load_state"] == TOGETHER]
    return {
        row["model_role"]: {
            name: value for name, value in row.items() if name == "served_model" or name.endswith("_factor")
        }
        for row in together
    }


def broken_by(rows: Iterable[LoadInterferenceRow], thresholds: LoadThresholds) -> list[str]:
    """Return which services break the thresholds, alone or together."""
    problems = ((row, problem) for row in rows for problem in thresholds.broken(row))
    return [f"{row['served_model']} {row['load_state']}: {problem}" for row, problem in problems]


def _offered_hz(state: Rounds) -> float | None:
    """Return the requests per second that came between the first and the last one of each round."""
    records = [test.record for test in state.tests if len(test.record) > 1]
    span_ns = sum(int(record.intended_ns[-1] - record.intended_ns[0]) for record in records)
    return sum(len(record) - 1 for record in records) / (span_ns / 1e9) if span_ns else None


def _utilization(state: Rounds) -> float | None:
    """Return the mean over the rounds in which requests came."""
    shares = [utilization(test.record, test.worker_count) for test in state.tests if len(test.record)]
    return float(np.mean(shares)) if shares else None


def _quantile(quantile: float) -> Callable[[Rounds, int | None], float]:
    return lambda state, left_out: float(np.quantile(state.latencies_us(left_out), quantile))
