"""Fit the LUT and flip-flop models of the systolic array to synthesis, and test them on other sizes.

    python -m benchmarks.kernels.systolic_fit fit [--write]     synthesise the fit set; print the fits, or write them
    python -m benchmarks.kernels.systolic_fit check             compare held-out sizes; exit code 1 above 2 %
    python -m benchmarks.kernels.systolic_fit check --all       compare every R and C from 4 to 16 (takes hours)

Needs yosys. --jobs is the number of syntheses at once (default: the number of processors).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import yaml

from benchmarks.process import ROOT
from common.files.configuration import Section
from common.fpga.kernels.systolic.array_models import ResourceModels, cell_resources, dsp_count, read_systolic, terms
from common.fpga.rtl.generate import FORMATS, Design
from common.fpga.rtl.synthesize import Cells, synthesize
from common.messages.errors import PipelineError

CONFIG = ROOT / "configs" / "systolic_rtl.yaml"
MACS_PER_DSP = {"int16": 1.0, "int8": 2.0, "int4": 4.0}
SCHEDULES = {"simple": False, "overlapped": True}
# One and a half times as many sizes as terms (4, 6, 9), odd and even; no size has both sides above 13.
SIZES = [(4, 4), (4, 11), (10, 5), (7, 8), (12, 9), (5, 14), (9, 6), (6, 7), (11, 10), (13, 4)]
FIT_SIZES = {"int16": SIZES[:6], "int8": SIZES, "int4": [*SIZES, (5, 5), (9, 9), (8, 12), (13, 13), (6, 16)]}
# With several products per element: (R, C, s). Ten fit the nine terms of int4; three are kept back.
DEEP_SIZES = [
    (4, 4, 4),
    (4, 11, 2),
    (10, 5, 2),
    (7, 8, 3),
    (6, 6, 8),
    (5, 14, 2),
    (4, 4, 16),
    (5, 5, 8),
    (9, 9, 2),
    (12, 9, 2),
]
DEEP_HELD_OUT = [(8, 8, 4), (9, 6, 4), (6, 7, 5)]
HELD_OUT = [(4, 5), (5, 4), (4, 16), (16, 4), (7, 7), (8, 8), (11, 6), (9, 13), (14, 9), (15, 15), (16, 13), (16, 16)]
LIMIT = 0.02
DEEP_LIMIT = 0.05  # LUTs of further products are counted, not fitted


def main(arguments: list[str] | None = None) -> int:
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
        | {"deeper": {"ff": _deeper_fit(cells, held_out, precision)}}
        for precision in FORMATS
    }


def _deeper_fit(cells: Mapping[Design, Cells], held_out: Mapping[Design, Cells], precision: str) -> dict[str, Any]:
    """Fit the flip-flops that each further product adds to the fit of one product per element."""
    flat = solve(_counts(cells, precision, True, "ff"), precision)
    known = _deep_counts(cells, precision)
    rows = np.array([list(terms(precision, *size[:2]).values()) for size in known])
    deeper = np.array([size[2] - 1 for size in known])
    measured = np.array(list(known.values()), dtype=float)
    left = (measured - rows @ np.array(list(flat.values()))) / measured
    solution, *_ = np.linalg.lstsq(rows * (deeper / measured)[:, None], left, rcond=None)
    weights = {name: round(float(value), 3) for name, value in zip(flat, solution, strict=True)}
    errors = [
        sum((flat[name] + (size[2] - 1) * weights[name]) * value for name, value in terms(precision, *size[:2]).items())
        / count
        - 1
        for size, count in _deep_counts(held_out, precision).items()
    ]
    worst = round(max((abs(error) for error in errors), default=0.0), 5)
    return {"coefficients": weights, "fit_count": len(known), "held_out_count": len(errors), "worst_error": worst}


def _deep_counts(cells: Mapping[Design, Cells], precision: str) -> dict[tuple[int, int, int], int]:
    return {
        (design.rows, design.cols, design.simd): of_design.ff
        for design, of_design in cells.items()
        if design.precision == precision and design.simd > 1
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
        if (design.precision, design.overlap, design.simd) == (precision, overlap, 1)
    }


def designs_of(sizes: Mapping[str, list[tuple[int, int]]]) -> list[Design]:
    """Return a design for each size of each format in both schedules."""
    return [
        Design(*size, precision, overlap)
        for overlap in SCHEDULES.values()
        for precision, of_format in sizes.items()
        for size in of_format
    ]


def deep_designs_of(sizes: Sequence[tuple[int, int, int]]) -> list[Design]:
    """Return a design with several products per element for each size of each format, as plans have them."""
    return [
        Design(rows, cols, precision, True, simd, max(1, simd * form.bits // form.accumulator_bits))
        for precision, form in FORMATS.items()
        for rows, cols, simd in sizes
    ]


def write(fits: Mapping[str, Any]) -> None:
    """Replace the last section of the configuration; keep the text before it, comments included."""
    text = CONFIG.read_text(encoding="utf-8")
    CONFIG.write_text(text[: text.index("\nfits:\n") + 1] + _dump(fits), encoding="utf-8")


def _dump(fits: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump({"fits": fits}, sort_keys=False, default_flow_style=None, width=200))


def _fit(jobs: int, is_written: bool) -> int:
    held_out = dict.fromkeys(FORMATS, HELD_OUT)
    known = synthesize_all([*designs_of(FIT_SIZES), *deep_designs_of(DEEP_SIZES)], jobs)
    unseen = synthesize_all([*designs_of(held_out), *deep_designs_of(DEEP_HELD_OUT)], jobs)
    fits = fitted(known, unseen)
    if is_written:
        write(fits)
    else:
        print(_dump(fits), end="")
    return 0


def _check(jobs: int, is_all: bool) -> int:
    models = read_systolic(Section.of_file(CONFIG))
    every = [(rows, cols) for rows in range(4, 17) for cols in range(4, 17)]
    sizes = {name: [size for size in every if size not in FIT_SIZES[name]] if is_all else HELD_OUT for name in FORMATS}
    worst, is_off = 0.0, False
    print(f"{'design':<32}{'DSP':>6}{'model':>7}{'LUT':>8}{'model':>9}{'FF':>8}{'model':>9}{'worst':>9}")
    with ThreadPoolExecutor(jobs) as pool:
        designs = [*designs_of(sizes), *deep_designs_of(DEEP_HELD_OUT)]
        for design, cells in zip(designs, pool.map(synthesize, designs), strict=True):
            pairs = modelled(design, cells, models)
            error = max(abs(model / count - 1) for count, model in pairs)
            worst = max(worst, error)
            is_off |= error > (LIMIT if design.simd == 1 else DEEP_LIMIT)
            numbers = "".join(
                f"{count:>{w}}{model:>{w + 1}.0f}" for (count, model), w in zip(pairs, (6, 8, 8), strict=True)
            )
            print(f"{design.name:<32}{numbers}{error:>9.3%}", flush=True)
    limits = f"limit {LIMIT:.0%}, with several products per element {DEEP_LIMIT:.0%}"
    print(f"{len(designs)} designs that were not fitted, worst error {worst:.3%}, {limits}")
    return int(is_off)


def modelled(design: Design, cells: Cells, models: ResourceModels) -> list[tuple[int, float]]:
    """Return DSPs, LUTs and flip-flops, each as counted by yosys and by the model."""
    size = design.rows, design.cols, design.simd
    dsp = dsp_count(*size, design.precision, MACS_PER_DSP[design.precision])
    logic = cell_resources(size, design.precision, models, "overlapped" if design.overlap else "simple")
    return [(cells.dsp, dsp), (cells.lut, logic.lut), (cells.ff, logic.ff)]


if __name__ == "__main__":
    sys.exit(main())
