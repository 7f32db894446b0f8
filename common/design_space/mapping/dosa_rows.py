"""Tables of mapped layers in the columns of DOSA: one layer, one accelerator and one mapping in each row.

``prob.R`` … ``prob.N``, ``prob.Wstride`` (along P) and ``prob.Hstride`` (along Q) are the layer, ``arch.pe``,
``arch.meshX``, ``arch.mem1_entries`` (words of an accumulator) and ``arch.mem2_entries`` (words of the scratchpad) the
sizes of Gemmini, ``mapping.mapping`` is the mapping. Without the sizes, those of the accelerator's file hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from common.design_space.accelerator.hardware import KIB, Hardware
from common.design_space.mapping.cost import WORD_DIGITS, Figures, MappingCost, cost
from common.design_space.mapping.dataflow import respects
from common.design_space.mapping.gemmini_rtl import rtl_cycles
from common.design_space.mapping.mappings import Mappings, parse_mappings
from common.design_space.mapping.traffic import Nests
from common.messages.errors import PipelineError, UnusableValueError
from common.messages.names import quoted
from common.workload.loop_nests import LOOPS

LAYER = ("prob.R", "prob.S", "prob.P", "prob.Q", "prob.C", "prob.K", "prob.N", "prob.Wstride", "prob.Hstride")
SIZES = ("arch.pe", "arch.meshX", "arch.mem1_entries", "arch.mem2_entries")
MAPPING = "mapping.mapping"
LARGEST = 2**31
BATCH_ROWS = 4096  # whose arrays stay in the processor's caches


@dataclass(frozen=True)
class MappedRows:
    """Rows of a table as arrays, with one accelerator for each row."""

    nests: Nests
    mappings: Mappings
    variants: tuple[Hardware, ...]
    variant_of: np.ndarray

    def __len__(self) -> int:
        return len(self.variant_of)

    def batches(self) -> Iterator[tuple[slice, Nests, Mappings, Figures]]:
        figures = Figures.of(self.variants)
        for start in range(0, len(self), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            chosen = self.variant_of[rows]
            yield (
                rows,
                Nests(*(values[rows] for values in vars(self.nests).values())),
                Mappings(*(values[rows] for values in vars(self.mappings).values())),
                Figures(*(values[chosen] for values in vars(figures).values())),
            )


def read_rows(table: pd.DataFrame, hardware: Hardware) -> MappedRows:
    """Return a table as arrays; PipelineError for a missing column, or a bad row, numbered from 1."""
    has_sizes = any(name in table for name in SIZES)
    if missing := [name for name in (*LAYER, MAPPING, *(SIZES if has_sizes else ())) if name not in table]:
        raise PipelineError("the table", f"has no column {missing[0]}", "give the columns of DOSA's rows")
    layer = {name.removeprefix("prob."): _counts(table, name) for name in LAYER}
    ones = np.ones(len(table))
    extents = np.stack([layer.get(loop, ones) for loop in LOOPS], axis=-1)
    nests = Nests(extents, layer["Wstride"], layer["Hstride"], ones, ones)
    variants, variant_of = _variants(table, hardware) if has_sizes else ((hardware,), np.zeros(len(table), dtype=int))
    return MappedRows(nests, _mappings(table, hardware), variants, variant_of)


def _counts(table: pd.DataFrame, name: str) -> np.ndarray:
    """Return a column of positive whole numbers."""
    values = pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=np.float64)
    if (bad := _first(~((values >= 1) & (values < LARGEST) & (values % 1 == 0)))) is not None:
        raise row_error(bad, f"{name} is {quoted(str(table[name].iloc[bad]))}", "it takes a positive whole number")
    return values


def _variants(table: pd.DataFrame, hardware: Hardware) -> tuple[tuple[Hardware, ...], np.ndarray]:
    sizes = np.stack([_counts(table, name) for name in SIZES], axis=-1)
    if {"accumulator", "scratchpad"} - {level.name for level in hardware.levels}:
        problem = f"gives sizes of an accumulator and a scratchpad, and {hardware.name} has other levels"
        raise PipelineError("the table", problem, "leave out the columns arch.*")
    if (bad := _first(sizes[:, 0] % sizes[:, 1] != 0)) is not None:
        raise row_error(bad, f"{sizes[bad, 0]:g} elements are no array of {sizes[bad, 1]:g} columns", "")
    distinct, first, place = np.unique(sizes, axis=0, return_index=True, return_inverse=True)
    variants = []
    for (elements, columns, accumulator, scratchpad), row in zip(distinct, first, strict=True):
        kib = {"accumulator": columns * accumulator * hardware.level("accumulator").word_bytes / KIB}
        kib["scratchpad"] = scratchpad * hardware.level("scratchpad").word_bytes / KIB
        try:
            variants.append(hardware.resized(int(elements // columns), int(columns), kib))
        except UnusableValueError as error:
            raise row_error(int(row), error.problem, error.remedy) from error
    return tuple(variants), place.reshape(-1)


def _mappings(table: pd.DataFrame, hardware: Hardware) -> Mappings:
    texts = [str(text) for text in table[MAPPING]]
    try:
        return parse_mappings(texts, hardware)
    except UnusableValueError:
        for row, text in enumerate(texts):  # which one it was
            try:
                parse_mappings([text], hardware)
            except UnusableValueError as error:
                raise row_error(row, f"{MAPPING}: {error.problem}", error.remedy) from error
        raise


def row_error(row: int, problem: str, remedy: str) -> PipelineError:
    return PipelineError(f"row {row + 1}", problem, remedy)


def _first(is_bad: npt.NDArray[np.bool_]) -> int | None:
    return int(np.argmax(is_bad)) if is_bad.any() else None


def estimate(rows: MappedRows, hardware: Hardware) -> pd.DataFrame:
    """Return cycles, energy and DRAM traffic of every row.

    Raises:
        PipelineError: a mapping does not cover its layer, lays out more copies than its array has, or has tiles that do
            not fit.
    """
    parts = []
    for chosen, nests, mappings, figures in rows.batches():
        result = cost(mappings, nests, hardware, figures)
        _check(chosen.start, rows, nests, mappings, result)
        columns = {"cycles": result.cycles, "energy_uj": result.energy_pj * 1e-6}
        for operand in ("weight", "input", "output"):
            for verb, words in (("read", result.reads[0]), ("written", result.writes[0])):
                count = words.get(operand, np.zeros(result.cycles.shape))
                columns[f"dram_{verb}_{operand}_words"] = np.round(count, WORD_DIGITS)
        if hardware.rtl is not None:
            columns["rtl_cycles"] = np.rint(rtl_cycles(mappings, nests, hardware.rtl))
        parts.append(pd.DataFrame(columns))
    table = pd.concat(parts, ignore_index=True)
    whole = [name for name in table if (table[name] % 1 == 0).all()]
    return table.astype(dict.fromkeys(whole, np.int64))


def _check(start: int, rows: MappedRows, nests: Nests, mappings: Mappings, result: MappingCost) -> None:
    """Refuse the first row of a batch that cannot run on its accelerator."""
    temporal, spatial, extents = map(np.asarray, (mappings.temporal, mappings.spatial, nests.extents))
    covered = (temporal * spatial).prod(axis=-2)
    if (bad := _first((covered < extents).any(axis=-1))) is not None:
        loop = int(np.argmax(covered[bad] < extents[bad]))
        problem = f"the mapping covers {covered[bad, loop]:g} of {extents[bad, loop]:g} along {LOOPS[loop]}"
        raise row_error(start + bad, problem, "its factors must multiply to the layer")
    if (bad := _first(~respects(mappings, rows.variants[0]))) is not None:
        problem = f"its steps are not those of {rows.variants[0].name}"
        raise row_error(start + bad, problem, "keep to steps and stationary of its file")
    for index, level in enumerate(rows.variants[0].levels):
        may = np.array([any(loop in fanout.loops for fanout in level.fanouts) for loop in LOOPS])
        copies = spatial[:, index]
        if (bad := _first(np.any(copies[:, ~may] > 1, axis=-1))) is not None:
            raise row_error(start + bad, f"a loop is spatial below {level.name} that may not be", "")
        for fanout in level.fanouts:
            others = [loop for other in level.fanouts if other is not fanout for loop in other.loops]
            own = [LOOPS.index(loop) for loop in fanout.loops if loop not in others]
            axis = np.array([getattr(hardware.array, fanout.axis) for hardware in rows.variants])
            room = axis[rows.variant_of[start : start + len(copies)]]
            if (bad := _first(copies[:, own].prod(axis=-1) > room)) is not None:
                raise row_error(start + bad, f"the array has {room[bad]} {fanout.axis}", "lay out fewer copies")
        room = np.broadcast_to(result.capacity_words, (len(copies), len(result.needed_words)))[:, index]
        needed = np.asarray(result.needed_words[index])
        if (bad := _first(needed > room)) is not None:
            problem = f"needs {needed[bad]:g} words in {level.name}, which holds {room[bad]:g}"
            raise row_error(start + bad, problem, "give smaller tiles")
