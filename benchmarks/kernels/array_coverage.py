"""Count how many published arrays the intervals of the model hold.

    python -m benchmarks.kernels.array_coverage

A figure never judges an interval that it helped to choose: for the coverage of a family, the rates and the interval are
chosen from the other families. Designs that are only recalled take part in neither. Referees widen the intervals of
resources, but their likely amounts were chosen without them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import exp, log
from statistics import fmean, median

import numpy as np

from benchmarks.kernels.array_designs import (
    KNOWN,
    MODELS,
    RESOURCES,
    Counted,
    Rates,
    Scope,
    Timed,
    array_of,
    counted,
    held_out,
    task_of,
    timed,
)
from benchmarks.kernels.array_fit import fit_logic, fit_rates
from benchmarks.kernels.coverage import RESOURCE_TAIL, Band, Ratios, Spread, held, narrowest, spread_of
from benchmarks.kernels.overlay_fit import CONFIGS
from benchmarks.kernels.published import Closure, attention_shares, closures, designs
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import closing
from common.fpga.kernels.systolic.array_models import SERVES, FloatLogic, Serves

SCOPES: tuple[Scope, ...] = ("array", "design")
WANTED_WIDTH, WANTED_SHARE = 2.5, 0.8  # high / low of an interval of resources, and what it should hold


@dataclass(frozen=True, slots=True)
class Judged:
    """A published figure beside an interval that it took no part in choosing."""

    family: str
    name: str
    published: float
    likely: float
    band: Band
    source: str

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds the figure."""
        return self.published / self.likely in self.band


def by_family(ratios: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for family, ratio in ratios:
        found.setdefault(family, []).append(ratio)
    return found


def chosen_scatter(points: Sequence[Timed], serves: Serves) -> tuple[Rates, Spread]:
    """Return the rates that tuned products give, and how times of arrays that serve the one or the other scatter."""
    rates = fit_rates([point for point in points if point.serves == "product"])
    return rates, spread_of(by_family((point.family, point.ratio(rates)) for point in points if point.serves == serves))


def judged_times(points: Sequence[Timed], serves: Serves) -> Iterator[Judged]:
    """Judge the times of each family by the rates, the likely value and the interval of the others."""
    own = [point for point in points if point.serves == serves]
    for family in dict.fromkeys(point.family for point in own):
        rates, found = chosen_scatter([point for point in points if point.is_opened and point.family != family], serves)
        for point in (point for point in own if point.family == family):
            likely = point.published / point.ratio(rates) * exp(found.median)
            band = Band(exp(-found.reach()), exp(found.reach()))
            yield Judged(family, point.name, point.published, likely, band, point.source)


def chosen_resources(points: Sequence[Counted]) -> tuple[FloatLogic | None, Spread]:
    """Return the cells of a floating-point array and how the points scatter, all of one resource."""
    logic = fit_logic(points) if any(point.logic for point in points) else None
    referees = {point.family for point in points if point.is_referee}
    return logic, spread_of(by_family((point.family, point.ratio(logic)) for point in points), referees)


def judged_held_out() -> Iterator[Judged]:
    """Judge the times that took part in nothing by what all opened families give."""
    rates, found = chosen_scatter([point for point in timed() if point.is_opened], "network")
    band = Band(exp(-found.reach()), exp(found.reach()))
    for point in held_out():
        likely = point.published / point.ratio(rates) * exp(found.median)
        yield Judged(point.family, point.name, point.published, likely, band, point.source)


def judged_resources(points: Sequence[Counted], width: float | None = None) -> Iterator[Judged]:
    """Judge the amounts of one resource of each family by the cells and the interval of the others.

    With ``width``, the interval is that wide (high / low) around the median of the others.
    """
    for family in _families(points):
        logic, found = chosen_resources([point for point in points if point.is_opened and point.family != family])
        for point in points:
            if point.family == family:
                likely = point.published / point.ratio(logic) * exp(found.median)
                reach = log(width) / 2 if width else found.reach(RESOURCE_TAIL)
                yield Judged(family, point.name, point.published, likely, Band(exp(-reach), exp(reach)), point.source)


def family_share(rows: Sequence[Judged]) -> float:
    """Return the share of the figures inside, as a mean over the families."""
    return fmean(fmean(inside) for inside in by_family((row.family, float(row.is_inside)) for row in rows).values())


def regressed(points: Sequence[Counted], logic: FloatLogic | None, quantity: str) -> tuple[Ratios, Ratios]:
    """Return published over modelled amounts, less their trend with a quantity that a plan knows beforehand.

    The trend is a power of the quantity, every family alike: of all families, and for each one of the others.
    """

    def left(own: Sequence[Counted], others: Sequence[Counted]) -> list[float]:
        sizes = Counter(point.family for point in others)
        (power, level), *_ = np.polyfit(
            [log(point.known[quantity]) for point in others],
            [log(point.ratio(logic)) for point in others],
            1,
            w=[sizes[point.family] ** -0.5 for point in others],
            full=True,  # so it does not warn where all amounts are equal: the least power serves
        )
        return [point.ratio(logic) / exp(level) / point.known[quantity] ** power for point in own]

    families = {family: [point for point in points if point.family == family] for family in _families(points)}
    alone = {name: left(own, [each for each in points if each not in own]) for name, own in families.items()}
    return {name: left(own, points) for name, own in families.items()}, alone


def _families(points: Iterable[Counted]) -> Iterable[str]:
    return dict.fromkeys(point.family for point in points)


# --- clock ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClockShares:
    """Shares of the clock asked for: low, likely and high in one region by density, and over several regions."""

    one_region: dict[bool, tuple[float, float, float]]
    crossing: float
    several_regions: tuple[float, float]


def clock_shares(found: Sequence[Closure]) -> ClockShares:
    """Return the shares that published closures give; each border between regions leaves the same share."""
    one, several = [each for each in found if each.regions == 1], [each for each in found if each.regions > 1]
    by_density = {
        is_dense: [each.clock_share for each in one if _is_dense(each) == is_dense] for is_dense in (False, True)
    }
    return ClockShares(
        {is_dense: (min(shares), median(shares), max(shares)) for is_dense, shares in by_density.items()},
        median(each.clock_share ** (1 / (each.regions - 1)) for each in several),
        (min(each.clock_share for each in several), max(each.clock_share for each in several)),
    )


def _is_dense(closure: Closure) -> bool:
    return (closure.lut_share or 0.0) >= MODELS.systolic.clock.dense_lut_share


def judged_clocks() -> Iterator[Judged]:
    """Compare designs over several regions with the estimate that does not know their clock, as configured."""
    for design in designs():
        if design.family == "autosa" and design.layer is not None and design.time_us is not None:
            board = load_board(design.board, CONFIGS / "boards")
            array = closing(replace(array_of(replace(design, clock_mhz=None)), spans_regions=True), board, MODELS)
            if (found := array.estimate(task_of(design.layer, design.precision))) is not None:
                worst, likely, best = found.time_us.cases
                band = Band(best / likely, worst / likely)
                yield Judged(design.family, design.name, design.time_us, likely, band, design.source)


# --- report -----------------------------------------------------------------------------------------------------------


def report() -> str:
    """Return the fits, the intervals, the coverage of each family, and a line for each published figure."""
    points = list(timed())
    opened = [point for point in points if point.is_opened]
    lines, rows = [], []
    for serves in SERVES:
        rates, found = chosen_scatter(opened, serves)
        judged = list(judged_times(points, serves))
        lines.append(
            f"time of arrays that serve a {serves}: {rates.share:.2f} of the cycles, {rates.call:.0f} cycles a call, "
            f"times {exp(found.median):.3f} ({found.around_median()}); {_deviations(found)}"
        )
        lines += [*_efficiencies(opened, serves), *_coverage(judged), ""]
        rows += ["", *_rows(f"time, {serves}, thousand cycles", judged, 1e-3)]
    judged = list(judged_held_out())
    lines += ["time of networks on arrays of families that took part in nothing", *_coverage(judged), ""]
    rows += ["", *_rows("time, held out, thousand cycles", judged, 1e-3)]
    for scope, resource in product(SCOPES, RESOURCES):
        own = [point for point in counted(scope) if point.resource == resource]
        logic, found = chosen_resources([point for point in own if point.is_opened])
        band, judged = found.around_median(RESOURCE_TAIL), list(judged_resources(own))
        cells = f"; fp32: {logic.per_mac:.0f} a product, {logic.per_element:.0f} an element" if logic else ""
        lines.append(f"{scope}, {resource}: {exp(found.median):.3f} ({band}), {band.high / band.low:.1f} wide{cells}")
        lines += [*_coverage(judged), _at_width(own), *_given(own)]
        lines += [*_of_another_kind(resource, band), ""] if scope == "design" else [""]
        rows += ["", *_rows(f"{scope}, {resource}", judged, 1.0)]
    lines += [*_clock_lines(closures()), *rows, ""]
    lines += _rows("time without the clock, us (as configured)", list(judged_clocks()), 1.0)
    lines += ["", "attention kernels, share of the peak of their own multipliers"]
    lines += [f"  {name}: {share:.3f}" for name, share in attention_shares().items()]
    return "\n".join(lines)


def _deviations(found: Spread) -> str:
    return f"deviations {found.family_sd:.3f} and {found.design_sd:.3f}, {found.family_count} families"


def _efficiencies(points: Sequence[Timed], serves: Serves) -> Iterator[str]:
    """Yield the median share of the peak that each family attains, and the median of these."""
    shares = by_family(
        (point.family, sum(ideal for _, ideal in point.calls) / point.published)
        for point in points
        if point.serves == serves
    )
    medians = {family: median(own) for family, own in shares.items()}
    of_families = ", ".join(f"{family} {share:.2f}" for family, share in medians.items())
    yield f"  share of the peak: {of_families}; median {median(medians.values()):.2f}"


def _coverage(rows: Sequence[Judged]) -> Iterator[str]:
    """Yield the coverage of each family under the interval of the others, its mean, and that of all rows."""
    shares = []
    for family in dict.fromkeys(row.family for row in rows):
        own = [row for row in rows if row.family == family]
        inside, error = sum(row.is_inside for row in own), median(row.likely / row.published for row in own) - 1
        shares.append(inside / len(own))
        yield f"  {family:11} {inside:3} of {len(own):3} inside, likely {error:+.0%}, others {own[0].band}"
    inside = sum(row.is_inside for row in rows)
    yield f"  mean of the families {fmean(shares):.0%}; all rows {inside} of {len(rows)} ({inside / len(rows):.0%})"


def _at_width(points: Sequence[Counted]) -> str:
    """Say what an interval of the wanted width holds, and how narrow one could be that was chosen in hindsight."""
    share = family_share(list(judged_resources(points, WANTED_WIDTH)))
    logic, _ = chosen_resources(points)
    band = narrowest(by_family((point.family, point.ratio(logic)) for point in points), WANTED_SHARE)
    return (
        f"  {WANTED_WIDTH} wide: mean of the families {share:.0%}; "
        f"{WANTED_SHARE:.0%} in hindsight: {band}, {band.high / band.low:.1f} wide"
    )


def _given(points: Sequence[Counted]) -> Iterator[str]:
    """Say the same of amounts less their trend with what a plan knows."""
    logic, _ = chosen_resources(points)
    for quantity in KNOWN:
        together, alone = regressed(points, logic, quantity)
        band, wanted = narrowest(together, WANTED_SHARE), Band(WANTED_WIDTH**-0.5, WANTED_WIDTH**0.5)
        yield (
            f"    given {quantity}: mean of the families {held(alone, wanted):.0%}; "
            f"{WANTED_SHARE:.0%} in hindsight: {band.high / band.low:.1f} wide"
        )


def _of_another_kind(resource: str, band: Band) -> Iterator[str]:
    """Yield what designs that the model does not describe took over its amounts, and whether the interval holds it."""
    for point in counted("apart"):
        if point.resource == resource:
            ratio = point.ratio(None)
            yield f"  of another kind: {point.family} {ratio:.2f}, {'inside' if ratio in band else 'outside'}"


def _clock_lines(found: Sequence[Closure]) -> Iterator[str]:
    """Yield the shares by regions, and the median by memory, which the model does not use."""
    shares = clock_shares(found)
    for is_dense, (low, likely, high) in shares.one_region.items():
        yield f"clock in one region, {'dense' if is_dense else 'sparse'}: {low:.2f}, {likely:.2f}, {high:.2f}"
    low, high = shares.several_regions
    yield f"clock over several: {shares.crossing:.3f} for each border, {low:.2f} to {high:.2f}"
    for memory in dict.fromkeys(each.memory for each in found):
        own = [each.clock_share for each in found if each.memory == memory]
        yield f"  closures beside {memory}: {len(own)}, median {median(own):.2f}"


def _rows(title: str, rows: Sequence[Judged], unit: float) -> Iterator[str]:
    """Yield a line for each figure; an exclamation mark is beside those outside their interval."""
    yield f"{title:48}{'published':>12}{'likely':>12}{'interval':>24}{'error':>8}  source"
    for row in rows:
        low, high = row.likely * row.band.low, row.likely * row.band.high
        mark = "" if row.is_inside else "!"
        figures = (
            f"{row.published * unit:12,.0f}{row.likely * unit:12,.0f}{low * unit:11,.0f} -{high * unit:10,.0f}{mark:1}"
        )
        yield f"{row.family + ': ' + row.name:48}{figures}{row.likely / row.published - 1:8.0%}  {row.source}"


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m benchmarks.kernels.array_coverage", description=__doc__).parse_args(argv)
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
