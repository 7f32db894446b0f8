"""Differences of series: alarms without a cause are rare, planted ones are found, and each figure by a second way."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest

from common.comparison.judgement import holm, judge
from common.comparison.series import allan_variance, cliffs_delta, difference, paired_difference, with_common_floor

NODES, RUNS, PAIRS, PLANTED = 37, 101, 20, 11


def noise(kind, count, rng):
    """Noise of about unit size: independent, correlated over five runs, or wandering (power falls as 1/f)."""
    white = rng.standard_normal(count)
    if kind == "independent":
        return white
    if kind == "correlated":
        found = np.empty(count)
        found[0] = white[0] / 0.6
        for index in range(1, count):
            found[index] = 0.8 * found[index - 1] + white[index]
        return 0.6 * found
    length = 4096
    frequencies = np.fft.rfftfreq(length)
    frequencies[0] = frequencies[1]
    wander = np.fft.irfft(np.fft.rfft(rng.standard_normal(length)) / np.sqrt(frequencies))
    first = rng.integers(0, length - count)
    return 0.5 * wander[first : first + count] / wander.std() + 0.87 * white


def measured(kind, times_us, scatter, rng):
    """Whole microseconds of each node, as a trace counts them; a session shifts each node by 0.2 %."""
    return {
        node: np.round(
            time_us * (1 + 0.002 * rng.standard_normal()) * (1 + scatter[node] * np.abs(noise(kind, RUNS, rng)))
        )
        for node, time_us in times_us.items()
    }


def verdicts(before, after):
    found = with_common_floor({node: difference(before[node], after[node], 1.0) for node in before})
    adjusted = dict(zip(found, holm([one.p_value for one in found.values()]), strict=True))
    return {node: judge(one, 0.05, adjusted[node], is_less_better=True).outcome for node, one in found.items()}


def pairs(kind, planted):
    rng = np.random.default_rng(17)
    for _ in range(PAIRS):
        times_us = dict(enumerate(rng.lognormal(5, 1.2, NODES)))
        times_us[PLANTED] = 401.0
        scatter = dict(enumerate(rng.uniform(0.01, 0.06, NODES)))
        scatter[PLANTED] = 0.01
        slower = {**times_us, PLANTED: times_us[PLANTED] * (1 + planted)}
        yield verdicts(measured(kind, times_us, scatter, rng), measured(kind, slower, scatter, rng))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["independent", "correlated", "wandering"])
def test_twenty_pairs_of_equal_measurements_raise_at_most_one_alarm(kind):
    alarms = [{*found.values()} & {"regressed", "improved"} for found in pairs(kind, planted=0.0)]
    assert sum(map(bool, alarms)) <= 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["independent", "correlated", "wandering"])
def test_five_percent_in_one_node_are_found_and_named_in_twenty_of_twenty(kind):
    found = [*pairs(kind, planted=0.05)]
    assert [one[PLANTED] for one in found] == ["regressed"] * PAIRS
    others = [node for one in found for node, verdict in one.items() if verdict == "regressed" and node != PLANTED]
    assert len(others) <= 1


def test_the_effect_is_that_of_the_medians():
    found = difference(np.full(7, 11.0), np.full(13, 17.0))
    assert (found.baseline, found.candidate, found.share) == (11.0, 17.0, pytest.approx(6 / 11))
    assert (found.baseline_runs, found.candidate_runs, found.cliffs_delta) == (7, 13, 1.0)
    assert found.low_share == found.high_share == pytest.approx(6 / 11)


def test_cliffs_delta_is_a_count_of_pairs():
    before, after = np.array([2.0, 3, 5, 7, 7]), np.array([3.0, 7, 11])
    signs = [np.sign(b - a) for a, b in product(before, after)]
    assert cliffs_delta(before, after) == pytest.approx(sum(signs) / 15)


def test_the_rank_test_is_that_of_all_ways_to_divide_the_values():
    """Mann and Whitney's p-value by its definition: of all divisions, how many are as extreme."""
    before, after = np.array([2.0, 3, 5, 11, 13]), np.array([7.0, 17, 19, 23, 29])
    values = [*before, *after]
    center = len(before) * len(after) / 2

    def away(chosen):
        rest = [value for index, value in enumerate(values) if index not in chosen]
        return abs(sum(values[index] > other for index in chosen for other in rest) - center)

    seen = away(range(5, 10))
    extreme = [away(chosen) >= seen for chosen in combinations(range(10), 5)]
    assert difference(before, after).p_value == pytest.approx(sum(extreme) / len(extreme))


def test_the_allan_variance_follows_from_its_definition():
    quarters = (2.0, 3.0, 7.0, 5.0)
    samples = np.repeat(quarters, 5)
    assert allan_variance(samples) == pytest.approx((1 + 16 + 4) / 3 / 2)


def test_a_floor_is_as_wide_as_the_steps_between_quarters():
    quiet, stepping = np.full(20, 100.0), np.repeat([100.0, 104, 100, 104], 5)
    assert difference(quiet, quiet).noise_floor_share == 0
    assert difference(quiet, stepping).noise_floor_share == pytest.approx(2.776 * 4 / math.sqrt(2) / 100)


def test_the_spread_of_a_difference_joins_both_sides_by_their_squares():
    """Deviations of 3 and 4 from the medians of the blocks; a normal distribution has 0.6745 of its own."""
    before, after = np.array([97.0, 103, 97, 103, 100]), np.array([96.0, 104, 96, 104, 100])
    assert difference(before, after).spread_share == pytest.approx(5 / 0.6745 / 100, rel=1e-4)


def test_an_interval_holds_the_middle_95_percent_of_what_is_drawn():
    """Of 20 blocks drawn 1,000 times: by the binomial distribution their median is beyond the sixth or the fifteenth
    block, in either direction, in less than 2.5 % of the draws."""
    steady, scattered = np.full(20, 100.0), np.arange(100.0, 120.0)
    found = difference(steady, scattered)
    assert 0.05 <= found.low_share <= 0.07
    assert 0.12 <= found.high_share <= 0.14


def test_few_pairs_have_an_effect_and_their_number():
    found = paired_difference(np.array([2.0, 2]), np.array([3.0, 3]))
    assert (found.share, found.low_share, found.p_value) == (0.5, None, None)
    assert (found.baseline_runs, found.candidate_runs) == (2, 2)


def test_no_difference_below_the_step_of_the_clock_is_told_from_noise():
    assert difference(np.full(9, 20.0), np.full(9, 21.0), 1.0).noise_floor_share == pytest.approx(1 / 20)


def test_few_runs_have_an_effect_and_nothing_else():
    found = difference(np.array([2.0, 2]), np.array([3.0, 3, 3, 3, 3, 3]))
    assert (found.share, found.p_value, found.low_share, found.noise_floor_share) == (0.5, None, None, None)


def test_a_baseline_without_time_has_no_share():
    assert difference(np.zeros(9), np.full(9, 3.0)).share is None


def test_drift_cancels_between_pairs_and_not_between_series():
    """The host becomes 40 % slower within the runs; the candidate is 2 % slower throughout."""
    rng = np.random.default_rng(5)
    drift = np.linspace(1.0, 1.4, 101)
    before = 1000 * drift * (1 + 0.002 * rng.standard_normal(101))
    after = 1020 * drift * (1 + 0.002 * rng.standard_normal(101))
    paired, apart = paired_difference(before, after), difference(before, after)
    assert judge(paired, 0.05, paired.p_value, is_less_better=True).outcome == "regressed"
    assert judge(apart, 0.05, apart.p_value, is_less_better=True).outcome == "undecided"
    assert paired.share == pytest.approx(0.02, abs=0.004)


def test_pairs_that_are_equal_are_unchanged():
    samples = np.random.default_rng(3).lognormal(3, 0.1, 50)
    found = paired_difference(samples, samples)
    assert (found.share, found.p_value) == (0.0, 1.0)
    assert judge(found, 0.05, found.p_value, is_less_better=True).outcome == "unchanged"


@pytest.mark.parametrize(
    "gaps",
    [
        (1.0, 2.0, 4.0, 8.0, 16.0, -3.0, 5.0),
        (2.0, 2.0, -2.0, 4.0, 4.0, 4.0, 0.0, -1.0),  # equal gaps, and one that is none
        (1.0,) * 9,
        (-1.0, 1.0, -2.0, 2.0, 3.0, -3.0),
        (0.0,) * 5,
    ],
)
def test_the_signed_rank_test_is_that_of_all_signs(gaps):
    """Wilcoxon's p-value by its definition: of all signs of the gaps, how many are as extreme."""
    sizes = sorted(abs(gap) for gap in gaps if gap)
    rank = {size: sum(index + 1 for index, other in enumerate(sizes) if other == size) / sizes.count(size)
            for size in sizes}  # fmt: skip
    center = sum(rank[size] for size in sizes) / 2
    seen = abs(sum(rank[gap] for gap in gaps if gap > 0) - center)
    every = [
        abs(sum(rank[size] for size, sign in zip(sizes, signs, strict=True) if sign) - center)
        for signs in product((0, 1), repeat=len(sizes))
    ]
    expected = sum(away >= seen - 1e-9 for away in every) / len(every)
    found = paired_difference(np.full(len(gaps), 100.0), 100.0 + np.array(gaps))
    assert found.p_value == pytest.approx(expected)


def test_pairs_of_whole_microseconds_can_be_told_apart_among_a_thousand_nodes():
    before = np.full(200, 100.0)
    found = paired_difference(before, before + np.tile([5.0, 6.0], 100))
    assert found.p_value < 1e-5


def test_a_shift_of_all_nodes_is_no_noise_between_sessions():
    rng = np.random.default_rng(7)
    before = {node: 500 * (1 + 0.01 * rng.standard_normal(100)) for node in range(31)}
    after = {node: 1.2 * 500 * (1 + 0.01 * rng.standard_normal(100)) for node in range(31)}
    assert {*verdicts(before, after).values()} == {"regressed"}


@pytest.mark.slow
def test_sessions_that_scatter_raise_the_floor_of_every_node():
    rng = np.random.default_rng(7)
    before = {node: 500 * (1 + 0.002 * rng.standard_normal(100)) for node in range(31)}
    shifts = 1 + 0.02 * rng.standard_normal(31)
    after = {node: shifts[node] * 500 * (1 + 0.002 * rng.standard_normal(100)) for node in range(31)}
    own = {node: difference(before[node], after[node]) for node in before}
    common = with_common_floor(own)
    assert all(common[node].noise_floor_share > 0.04 > own[node].noise_floor_share for node in own)
    assert {*verdicts(before, after).values()} & {"regressed", "improved"} == set()


def test_some_nodes_that_a_session_placed_elsewhere_raise_no_alarm_where_most_agree_to_the_microsecond():
    """Whole microseconds hide the scatter of most nodes; eight of 31 differ by 3 to 5 of 200 µs."""
    rng = np.random.default_rng(11)
    shifts = dict.fromkeys(range(31), 0) | {3 * index: (3, -4, 5, -3, 4, -5, 3, -4)[index] for index in range(8)}
    before, after = ({node: 200.0 + by * shifts[node] + rng.integers(-1, 2, 200) for node in shifts} for by in (0, 1))
    found = {node: paired_difference(before[node], after[node], 1.0) for node in shifts}
    alone = [judge(one, 0.05, one.p_value, is_less_better=True).outcome for one in found.values()]
    assert {"regressed", "improved"} <= {*alone}
    together = with_common_floor(found)
    outcomes = {judge(one, 0.05, one.p_value, is_less_better=True).outcome for one in together.values()}
    assert not outcomes & {"regressed", "improved"}


def test_the_steps_of_the_clock_in_short_nodes_hide_no_change_of_a_long_one():
    """Short nodes differ by up to 2 of 60 µs, which is 3 %; one of 1 ms is 4 % slower."""
    rng = np.random.default_rng(13)
    before = {node: 60.0 + rng.integers(-1, 2, 200) for node in range(30)} | {30: 1000.0 + rng.integers(-9, 9, 200)}
    moved = {node: (0, 1, -1, 0, 1, 0, -1, 2)[node % 8] for node in range(30)} | {30: 40}
    found = {node: paired_difference(before[node], before[node] + moved[node], 1.0) for node in moved}
    together = with_common_floor(found)
    verdicts = {node: judge(one, 0.05, one.p_value, is_less_better=True).outcome for node, one in together.items()}
    assert {node for node, verdict in verdicts.items() if verdict in ("regressed", "improved")} == {30}


@pytest.mark.slow
def test_pairs_of_new_sessions_give_no_alarm_and_show_five_percent_in_one_node():
    """In each of 20 sessions a node is faster or slower by 1 %, in one of ten by 8 % more: where its memory lies."""
    rng = np.random.default_rng(17)
    alarms = found = 0
    for _ in range(20):
        sides = []
        for _ in range(2):
            placed = 1 + 0.01 * rng.standard_normal((26, 20)) + 0.08 * (rng.random((26, 20)) < 0.1)
            sides.append(200 * np.repeat(placed, 10, axis=1) * (1 + 0.01 * rng.standard_normal((26, 200))))
        for planted in (1.0, 1.05):
            sides[1][13] *= planted
            both = {node: paired_difference(sides[0][node], sides[1][node], 1.0) for node in range(26)}
            p_values = holm([one.p_value for one in both.values()])
            loud = {
                node
                for (node, one), p_value in zip(with_common_floor(both).items(), p_values, strict=True)
                if judge(one, 0.05, p_value, is_less_better=True).outcome in ("regressed", "improved")
            }
            alarms += bool(loud - {13} if planted > 1 else loud)
            found += planted > 1 and 13 in loud
    assert alarms <= 1 and found == 20
