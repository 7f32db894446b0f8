"""The Verilog of a design in simulation: some folds of each contraction, beside the cycles that the cost counts.

A contraction of a whole network takes millions of cycles of thousands of multipliers. Its folds are alike: after the
first one, each takes max(ceil(K / s), ceil(R / d)) cycles. So up to four of them are simulated, over both sides of the
array and the whole depth, and their cycles are compared with the equation that also gives those of all folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np

from common.board_designs.board_search import BoardDesign, Front, ModelRuns, NestCosts
from common.board_designs.model import BoardModel
from common.fpga.array_designs import DesignSet
from common.fpga.hand_off.designs import array_design
from common.fpga.rtl.generate import FORMATS, Design
from common.fpga.rtl.programs import is_there
from common.fpga.rtl.simulate import ArrayProduct, Outcome, simulate
from common.messages.errors import PipelineError, UnusableValueError
from common.table_rows import DesignSimulationRow
from common.workload.layers import Matmul
from common.workload.loop_nests import LoopNest

SIDE_FOLDS = 2  # along each side of a simulated product


def require_simulator(precision: str) -> None:
    """Refuse a simulation that cannot be made, before the search.

    Raises:
        UnusableValueError: no Verilog is generated for the number format.
        PipelineError: Verilator is missing.
    """
    if precision not in FORMATS:
        problem = f"there is no Verilog of arrays in {precision}"
        raise UnusableValueError("precision", problem, "give int8 or int16, or leave <simulate> out")
    if not is_there("verilator"):
        raise PipelineError("verilator", "not found", "make rtl-tools installs it; or leave <simulate> out")


def simulated_rows(model: BoardModel, front: Front, is_wanted: bool) -> list[DesignSimulationRow]:
    """Return the rows of the fastest design of a front (:func:`simulation_rows`); none where they are not wanted."""
    fastest = front.designs[0]
    costs = ModelRuns.of(model, fastest.design.size, DesignSet()).fastest(fastest.array) if is_wanted else None
    return [] if costs is None else simulation_rows(fastest, model.nests, costs)


def simulation_rows(found: BoardDesign, nests: Mapping[LoopNest, int], costs: NestCosts) -> list[DesignSimulationRow]:
    """Return a row for each contraction, with the cycles of the simulated Verilog.

    Args:
        nests: the contractions, and how often each runs.
        costs: of one run of each, by the design space.

    Raises:
        UnusableValueError: no Verilog is generated for the number format.
        PipelineError: Verilator is missing or failed, or a sum is not that of the definition.
    """
    require_simulator(found.array.precision)
    design = array_design(found.array)
    assert design is not None
    products = [_drawn(design, nest, seed) for seed, nest in enumerate(nests)]
    outcomes = simulate(products)
    for product, outcome in zip(products, outcomes, strict=True):
        if not np.array_equal(outcome.product, product.a @ product.b):
            raise PipelineError(product.design.name, "the simulated sums are not those of the product", "report this")
    return [
        _row(found, nest, times, product, outcome, [float(part[index]) for part in costs])
        for index, ((nest, times), product, outcome) in enumerate(zip(nests.items(), products, outcomes, strict=True))
    ]


def _drawn(design: Design, nest: LoopNest, seed: int) -> ArrayProduct:
    """Return a product of random operands: the whole depth of a contraction, and up to two folds along each side."""
    whole, half = _matmul(nest), 1 << (design.format.bits - 1)
    random = np.random.default_rng(seed)
    rows, columns = min(whole.m, SIDE_FOLDS * design.rows), min(whole.n, SIDE_FOLDS * design.cols)
    return ArrayProduct(
        design, random.integers(-half, half, (rows, whole.k)), random.integers(-half, half, (whole.k, columns))
    )


def _matmul(nest: LoopNest) -> Matmul:
    """Return a contraction as the array computes it: output pixels along its rows, channels along its columns."""
    return Matmul(nest.n * nest.p * nest.q, nest.c * nest.r * nest.s, nest.k, nest.groups)


def _row(
    found: BoardDesign,
    nest: LoopNest,
    times: int,
    product: ArrayProduct,
    outcome: Outcome,
    costs: Sequence[float],
) -> DesignSimulationRow:
    array, whole = found.array, _matmul(nest)
    part = Matmul(product.a.shape[0], product.a.shape[1], product.b.shape[1])
    return {
        "array_design": found.design.name,
        "loop_nest": nest_text(nest),
        "execution_count": times,
        "modelled_cycles": costs[0],
        "compute_cycles": costs[1],
        "equation_cycles": array.array_cycles(whole),
        "fold_count": whole.batch * ceil(whole.m / array.rows) * ceil(whole.n / array.cols),
        "simulated_fold_count": product.folds,
        "simulated_cycles": outcome.cycles,
        "simulated_equation_cycles": array.array_cycles(part),
    }


def nest_text(nest: LoopNest) -> str:
    """Return a nest as ``K64 C3 P112 Q112 R7 S7 / 2``, with its strides where they are above 1, and dilations."""
    loops = " ".join(f"{name}{extent}" for name, extent in nest.bounds.items() if extent > 1)
    strides, dilations = (nest.stride_p, nest.stride_q), (nest.dilation_r, nest.dilation_s)
    by = f" / {'x'.join(map(str, dict.fromkeys(strides)))}" if max(strides) > 1 else ""
    return (loops or "N1") + by + (f" dilated {'x'.join(map(str, dilations))}" if max(dilations) > 1 else "")
