"""The schedule of a model on an accelerator with several memories as rows: its mappings and its groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.hierarchy.schedule import LayerStep, MappedSchedule
from common.design_space.hierarchy.staying_weights import weight_words
from common.design_space.mapping.arrays import Array
from common.design_space.mapping.cost import WORD_DIGITS, MappingCost
from common.design_space.mapping.placement import resident_level
from common.table_rows import DesignGroupsRow, DesignMappingsRow
from common.workload.loop_nests import RELEVANT_LOOPS


def mapping_rows(design: str, schedule: MappedSchedule, hardware: Hardware) -> Iterator[DesignMappingsRow]:
    """Yield a row for each loop nest, whose name ends in its number at the node; figures are those of one run."""
    hardware = replace(hardware, resident_at=schedule.resident_at)
    for step in schedule.steps:
        costs, intervals, level = step.costs(hardware), step.rtl_intervals(hardware), resident_level(hardware)
        for name, point in step.points.items():
            node, _, number = name.rpartition(".")
            nest = step.option.nests[name]
            rtl = intervals.get(name) or (None, None, None)
            placement, dram_bytes = step.option.setting_of(name)[0], _dram_bytes(costs[name], hardware)
            yield {
                "design": design,
                "source_node": node,
                "nest_index": int(number),
                "nest_row_count": nest.p,
                "execution_count": step.option.runs,
                "macs": nest.macs,
                "mapping": point.choice,
                "array_element_count": round(_first(costs[name].used_elements)),
                "bound_by": costs[name].slowest_part(_part_names(hardware)),
                "array_use_share": nest.macs / (point.cycles * hardware.array.elements),
                "dram_weight_bytes": dram_bytes["weight"],
                "dram_input_bytes": dram_bytes["input"],
                "dram_output_bytes": dram_bytes["output"],
                "moved_words": _moved_words(costs[name], hardware),
                "dram_beside_bytes": sum(placement.words_at(0)) * hardware.levels[0].word_bytes,
                "resident_operands": " ".join(sorted(placement.on_chip)),
                "resident_level": hardware.levels[level].name if placement.on_chip and level is not None else "",
                "resident_tensor_bytes": _resident_bytes(step.option.places.resident_words, hardware),
                "modelled_cycles": point.cycles,
                "rtl_low_cycles": rtl[0],
                "rtl_cycles": rtl[1],
                "rtl_high_cycles": rtl[2],
                "modelled_energy_pj": point.energy_pj,
                "energy_parts_pj": _energy_parts(costs[name], hardware),
            }


def _dram_bytes(cost: MappingCost, hardware: Hardware) -> dict[str, float]:
    """Return the bytes that each operand of a nest reads and writes at DRAM."""
    words = {
        operand: sum(_first(moved[0][operand]) for moved in (cost.reads, cost.writes) if operand in moved[0])
        for operand in RELEVANT_LOOPS
    }
    dram = hardware.levels[0]
    return {operand: round(count * dram.bytes_of(operand), WORD_DIGITS)
            for operand, count in words.items()}  # fmt: skip


def _moved_words(cost: MappingCost, hardware: Hardware) -> dict[str, float]:
    """Return the elements that each operand of a nest reads and writes at each memory that holds it."""
    moved: dict[str, float] = {}
    for level, *verbs in zip(hardware.levels, cost.reads, cost.writes, strict=True):
        for operand in RELEVANT_LOOPS:
            if any(operand in words for words in verbs):
                count = sum(_first(words[operand]) for words in verbs if operand in words)
                moved[f"{level.name} {operand}"] = round(count, WORD_DIGITS)
    return moved


def staying_bytes(schedule: MappedSchedule, hardware: Hardware) -> float:
    """Return the bytes of weights that stay on the chip from one inference to the next."""
    hardware = replace(hardware, resident_at=schedule.resident_at)
    stay = {step.option.layer: step.layer for step in schedule.steps if step.option.places.weights_stay}
    return _resident_bytes(sum(weight_words(layer, hardware) for layer in stay.values()), hardware)


def _resident_bytes(words: float, hardware: Hardware) -> float:
    level = resident_level(hardware)
    return 0.0 if level is None else words * hardware.levels[level].word_bytes


def _energy_parts(cost: MappingCost, hardware: Hardware) -> dict[str, float]:
    return {name: _first(part) for name, part in zip(_part_names(hardware), cost.energy_parts_pj, strict=True)}


def _part_names(hardware: Hardware) -> tuple[str, ...]:
    return ("multipliers", *(level.name for level in hardware.levels))


def group_rows(design: str, schedule: MappedSchedule, hardware: Hardware) -> Iterator[DesignGroupsRow]:
    """Yield a row for each group (:meth:`MappedSchedule.groups`), in the order in which they run."""
    hardware = replace(hardware, resident_at=schedule.resident_at)

    def dram_bytes(step: LayerStep) -> float:
        option = step.option
        nests = (option.runs * sum(_dram_bytes(cost, hardware).values()) for cost in step.costs(hardware).values())
        return sum(nests) + sum(option.side_words[0]) * hardware.levels[0].word_bytes

    for index, steps in enumerate(schedule.groups()):
        tile_rows = [step.option.row_tiles.rows for step in steps if step.option.row_tiles]
        weights_on_chip = {step.option.layer for step in steps if "weight" in step.option.setting[0].on_chip}
        yield {
            "design": design,
            "group_index": index,
            "first_layer": steps[0].layer.layer.name,
            "last_layer": steps[-1].layer.layer.name,
            "layer_count": len({step.option.layer for step in steps}),
            "tile_row_count": tile_rows[0] if tile_rows else None,
            "tile_column_count": None,
            "halo": "kept" if tile_rows else "",
            "resident_weight_count": len(weights_on_chip) if tile_rows or weights_on_chip else None,
            "resident_tensor_count": len(frozenset().union(*(step.on_chip for step in steps))),
            "dram_bytes": round(sum(dram_bytes(step) for step in steps), WORD_DIGITS),
            "recomputed_share": 0.0,
            "modelled_cycles": sum(step.cycles for step in steps),
            "modelled_energy_pj": sum(step.energy_pj for step in steps),
            "energy_parts_pj": _group_energy_parts(steps, hardware),
            "buffer_peak_bytes": max(_peak_bytes(step, hardware) for step in steps),
        }


def _group_energy_parts(steps: Sequence[LayerStep], hardware: Hardware) -> dict[str, float]:
    total = dict.fromkeys(_part_names(hardware), 0.0)
    for step in steps:
        for cost in step.costs(hardware).values():
            for part, energy_pj in _energy_parts(cost, hardware).items():
                total[part] += step.option.runs * energy_pj
        if step.option.stream:
            for part, energy_pj in zip(total, step.option.stream.energy_parts_pj, strict=True):
                total[part] += energy_pj
    return total


def _peak_bytes(step: LayerStep, hardware: Hardware) -> float:
    """Return the most that a layer needs of the memory of resident maps, or else of the outermost on the chip."""
    if len(hardware.levels) < 2:
        return 0.0
    level = resident_level(hardware) or 1
    tiles = max((_first(cost.needed_words[level]) for cost in step.costs(hardware).values()), default=0.0)
    return _resident_bytes(step.option.places.resident_words, hardware) + tiles * hardware.levels[level].word_bytes


def _first(batch: Array) -> float:
    return float(np.asarray(batch)[0])
