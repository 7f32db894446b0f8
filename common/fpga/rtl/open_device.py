"""A device that open tools place and route: its part number as the tools take it, and its resources."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, fields
from operator import le, mul

from common.files.configuration import Section
from common.messages.errors import ConfigurationError

ECP5_PACKAGES = {"BG": "CABGA", "MG": "CSFBGA", "TG": "TQFP"}  # in the words of nextpnr, by the letters of a part
ECP5_PART = re.compile(r"LFE5(U|UM|UM5G)-(\d+)F-(\d)(BG|TG|MG)(\d+)[CI]?")
NEXUS_PART = re.compile(r"LIFCL-(17|40)-[789](BG|MG|SG|UWG)\d+[CI]")


@dataclass(frozen=True, slots=True)
class LogicCells:
    """Cells of a design or of a device, as nextpnr counts them after packing."""

    lut: float  # LUTs of four inputs; a carry cell takes two, a LUT RAM of 16 x 4 bits six
    ff: float
    block_ram: float  # blocks of 18 Kb
    multiplier: float  # of 18 x 18 bits (ECP5) or of 9 x 9 (Nexus)

    def fits(self, available: LogicCells) -> bool:
        return all(map(le, astuple(self), astuple(available)))

    def scaled(self, share: LogicCells) -> LogicCells:
        return LogicCells(*map(mul, astuple(self), astuple(share)))

    @property
    def by_name(self) -> Mapping[str, float]:
        return dict(zip(CELL_NAMES, astuple(self), strict=True))


CELL_NAMES = tuple(field.name for field in fields(LogicCells))


@dataclass(frozen=True, slots=True)
class ToolFamily:
    """How the open tools call a family."""

    synthesis: str  # command of yosys
    router: str  # name of nextpnr for it
    device_flags: Callable[[str], list[str]]  # flags of nextpnr that choose a device, by its part
    pins_flag: str  # flag of nextpnr before the file that says where the pins are
    pin: str  # lines of that file for one pin, with its name and its site
    routed: tuple[str, str]  # flag of nextpnr before the file of the routed design, and the name of that file
    packer: tuple[str, ...]  # command that makes a bitstream of that file
    cells: Mapping[str, str]  # nextpnr's names of what :class:`LogicCells` counts, by its fields
    # Cell of a carry chain, and its input, where yosys ties the first one to a constant, which nextpnr refuses; empty
    # elsewhere
    carry: tuple[str, ...] = ()


def _ecp5_flags(part: str) -> list[str]:
    found = _read(ECP5_PART, part, "ECP5", "LFE5U-85F-6BG381C")
    series, size, speed, package, balls = found.groups()
    kind = {"U": "", "UM": "um-", "UM5G": "um5g-"}[series]
    return [f"--{kind}{size}k", "--package", f"{ECP5_PACKAGES[package]}{balls}", "--speed", speed]


def _nexus_flags(part: str) -> list[str]:
    _read(NEXUS_PART, part, "Nexus", "LIFCL-40-9BG400C")
    # The default, router2, finds no way from the pin of the clock to the clock network in a full design.
    return ["--device", part, "--router", "router1"]


def _read(pattern: re.Pattern[str], part: str, family: str, example: str) -> re.Match[str]:
    if found := pattern.fullmatch(part):
        return found
    raise ConfigurationError(part, f"is no part of the {family} family", f"write it as {example}")


FAMILIES: Mapping[str, ToolFamily] = {
    "ecp5": ToolFamily(
        synthesis="synth_ecp5 -abc9",
        router="nextpnr-ecp5",
        device_flags=_ecp5_flags,
        pins_flag="--lpf",
        pin='LOCATE COMP "{name}" SITE "{site}";\nIOBUF PORT "{name}" IO_TYPE=LVCMOS33;\n',
        routed=("--textcfg", "design.config"),
        packer=("ecppack", "design.config", "design.bit"),
        cells={"lut": "TRELLIS_COMB", "ff": "TRELLIS_FF", "block_ram": "DP16KD", "multiplier": "MULT18X18D"},
    ),
    "nexus": ToolFamily(
        synthesis="synth_nexus -family lifcl",
        router="nextpnr-nexus",
        device_flags=_nexus_flags,
        pins_flag="--pdc",
        pin=(
            "ldc_set_location -site {{{site}}} [get_ports {name}]\n"
            "ldc_set_port -iobuf {{IO_TYPE=LVCMOS33}} [get_ports {name}]\n"
        ),
        routed=("--fasm", "design.fasm"),
        packer=("prjoxide", "pack", "design.fasm", "design.bit"),
        cells={"lut": "OXIDE_COMB", "ff": "OXIDE_FF", "block_ram": "OXIDE_EBR", "multiplier": "MULT9_CORE"},
        carry=("CCU2", "CIN"),
    ),
}


@dataclass(frozen=True, slots=True)
class OpenDevice:
    part: str  # as the vendor orders it
    family: str
    cells: LogicCells  # that it has
    closure: LogicCells  # share of each up to which designs are placed
    pins: Mapping[str, str]  # sites of the board's clock, and of the two pins of a serial link, by name

    @property
    def tools(self) -> ToolFamily:
        return FAMILIES[self.family]

    @property
    def router_flags(self) -> list[str]:
        """Flags of nextpnr that choose the device; ConfigurationError for a part that is none of its family."""
        return self.tools.device_flags(self.part)


PIN_NAMES = ("clk", "serial_in", "serial_out")


def read_device(section: Section) -> OpenDevice:
    """Read the section ``device`` of a board's file; errors are those of :class:`Section`."""
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
