"""The schedule of a model on an accelerator with several memories, and its rows of plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from common.design_space.accelerator.hardware import Hardware
from common.design_space.hierarchy.execution_options import ExecutionOption
from common.design_space.hierarchy.model_layers import ModelLayer
from common.design_space.mapping.cost import MappingCost, cost
from common.design_space.mapping.dosa_rows import WORD_DIGITS
from common.design_space.mapping.layer_by_layer import MappedLayer
from common.design_space.mapping.mappings import parse_mappings
from common.design_space.mapping.placement import resident_level
from common.design_space.mapping.traffic import Nests
from common.design_space.results.found_design import Row
from common.workload.loop_nests import RELEVANT_LOOPS


@dataclass(frozen=True)
class LayerStep:
    """A layer of a schedule: how it runs, and the mapping of each of its nests by name."""

    layer: ModelLayer
    option: ExecutionOption
    mapped: Mapping[str, MappedLayer]

    @property
    def cycles(self) -> float:
        """Cycles of all runs of its nests, and of what moves after them."""
        return sum(nest.runs * nest.cycles for nest in self.mapped.values()) + self.option.stream_cycles

    @property
    def energy_pj(self) -> float:
        """Energy of all of that."""
        return sum(nest.runs * nest.energy_pj for nest in self.mapped.values()) + self.option.stream_energy_pj

    @property
    def on_chip(self) -> frozenset[str]:
        """Tensors of the layer that are resident while it runs."""
        return self.option.places.found | self.option.places.copied | self.option.places.left

    def costs(self, hardware: Hardware) -> dict[str, MappingCost]:
        """Return what each nest costs in detail, as a batch of one."""
        return {
            name: cost(
                parse_mappings([nest.mapping], hardware),
                Nests.of([nest.nest]),
                hardware,
                placement=self.option.setting[0],
            )
            for name, nest in self.mapped.items()
        }


@dataclass(frozen=True)
class MappedSchedule:
    """The schedule of a model: its layers in the order in which they run.

    Attributes:
        steps: the layers.
        evaluations: mappings whose costs were computed to find it.
        limit: what its space leaves out because the model has too many states; empty where nothing is.
    """

    steps: Sequence[LayerStep]
    evaluations: int
    limit: str = ""

    @cached_property
    def cycles(self) -> float:
        """Cycles of one inference."""
        return sum(step.cycles for step in self.steps)

    @cached_property
    def energy_pj(self) -> float:
        """Energy of one inference."""
        return sum(step.energy_pj for step in self.steps)

    @property
    def edp(self) -> float:
        """Energy-delay product in pJ·cycles."""
        return self.cycles * self.energy_pj

    def groups(self) -> Iterator[Sequence[LayerStep]]:
        """Yield the fused groups: the steps from one moment at which nothing is resident to the next."""
        begins = [index for index, step in enumerate(self.steps) if not step.option.places.begin_words]
        for begin, end in pairwise([*begins, len(self.steps)]):
            yield self.steps[begin:end]


def mapping_rows(schedule: MappedSchedule, hardware: Hardware) -> Iterator[Row]:
    """Yield a row for each loop nest, whose name ends in its number at the node; figures are those of one run."""
    for step in schedule.steps:
        costs = step.costs(hardware)
        for name, mapped in step.mapped.items():
            node, _, number = name.rpartition(".")
            yield {
                "source_node": node,
                "nest_index": int(number),
                "nest_row_count": mapped.nest.p,
                "execution_count": mapped.runs,
                "macs": mapped.nest.macs,
                "mapping": mapped.mapping,
                "array_use_share": mapped.nest.macs / (mapped.cycles * hardware.array.elements),
                **_dram_bytes(costs[name], hardware),
                "moved_words": _moved_words(costs[name], hardware),
                "dram_beside_bytes": sum(step.option.setting[0].words_at(0)) * hardware.levels[0].word_bytes,
                "resting_operands": " ".join(sorted(step.option.setting[0].on_chip)) or None,
                "resting_bytes": _resident_bytes(step, hardware),
                "modelled_cycles": mapped.cycles,
                "modelled_energy_pj": mapped.energy_pj,
                "energy_parts_pj": _energy_parts(costs[name], hardware),
            }


def _dram_bytes(result: MappingCost, hardware: Hardware) -> Row:
    """Return the bytes that each operand of a nest reads and writes at DRAM."""
    words = {
        operand: sum(float(moved[0][operand][0]) for moved in (result.reads, result.writes) if operand in moved[0])
        for operand in RELEVANT_LOOPS
    }
    word_bytes = hardware.levels[0].word_bytes
    return {f"dram_{operand}_bytes": round(count * word_bytes, WORD_DIGITS) for operand, count in words.items()}


def _moved_words(result: MappingCost, hardware: Hardware) -> dict[str, float]:
    """Return the words that each operand of a nest reads and writes at each memory that holds it."""
    moved: dict[str, float] = {}
    for level, *places in zip(hardware.levels, result.reads, result.writes, strict=True):
        for operand in RELEVANT_LOOPS:
            if any(operand in words for words in places):
                count = sum(float(words[operand][0]) for words in places if operand in words)
                moved[f"{level.name} {operand}"] = round(count, WORD_DIGITS)
    return moved


def _beside_bytes(step: LayerStep, hardware: Hardware) -> float:
    """Return the bytes that a layer moves at DRAM beside its nests in all runs."""
    return sum(step.option.side_words[0]) * hardware.levels[0].word_bytes


def _resident_bytes(step: LayerStep, hardware: Hardware) -> float:
    """Return the bytes of all maps that are resident while a layer runs."""
    chip_level = resident_level(hardware)
    return 0.0 if chip_level is None else step.option.places.resident_words * hardware.levels[chip_level].word_bytes


def _energy_parts(result: MappingCost, hardware: Hardware) -> dict[str, float]:
    """Return the energy of the multipliers and of each memory for one nest."""
    names = ("multipliers", *(level.name for level in hardware.levels))
    return {name: float(part[0]) for name, part in zip(names, result.energy_parts_pj, strict=True)}


def group_rows(schedule: MappedSchedule, hardware: Hardware) -> Iterator[Row]:
    """Yield a row for each group of layers between which maps are resident, in the order in which they run."""
    for steps in schedule.groups():
        yield {
            "first_layer": steps[0].layer.layer.name,
            "last_layer": steps[-1].layer.layer.name,
            "layer_count": len({step.option.layer for step in steps}),
            **_row_tile_cells(steps),
            "resting_count": len(frozenset().union(*(step.on_chip for step in steps))),
            "dram_bytes": round(sum(_step_dram_bytes(step, hardware) for step in steps), WORD_DIGITS),
            "recomputed_share": 0.0,
            "modelled_cycles": sum(step.cycles for step in steps),
            "modelled_energy_pj": sum(step.energy_pj for step in steps),
            "energy_parts_pj": _group_energy_parts(steps, hardware),
            "buffer_peak_bytes": max(_peak_bytes(step, hardware) for step in steps),
        }


def _group_energy_parts(steps: Sequence[LayerStep], hardware: Hardware) -> dict[str, float]:
    """Return the energy of the multipliers and of each memory for all that a group does."""
    total = dict.fromkeys(("multipliers", *(level.name for level in hardware.levels)), 0.0)
    for step in steps:
        costs = step.costs(hardware)
        for name, mapped in step.mapped.items():
            for part, energy_pj in _energy_parts(costs[name], hardware).items():
                total[part] += mapped.runs * energy_pj
        if step.option.stream:
            for part, energy_pj in zip(total, step.option.stream.energy_parts_pj, strict=True):
                total[part] += energy_pj
    return total


def _row_tile_cells(steps: Sequence[LayerStep]) -> Row:
    """Return the rows of the first row tiles of a group, and how many layers keep their weights for all row tiles."""
    rows = [step.option.row_tiles.rows for step in steps if step.option.row_tiles]
    kept = {step.option.layer for step in steps if "weight" in step.option.setting[0].on_chip}
    return {
        "tile_row_count": rows[0] if rows else None,
        "tile_column_count": None,
        "halo": "kept" if rows else None,
        "resident_weight_count": len(kept) if rows else None,
    }


def _step_dram_bytes(step: LayerStep, hardware: Hardware) -> float:
    """Return all bytes that a layer moves at DRAM in one inference."""
    costs = step.costs(hardware)
    nests = sum(nest.runs * sum(_dram_bytes(costs[name], hardware).values()) for name, nest in step.mapped.items())
    return nests + _beside_bytes(step, hardware)


def _peak_bytes(step: LayerStep, hardware: Hardware) -> float:
    """Return the most that a layer needs of the outermost memory on the chip: resident maps, and its tiles."""
    if len(hardware.levels) < 2:
        return 0.0
    tiles = max((float(result.needed_words[1][0]) for result in step.costs(hardware).values()), default=0.0)
    return _resident_bytes(step, hardware) + tiles * hardware.levels[1].word_bytes
