"""The calibration of the odds on published pairs: what stays the same, and how many outcomes are inside."""

import numpy as np
import pytest

from benchmarks.plans.odds_coverage import array_outcomes, coverage, network_outcomes, pair_outcomes, pairs


def test_the_first_pair_by_hand():
    # 1000 / 49.70 = 20.121 ms, less 7.68 leaves 12.441; 1000 / 74.53 = 13.417, less 1.04 leaves 12.377
    first = pairs()[0]
    assert (first.application, first.device) == ("resnet50", "ZCU102")
    assert first.stays_factor == pytest.approx(12.377 / 12.441, rel=1e-3)
    assert first.gain == pytest.approx(74.53 / 49.70)
    assert first.gains(np.array([first.stays_factor]))[0] == pytest.approx(first.gain)


def test_the_intervals_hold_as_many_published_gains_as_the_documents_say():
    """Each application is left out; with four of them, their intervals are wide."""
    outcomes = list(pair_outcomes(pairs()))
    half, four_fifths, nine_tenths = coverage(outcomes)
    assert len(outcomes) == 15
    assert [round(15 * share) for share in (half, four_fifths, nine_tenths)] == [12, 14, 14]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("serves", "families", "inside"),
    [
        ("network", {"chaidnn", "engine", "rmpe", "tensil", "xdnn"}, (17, 26, 26)),
        ("product", {"autosa", "vitis-blas", "t2sp", "hpcc"}, (15, 18, 21)),
    ],
)
def test_the_intervals_of_arrays_hold_as_many_as_the_documents_say(serves, families, inside):
    outcomes = list(array_outcomes(serves))
    assert {row.family for row in outcomes} == families
    assert tuple(round(len(outcomes) * share) for share in coverage(outcomes)) == inside


@pytest.mark.exhaustive
def test_networks_of_one_architecture_are_one_family():
    """Three variants of ResNet-50 are on the overlays: none of them may judge another."""
    outcomes = list(network_outcomes())
    families = {"inception", "mobilenet-v1", "mobilenet-v2", "resnet", "squeezenet", "vgg"}
    assert {row.family for row in outcomes} == families
    assert tuple(round(len(outcomes) * share) for share in coverage(outcomes)) == (42, 83, 84)
