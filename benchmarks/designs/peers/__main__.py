"""Compare the mappings that other programs find with the best ones of this project, on the same layers of Gemmini.

Each mapping of ZigZag is priced by this project's cost function, and ZigZag's own figure is beside it. DOSA's rows
have mappings with the cycles and energy that Timeloop gave: the best of them for each layer, on the configuration that
most rows have. ``published.yaml`` has mappings of Timeloop's mapper, CoSA and FactorFlow. All are products of one
layer, in uJ·cycles. Seconds are of the processor.

    zigzag                           own   re-priced        ours   ratio  seconds
    resnet18 K64 C64 P56…      1.087e+08   1.113e+08   1.079e+08   1.031  3.4 0.4
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.designs.dosa_rows import ROWS
from benchmarks.designs.layers import nests_of
from benchmarks.designs.peers.pricing import CutMapping, price
from benchmarks.designs.peers.published import published_mappings
from benchmarks.process import ROOT
from common.design_space.accelerator.hardware import Hardware
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.dosa_rows import read_rows
from common.design_space.mapping.space.nest_fronts import ALONE, nest_fronts
from common.workload.loop_nests import LoopNest

MODELS = ("resnet18", "bert-base", "vit-b16")
ZIGZAG_LOOPS = {"B": "N", "G": "G", "K": "K", "C": "C", "OY": "P", "OX": "Q", "FY": "R", "FX": "S"}
SPATIAL = {"K": "scratchpad", "C": "accumulator"}  # the level below which Gemmini lays out a loop
ROUNDING = 1e-9

PRODUCTS = tuple(
    LoopNest(p=rows, c=inner, k=columns)
    for rows, inner, columns in (
        (128, 64, 128), (128, 768, 768), (197, 64, 197), (197, 197, 64), (197, 768, 768),
        (128, 768, 3072), (128, 3072, 768),
    )
)  # fmt: skip


def as_layer(nest: LoopNest) -> dict[str, Any]:
    """Return a nest as :mod:`benchmarks.designs.peers.zigzag_search` reads it."""
    return {
        "extents": {theirs: nest.bounds[ours] for theirs, ours in ZIGZAG_LOOPS.items()},
        "strides": [nest.stride_p, nest.stride_q],
        "dilations": [nest.dilation_r, nest.dilation_s],
    }


def as_mapping(found: dict[str, Any]) -> CutMapping:
    """Return a mapping of ZigZag as this project prices it."""
    inside = {operand: [[(ZIGZAG_LOOPS[loop], round(factor)) for loop, factor in level] for level in levels]
              for operand, levels in found["temporal"].items()}  # fmt: skip
    laid_out = {ZIGZAG_LOOPS[loop]: round(factor)
                for level in found["spatial"]["weight"] for loop, factor in level}  # fmt: skip
    return CutMapping(inside, {SPATIAL[loop]: {loop: copies} for loop, copies in laid_out.items() if copies > 1})


def zigzag(python: str, nests: Sequence[LoopNest]) -> list[dict[str, Any]]:
    """Return what ZigZag finds for each nest, in a process of the environment that has it."""
    script = [python, str(Path(__file__).with_name("zigzag_search.py"))]
    layers = json.dumps([as_layer(nest) for nest in nests])
    run = subprocess.run(script, input=layers, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"zigzag: {run.stderr.strip().splitlines()[-1]}")
    results: list[dict[str, Any]] = json.loads(run.stdout)
    return results


def accelforge(python: str, nests: Sequence[LoopNest]) -> list[dict[str, Any]]:
    """Return what AccelForge finds for each matrix product, in a process of the environment that has it."""
    script = [str(Path(python).absolute()), str(Path(__file__).with_name("accelforge_search.py"))]
    products = json.dumps([[nest.p, nest.c, nest.k] for nest in nests])
    with tempfile.TemporaryDirectory() as scratch:  # AccelForge draws its mapping into the folder that it runs in
        run = subprocess.run(script, input=products, capture_output=True, text=True, check=False, cwd=scratch)
    if run.returncode:
        raise SystemExit(f"accelforge: {run.stderr.strip().rpartition(chr(10))[2]}")
    results: list[dict[str, Any]] = json.loads(run.stdout)
    return results


def compare_accelforge(python: str, hardware: Hardware) -> bool:
    """Print the products that AccelForge finds by its own cost model beside the best ones; return whether none is less.

    AccelForge counts these products as this project does: where both find the same mapping, both figures are equal.
    """
    print(
        f"\n{'accelforge, its own figures':<44}{'':>11}{'theirs':>11}{'ours':>11}{'ratio':>9}{'seconds':>8}{'ours':>6}"
    )
    are_best = True
    for nest, found in zip(PRODUCTS, accelforge(python, PRODUCTS), strict=True):
        ours, seconds = best(nest, hardware)
        theirs = found["energy_pj"] * found["cycles"]
        are_best &= ours <= theirs * (1 + ROUNDING)
        print(
            f"{shape(nest):<44}{'':>11}{theirs * 1e-6:>11.4g}{ours * 1e-6:>11.4g}{theirs / ours:>9.4g}"
            f"{found['seconds']:>8.1f}{seconds:>6.1f}"
        )
    return are_best


def best(nest: LoopNest, hardware: Hardware) -> tuple[float, float]:
    """Return the least product of a layer by itself, in pJ·cycles, and the seconds that the search took."""
    start = time.process_time()
    front = nest_fronts(nest, hardware, [ALONE]).fronts[ALONE]
    return min(point.energy_pj * point.cycles for point in front), time.process_time() - start


def shape(nest: LoopNest) -> str:
    return " ".join(f"{loop}{extent}" for loop, extent in nest.bounds.items() if extent > 1)


def compare_zigzag(python: str, hardware: Hardware) -> bool:
    """Print what ZigZag finds for each layer beside the best mapping; return whether none is better."""
    with tempfile.TemporaryDirectory() as scratch:
        models = {name: list(dict.fromkeys(nests_of(name, Path(scratch)).values())) for name in MODELS}
    rows = [(name, nest) for name, nests in models.items() for nest in nests]
    print(f"{'zigzag':<44}{'own':>11}{'re-priced':>11}{'ours':>11}{'ratio':>9}{'seconds':>8}{'ours':>6}")
    are_best = True
    for (name, nest), found in zip(rows, zigzag(python, [nest for _, nest in rows]), strict=True):
        theirs = price(nest, as_mapping(found), hardware)
        ours, seconds = best(nest, hardware)
        own = found["energy_pj"] * found["cycles"]
        verdict = "" if theirs.fits else "  does not fit"
        are_best &= ours <= theirs.edp * (1 + ROUNDING)
        print(
            f"{name + ' ' + shape(nest):<44}{own * 1e-6:>11.4g}{theirs.edp * 1e-6:>11.4g}{ours * 1e-6:>11.4g}"
            f"{theirs.edp / ours:>9.4g}{found['seconds']:>8.1f}{seconds:>6.1f}{verdict}"
        )
    return are_best


def nest_of_row(row: pd.Series[Any]) -> LoopNest:
    """Return the layer of one of DOSA's rows."""
    n, k, c, p, q, r, s = (int(row[f"prob.{loop}"]) for loop in "NKCPQRS")
    strides = int(row["prob.Wstride"]), int(row["prob.Hstride"])
    return LoopNest(n=n, k=k, c=c, p=p, q=q, r=r, s=s, stride_p=strides[0], stride_q=strides[1])


def compare_rows(path: Path, hardware: Hardware) -> bool:
    """Print the best of DOSA's rows for each layer beside the best mapping; return whether none is better."""
    table = pd.read_csv(path)
    sizes = [name for name in table if str(name).startswith("arch.")]
    common = table.groupby(sizes).size().idxmax()
    table = table[(table[sizes] == np.array(common)).all(axis=1)].reset_index(drop=True)
    (sized,) = read_rows(table, hardware).variants
    products = table["target.cycle"] * table["target.energy"]
    layers = [name for name in table if str(name).startswith("prob.")]
    print(f"\n{'timeloop, best of DOSA rows':<44}{'rows':>11}{'theirs':>11}{'ours':>11}{'ratio':>9}{'':>8}{'ours':>6}")
    are_best = True
    for _, group in table.groupby(layers):
        nest, theirs = nest_of_row(group.iloc[0]), products[group.index].min()
        ours, seconds = best(nest, sized)
        are_best &= ours * 1e-6 <= theirs * (1 + 1e-3)  # the two cost functions differ by less
        ratio = theirs / (ours * 1e-6)
        print(
            f"{shape(nest):<44}{len(group):>11}{theirs:>11.4g}{ours * 1e-6:>11.4g}{ratio:>9.4g}{'':>8}{seconds:>6.1f}"
        )
    return are_best


def compare_published() -> bool:
    """Print published mappings of other programs beside the best mapping; return whether none is better."""
    hardware, mappings = published_mappings()
    print(f"\n{'published mappings':<44}{'peer':>11}{'theirs':>11}{'ours':>11}{'ratio':>9}{'':>8}{'ours':>6}")
    are_best = True
    for row in mappings:
        ours, seconds = best(row.nest, hardware)
        are_best &= ours <= row.edp * (1 + ROUNDING) or not row.fits
        figures = f"{row.edp * 1e-6:>11.4g}{ours * 1e-6:>11.4g}{row.edp / ours:>9.4g}{'':>8}{seconds:>6.1f}"
        print(f"{row.problem:<44}{row.peer:>11}{figures}{'' if row.fits else '  it does not fit'}")
    return are_best


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environment that has ZigZag")
    text = "the interpreter of an environment that has AccelForge, which needs Python 3.12"
    parser.add_argument("--accelforge", default="", metavar="PYTHON", help=text)
    parser.add_argument("--rows", type=Path, default=ROWS, help="DOSA's rows of Timeloop")
    given = parser.parse_args(argv)
    hardware = load_hardware("gemmini", ROOT / "configs" / "hardware")
    are_best = compare_published() & compare_zigzag(given.python, hardware)
    if given.accelforge:
        are_best &= compare_accelforge(given.accelforge, hardware)
    if given.rows.is_file():
        are_best &= compare_rows(given.rows, hardware)
    else:
        print(f"{given.rows}: not there; nothing is compared", file=sys.stderr)
    return int(not are_best)


if __name__ == "__main__":
    sys.exit(main())
