"""Reader of configs/hardware: accelerators, each figure with its source."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import cast, get_args

from common.design_space.accelerator.hardware import (
    Axis,
    BandwidthOf,
    Copies,
    Fanout,
    Hardware,
    Level,
    MultiplierArray,
    Network,
    RtlCosts,
    RtlErrors,
    capacity_problem,
)
from common.files.configuration import Section, find_file
from common.workload.loop_nests import LOOPS, RELEVANT_LOOPS

OPERANDS = tuple(RELEVANT_LOOPS)


def load_hardware(name: str, folder: Path) -> Hardware:
    """Read an accelerator's file, given by its name in ``folder`` or by its path; UnusableValueError without a file."""
    return read_hardware(Section.of_file(find_file("hardware", name, folder)))


def read_hardware(file: Section) -> Hardware:
    """Make an accelerator from its YAML file, whose name is the accelerator's.

    Raises:
        ConfigurationError: a key is missing or unknown, a number is unusable or has no source, a level cannot hold one
            word of each of its operands, or the outermost level does not hold all of them.
    """
    rtl, rtl_errors = _rtl(file.section("rtl")) if "rtl" in file else (None, None)
    hardware = Hardware(
        name=file.path.stem,
        title=file.text("title"),
        clock_mhz=file.constant("clock_mhz").likely,
        array=_array(file.section("array")),
        levels=tuple(_level(section) for section in file.sections("levels")),
        rtl=rtl,
        rtl_errors=rtl_errors,
        not_covered=file.text("not_covered") if "not_covered" in file else "",
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
    axes = [fanout.axis for level in hardware.levels for fanout in level.fanouts]
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


def _rtl(section: Section) -> tuple[RtlCosts, RtlErrors]:
    costs = {field.name: section.constant(field.name).likely for field in fields(RtlCosts)}
    ratios = (section.constant(f"{field.name}_ratio") for field in fields(RtlErrors))
    return RtlCosts(**costs), RtlErrors(*((ratio.low, ratio.high) for ratio in ratios))


def _level(section: Section) -> Level:
    energy, rate_of = section.section("energy"), "copy"  # where the file does not say
    if "bandwidth_of" in section:
        rate_of = section.choice("bandwidth_of", get_args(BandwidthOf))
    word_bytes, element_bytes = _precisions(section)
    return Level(
        name=section.text("name"),
        holds=frozenset(_words(section, "holds", OPERANDS)) if "holds" in section else frozenset(),
        copies=cast(Copies, section.choice("copies", get_args(Copies))) if "copies" in section else "one",
        capacity_kib=_optional(section, "capacity_kib"),
        word_bytes=word_bytes,
        block_words=section.count("block_words") if "block_words" in section else 1,
        bytes_per_cycle=_optional(section, "bytes_per_cycle"),
        bandwidth_of=cast(BandwidthOf, rate_of),
        base_pj_per_byte=energy.constant("base_pj_per_byte", positive=False).likely,
        slope_pj_per_byte_per_kib=_optional(energy, "slope_pj_per_byte_per_kib") or 0.0,
        area_mm2_per_kib=_optional(section, "area_mm2_per_kib"),
        fanouts=_fanouts(section),
        element_bytes=element_bytes,
        network=_network(section.section("network")) if "network" in section else None,
        steps=frozenset(_words(section, "steps", LOOPS)) if "steps" in section else None,
        stationary=section.choice("stationary", OPERANDS) if "stationary" in section else None,
        may_pass=_may_pass(section) if "may_pass" in section else None,
    )


def _precisions(section: Section) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Return the bytes of a word, and those of each operand's element that takes several words.

    ``word_bytes`` is one figure, or one for each operand that the level holds. A word is then the smallest of them.
    """
    below = section.section("word_bytes")
    if not any(operand in below for operand in OPERANDS):
        return section.count("word_bytes"), ()
    given = {operand: below.count(operand) for operand in OPERANDS if operand in below}
    if set(given) != set(section.value("holds") if "holds" in section else ()):
        raise section.error("word_bytes", "is not given for each operand that the level holds, or for another")
    word = min(given.values())
    return word, tuple((operand, size) for operand, size in given.items() if size != word)


def _network(section: Section) -> Network:
    return Network(
        hop_pj_per_byte=section.constant("hop_pj_per_byte", positive=False).likely,
        hops=_optional(section, "hops") or 1.0,
        addition_pj=_optional(section, "addition_pj") or 0.0,
        is_multicast=section.switch("multicast", default=True),
        is_reducing=section.switch("reduction", default=True),
    )


def _may_pass(section: Section) -> frozenset[str]:
    """Return the operands that may bypass a level; an empty list says that none may."""
    names = section.value("may_pass")
    held = section.value("holds") if "holds" in section else []
    if not isinstance(names, list) or any(name not in held for name in names):
        raise section.error("may_pass", "names an operand that the level does not hold", "it takes a list of them")
    return frozenset(names)


def _fanouts(section: Section) -> tuple[Fanout, ...]:
    """Return the fan-outs below a level: none, one, or a list of them."""
    if "spatial" not in section:
        return ()
    several = isinstance(section.value("spatial"), list)
    return tuple(map(_fanout, section.sections("spatial") if several else [section.section("spatial")]))


def _fanout(section: Section) -> Fanout:
    loops = tuple(_words(section, "loops", LOOPS))
    most = section.section("most") if "most" in section else None
    if any(loop not in loops for loop in most or ()):
        raise section.error("most", "limits a loop that is not laid out", f"it takes {', '.join(loops)}")
    axis = cast(Axis, section.choice("axis", get_args(Axis)))
    return Fanout(loops, axis, tuple((loop, most.count(loop)) for loop in most) if most else ())


def _words(section: Section, key: str, allowed: tuple[str, ...]) -> list[str]:
    words = section.entries(key)
    if any(word not in allowed for word in words) or len(set(words)) < len(words):
        raise section.error(key, "has a word that is not known, or one twice", f"it takes {', '.join(allowed)}")
    return words


def _optional(section: Section, key: str) -> float | None:
    """Return a positive figure, or None where the file does not give it."""
    return section.constant(key).likely if key in section else None
