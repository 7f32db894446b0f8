"""Reader of configs/hardware: accelerators, each figure with its source."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import cast, get_args

from common.configuration import Constant, Section, find_file
from common.design_space.accelerator.hardware import (
    Axis,
    BandwidthOf,
    Copies,
    Fanout,
    Hardware,
    Level,
    MultiplierArray,
    RtlCosts,
    capacity_problem,
)
from common.workload.loop_nests import LOOPS, RELEVANT_LOOPS

OPERANDS = tuple(RELEVANT_LOOPS)


def load_hardware(name: str, folder: Path) -> Hardware:
    """Read an accelerator's file, given by its name in ``folder`` or by its path.

    Raises:
        UnusableValueError: there is no such file.
        ConfigurationError: as :func:`read_hardware`.
    """
    return read_hardware(Section.of_file(find_file("hardware", name, folder)))


def read_hardware(file: Section) -> Hardware:
    """Make an accelerator from its YAML file, whose name is the accelerator's.

    Raises:
        ConfigurationError: a key is missing or unknown, a number is unusable or has no source, a level cannot hold one
            word of each of its operands, or the outermost level does not hold all of them.
    """
    hardware = Hardware(
        name=file.path.stem,
        title=file.text("title"),
        clock_mhz=file.constant("clock_mhz").likely,
        array=_array(file.section("array")),
        levels=tuple(_level(section) for section in file.sections("levels")),
        rtl=_rtl(file.section("rtl")) if "rtl" in file else None,
    )
    file.close()
    _check(file, hardware)
    return hardware


def _check(file: Section, hardware: Hardware) -> None:
    """Refuse a hierarchy on which no layer can run."""
    names = [level.name for level in hardware.levels]
    if len(set(names)) < len(names):
        raise file.error("levels", "has two levels of one name")
    if hardware.levels[0].holds != set(OPERANDS) or hardware.levels[0].capacity_kib is not None:
        raise file.error("levels[0]", "is the outermost level", "it holds all operands and has no capacity_kib")
    axes = [level.fanout.axis for level in hardware.levels if level.fanout]
    if len(set(axes)) < len(axes):
        raise file.error("levels", "use one axis of the array twice")
    for index, level in enumerate(hardware.levels):
        if problem := capacity_problem(level):
            raise file.error(f"levels[{index}].capacity_kib", f"{problem}", "give a larger memory")


def _array(section: Section) -> MultiplierArray:
    return MultiplierArray(
        rows=section.count("rows"),
        columns=section.count("columns"),
        mac_pj=section.constant("mac_pj", positive=False).likely,
        element_mm2=_optional(section, "element_mm2"),
        column_mm2=_optional(section, "column_mm2"),
    )


def _rtl(section: Section) -> RtlCosts:
    return RtlCosts(**{field.name: section.constant(field.name).likely for field in fields(RtlCosts)})


def _level(section: Section) -> Level:
    energy = section.section("energy")
    return Level(
        name=section.text("name"),
        holds=frozenset(_words(section, "holds", OPERANDS)),
        copies=cast(Copies, section.choice("copies", get_args(Copies))) if "copies" in section else "one",
        capacity_kib=_optional(section, "capacity_kib"),
        word_bytes=section.count("word_bytes"),
        block_words=section.count("block_words") if "block_words" in section else 1,
        bytes_per_cycle=_optional(section, "bytes_per_cycle"),
        bandwidth_of=_bandwidth_of(section),
        base_pj_per_byte=energy.constant("base_pj_per_byte", positive=False).likely,
        slope_pj_per_byte_per_kib=_optional(energy, "slope_pj_per_byte_per_kib") or 0.0,
        area_mm2_per_kib=_optional(section, "area_mm2_per_kib"),
        fanout=_fanout(section.section("spatial")) if "spatial" in section else None,
    )


def _bandwidth_of(section: Section) -> BandwidthOf:
    """Return what a level's bandwidth is given for: a copy in use, where the file does not say."""
    if "bandwidth_of" not in section:
        return "copy"
    return cast(BandwidthOf, section.choice("bandwidth_of", get_args(BandwidthOf)))


def _fanout(section: Section) -> Fanout:
    return Fanout(tuple(_words(section, "loops", LOOPS)), cast(Axis, section.choice("axis", get_args(Axis))))


def _words(section: Section, key: str, allowed: tuple[str, ...]) -> list[str]:
    words = section.entries(key)
    if any(word not in allowed for word in words) or len(set(words)) < len(words):
        raise section.error(key, "has a word that is not known, or one twice", f"it takes {', '.join(allowed)}")
    return words


def _optional(section: Section, key: str) -> float | None:
    """Return a positive figure, or None where the file does not give it."""
    if key not in section:
        return None
    figure: Constant = section.constant(key)
    return figure.likely
