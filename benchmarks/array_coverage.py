"""Count how many published arrays the intervals of the model hold.

    python -m benchmarks.array_coverage

A figure never judges an interval that it helped to choose: for the coverage of a family, the rates and the interval are
chosen from the other families. Designs that are only recalled take part in neither.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean, median

from benchmarks.array_designs import MODELS, RESOURCES, Counted, Rates, Timed, array_of, counted, task_of, timed
from benchmarks.array_fit import fit_logic, fit_rates
from benchmarks.coverage import Band, band_of
from benchmarks.overlay_fit import CONFIGS
from benchmarks.published import Closure, attention_shares, closures, designs
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import closing
from common.fpga.kernels.systolic.array_resources import ONE_REGION, SEVERAL_REGIONS, FloatLogic

RECALLED = "(recalled)"


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


def chosen_band(points: Sequence[Timed]) -> tuple[Rates, Band]:
    rates = fit_rates(points)
    return rates, band_of(by_family((point.family, point.ratio(rates)) for point in points))


def judged_times(points: Sequence[Timed]) -> Iterator[Judged]:
    """Judge the times of each family by the rates and the interval of the others."""
    for family in dict.fromkeys(point.family for point in points):
        rates, band = chosen_band([point for point in points if point.is_opened and point.family != family])
        for point in points:
            if point.family == family:
                likely = point.published / point.ratio(rates)
                yield Judged(family, point.name, point.published, likely, band, point.source)


def chosen_resource_band(points: Sequence[Counted]) -> tuple[FloatLogic | None, Band]:
    """Return the cells and the interval that the points give, all of one resource."""
    logic = fit_logic(points) if any(point.logic for point in points) else None
    return logic, band_of(by_family((point.family, point.ratio(logic)) for point in points))


def judged_resources(points: Sequence[Counted]) -> Iterator[Judged]:
    """Judge the amounts of one resource of each family by the cells and the interval of the others."""
    for family in dict.fromkeys(point.family for point in points):
        others = [point for point in points if point.is_opened and point.family != family]
        logic, band = chosen_resource_band(others)
        for point in points:
            if point.family == family:
                likely = point.published / point.ratio(logic)
                yield Judged(family, point.name, point.published, likely, band, point.source)


# --- clock ------------------------------------------------------------------------------------------------------------


def clock_shares(found: Sequence[Closure]) -> dict[str, tuple[float, float, float]]:
    """Return low, likely and high share of the clock asked for, by regions and density.

    A design over several regions is taken to be floorplanned in the likely case; all others give the low end.
    """
    shares = {}
    for regions, is_dense in product((ONE_REGION, SEVERAL_REGIONS), (False, True)):
        own = [one for one in found if (one.regions > 1) == (regions == SEVERAL_REGIONS)]
        planned = [one.clock_share for one in own if one.is_floorplanned and _is_dense(one) == is_dense]
        all_shares = [one.clock_share for one in own if not one.is_floorplanned] + planned
        shares[f"{regions} {'dense' if is_dense else 'sparse'}"] = (min(all_shares), median(planned), max(planned))
    return shares


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
    """Return the fits, the intervals, and a line for each published figure."""
    points, amounts = list(timed()), list(counted())
    rates, band = chosen_band([point for point in points if point.is_opened])
    held = _held(band, [point.ratio(rates) for point in points])
    lines = [f"array share {rates.share:.2f}, {rates.call:.0f} cycles a call; time {band}, {held}"]
    for resource in RESOURCES:
        own = [point for point in amounts if point.resource == resource]
        logic, found = chosen_resource_band([point for point in own if point.is_opened])
        cells = f"; fp32: {logic.per_mac:.0f} a product, {logic.per_element:.0f} an element" if logic else ""
        held = _held(found, [point.ratio(logic) for point in own])
        lines.append(f"{resource} {found}, {held}{cells}")
    lines += [f"clock, {name}: {low:.2f}, {likely:.2f}, {high:.2f}" for name, (low, likely, high) in _clocks()]
    lines += ["", *_table("time, thousand cycles", list(judged_times(points)), 1e-3)]
    for resource in RESOURCES:
        own = [point for point in amounts if point.resource == resource]
        lines += ["", *_table(resource, list(judged_resources(own)), 1.0)]
    lines += ["", *_rows("time without the clock, us (as configured, floorplanned)", list(judged_clocks()), 1.0)]
    lines += ["", "attention kernels, share of the peak of their own multipliers"]
    lines += [f"  {name}: {share:.3f}" for name, share in attention_shares().items()]
    return "\n".join(lines)


def _held(band: Band, ratios: Sequence[float]) -> str:
    return f"which holds {sum(ratio in band for ratio in ratios)} of all {len(ratios)}"


def _clocks() -> Iterable[tuple[str, tuple[float, float, float]]]:
    return clock_shares(closures()).items()


def _table(title: str, rows: Sequence[Judged], unit: float) -> Iterator[str]:
    """Yield a line for each figure, and the coverage by family and of all that were opened."""
    yield from _rows(title, rows, unit)
    for family in dict.fromkeys(row.family for row in rows):
        own = [row for row in rows if row.family == family]
        inside = sum(row.is_inside for row in own)
        yield f"  {family}: {inside} of {len(own)} inside, under the interval {own[0].band} of the others"
    opened = [row for row in rows if RECALLED not in row.source]
    for label, chosen in (("all", rows), ("those that were opened", opened)):
        inside = sum(row.is_inside for row in chosen)
        error = fmean(abs(row.likely / row.published - 1) for row in chosen)
        yield f"  {label}: {inside} of {len(chosen)} inside ({inside / len(chosen):.0%}), mean error {error:.0%}"


def _rows(title: str, rows: Sequence[Judged], unit: float) -> Iterator[str]:
    """Yield a line for each figure; an exclamation mark stands beside those outside their interval."""
    yield f"{title:48}{'published':>12}{'likely':>12}{'interval':>24}{'error':>8}  source"
    for row in rows:
        low, high = row.likely * row.band.low, row.likely * row.band.high
        mark = "" if row.is_inside else "!"
        figures = (
            f"{row.published * unit:12,.0f}{row.likely * unit:12,.0f}{low * unit:11,.0f} -{high * unit:10,.0f}{mark:1}"
        )
        yield f"{row.family + ': ' + row.name:48}{figures}{row.likely / row.published - 1:8.0%}  {row.source}"


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m benchmarks.array_coverage", description=__doc__).parse_args(argv)
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
