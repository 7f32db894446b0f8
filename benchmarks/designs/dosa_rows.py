"""Compare the cost of mappings with what Timeloop and Accelergy gave for DOSA's published mappings of Gemmini.

The rows are DOSA's (Hong et al., MICRO 2023; BSD 2-Clause) and no part of this project. The time is of the cost
function alone, in batches, at its best of the repetitions; reading the mappings' text is given apart.

    35,220 mappings of 37 layers on 95 accelerators
              mean error  worst error  rank correlation
    cycles      0.0010 %       3.0 %            1.0000  within 0.0050 %
    energy      0.0287 %       9.8 %            1.0000  within 0.1600 %
    time         5.5 us per mapping, and 17.8 us to read one  within 20 us
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.process import ROOT
from common.design_space.accelerator.hardware import Hardware
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.cost import cost
from common.design_space.mapping.dosa_rows import MappedRows, estimate, read_rows

ROWS = ROOT.parent / "shared" / "data" / "dosa" / "timeloop_rows.csv.gz"
LIMITS = {"cycles": 0.00005, "energy": 0.0016}  # mean absolute errors of DOSA's own code: 0.000039 and 0.00160
LARGEST_US = 20.0
REPETITIONS = 5


def compare(table: pd.DataFrame, rows: MappedRows, hardware: Hardware) -> bool:
    """Print errors and rank correlations; return whether they are within the limits."""
    layers = table[[name for name in table if str(name).startswith("prob.")]].drop_duplicates()
    print(f"{len(rows):,} mappings of {len(layers)} layers on {len(rows.variants)} accelerators")
    print(f"{'':<10}{'mean error':>12}{'worst error':>13}{'rank correlation':>18}")
    ours = estimate(rows, hardware)
    are_kept = True
    for name, column, theirs in (("cycles", "cycles", "target.cycle"), ("energy", "energy_uj", "target.energy")):
        errors = (ours[column] / table[theirs] - 1).abs()
        rank = ours[column].rank().corr(table[theirs].rank())
        is_kept = errors.mean() <= LIMITS[name] and round(rank, 4) == 1
        verdict = f"{'within' if is_kept else 'above'} {LIMITS[name]:.4%}".replace("%", " %")
        print(f"{name:<10}{errors.mean() * 100:>10.4f} %{errors.max() * 100:>11.1f} %{rank:>18.4f}  {verdict}")
        are_kept &= is_kept
    return are_kept


def microseconds_per_mapping(rows: MappedRows, hardware: Hardware) -> float:
    """Return the best time of the cost function over all batches."""
    batches = list(rows.batches())
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        for _, nests, mappings, figures in batches:
            result = cost(mappings, nests, hardware, figures)
            assert np.isfinite(result.cycles).all()
            assert np.isfinite(result.energy_pj).all()
        times.append(time.perf_counter() - start)
    return min(times) / len(rows) * 1e6


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=ROWS, help="DOSA's rows of Timeloop")
    path = parser.parse_args(argv).rows
    if not path.is_file():
        print(f"{path}: not there; nothing is compared", file=sys.stderr)
        return 0
    hardware = load_hardware("gemmini", ROOT / "configs" / "hardware")
    table = pd.read_csv(path)
    start = time.perf_counter()
    rows = read_rows(table, hardware)
    reading_us = (time.perf_counter() - start) / len(rows) * 1e6
    are_kept = compare(table, rows, hardware)
    cost_us = microseconds_per_mapping(rows, hardware)
    verdict = f"{'within' if cost_us <= LARGEST_US else 'above'} {LARGEST_US:.0f} us"
    print(f"{'time':<10}{cost_us:>6.1f} us per mapping, and {reading_us:.1f} us to read one  {verdict}")
    return int(not are_kept or cost_us > LARGEST_US)


if __name__ == "__main__":
    sys.exit(main())
