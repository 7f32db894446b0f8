"""Intervals for designs of an unseen family: by hand, by simulation, and on published arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, inf, log, sqrt
from statistics import fmean

import numpy as np
import pytest

from benchmarks.kernels import array_coverage
from benchmarks.kernels.array_designs import (
    MODELS,
    RESOURCES,
    Counted,
    Scope,
    counted,
    counted_network,
    held_out,
    timed,
)
from benchmarks.kernels.coverage import RESOURCE_TAIL, Band, band_of, held, left_out, narrowest, spread_of
from benchmarks.kernels.published import OPENED, closures, designs, generic_figures, network_figures
from common.fpga.kernels.systolic.array_models import Serves


def test_band_by_hand() -> None:
    """Families at ln -0.1, 0.1 and 0.3 with two designs each, 0.02 either side: t(0.95, 2) = 2.9200."""
    ratios = {str(mid): [exp(mid - 0.02), exp(mid + 0.02)] for mid in (-0.1, 0.1, 0.3)}
    within, between = 0.02**2 * 2, 0.04 - 0.02**2
    reach = 2.9200 * sqrt(between * 4 / 3 + within)
    found = band_of(ratios)
    assert (log(found.low), log(found.high)) == pytest.approx((0.1 - reach, 0.1 + reach), rel=1e-4)


def test_spread_by_hand() -> None:
    """The same families: the likely value is the median of their medians, and the reach is that of the band."""
    ratios = {str(mid): [exp(mid - 0.02), exp(mid + 0.02)] for mid in (-0.1, 0.0, 0.3)}
    found = spread_of(ratios)
    assert (found.median, found.mean, found.family_count) == pytest.approx((0.0, 0.2 / 3, 3))
    assert found.design_sd == pytest.approx(0.02 * sqrt(2))
    assert log(found.around_median().high) == pytest.approx(
        2.9200 * sqrt(found.family_sd**2 + found.design_sd**2), rel=1e-4
    )
    assert found.around_median().low == pytest.approx(1 / found.around_median().high)


def test_a_referee_widens_the_interval_and_leaves_its_middle() -> None:
    ratios = {"a": [1.0], "b": [1.1], "c": [0.9], "far": [4.0]}
    apart, without = spread_of(ratios, {"far"}), spread_of({name: ratios[name] for name in "abc"})
    assert apart.median == without.median != spread_of(ratios).median
    assert apart.reach() == spread_of(ratios).reach() > without.reach()


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
    assert len(rows) == 49
    assert {row.family for row in rows if row.trust not in OPENED} == {"gemm-hls"}
    assert all(row.source for row in rows) and all(table.source for table in network_figures())
    assert all(0 < one.clock_share <= 1 and one.source for one in closures())
    assert {row.family for row in rows if row.is_referee} == {"gallas", "dhm2013724", "vgg16-vc707"}
    others = {row.family for row in rows if not row.is_referee}
    assert others == {"autosa", "vitis-blas", "t2sp", "gemm-hls", "hpcc", "dpu"}
    assert {row.family for row in designs("apart") if row.source} == {"taitashaw", "agfilib", "nvdla"}
    generic = list(generic_figures())
    assert {each.design.family for each in generic} == {"chaidnn", "xdnn", "rmpe", "tensil"}
    assert sum(len(each.time_us) for each in generic) == 16
    apart = list(generic_figures("held_out"))
    used = {row.family for row in rows if not row.is_referee} | {each.design.family for each in generic}
    assert not used & {each.design.family for each in apart}
    assert all(each.design.trust in OPENED and each.design.source for each in [*generic, *apart])


@pytest.mark.slow
@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("scope", array_coverage.SCOPES)
def test_resource_bands_are_chosen_from_the_designs(scope: Scope, resource: str) -> None:
    own = [point for point in counted(scope) if point.resource == resource]
    logic, found = array_coverage.chosen_resources([point for point in own if point.is_opened])
    bands = MODELS.systolic.array_bands if scope == "array" else MODELS.systolic.design_bands
    band = found.around_median(RESOURCE_TAIL)
    assert bands[resource].cases == pytest.approx((band.high, exp(found.median), band.low), abs=1e-3)
    cells = {"lut": MODELS.systolic.float_lut, "ff": MODELS.systolic.float_ff}
    assert logic == (cells[resource]["fp32"] if resource in cells else None)


@pytest.mark.slow
def test_intervals_of_designs_hold_those_of_other_families() -> None:
    """A family at a time, each left out: nominally four in five."""
    for resource in RESOURCES:
        judged = list(array_coverage.judged_resources([row for row in counted() if row.resource == resource]))
        assert len(judged) >= 29
        assert coverage(judged) >= 0.7, resource
        assert sum(row.is_inside for row in judged) / len(judged) >= 0.7, resource


def coverage(judged: Sequence[array_coverage.Judged]) -> float:
    """Return the mean of the families' shares inside."""
    by_family = array_coverage.by_family((row.family, float(row.is_inside)) for row in judged)
    return fmean(map(fmean, by_family.values()))


def test_clock_shares_are_those_of_published_closures() -> None:
    clock, found = MODELS.systolic.clock, array_coverage.clock_shares(closures())
    for is_dense, figures in found.one_region.items():
        assert clock.one_region[is_dense].cases == pytest.approx(figures, abs=0.006)
    assert clock.crossing_share == pytest.approx(found.crossing, abs=0.001)
    ends = (clock.several_regions.pessimistic, clock.several_regions.optimistic)
    assert ends == pytest.approx(found.several_regions, abs=0.001)


def test_designs_whose_clock_is_not_known_are_inside() -> None:
    """Floorplanned or not, and the int16 product, of which no clock is published."""
    judged = list(array_coverage.judged_clocks())
    assert [row.name for row in judged if not row.is_inside] == []
    assert "int16 16x16x32" in {row.name for row in judged}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("serves", "count"), [("product", 24), ("network", 83)])
def test_times_of_families_that_took_no_part_in_the_interval(serves: Serves, count: int) -> None:
    points = list(timed())
    rates, found = array_coverage.chosen_scatter([point for point in points if point.is_opened], serves)
    timing, scatter = MODELS.systolic.timing, MODELS.systolic.scatters[serves]
    assert (timing.array_share, timing.call_cycles) == pytest.approx((rates.share, rates.call))
    band = found.around_median()
    assert scatter.band.cases == pytest.approx((band.high, exp(found.median), band.low), abs=1e-3)
    given = (scatter.family_sd, scatter.design_sd, scatter.family_count)
    assert given == pytest.approx((found.family_sd, found.design_sd, found.family_count), abs=1e-3)
    judged = list(array_coverage.judged_times(points, serves))
    assert len(judged) == count
    assert coverage(judged) >= 0.8
    assert sum(row.is_inside for row in judged) / count >= 0.9


@pytest.mark.exhaustive
def test_times_of_families_that_took_part_in_nothing() -> None:
    """As documented; the fit and its interval are those of the configuration, which no held-out row has changed."""
    judged = list(array_coverage.judged_held_out())
    inside = Counter(row.family for row in judged if row.is_inside)
    assert inside == {"vectorblox": 9, "ghp": 13, "dhm2013724": 5}
    assert Counter(row.family for row in judged) == {**inside, "embeddedcnn": 2}
    assert all(sum(ideal for _, ideal in point.calls) < point.published for point in held_out())  # no share above 1
    band = MODELS.systolic.scatters["network"].band
    worst, likely, best = band.cases
    assert all(row.band.low == pytest.approx(best / likely, abs=1e-3) for row in judged)
    assert all(row.band.high == pytest.approx(worst / likely, abs=1e-3) for row in judged)


@pytest.mark.parametrize(("name", "gop"), [("yolov2", 29.47), ("resnet101-v1", 15.136), ("vgg16", 30.693)])
def test_networks_have_the_operations_that_others_state(name: str, gop: float) -> None:
    """The darknet port states 29.47; GHP's files state the convolutions of the other two (hw_conv_op)."""
    macs = sum(task.macs for task in counted_network(name)[1] if task.kind == "conv")
    assert 2e-9 * macs == pytest.approx(gop, rel=3e-4)


def test_the_narrowest_band_by_hand() -> None:
    """Three of four families are enough, and the far one of two designs counts for half of its family."""
    ratios = {"a": [1.0, 3.0], "b": [1.1], "c": [0.9], "d": [8.0]}
    assert narrowest(ratios, 0.6) == Band(0.9, 1.1)
    assert narrowest(ratios, 0.75) == Band(0.9, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("resource", "share", "width"), [("lut", 0.70, 2.34), ("ff", 0.66, 2.51), ("bram36", 0.48, 4.52)]
)
def test_what_an_interval_of_two_and_a_half_holds_is_as_documented(resource: str, share: float, width: float) -> None:
    own = [point for point in counted("design") if point.resource == resource]
    judged = list(array_coverage.judged_resources(own, array_coverage.WANTED_WIDTH))
    assert array_coverage.family_share(judged) == pytest.approx(share, abs=0.01)
    logic, _ = array_coverage.chosen_resources(own)
    ratios = array_coverage.by_family((point.family, point.ratio(logic)) for point in own)
    band = narrowest(ratios, array_coverage.WANTED_SHARE)
    assert band.high / band.low == pytest.approx(width, abs=0.01)
    assert most_held(ratios, width - 0.02) < array_coverage.WANTED_SHARE <= most_held(ratios, width + 0.02)


def most_held(ratios: dict[str, list[float]], width: float) -> float:
    """The same by another way: bands of this width at 2,000 places, whatever the figures are."""
    lows = np.geomspace(0.2, 8.0, 2000)
    held = [np.mean([(lows <= ratio) & (ratio <= width * lows) for ratio in own], axis=0) for own in ratios.values()]
    return float(np.mean(held, axis=0).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("resource", "quantity", "share", "width"),
    [("bram36", "ports", 0.48, 2.91), ("bram36", "bits", 0.44, 3.53), ("ff", "multipliers", 0.70, 2.94)],
)
def test_what_a_plan_knows_narrows_the_band_in_hindsight_only(
    resource: str, quantity: str, share: float, width: float
) -> None:
    own = [point for point in counted("design") if point.resource == resource]
    logic, _ = array_coverage.chosen_resources(own)
    together, alone = array_coverage.regressed(own, logic, quantity)
    band = narrowest(together, array_coverage.WANTED_SHARE)
    assert held(alone, Band(2.5**-0.5, 2.5**0.5)) == pytest.approx(share, abs=0.01)
    assert band.high / band.low == pytest.approx(width, abs=0.02)


@pytest.mark.parametrize(
    ("resource", "outside"), [("lut", {"taitashaw", "nvdla"}), ("bram36", {"taitashaw", "agfilib"}), ("dsp", set())]
)
def test_designs_of_another_kind_are_outside_where_documented(resource: str, outside: set[str]) -> None:
    likely = MODELS.systolic.design_bands[resource]
    band = Band(likely.optimistic, likely.pessimistic)
    apart = [point for point in counted("apart") if point.resource == resource]
    assert len(apart) == 3
    assert {point.family for point in apart if point.ratio(None) not in band} == outside


def test_a_trend_with_what_is_known_is_taken_off() -> None:
    """Amounts of 3 times the square root: nothing is left in any family, also where it took no part."""
    points = [
        Counted(family, "", "bram36", 3.0 * size**0.5, 1.0, None, {"sums": size}, "", is_opened=True)
        for family, sizes in {"a": (2.0, 7.0), "b": (5.0,), "c": (11.0, 13.0, 17.0)}.items()
        for size in sizes
    ]
    together, alone = array_coverage.regressed(points, None, "sums")
    assert [value for left in (together, alone) for own in left.values() for value in own] == pytest.approx([1.0] * 12)
