"""Intervals for designs of an unseen family: by hand, by simulation, and on published arrays."""

from __future__ import annotations

from math import exp, inf, log, sqrt

import numpy as np
import pytest

from benchmarks import array_coverage
from benchmarks.array_designs import MODELS, RESOURCES, Counted, counted, timed
from benchmarks.coverage import Band, band_of, left_out
from benchmarks.published import OPENED, closures, designs, network_figures


def test_band_by_hand() -> None:
    """Families at ln -0.1, 0.1 and 0.3 with two designs each, 0.02 either side: t(0.95, 2) = 2.9200."""
    ratios = {str(mid): [exp(mid - 0.02), exp(mid + 0.02)] for mid in (-0.1, 0.1, 0.3)}
    within, between = 0.02**2 * 2, 0.04 - 0.02**2
    reach = 2.9200 * sqrt(between * 4 / 3 + within)
    found = band_of(ratios)
    assert (log(found.low), log(found.high)) == pytest.approx((0.1 - reach, 0.1 + reach), rel=1e-4)


def test_one_family_says_nothing_of_the_next() -> None:
    assert band_of({"a": [1.0, 1.1]}) == Band(0.0, inf)
    assert left_out({"a": [1.0], "b": [7.0]})["b"] == (Band(0.0, inf), 1, 1)


def test_the_model_itself_lies_inside() -> None:
    assert 1.0 in band_of({"a": [3.0, 3.1], "b": [3.05, 3.0], "c": [3.1, 3.0]})


@pytest.mark.slow
def test_ninety_percent_of_new_families() -> None:
    """Six families of three, equal spread between and within: the next design is inside nine times in ten."""
    random, inside = np.random.default_rng(7), 0
    for _ in range(2000):
        means = random.normal(0.0, 0.2, 7)
        drawn = {str(i): list(np.exp(means[i] + random.normal(0.0, 0.2, 3))) for i in range(6)}
        inside += float(np.exp(means[6] + random.normal(0.0, 0.2))) in band_of(drawn)
    assert 0.88 < inside / 2000 < 0.97  # a little more than 90 %: the band always holds 1


def test_every_published_figure_has_a_source_and_says_whether_it_was_opened() -> None:
    rows = [*designs("arrays"), *designs("engines")]
    assert len(rows) == 39
    assert {row.family for row in rows if row.trust not in OPENED} == {"gemm-hls"}
    assert all(row.source for row in rows) and all(table.source for table in network_figures())
    assert all(0 < one.clock_share <= 1 and one.source for one in closures())
    assert {row.family for row in rows} == {"autosa", "vitis-blas", "t2sp", "gemm-hls", "dpu"}


@pytest.fixture(scope="module")
def amounts() -> list[Counted]:
    return list(counted())


@pytest.mark.slow
@pytest.mark.parametrize("resource", RESOURCES)
def test_resource_bands_are_chosen_from_the_designs_and_hold_those_of_other_families(
    amounts: list[Counted], resource: str
) -> None:
    own = [point for point in amounts if point.resource == resource]
    logic, band = array_coverage.chosen_resource_band([point for point in own if point.is_opened])
    configured = MODELS.systolic.resource_bands[resource]
    assert (configured.optimistic, configured.pessimistic) == pytest.approx((band.low, band.high), abs=1e-3)
    cells = {"lut": MODELS.systolic.float_lut, "ff": MODELS.systolic.float_ff}
    assert logic == (cells[resource]["fp32"] if resource in cells else None)
    judged = list(array_coverage.judged_resources(own))
    assert len(judged) == len(own) >= 25
    assert sum(row.is_inside for row in judged) / len(judged) >= 0.8


def test_clock_shares_are_those_of_published_closures() -> None:
    clock = MODELS.systolic.clock
    for name, figures in array_coverage.clock_shares(closures()).items():
        regions, density = name.split()
        found = clock.shares[regions, density == "dense"]
        assert found.cases == pytest.approx(figures, abs=0.006)


def test_designs_whose_clock_is_not_known_are_inside() -> None:
    """Floorplanned or not, and the int16 product, of which no clock is published."""
    judged = list(array_coverage.judged_clocks())
    assert [row.name for row in judged if not row.is_inside] == []
    assert "int16 16x16x32" in {row.name for row in judged}


@pytest.mark.exhaustive
def test_times_of_arrays_that_took_no_part_in_the_interval() -> None:
    points = list(timed())
    rates, band = array_coverage.chosen_band([point for point in points if point.is_opened])
    timing = MODELS.systolic.timing
    assert (timing.array_share, timing.call_cycles) == pytest.approx((rates.share, rates.call))
    assert (timing.band.optimistic, timing.band.pessimistic) == pytest.approx((band.low, band.high), abs=1e-3)
    judged = list(array_coverage.judged_times(points))
    assert len(judged) == 53
    assert sum(row.is_inside for row in judged) / len(judged) > 0.9
    for family in ("autosa", "vitis-blas", "t2sp", "gemm-hls", "dpu"):
        own = [row.is_inside for row in judged if row.family == family]
        assert sum(own) / len(own) >= 0.8
