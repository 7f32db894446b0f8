"""The search on services whose best configuration is known, on a clock that only the runs move."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from common.latency.statistics import Estimate
from common.load.results.validity import LoadValidity
from common.load.search.halving import Configuration, Standing, Trial, _result, on_front, search

BOUND_US = 50_000.0
CONFIGURATIONS = [
    Configuration(*values) for values in itertools.product((1, 2, 4, 8, 16), (0.0, 0.005), (1, 2), (1, 2))
]


class Services:
    """Services with p99 = base / (1 - rate / capacity), known within a relative error."""

    def __init__(self, seed, power_w=None, error=0.02):
        random = np.random.default_rng(seed)
        self.capacity = {one: float(random.uniform(20, 400)) for one in CONFIGURATIONS}
        self.base_us = {one: float(random.uniform(5_000, 45_000)) for one in CONFIGURATIONS}
        self.power_w = power_w or {}
        self.error, self.now_s, self.calls = error, 0.0, []

    def limit_hz(self, one):
        """The rate at which p99 is the bound."""
        return self.capacity[one] * (1 - self.base_us[one] / BOUND_US)

    def measure(self, one, rate_hz, duration_s, rung):
        self.now_s += duration_s
        self.calls.append((one, rate_hz, duration_s, rung))
        left = 1 - rate_hz / self.capacity[one]
        p99 = self.base_us[one] / left if left > 0 else None
        limits = (p99 * (1 - self.error), p99 * (1 + self.error)) if p99 else (None, None)
        estimate = Estimate(p99, *limits)
        done = min(rate_hz, self.capacity[one])
        validity = LoadValidity("overload" if p99 is None else "valid")
        return Trial(one, rung, rate_hz, done, estimate, estimate, validity, self.power_w.get(one))

    def search(self, budget_s=600.0, costs=None, guess=None):
        guesses = guess or {one: 1.2 * self.limit_hz(one) for one in CONFIGURATIONS}
        return search(guesses, BOUND_US, budget_s, self.measure, lambda: self.now_s, costs)


@pytest.mark.parametrize("seed", range(10))
def test_the_best_is_found_within_the_budget(seed):
    services = Services(seed)
    found = services.search()
    best = found.best["rate"]
    known = max(map(services.limit_hz, CONFIGURATIONS))
    assert services.limit_hz(best.configuration) >= 0.9 * known
    assert 0.85 * services.limit_hz(best.configuration) <= best.rate_hz <= services.limit_hz(best.configuration)
    assert services.now_s <= 601
    low, high = best.limits_hz
    assert low <= services.limit_hz(best.configuration)
    assert high is None or high >= services.limit_hz(best.configuration)


def test_each_rung_keeps_the_better_half_and_gives_it_more_time():
    services = Services(3)
    services.search()
    rungs = {rung: {one for one, *_, own in services.calls if own == rung} for *_, rung in services.calls}
    assert [len(rungs[rung]) for rung in range(4)] == [16, 8, 4, 2]
    spent = [sum(seconds for *_, seconds, own in services.calls if own == rung) for rung in range(4)]
    assert spent == pytest.approx([0.7 * 150.0] * 4, rel=0.1)


class FillingServices(Services):
    """Services whose queue takes a time to fill: a run of that time shows half of what a long one shows."""

    def __init__(self, seed, filling_s):
        super().__init__(seed)
        self.filling_s, self.most_s = filling_s, 0.0

    def measure(self, one, rate_hz, duration_s, rung):
        trial = super().measure(one, rate_hz, duration_s, rung)
        if trial.p99_us.value is None:
            return trial
        shown = self.base_us[one] + (trial.p99_us.value - self.base_us[one]) * duration_s / (
            self.filling_s + duration_s
        )
        return replace(trial, p99_us=Estimate(shown, 0.98 * shown, 1.02 * shown))


@pytest.mark.parametrize("seed", range(5))
def test_a_rate_that_only_short_runs_show_is_lost_in_a_longer_one(seed):
    services = FillingServices(seed, filling_s=8.0)
    found = services.search(budget_s=1200.0)
    best = found.best["rate"]
    halved = [one for one in best.trials if one.rung < best.retest_rung and one.is_within(BOUND_US)]
    retests = [seconds for one, _, seconds, rung in services.calls if rung == best.retest_rung]
    assert best.is_retested
    assert min(retests) >= max(seconds for *_, seconds, rung in services.calls if rung < best.retest_rung)
    assert best.rate_hz <= 1.1 * services.limit_hz(best.configuration)
    assert services.now_s <= 1201
    flattered = max(one.rate_hz for one in halved)
    if flattered > 1.15 * services.limit_hz(best.configuration):
        assert best.rate_hz < flattered


def test_without_time_for_a_longer_run_a_rate_stands_unconfirmed():
    services = Services(5)
    fine = services.measure

    def measure(one, rate_hz, duration_s, rung):
        trial = fine(one, rate_hz, duration_s, rung)
        services.now_s += 9 * duration_s  # what the clock shows is more than what was asked for
        return trial

    services.measure = measure
    assert not services.search(budget_s=120.0).best["rate"].is_retested


def test_the_time_that_is_left_narrows_the_limits_of_the_best_and_the_runner_up():
    services = Services(4)
    short, long = services.search(budget_s=200.0), Services(4).search(budget_s=2000.0)
    widths = [
        (found.best["rate"].limits_hz[1] or math.inf) / found.best["rate"].limits_hz[0] for found in (short, long)
    ]
    assert widths[1] <= widths[0]
    retested = {one.configuration for one in long.standings if any(run.rung == one.retest_rung for run in one.trials)}
    assert {long.best["rate"].configuration, long.runner_up.configuration} <= retested


def test_no_configuration_sustains_more_than_full_batches_answer():
    standing = Standing(CONFIGURATIONS[0], BOUND_US, 50.0, most_hz=80.0)
    estimate = Estimate(BOUND_US - 2, BOUND_US - 3, BOUND_US - 1)
    standing.trials.append(Trial(CONFIGURATIONS[0], 0, 50.0, 50.0, estimate, estimate))
    assert standing.limits_hz == (50.0, 80.0)


def test_the_runner_up_and_its_margin_with_limits():
    services = Services(4)
    found = services.search()
    first, second = found.best["rate"], found.runner_up
    assert second.configuration != first.configuration
    assert found.margin.value == pytest.approx(first.rate_hz / second.rate_hz - 1)
    true = services.limit_hz(first.configuration) / services.limit_hz(second.configuration) - 1
    assert (found.margin.low is None or found.margin.low <= true) and (
        found.margin.high is None or true <= found.margin.high
    )


def test_the_best_by_energy_and_by_cost_are_others():
    watts = {one: 10.0 * one.session_count * one.thread_count for one in CONFIGURATIONS}
    services = Services(6, watts)
    costs = {one: 1.0 if one.batch_max == 1 else 50.0 for one in CONFIGURATIONS}
    found = services.search(costs=costs, guess=dict.fromkeys(CONFIGURATIONS, 100.0))

    def least(figure):
        tried = [standing.configuration for standing in found.standings if standing.rate_hz]
        return min(tried, key=lambda one: figure[one] / services.limit_hz(one))

    for objective, figure in (("energy", watts), ("cost", costs)):
        chosen = found.best[objective].configuration
        assert figure[chosen] / services.limit_hz(chosen) <= 1.25 * figure[least(figure)] / services.limit_hz(
            least(figure)
        )
    assert found.best["cost"].configuration.batch_max == 1


def test_without_power_and_cost_nothing_is_best_by_them():
    assert {*Services(1).search().best} == {"rate"}


def test_a_bound_that_nothing_meets_names_what_is_nearest():
    services = Services(2)
    services.base_us = {one: BOUND_US * (1.5 + number) for number, one in enumerate(CONFIGURATIONS)}
    found = services.search(guess=dict.fromkeys(CONFIGURATIONS, 10.0))
    assert not found.best
    assert found.runner_up is None and found.margin is None
    assert found.nearest.configuration == CONFIGURATIONS[0]
    assert BOUND_US * 1.5 < found.nearest.p99_us.value < BOUND_US * 1.6  # under a light load
    assert found.nearest.rate_hz < 10


def test_a_light_load_of_a_slow_model_keeps_to_the_budget():
    services = Services(2)
    services.base_us = dict.fromkeys(CONFIGURATIONS, 2 * BOUND_US)
    found = services.search(guess=dict.fromkeys(CONFIGURATIONS, 0.1), budget_s=60)
    assert not found.best and services.now_s <= 61


def test_a_run_that_tells_nothing_decides_nothing():
    services = Services(7)
    fine = services.measure

    def measure(one, rate_hz, duration_s, rung):
        trial = fine(one, rate_hz, duration_s, rung)
        if len(services.calls) % 5:
            return trial
        return Trial(one, rung, rate_hz, 0.0, Estimate(1.0, 1.0, 1.0), Estimate(1.0, 1.0, 1.0), LoadValidity("invalid"))

    services.measure = measure
    best = services.search().best["rate"]
    assert best.rate_hz <= services.limit_hz(best.configuration)


def test_a_longer_run_overrules_a_shorter_one():
    estimate = Estimate(BOUND_US - 1, None, None)
    runs = [(0, 90.0, False), (0, 100.0, False), (1, 95.0, True), (1, 85.0, False)]
    standing = Standing(CONFIGURATIONS[0], BOUND_US, 100.0)
    standing.trials += [
        Trial(CONFIGURATIONS[0], rung, rate, rate, estimate, estimate, LoadValidity("overload" if fails else "valid"))
        for rung, rate, fails in runs
    ]
    assert standing.rate_hz == 85.0
    assert 85.0 < standing.next_hz < 95.0


def test_no_rate_beyond_what_can_be_answered_is_tried():
    services = Services(3)
    most = dict.fromkeys(CONFIGURATIONS, 100.0)
    guess = dict.fromkeys(CONFIGURATIONS, 500.0)
    search(guess, BOUND_US, 60.0, services.measure, lambda: services.now_s, None, most)
    assert max(rate for _, rate, *_ in services.calls) == pytest.approx(97.0)


def test_every_configuration_overloaded_has_no_nearest():
    services = Services(8)
    services.capacity = dict.fromkeys(CONFIGURATIONS, 1e-9)
    found = services.search(guess=dict.fromkeys(CONFIGURATIONS, 10.0), budget_s=40)
    assert not found.best and found.nearest is None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("budget_s", [3.0, 7.0, 13.0, 19.0, 29.0])
def test_a_short_budget_starts_fewer_configurations(budget_s, seed):
    services = Services(seed)
    found = services.search(budget_s)
    assert services.now_s <= budget_s + 1.0  # two of the shortest runs
    assert 2 <= len(found.standings) <= 16


def test_a_budget_of_no_time_runs_the_two_that_promise_most_once():
    services = Services(9)
    services.search(budget_s=0.0)
    assert {one for one, *_ in services.calls} == {*sorted(CONFIGURATIONS, key=services.limit_hz)[-2:]}


def test_the_front_holds_what_no_other_run_beats():
    def trial(rate, p99):
        estimate = Estimate(p99, None, None)
        return Trial(CONFIGURATIONS[0], 0, rate, rate, estimate, estimate)

    trials = [trial(10, 5.0), trial(20, 7.0), trial(15, 8.0), trial(20, 9.0), trial(30, math.inf), trial(10, 5.0)]
    assert on_front(trials) == [True, True, False, False, False, True]
    assert not on_front([trial(10, None)])[0]


class FailingServices(Services):
    """Services of which some fail a share of their requests."""

    def __init__(self, seed, share, failing):
        super().__init__(seed)
        self.share, self.failing, self.random = share, failing, np.random.default_rng(seed)

    def measure(self, one, rate_hz, duration_s, rung):
        trial = super().measure(one, rate_hz, duration_s, rung)
        sent = max(1, round(rate_hz * duration_s))
        failed = int(self.random.binomial(sent, self.share)) if one in self.failing else 0
        trial = replace(trial, sent_count=sent, failed_count=failed, good_share=1 - failed / sent)
        if failed <= 0.001 * sent:
            return trial
        return replace(trial, validity=LoadValidity("failing", "thrown"), p50_us=Estimate(), p99_us=Estimate())

    def search(self):
        guesses = {one: 1.2 * self.limit_hz(one) for one in CONFIGURATIONS}
        return search(guesses, BOUND_US, 600.0, self.measure, lambda: self.now_s, max_error_share=0.001)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [104 / 628, 0.01, 0.003])
def test_a_configuration_that_fails_too_many_requests_is_never_chosen(seed, share):
    services = FailingServices(seed, share, failing=())
    failing = sorted(CONFIGURATIONS, key=services.limit_hz)[-3:]  # those that would be the best
    services.failing = failing
    found = services.search()
    assert found.best["rate"].configuration not in failing
    assert found.runner_up.configuration not in failing
    assert found.best["rate"].rate_hz > 0.5 * services.limit_hz(found.best["rate"].configuration)


def test_where_all_fail_nothing_is_best_or_nearest():
    found = FailingServices(3, 0.05, CONFIGURATIONS).search()
    assert not found.best and found.nearest is None and found.runner_up is None
    assert {trial.validity.status for trial in found.trials} <= {"failing", "overload"}


def test_a_lucky_trial_does_not_hide_what_failed_in_the_others():
    """One of 400 requests failed in the first trial, none of 100 in the second, at the same rate: 0.2 % of all."""
    estimate = Estimate(BOUND_US - 1)
    standing = Standing(CONFIGURATIONS[0], BOUND_US, 100.0, max_error_share=0.001)
    lucky = Trial(CONFIGURATIONS[0], 1, 100.0, 100.0, estimate, estimate, sent_count=100)
    failing = replace(
        lucky, rung=0, sent_count=400, failed_count=1, validity=LoadValidity("failing", "thrown"), p99_us=Estimate()
    )
    standing.trials += [failing, lucky]
    assert standing.rate_hz is None and standing.goodput_hz is None
    standing.trials += [replace(lucky, sent_count=500)]
    assert standing.rate_hz == 100.0
    beyond = replace(failing, rate_hz=150.0, failed_count=40)
    standing.trials += [beyond]  # of a higher rate: it says nothing of this one
    assert standing.rate_hz == 100.0 and beyond.is_surely_beyond(BOUND_US)


def test_configurations_are_ranked_by_goodput():
    estimate = Estimate(BOUND_US - 1)
    found = []
    for one, rate_hz, good_share in ((CONFIGURATIONS[0], 100.0, 0.99), (CONFIGURATIONS[1], 99.5, 1.0)):
        standing = Standing(one, BOUND_US, 100.0)
        standing.trials.append(Trial(one, 0, rate_hz, rate_hz, estimate, estimate, good_share=good_share))
        found.append(standing)
    result = _result(found, is_interrupted=False)
    assert result.best["rate"].configuration == CONFIGURATIONS[1]
    assert result.margin.value == pytest.approx(99.5 / 99 - 1)
