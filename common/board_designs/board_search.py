"""All arrays of a set that fit a board, each with its fastest runs of a model, and the front of them.

The costs of a design are its latency, the energy of its runs, and the largest share that it takes of a resource of the
board. Only designs that do not fit are left out, so the front is exact over the set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from common.board_designs.array_runs import NestRuns, Numbers, array_hardware, nest_runs
from common.board_designs.model import BoardModel
from common.design_space.results.comparison import pareto
from common.fpga.array_designs import ArrayBuilder, ArrayDesign, DesignSet
from common.fpga.engine_catalogue import Size
from common.fpga.kernels.systolic.array import SystolicArray
from common.graphs.number_formats import PRECISION_BITS
from common.messages.errors import UnusableValueError
from common.table_rows import DesignEnginesRow

Progress = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class BoardDesign:
    """An array on a board, with its costs for a model."""

    design: ArrayDesign
    array: SystolicArray  # with its resources, at its clock
    cycles: float  # of all contractions, one after the other
    compute_cycles: float  # those in which the array multiplies, of the same runs
    energy_pj: float  # of the same runs, without what the card draws all the time
    board_share: float  # largest share of a resource of the board's budget

    @property
    def latency_us(self) -> float:
        return self.cycles / self.array.clock_mhz

    @property
    def costs(self) -> tuple[float, float, float]:
        return self.latency_us, self.energy_pj, self.board_share


@dataclass(frozen=True, slots=True)
class Front:
    """The Pareto front, the fastest first, of the designs that were tried and fit the board."""

    designs: tuple[BoardDesign, ...]
    tried_count: int
    fitting_count: int


class NestCosts(NamedTuple):
    """Cycles, cycles of multiplication, and energy of one run of each nest."""

    cycles: Numbers
    compute_cycles: Numbers
    energy_pj: Numbers


@dataclass(frozen=True)
class ModelRuns:
    """The runs of all nests of a model on arrays of one size, side by side, and how many times each nest runs."""

    runs: NestRuns
    first: np.ndarray
    times: Numbers

    @classmethod
    def of(cls, model: BoardModel, size: Size, designs: DesignSet) -> ModelRuns:
        """Return the runs of a model on an array of a size whose buffers hold any of the tiles of some designs.

        An element that is a part of a byte is an UnusableValueError.
        """
        hardware = array_hardware(size, element_bytes(model.builder.precision), model.energies)
        parts = [nest_runs(nest, size, designs.tiles(), hardware) for nest in model.nests]
        counts = [len(part.steps) for part in parts]
        together = NestRuns(*(np.concatenate([getattr(part, name) for part in parts]) for name in NestRuns.__slots__))
        return cls(together, np.cumsum([0, *counts[:-1]]), np.array([*model.nests.values()], dtype=np.float64))

    def fastest(self, array: SystolicArray) -> NestCosts | None:
        """Return the fastest run of each nest, of equally fast ones the one with the least energy; None if none fits.

        The cycles of a run are its steps, or the cycles in which the ports move its bytes, whichever are more.
        """
        runs, tile, ports = self.runs, array.tile, array.ports
        bytes_per_cycle = ports.count * ports.word_bytes / ports.word_cycles
        cycles = np.ceil(np.maximum(runs.steps, runs.memory_bytes / bytes_per_cycle))
        cycles[~runs.fit(tile.rows, tile.cols, tile.depth)] = np.inf
        least = np.minimum.reduceat(cycles, self.first)
        if not np.isfinite(least).all():
            return None
        run_counts = np.diff([*self.first, len(cycles)])
        is_fastest = cycles == np.repeat(least, run_counts)
        energy = np.minimum.reduceat(np.where(is_fastest, runs.energy_pj, np.inf), self.first)
        is_chosen = is_fastest & (runs.energy_pj == np.repeat(energy, run_counts))
        steps = np.minimum.reduceat(np.where(is_chosen, runs.steps, np.inf), self.first)
        return NestCosts(least, steps, energy)


def element_bytes(precision: str) -> int:
    """Return the bytes of an element; UnusableValueError for a part of a byte, which the cost does not count."""
    bits = PRECISION_BITS[precision]
    if bits % 8:
        raise UnusableValueError("precision", f"{precision} has elements of {bits} bits", "give whole bytes: int8")
    return bits // 8


def front_of(
    model: BoardModel,
    designs: DesignSet | None = None,
    progress: Progress = lambda done, total: None,
) -> Front:
    """Return the front of all arrays that fit a board, or raise UnusableValueError where none does.

    Args:
        designs: designs to try; by default the whole set.
        progress: is called with the number of sizes that are done.
    """
    tried, builder = designs or DesignSet(), model.builder
    front, counts = list[BoardDesign](), [0, 0]
    for done, size in enumerate(tried.sizes):
        progress(done, len(tried.sizes))
        every = [*tried.of_size(size, builder.board)]
        arrays = [(design, array) for design in every if (array := builder.built(design)) is not None]
        counts[0], counts[1] = counts[0] + len(every), counts[1] + len(arrays)
        if arrays:
            runs = ModelRuns.of(model, size, tried)
            front = on_front([*front, *_costed(arrays, runs, builder)])
    if not front:
        problem = f"no array of the {counts[0]:,} fits {builder.board.name}"
        raise UnusableValueError("board", problem, "give a larger board, or a narrower <precision>")
    return Front(tuple(sorted(front, key=lambda design: design.costs)), *counts)


def _costed(
    arrays: list[tuple[ArrayDesign, SystolicArray]], runs: ModelRuns, builder: ArrayBuilder
) -> Iterator[BoardDesign]:
    for design, array in arrays:
        if (costs := runs.fastest(array)) is not None:
            cycles, compute_cycles, energy_pj = (float(part @ runs.times) for part in costs)
            yield BoardDesign(design, array, cycles, compute_cycles, energy_pj, builder.share(array))


def on_front(designs: list[BoardDesign]) -> list[BoardDesign]:
    """Return the designs of the front; of several with the same costs, the first."""
    first = {design.costs: design for design in reversed(designs)}
    kept = [*first.values()]
    return [design for design, stays in zip(kept, pareto([*first]), strict=True) if stays]


def engine_rows(designs: Sequence[BoardDesign], builder: ArrayBuilder) -> list[DesignEnginesRow]:
    """Return the rows of ``design_engines``."""
    return [_row(design, builder) for design in designs]


def _row(found: BoardDesign, builder: ArrayBuilder) -> DesignEnginesRow:
    design, array, needed = found.design, found.array, found.array.resources
    time_us = builder.time_us(array)
    rows, columns, simd = design.size
    return {
        "array_design": design.name,
        "board": builder.board.name,
        "precision": builder.precision,
        "array_row_count": rows,
        "array_column_count": columns,
        "simd_count": simd,
        "row_fold_count": design.row_folds,
        "column_fold_count": design.column_folds,
        "tile_step_count": design.step_count,
        "memory_port_count": design.port_count,
        "spans_regions": design.spans_regions,
        "clock_mhz": array.clock_mhz,
        "lut_count": needed.lut,
        "ff_count": needed.ff,
        "bram36_count": needed.bram36,
        "uram_count": needed.uram,
        "dsp_count": needed.dsp,
        "memory_channel_count": needed.memory_channels,
        "board_share": found.board_share,
        "modelled_cycles": found.cycles,
        "compute_cycles": found.compute_cycles,
        "modelled_latency_us": found.latency_us,
        "modelled_energy_pj": found.energy_pj,
        "kernel_latency_pessimistic_us": time_us.pessimistic if time_us else None,
        "kernel_latency_likely_us": time_us.likely if time_us else None,
        "kernel_latency_optimistic_us": time_us.optimistic if time_us else None,
    }
