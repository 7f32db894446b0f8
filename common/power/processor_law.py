"""The model of a processor's power: shares of its thermal design power (TDP), and the power of its memory.

configs/processors.yaml has its figures. Over the cores in use, the power has the shape of the Teads curve, less its
idle power.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from common.files.configuration import Constant, Section

MAKERS = ("intel", "amd")
KINDS = ("server", "client")


@dataclass(frozen=True, slots=True)
class Family:
    """Server processors of one generation: their figures of CPUID, and their TDP per hardware thread in W."""

    name: str
    maker: str
    signatures: tuple[tuple[int, int], ...]
    tdp_w_per_thread: Constant


@dataclass(frozen=True, slots=True)
class ProcessorLaw:
    """Shares of TDP, the power of memory, and server processors by generation."""

    full_load_share: Constant  # share of TDP with all cores in use. Its relative interval holds at any load.
    # Pairs of a share of the cores in use and the share of the range from idle to full load
    busy_points: tuple[tuple[float, float], ...]
    idle_share: Mapping[str, Constant]  # share of TDP of an idle package, by maker and kind: ``intel_server``
    memory_idle_w_per_gib: Constant
    dram_pj_per_byte: Constant  # energy of a byte between memory and package
    families: tuple[Family, ...]

    def share_of_tdp(self, kind: str, cores_in_use: float) -> float:
        """Return the likely share of TDP: ``idle + (full - idle) * busy(share of the cores in use)``."""
        shares, busy = zip(*self.busy_points, strict=True)
        idle = self.idle_share[kind].likely
        return float(idle + (self.full_load_share.likely - idle) * np.interp(cores_in_use, shares, busy))

    def family(self, signature: tuple[int, int] | None) -> Family | None:
        """Return the family whose processors have this family and model of CPUID."""
        return next((family for family in self.families if signature in family.signatures), None)


def read_processor_law(file: Section) -> ProcessorLaw:
    """Read configs/processors.yaml; errors are those of :class:`Section`."""
    idle, memory = file.section("idle_share_of_tdp"), file.section("memory")
    law = ProcessorLaw(
        full_load_share=file.constant("full_load_share_of_tdp"),
        busy_points=_busy_points(file.section("busy_share")),
        idle_share={name: idle.constant(name) for name in (f"{maker}_{kind}" for maker in MAKERS for kind in KINDS)},
        memory_idle_w_per_gib=memory.constant("idle_w_per_gib"),
        dram_pj_per_byte=memory.constant("dram_pj_per_byte"),
        families=tuple(_family(section) for section in file.sections("families")),
    )
    file.close()
    return law


def _busy_points(section: Section) -> tuple[tuple[float, float], ...]:
    section.origin()
    points = [_pair(section, "points", entry) for entry in section.entries("points")]
    shares, busy = zip(*points, strict=True)
    for rising in (shares, busy):
        if [*rising] != sorted(set(rising)) or (rising[0], rising[-1]) != (0, 1):
            raise section.error("points", "do not rise from 0 to 1")
    return tuple(points)


def _family(section: Section) -> Family:
    pairs = [_pair(section, "signatures", entry) for entry in section.entries("signatures")]
    return Family(
        name=section.text("name"),
        maker=section.choice("maker", MAKERS),
        signatures=tuple((int(family), int(model)) for family, model in pairs),
        tdp_w_per_thread=section.constant("tdp_w_per_thread"),
    )


def _pair(section: Section, key: str, entry: object) -> tuple[float, float]:
    if not isinstance(entry, list) or len(entry) != 2 or not all(type(part) in (int, float) for part in entry):
        raise section.error(key, "has an entry that is not a pair of numbers")
    return float(entry[0]), float(entry[1])
