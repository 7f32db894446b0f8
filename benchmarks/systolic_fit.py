"""Fit the LUT and flip-flop models of the systolic array to synthesis, and test them on other sizes.

    python -m benchmarks.systolic_fit fit [--write]     synthesise the fit set; print the fits, or write them
    python -m benchmarks.systolic_fit check             compare held-out sizes; exit code 1 above 2 %
    python -m benchmarks.systolic_fit check --all       compare every R and C from 4 to 16 (takes hours)

Needs yosys. --jobs is the number of syntheses at once (default: the number of processors).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from common.configuration import Section
from common.errors import PipelineError
from common.fpga.kernels.systolic_resources import ResourceModels, dsp_count, read_systolic, terms
from common.fpga.rtl.generate import FORMATS, Design
from common.fpga.rtl.synthesize import Cells, synthesize

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "systolic_rtl.yaml"
MACS_PER_DSP = {"int16": 1.0, "int8": 2.0, "int4": 4.0}
SCHEDULES = {"simple": False, "overlapped": True}
# One and a half times as many sizes as terms (4, 6, 9), odd and even; no size has both sides above 13.
SIZES = [(4, 4), (4, 11), (10, 5), (7, 8), (12, 9), (5, 14), (9, 6), (6, 7), (11, 10), (13, 4)]
FIT_SIZES = {"int16": SIZES[:6], "int8": SIZES, "int4": [*SIZES, (5, 5), (9, 9), (8, 12), (13, 13), (6, 16)]}
HELD_OUT = [(4, 5), (5, 4), (4, 16), (16, 4), (7, 7), (8, 8), (11, 6), (9, 13), (14, 9), (15, 15), (16, 13), (16, 16)]
LIMIT = 0.02


def main(arguments: list[str] | None = None) -> int:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("fit", "check"))
    parser.add_argument("--all", action="store_true", help="check every R and C from 4 to 16")
    parser.add_argument("--write", action="store_true", help=f"fit: replace the fits of {CONFIG.name}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args(arguments)
    try:
        return _fit(given.jobs, given.write) if given.command == "fit" else _check(given.jobs, given.all)
    except PipelineError as problem:
        print(f"systolic_fit: error: {problem}", file=sys.stderr)
        return problem.exit_code


def synthesize_all(designs: Iterable[Design], jobs: int) -> dict[Design, Cells]:
    """Return the cells by design; several syntheses run at once."""
    wanted = list(designs)
    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(wanted, pool.map(synthesize, wanted), strict=True))


def solve(counts: Mapping[tuple[int, int], int], precision: str) -> dict[str, float]:
    """Return the coefficients by least squares of relative errors, rounded to three digits after the point."""
    rows = [list(terms(precision, *size).values()) for size in counts]
    measured = np.array(list(counts.values()), dtype=float)
    solution, *_ = np.linalg.lstsq(np.array(rows) / measured[:, None], np.ones(len(measured)), rcond=None)
    return {name: round(float(value), 3) for name, value in zip(terms(precision, 4, 4), solution, strict=True)}


def fitted(cells: Mapping[Design, Cells], held_out: Mapping[Design, Cells]) -> dict[str, Any]:
    """Return the section ``fits`` of the configuration."""
    return {
        precision: {
            schedule: {kind: _one_fit(cells, held_out, (precision, overlap, kind)) for kind in ("lut", "ff")}
            for schedule, overlap in SCHEDULES.items()
        }
        for precision in FORMATS
    }


def _one_fit(
    cells: Mapping[Design, Cells], held_out: Mapping[Design, Cells], selection: tuple[str, bool, str]
) -> dict[str, Any]:
    """Fit one kind of cell of one format and schedule, as ``selection`` names them."""
    known, unseen = (_counts(cells_of, *selection) for cells_of in (cells, held_out))
    precision = selection[0]
    weights = solve(known, precision)
    errors = [
        sum(weights[name] * value for name, value in terms(precision, *size).items()) / count - 1
        for size, count in unseen.items()
    ]
    worst = round(max((abs(error) for error in errors), default=0.0), 5)
    return {"coefficients": weights, "fit_count": len(known), "held_out_count": len(unseen), "worst_error": worst}


def _counts(cells: Mapping[Design, Cells], precision: str, overlap: bool, kind: str) -> dict[tuple[int, int], int]:
    return {
        (design.rows, design.cols): getattr(design_cells, kind)
        for design, design_cells in cells.items()
        if (design.precision, design.overlap) == (precision, overlap)
    }


def designs_of(sizes: Mapping[str, list[tuple[int, int]]]) -> list[Design]:
    """Return a design for each size of each format in both schedules."""
    return [
        Design(*size, precision, overlap)
        for overlap in SCHEDULES.values()
        for precision, of_format in sizes.items()
        for size in of_format
    ]


def write(fits: Mapping[str, Any]) -> None:
    """Replace the last section of the configuration; keep the text before it, comments included."""
    text = CONFIG.read_text(encoding="utf-8")
    CONFIG.write_text(text[: text.index("\nfits:\n") + 1] + _dump(fits), encoding="utf-8")


def _dump(fits: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump({"fits": fits}, sort_keys=False, default_flow_style=None, width=200))


def _fit(jobs: int, is_written: bool) -> int:
    held_out = dict.fromkeys(FORMATS, HELD_OUT)
    fits = fitted(synthesize_all(designs_of(FIT_SIZES), jobs), synthesize_all(designs_of(held_out), jobs))
    if is_written:
        write(fits)
    else:
        print(_dump(fits), end="")
    return 0


def _check(jobs: int, is_all: bool) -> int:
    models = read_systolic(Section.of_file(CONFIG))
    every = [(rows, cols) for rows in range(4, 17) for cols in range(4, 17)]
    sizes = {name: [size for size in every if size not in FIT_SIZES[name]] if is_all else HELD_OUT for name in FORMATS}
    worst = 0.0
    print(f"{'design':<32}{'DSP':>6}{'model':>7}{'LUT':>8}{'model':>9}{'FF':>8}{'model':>9}{'worst':>9}")
    with ThreadPoolExecutor(jobs) as pool:
        designs = designs_of(sizes)
        for design, cells in zip(designs, pool.map(synthesize, designs), strict=True):
            pairs = modelled(design, cells, models)
            error = max(abs(model / count - 1) for count, model in pairs)
            worst = max(worst, error)
            numbers = "".join(
                f"{count:>{w}}{model:>{w + 1}.0f}" for (count, model), w in zip(pairs, (6, 8, 8), strict=True)
            )
            print(f"{design.name:<32}{numbers}{error:>9.3%}", flush=True)
    print(f"{len(designs)} designs that were not fitted, worst error {worst:.3%}, limit {LIMIT:.0%}")
    return int(worst > LIMIT)


def modelled(design: Design, cells: Cells, models: ResourceModels) -> list[tuple[int, float]]:
    """Return DSPs, LUTs and flip-flops, each as counted by yosys and by the model."""
    schedule = "overlapped" if design.overlap else "simple"
    values = terms(design.precision, design.rows, design.cols)
    dsp = dsp_count(design.rows, design.cols, 1, design.precision, MACS_PER_DSP[design.precision])
    lut, ff = (models.fits[design.precision, schedule, kind].at(values) for kind in ("lut", "ff"))
    return [(cells.dsp, dsp), (cells.lut, lut), (cells.ff, ff)]


if __name__ == "__main__":
    sys.exit(main())
