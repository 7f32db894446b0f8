"""Changes of level: found where they were planted, seldom where there are none, by an exact count of small cases."""

from __future__ import annotations

from itertools import combinations, permutations
from math import comb

import numpy as np
import pytest

from common.history.dependent_steps import LEAST_LEVEL, _variance_factors, scores, share_beyond
from common.history.levels import FALSE_ALARMS, LEAST_BEFORE, _distances, _share_above, changes, from_level

SERIES = 400
# 95 % of all simulations of a rate of 5 % have at most so many alarms: mean + 3 standard deviations, for any seed.
MOST_ALARMS = FALSE_ALARMS * SERIES + 3 * (FALSE_ALARMS * (1 - FALSE_ALARMS) * SERIES) ** 0.5

NOISES = {
    "normal": lambda generator, shape: generator.standard_normal(shape),
    "heavy tails": lambda generator, shape: generator.standard_t(2, shape),
    "one-sided": lambda generator, shape: generator.lognormal(0, 1, shape),
    "two values": lambda generator, shape: generator.integers(0, 2, shape).astype(float),
}


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("count", [8, 20, 53])
def test_a_history_without_a_change_seldom_has_one(noise, count):
    values = 1009 + NOISES[noise](np.random.default_rng(7), (SERIES, count))
    assert sum(bool(changes(one, 1)) for one in values) <= MOST_ALARMS


def autoregressive(generator, shape, *weights):
    """Series in which each value keeps a share of the ones before it."""
    series = generator.standard_normal((*shape[:-1], shape[-1] + 60))
    for place in range(len(weights), series.shape[-1]):
        for lag, weight in enumerate(weights, start=1):
            series[..., place] += weight * series[..., place - lag]
    return series[..., 60:]


def moving(generator, shape):
    """Each value is a mean of four neighbouring numbers."""
    numbers = generator.standard_normal((*shape[:-1], shape[-1] + 3))
    return sum(weight * numbers[..., lag : lag + shape[-1]] for lag, weight in enumerate((0.3, 0.5, 0.8, 1.0)))


def weekly(generator, shape):
    phase = 2 * np.pi * (np.arange(shape[-1]) / 7 + generator.random((*shape[:-1], 1)))
    return np.sin(phase) + 0.7 * generator.standard_normal(shape)


DEPENDENT = {  # the last three took no part in the design
    "AR(1) 0.3": lambda generator, shape: autoregressive(generator, shape, 0.3),
    "AR(1) 0.5": lambda generator, shape: autoregressive(generator, shape, 0.5),
    "AR(1) 0.8": lambda generator, shape: autoregressive(generator, shape, 0.8),
    "AR(1) 0.8, lognormal": lambda generator, shape: 100 * np.expm1(0.05 * autoregressive(generator, shape, 0.8)),
    "AR(2)": lambda generator, shape: autoregressive(generator, shape, 0.4, 0.2),
    "moving": moving,
    "weekly": weekly,
}


@pytest.mark.slow
@pytest.mark.parametrize("noise", DEPENDENT)
@pytest.mark.parametrize("count", [10, 20, 50, 200])
def test_a_history_of_dependent_figures_seldom_has_a_change(noise, count):
    values = 1009 + 11 * DEPENDENT[noise](np.random.default_rng(13), (SERIES, count))
    assert sum(bool(changes(one, 1)) for one in values) <= MOST_ALARMS


def test_figures_that_wander_have_no_change():
    """Half of such histories have one by their ranks alone."""
    values = 1009 + 11 * DEPENDENT["AR(1) 0.8"](np.random.default_rng(13), (40, 20))
    assert sum(bool(changes(one, 1)) for one in values) <= 6  # binomial: 0.3 % of all seeds have more than six


@pytest.mark.slow
@pytest.mark.parametrize("family", [7, 101])
def test_of_many_figures_together_seldom_one_has_a_change(family):
    """Histories of a hundred nodes: the share of histories with any alarm is that of one figure."""
    histories, generator = 40, np.random.default_rng(11)
    alarms = sum(
        any(changes(one, family) for one in 1009 + generator.standard_normal((family, 20))) for _ in range(histories)
    )
    assert alarms <= FALSE_ALARMS * histories + 3 * (FALSE_ALARMS * histories) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("place", [5, 10, 15])
def test_a_step_is_found_where_it_was_planted(place):
    found = 0
    for seed in range(53):
        values = 1009 * (1 + 0.01 * np.random.default_rng(seed).standard_normal(20))
        values[place:] *= 1.1
        found += [change.index for change in changes(values, 5)] == [place]
    assert found >= 45


@pytest.mark.slow
def test_a_smaller_step_is_found_in_more_records():
    found = 0
    for seed in range(53):
        values = 1009 * (1 + 0.01 * np.random.default_rng(seed).standard_normal(41))
        values[20:] *= 1.04
        found += len(changes(values, 5)) == 1
    assert found >= 45


@pytest.mark.slow
def test_two_steps_are_found_one_in_each_part():
    found = 0
    for seed in range(53):
        values = np.repeat([1009.0, 1103.0, 997.0], 11) + np.random.default_rng(seed).standard_normal(33)
        found += [change.index for change in changes(values, 5)] == [11, 22]
    assert found >= 45


@pytest.mark.slow
def test_the_share_of_shuffled_histories_is_that_of_all_orders():
    """Four low values before four high ones: of all 8! orders counted one by one, only two kinds are as far apart."""
    values = [1.0, 2.0, 3.0, 4.0, 11.0, 12.0, 13.0, 14.0]

    def distance(order):
        ranks = np.argsort(np.argsort(order)) + 1
        return max(
            abs(ranks[:size].mean() - ranks[size:].mean()) / np.sqrt(1 / size + 1 / (8 - size))
            for size in range(LEAST_LEVEL, 8 - LEAST_LEVEL + 1)
        )

    orders = [*permutations(range(8))]
    share = sum(distance(order) >= distance(values) - 1e-9 for order in orders) / len(orders)
    assert share == pytest.approx(2 / comb(8, 4))
    own = float(_distances(np.arange(1.0, 9.0)[None, :]).max())
    assert _share_above(8, own) == pytest.approx(share, rel=0.1)


def test_the_score_is_the_step_over_its_standard_error():
    """Ten values at levels 2 and 12 with squares of 1, each twice in turn; too few for a second cut."""
    values = np.array([1.0, 1.0, 3.0, 3.0, 1.0, 11.0, 11.0, 13.0, 13.0, 11.0])
    rest = values - np.repeat([values[:5].mean(), values[5:].mean()], 5)
    squares = float(rest @ rest)
    one, two = (raw + 0.6 * (1 + raw) for raw in (float(rest[lag:] @ rest[:-lag]) / squares for lag in (1, 2)))
    assert two < one**2  # so it is an AR(1) series
    factor = (1 + one) / (1 - one)
    gain = 10 * (values[5:].mean() - values[:5].mean()) ** 2 / 4
    assert scores(values[None, :])[0] == pytest.approx((gain / (squares / 8 * factor)) ** 0.5)


@pytest.mark.parametrize(("weights", "factor"), [((0.5, 0.0), 3.0), ((0.4, 0.2), 4.5), ((-0.5, 0.0), 1.0)])
def test_the_error_of_a_mean_is_that_of_the_process(weights, factor):
    """AR(2): the mean has 1 / (1 - a - b)^2, a value (1 - b) / ((1 + b) ((1 - b)^2 - a^2)) (Box, Jenkins)."""
    first, second = weights
    one = first / (1 - second)
    two = first * one + second
    found = _variance_factors(np.array([one]), np.array([two]))[0]
    exact = (1 + second) * ((1 - second) ** 2 - first**2) / ((1 - second) * (1 - first - second) ** 2)
    assert found == pytest.approx(max(1.0, exact))
    assert found == pytest.approx(factor)


def test_a_second_step_is_no_scatter_around_the_first():
    one = np.repeat([1.0, 2.0], 20) + 0.01 * np.tile([-1.0, 1.0], 20)
    two = one + np.where((np.arange(40) >= 20) & (np.arange(40) < 30), 5.0, 0.0)
    assert share_beyond(two) < 0.01


def test_the_order_of_equal_and_unequal_values_decides_nothing_about_a_figure_that_never_changes():
    assert changes([7.0] * 23, 1) == []


def test_one_slow_run_is_no_level():
    values = [*np.linspace(1000, 1009, 11), 3000.0, *np.linspace(1009, 1000, 11)]
    assert changes(values, 1) == []


def test_a_computed_figure_changes_where_it_differs():
    found = changes([3.0, 3.0, 5.0, 5.0, 3.0], 100, is_exact=True)
    assert [change.index for change in found] == [2, 4]


def test_too_few_runs_have_no_change():
    for count in range(2 * LEAST_LEVEL):
        assert changes([*range(count)], 1) == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [LEAST_BEFORE, 11, 29])
@pytest.mark.parametrize("family", [1, 50])
def test_the_next_run_is_seldom_beyond_the_floor(count, family):
    """The share of sound last runs beyond the floor, of all figures of a history together."""
    values = np.random.default_rng(count).normal(1009, 11, (5_000, count + 1))
    beyond = sum(
        abs(found.share) > found.noise_floor_share
        for *level, last in values.tolist()
        for found in [from_level(level, last, family)]
    )
    expected = FALSE_ALARMS / family * len(values)
    assert beyond <= expected + 4 * expected**0.5


@pytest.mark.slow
@pytest.mark.parametrize("count", [LEAST_BEFORE, 11, 29, 100])
def test_the_next_dependent_run_is_seldom_beyond_the_floor(count):
    values = 1009 + 11 * autoregressive(np.random.default_rng(count), (5_000, count + 1), 0.8)
    beyond = sum(
        abs(found.share) > found.noise_floor_share
        for *level, last in values.tolist()
        for found in [from_level(level, last, 1)]
    )
    assert beyond <= FALSE_ALARMS * len(values) + 4 * (FALSE_ALARMS * len(values)) ** 0.5


@pytest.mark.slow
def test_the_interval_holds_the_true_difference_of_nineteen_in_twenty():
    generator, held = np.random.default_rng(5), 0
    for _ in range(2000):
        level, last = generator.normal(1000, 10, 9), generator.normal(1070, 10)
        found = from_level(level, last, 1)
        held += found.low_share <= 0.07 <= found.high_share
    assert 0.95 <= held / 2000 <= 0.995


def test_few_runs_say_nothing_about_the_next():
    for level in combinations([1.0, 2.0, 3.0, 4.0], LEAST_BEFORE - 1):
        assert from_level(level, 9.0, 1).low_share is None
