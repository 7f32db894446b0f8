"""Compare cycles of mappings with those of Gemmini's RTL under FireSim, and fit what a tile costs there.

The rows are DOSA's (Hong et al., MICRO 2023; BSD 2-Clause) and no part of this project. The seven constants of
``common/design_space/mapping/gemmini_rtl.py`` are fitted to half of the rows, and judged on the others: rows at random,
and layers at random, so that no judged layer was seen. The last line is what configs/hardware/gemmini.yaml holds.

    1,567 mappings on RTL
                                  rows   mean error    median  rank correlation
    analytic cycles               1567       62.6 %    58.7 %            0.8465
    other half of the rows         784       20.5 %    11.1 %            0.9822  within 26% at 0.973
    other half of the layers       810       19.7 %    10.6 %            0.9786  within 26% at 0.973
    gemmini.yaml, all rows        1567       19.6 %    10.4 %            0.9840
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from benchmarks.process import ROOT
from common.design_space.accelerator.hardware import RtlCosts
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.dosa_rows import MappedRows, estimate, read_rows
from common.design_space.mapping.gemmini_rtl import rtl_cycles

ROWS = ROOT.parent / "shared" / "data" / "dosa" / "firesim_results.csv.gz"
START = (256.0, 128.0, 1.0, 0.125, 1.0, 1.0, 1.0)  # a request, a block, a row per cycle; eight bytes per cycle
LARGEST_ERROR, LEAST_RANK = 0.26, 0.973
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


def line(name: str, cycles: np.ndarray, measured: np.ndarray) -> tuple[str, float, float]:
    """Return a line of the table, the mean absolute error and the rank correlation."""
    errors = np.abs(cycles / measured - 1)
    rank = float(pd.Series(cycles).rank().corr(pd.Series(measured).rank()))
    text = f"{name:<28}{len(cycles):>6}{errors.mean() * 100:>11.1f} %{np.median(errors) * 100:>8.1f} %{rank:>18.4f}"
    return text, float(errors.mean()), rank


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
    print(f"{'':<28}{'rows':>6}{'mean error':>13}{'median':>10}{'rank correlation':>18}")
    print(line("analytic cycles", estimate(rows, hardware)["cycles"].to_numpy(dtype=np.float64), measured)[0])
    are_kept = True
    for name, known in splits(table).items():
        costs = fitted(rows, measured, known)
        text, error, rank = line(name, modelled(rows, costs)[~known], measured[~known])
        is_kept = error < LARGEST_ERROR and rank >= LEAST_RANK
        print(f"{text}  {'within' if is_kept else 'above'} {LARGEST_ERROR:.0%} at {LEAST_RANK}")
        print(
            f"{'':<4}"
            + ", ".join(f"{field.name} {value:.4g}" for field, value in zip(fields(costs), astuple(costs), strict=True))
        )
        are_kept &= is_kept
    if hardware.rtl is not None:
        print(line("gemmini.yaml, all rows", modelled(rows, hardware.rtl), measured)[0])
    return int(not are_kept)


if __name__ == "__main__":
    sys.exit(main())
