"""Compare cycles of mappings with those of Gemmini's RTL under FireSim, and fit what a tile costs there.

The rows are DOSA's (Hong et al., MICRO 2023; BSD 2-Clause) and no part of this project. The seven constants of
``common/design_space/mapping/gemmini_rtl.py`` are fitted to half of the rows, and judged on the others: rows at random,
and layers at random, so that no judged layer was seen. The last line is what configs/hardware/gemmini.yaml holds.

    1,567 mappings on RTL
                                                  rows      mean    median   largest      rank
    analytic cycles                               1567    62.6 %    58.7 %  2201.8 %    0.8465
    other half of the rows                         784    20.5 %    11.1 %   137.7 %    0.9822  within 26% at 0.973
      window                                       623    18.2 %    11.1 %    99.5 %    0.9737
      product                                      161    29.3 %    10.2 %   137.7 %    0.9943
    gemmini.yaml, all rows                        1567    19.6 %    10.4 %   166.5 %    0.9840
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from benchmarks.process import ROOT
from common.design_space.accelerator.hardware import Hardware, RtlCosts
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.cost import cost
from common.design_space.mapping.dosa_rows import MappedRows, estimate, read_rows
from common.design_space.mapping.gemmini_rtl import rtl_cycles
from common.design_space.mapping.traffic import P, Q, R, S

ROWS = ROOT.parent / "shared" / "data" / "dosa" / "firesim_results.csv.gz"
START = (256.0, 128.0, 1.0, 0.125, 1.0, 1.0, 1.0)  # a request, a block, a row per cycle; eight bytes per cycle
LARGEST_ERROR, LEAST_RANK = 0.26, 0.973
INTERVAL = (0.05, 0.95)
SEED = 0
EVALUATIONS = 3000


def modelled(rows: MappedRows, costs: RtlCosts) -> np.ndarray:
    return np.concatenate([rtl_cycles(mappings, nests, costs) for _, nests, mappings, _ in rows.batches()])


def fitted(rows: MappedRows, measured: np.ndarray, known: np.ndarray) -> RtlCosts:
    """Return the costs of least mean absolute logarithmic error over the known rows."""

    def error(logarithms: np.ndarray) -> float:
        cycles = modelled(rows, RtlCosts(*np.exp(logarithms)))
        return float(np.abs(np.log(cycles / measured))[known].mean())

    result = minimize(
        error, np.log(START), method="Powell", options={"maxfev": EVALUATIONS, "xtol": 1e-3, "ftol": 1e-5}
    )
    return RtlCosts(*(float(value) for value in np.exp(result.x)))


def splits(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return which rows are known: half of the rows, or half of the layers."""
    generator = np.random.default_rng(SEED)
    layer = table.groupby([name for name in table if str(name).startswith("prob.")]).ngroup().to_numpy()
    known_layers = generator.permutation(layer.max() + 1) < (layer.max() + 1) // 2
    return {
        "other half of the rows": generator.permutation(len(table)) < len(table) // 2,
        "other half of the layers": known_layers[layer],
    }


def kinds(rows: MappedRows) -> dict[str, np.ndarray]:
    """Return which rows are convolutions, and which are matrix products."""
    is_product = (np.asarray(rows.nests.extents)[:, [Q, R, S]] == 1).all(axis=1)
    return {"window": ~is_product, "product": is_product}


def line(name: str, cycles: np.ndarray, measured: np.ndarray) -> tuple[str, float, float]:
    """Return a line of the table, the mean absolute error and the rank correlation."""
    errors = np.abs(cycles / measured - 1)
    rank = float(pd.Series(cycles).rank().corr(pd.Series(measured).rank()))
    figures = "".join(f"{error * 100:>8.1f} %" for error in (errors.mean(), np.median(errors), errors.max()))
    return f"{name:<44}{len(cycles):>6}{figures}{rank:>10.4f}", float(errors.mean()), rank


def ratios(rows: MappedRows, cycles: np.ndarray, measured: np.ndarray, kept: np.ndarray) -> dict[str, np.ndarray]:
    """Return measured over counted cycles of the kept rows, by kind of layer."""
    return {name: (measured / cycles)[kept & of_kind] for name, of_kind in kinds(rows).items()}


def intervals(rows: MappedRows, measured: np.ndarray, half: np.ndarray) -> Iterator[str]:
    """Yield the interval of each kind: of layers that were not fitted, and how often it holds for the other layers.

    Args:
        rows: the mapped rows.
        measured: their cycles.
        half: the rows of half of the layers.
    """
    unseen = [ratios(rows, modelled(rows, fitted(rows, measured, known)), measured, ~known) for known in (half, ~half)]
    for kind in kinds(rows):
        first, second = (of_fit[kind] for of_fit in unseen)
        for own, other in ((first, second), (second, first)):
            low, high = np.quantile(own, INTERVAL)
            held = ((other >= low) & (other <= high)).mean()
            yield f"  {kind}: {low:.3f} to {high:.3f} holds {held:.1%} of {len(other)} rows of the other layers"
        low, high = np.quantile(np.concatenate([first, second]), INTERVAL)
        yield f"  {kind}: {low:.3f} to {high:.3f} of both, which gemmini.yaml has"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison; return 1 where the error of rows that were not fitted is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=ROWS, help="DOSA's rows of FireSim")
    path = parser.parse_args(argv).rows
    if not path.is_file():
        print(f"{path}: not there; nothing is compared", file=sys.stderr)
        return 0
    hardware = load_hardware("gemmini", ROOT / "configs" / "hardware")
    table = pd.read_csv(path)
    rows, measured = read_rows(table, hardware), table["target.gemmini_cycle"].to_numpy(dtype=np.float64)
    print(f"{len(rows):,} mappings on RTL")
    print(f"{'':<44}{'rows':>6}{'mean':>10}{'median':>10}{'largest':>10}{'rank':>10}")
    print(line("analytic cycles", estimate(rows, hardware)["cycles"].to_numpy(dtype=np.float64), measured)[0])
    are_kept, halves = True, splits(table)
    for name, known in halves.items():
        costs = fitted(rows, measured, known)
        cycles = modelled(rows, costs)
        text, error, rank = line(name, cycles[~known], measured[~known])
        is_kept = error < LARGEST_ERROR and rank >= LEAST_RANK
        print(f"{text}  {'within' if is_kept else 'above'} {LARGEST_ERROR:.0%} at {LEAST_RANK}")
        for kind, of_kind in kinds(rows).items():
            print(line(f"  {kind}", cycles[~known & of_kind], measured[~known & of_kind])[0])
        print(
            f"{'':<4}"
            + ", ".join(f"{field.name} {value:.4g}" for field, value in zip(fields(costs), astuple(costs), strict=True))
        )
        are_kept &= is_kept
    print("measured over counted cycles, nine in ten rows of layers that were not fitted")
    print("\n".join(intervals(rows, measured, halves["other half of the layers"])))
    if hardware.rtl is not None:
        print(line("gemmini.yaml, all rows", modelled(rows, hardware.rtl), measured)[0])
        print("\n".join(searched(rows, hardware, measured)))
    return int(not are_kept)


def searched(rows: MappedRows, hardware: Hardware, measured: np.ndarray) -> Iterator[str]:
    """Yield the error of the cycles that a search counts, of rows whose software ran the layer on the same array.

    These have square maps and windows of odd size, or are products, and their copies need an array of 16 x 16.
    """
    machine = hardware.with_rtl()
    costs = [cost(mappings, nests, machine, figures) for _, nests, mappings, figures in rows.batches()]
    copies = np.asarray(rows.mappings.spatial).prod(axis=-2).max(axis=-1)
    extents, sides = np.asarray(rows.nests.extents), hardware.array.rows
    is_same = (copies > sides // 2) & (copies <= sides)
    is_layer = (extents[:, P] == extents[:, Q]) & (extents[:, R] % 2 == 1)
    for kind, of_kind in kinds(rows).items():
        chosen = is_same & of_kind & (is_layer | (kind == "product"))
        for name, parts in (
            ("RTL alone", [np.asarray(part.rtl_cycles) for part in costs]),
            ("at least analytic", [np.asarray(part.cycles) for part in costs]),
        ):
            yield line(f"  in a search, {kind}, {name}", np.concatenate(parts)[chosen], measured[chosen])[0]


if __name__ == "__main__":
    sys.exit(main())
