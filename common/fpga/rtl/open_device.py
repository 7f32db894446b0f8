"""A device that open tools place and route: its part number as the tools take it, and its resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields

from common.files.configuration import Section
from common.messages.errors import ConfigurationError

ECP5_PACKAGES = {"BG": "CABGA", "MG": "CSFBGA", "TG": "TQFP"}  # in the words of nextpnr, by the letters of a part
ECP5_PART = re.compile(r"LFE5(U|UM|UM5G)-(\d+)F-(\d)(BG|TG|MG)(\d+)[CI]?")


@dataclass(frozen=True, slots=True)
class LogicCells:
    """Cells of a design or of a device, as nextpnr counts them after packing.

    Attributes:
        lut: LUTs of four inputs; a carry cell takes two, a LUT RAM of 16 x 4 bits six.
        block_ram: blocks of 18 Kb.
        multiplier: of 18 x 18 bits.
    """

    lut: float
    ff: float
    block_ram: float
    multiplier: float

    def fits(self, available: LogicCells) -> bool:
        return all(mine <= most for mine, most in zip(astuple(self), astuple(available), strict=True))

    def scaled(self, share: LogicCells) -> LogicCells:
        return LogicCells(*(mine * part for mine, part in zip(astuple(self), astuple(share), strict=True)))

    @property
    def by_name(self) -> Mapping[str, float]:
        return dict(zip(CELL_NAMES, astuple(self), strict=True))


CELL_NAMES = tuple(field.name for field in fields(LogicCells))


@dataclass(frozen=True, slots=True)
class ToolFamily:
    """How the open tools call a family.

    Attributes:
        synthesis: command of yosys.
        router: name of nextpnr for it.
        packer: what makes a bitstream of a routed design.
        cells: nextpnr's names of what :class:`LogicCells` counts, by its fields.
    """

    synthesis: str
    router: str
    packer: str
    cells: Mapping[str, str]


FAMILIES: Mapping[str, ToolFamily] = {
    "ecp5": ToolFamily(
        "synth_ecp5 -abc9",
        "nextpnr-ecp5",
        "ecppack",
        {"lut": "TRELLIS_COMB", "ff": "TRELLIS_FF", "block_ram": "DP16KD", "multiplier": "MULT18X18D"},
    ),
}


@dataclass(frozen=True, slots=True)
class OpenDevice:
    """A device.

    Attributes:
        part: as the vendor orders it.
        cells: that it has.
        closure: share of each up to which designs are placed.
        pins: sites of the board's clock, and of the two pins of a serial link, by name.
    """

    part: str
    family: str
    cells: LogicCells
    closure: LogicCells
    pins: Mapping[str, str]

    @property
    def tools(self) -> ToolFamily:
        return FAMILIES[self.family]

    @property
    def router_flags(self) -> list[str]:
        """Flags of nextpnr that choose the device."""
        found = ECP5_PART.fullmatch(self.part)
        if found is None:
            raise ConfigurationError(self.part, "is no part of the ECP5 family", "write it as LFE5U-85F-6BG381C")
        series, size, speed, package, balls = found.groups()
        kind = {"U": "", "UM": "um-", "UM5G": "um5g-"}[series]
        return [f"--{kind}{size}k", "--package", f"{ECP5_PACKAGES[package]}{balls}", "--speed", speed]


PIN_NAMES = ("clk", "serial_in", "serial_out")


def read_device(section: Section) -> OpenDevice:
    """Read the section ``device`` of a board's file.

    Raises:
        ConfigurationError: a key is missing, or a number is unusable or has no source.
    """
    section.origin()
    pins = section.section("pins")
    pins.origin()
    device = OpenDevice(
        part=section.text("part"),
        family=section.choice("family", tuple(FAMILIES)),
        cells=_cells(section.section("cells")),
        closure=_cells(section.section("closure_fraction")),
        pins={name: pins.text(name) for name in PIN_NAMES},
    )
    _ = device.router_flags
    return device


def _cells(section: Section) -> LogicCells:
    return LogicCells(*(section.constant(name).likely for name in CELL_NAMES))
