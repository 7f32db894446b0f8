"""Count how many published gains are inside the 50, 80 and 90 % intervals of the distribution of gains.

    python -m benchmarks.plans.odds_coverage

Two kinds of systems have known gains. In *pairs*, a part of an application moved to an FPGA and its time there is
known; uncertain is whether what stays takes as long as before. *Networks* and *products* run on an overlay or an array,
and uncertain is the time there. The gain over any host of known time is as uncertain as that time. Nothing is judged by
itself: each application, architecture on overlays, or family of arrays is left out of what its interval comes from.

    outcomes          n   inside 50 %   inside 80 %   inside 90 %
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.kernels.array_coverage import judged_times
from benchmarks.kernels.array_designs import timed
from benchmarks.kernels.coverage import Band, band_of
from benchmarks.kernels.overlay_held_out import comparisons
from benchmarks.kernels.zoo_networks import architecture
from common.files.configuration import TRUST, Section
from common.fpga.kernels.systolic.array_models import Serves
from common.fpga.speedup.draws import Draws, Values
from common.intervals import ThreePoint

FILE = Path(__file__).with_name("accelerated_pairs.yaml")
INTERVALS = (0.5, 0.8, 0.9)
TERM = "what is uncertain"
OVERLAY = "dpu"  # the family whose networks are judged as those of overlays, by the overlay's own model


@dataclass(frozen=True, slots=True)
class Pair:
    """An application before and after its pre-processing moved; times are those of one frame."""

    application: str
    device: str
    before_ms: float
    after_ms: float
    moves_ms: float
    moved_ms: float

    @property
    def gain(self) -> float:
        return self.before_ms / self.after_ms

    @property
    def stays_factor(self) -> float:
        """Time of what stays afterwards over its time before: 1 by Amdahl's law."""
        return (self.after_ms - self.moved_ms) / (self.before_ms - self.moves_ms)

    def gains(self, factors: Values) -> Values:
        """Return the gain where what stays takes so many times as long as before."""
        return self.before_ms / (self.moved_ms + factors * (self.before_ms - self.moves_ms))


@dataclass(frozen=True, slots=True)
class Outcome:
    """A published gain, and the distribution that was predicted without its family."""

    family: str
    name: str
    gain: float
    draws: Values

    def is_inside(self, share: float) -> bool:
        low, high = np.quantile(self.draws, ((1 - share) / 2, (1 + share) / 2))
        return bool(low <= self.gain <= high)


def pairs() -> list[Pair]:
    return [_pair(section) for section in Section.of_file(FILE).sections("pairs")]


def _pair(section: Section) -> Pair:
    before, after = section.entries("frames_per_s")
    section.text("source"), section.choice("trust", TRUST)
    return Pair(
        section.text("application"),
        section.text("device"),
        1e3 / before,
        1e3 / after,
        section.entries("stages_ms")[0],
        section.number("moved_ms"),
    )


def pair_outcomes(known: Sequence[Pair]) -> Iterator[Outcome]:
    """Yield each pair with the gains that the other applications predict for what stays."""
    factors: dict[str, list[float]] = {}
    for pair in known:
        factors.setdefault(pair.application, []).append(pair.stays_factor)
    for pair in known:
        band = _band_without(pair.application, factors)
        yield Outcome(pair.application, pair.device, pair.gain, pair.gains(_drawn(band)))


def network_outcomes() -> Iterator[Outcome]:
    """Yield each network on an overlay, with times relative to the likely one as gains over a host of that time."""
    compared = list(comparisons())
    ratios: dict[str, list[float]] = {}
    for row in compared:
        ratios.setdefault(architecture(row.network), []).append(row.ratio)
    for row in compared:
        family = architecture(row.network)
        yield Outcome(family, f"{row.network}, {row.board}", 1 / row.ratio, 1 / _drawn(_band_without(family, ratios)))


def array_outcomes(serves: Serves) -> Iterator[Outcome]:
    """Yield each published time on an array, relative to the likely one, as a gain over a host of that time.

    Rates, likely time and interval are those of the other families. A plan draws the error of an array's family and
    that of its design apart. Both apply to all calls of one array, so a network on it has their sum, which is drawn.
    """
    for row in judged_times([point for point in timed() if point.is_opened], serves):
        if row.family != OVERLAY:
            yield Outcome(row.family, row.name, row.likely / row.published, 1 / _drawn(row.band))


def _band_without(family: str, ratios: Mapping[str, Sequence[float]]) -> Band:
    return band_of({name: values for name, values in ratios.items() if name != family})


def _drawn(band: Band) -> Values:
    """Return draws of a factor whose band holds 90 %, as the plan draws its terms."""
    return Draws([TERM]).of(TERM, ThreePoint(band.high, 1.0, band.low))


def coverage(outcomes: Iterable[Outcome]) -> list[float]:
    """Return the share of the outcomes inside each interval."""
    rows = list(outcomes)
    return [float(np.mean([row.is_inside(share) for row in rows])) for share in INTERVALS]


def mean_by_family(outcomes: Iterable[Outcome]) -> list[float]:
    """Return the mean over families of the share inside each interval."""
    families: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        families.setdefault(outcome.family, []).append(outcome)
    return [float(value) for value in np.mean([coverage(rows) for rows in families.values()], axis=0)]


def report() -> str:
    of_pairs = list(pair_outcomes(pairs()))
    groups = {
        "pairs": of_pairs,
        "networks on overlays": list(network_outcomes()),
        "networks on arrays": list(array_outcomes("network")),
        "products on arrays": list(array_outcomes("product")),
    }
    groups["all"] = [row for rows in groups.values() for row in rows]
    lines = [f"{'pair':28}{'gain':>7}{'likely':>8}{'90 % within':>16}"]
    for row in of_pairs:
        low, likely, high = np.quantile(row.draws, (0.05, 0.5, 0.95))
        lines.append(f"{row.family + ', ' + row.name:28}{row.gain:7.2f}{likely:8.2f}{f'{low:.2f} to {high:.2f}':>16}")
    lines += ["", f"{'outcomes':28}{'n':>4}" + "".join(f"{f'inside {share:.0%}':>14}" for share in INTERVALS)]
    for name, rows in groups.items():
        families = len({row.family for row in rows})
        lines += [_line(name, len(rows), coverage(rows)), _line("  mean of families", families, mean_by_family(rows))]
    return "\n".join(lines)


def _line(name: str, count: int, shares: Iterable[float]) -> str:
    return f"{name:28}{count:4}" + "".join(f"{share:14.0%}" for share in shares)


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m benchmarks.plans.odds_coverage", description=__doc__).parse_args(argv)
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
