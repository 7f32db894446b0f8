"""Test the overlay engine on measurements outside its fit: other boards, engines, networks and library versions.

    python -m benchmarks.kernels.overlay_held_out

The figures are those of ``published.yaml``: the time of an image with one thread, and for the U280 with several. The
form of the model and its rates were fixed before they were looked up, and neither was changed for them. The interval is
chosen from them: its coverage is that of each architecture under the interval that the others give.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median

from benchmarks.kernels.coverage import band_of, left_out, spread_of
from benchmarks.kernels.overlay_fit import Network, configured, network, predicted
from benchmarks.kernels.published import NetworkFigures, network_figures
from benchmarks.kernels.zoo_networks import NETWORKS, architecture
from common.intervals import ThreePoint, combine


@dataclass(frozen=True, slots=True)
class Comparison:
    """One published time of an image in ms; errors are relative to it, the roofline's too."""

    board: str
    network: str
    published: float
    predicted: ThreePoint
    error: float
    roofline_error: float
    source: str

    @property
    def ratio(self) -> float:
        """Published over likely time."""
        return self.published / self.predicted.likely

    @property
    def is_inside(self) -> bool:
        """Whether the interval of the engine's configuration holds the published time."""
        return self.predicted.optimistic <= self.published <= self.predicted.pessimistic


def comparisons() -> Iterator[Comparison]:
    """Yield every published figure with its prediction."""
    networks = {name: network(build()) for name, build in NETWORKS.items()}
    for table in network_figures():
        for name in table.time_us:
            yield _compared(networks[name], name, table)


def _compared(net: Network, name: str, table: NetworkFigures) -> Comparison:
    model = predicted(net, configured(table.engine, table.board))
    per_image = combine(lambda rate: 1e3 / rate, model.frames_per_second)
    found = per_image if table.is_rate else combine(lambda us: us / 1e3, model.latency_us)
    roof_ms, published_ms = model.roofline_us / (model.batch if table.is_rate else 1) / 1e3, table.time_us[name] / 1e3
    return Comparison(
        table.board,
        name,
        published_ms,
        found,
        found.likely / published_ms - 1,
        roof_ms / published_ms - 1,
        table.source,
    )


def report() -> str:
    """Return a line for each figure, the errors, and the coverage."""
    compared = list(comparisons())
    lines = [
        f"{'board':9}{'network':18}{'published ms':>13}{'likely':>9}{'interval':>18}{'error':>7}{'roof':>7}  source"
    ]
    for row in compared:
        best, worst = row.predicted.optimistic, row.predicted.pessimistic
        figures = (
            f"{row.published:13.2f}{row.predicted.likely:9.2f}{best:9.2f} -{worst:7.2f}{'' if row.is_inside else '!':1}"
        )
        errors = f"{row.error:6.0%}{row.roofline_error:7.0%}"
        lines.append(f"{row.board:9}{row.network:18}{figures}{errors}  {row.source}")
    errors_of, roofs = [abs(row.error) for row in compared], [abs(row.roofline_error) for row in compared]
    for name, function in (("mean", mean), ("median", median), ("worst", max)):
        lines.append(f"{name:67}{function(errors_of):7.0%}{function(roofs):7.0%}")
    return "\n".join([*lines, "", *_coverage(compared)])


def ratios(compared: Sequence[Comparison]) -> dict[str, list[float]]:
    """Return published / likely, by architecture."""
    found: dict[str, list[float]] = {}
    for row in compared:
        found.setdefault(architecture(row.network), []).append(row.ratio)
    return found


def _coverage(compared: Sequence[Comparison]) -> Iterator[str]:
    by_family = ratios(compared)
    band, spread, alone = band_of(by_family), spread_of(by_family), left_out(by_family)
    inside, count = (sum(values) for values in zip(*((held, n) for _, held, n in alone.values()), strict=True))
    deviations = f"deviations {spread.family_sd:.3f} and {spread.design_sd:.3f}, {spread.family_count} architectures"
    yield f"interval by all architectures: {band.low:.3f} to {band.high:.3f} times the likely time; {deviations}"
    yield f"as configured it holds {sum(row.is_inside for row in compared)} of {len(compared)} (! marks the others)"
    mean_share = mean(held / n for _, held, n in alone.values())
    yield f"each architecture under the interval of the others: {inside} of {count} inside; mean {mean_share:.0%}"
    for name, (other, held, n) in alone.items():
        if held < n:
            yield f"  {name}: {held} of {n} in {other.low:.3f} to {other.high:.3f}"


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m benchmarks.kernels.overlay_held_out", description=__doc__).parse_args(argv)
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
