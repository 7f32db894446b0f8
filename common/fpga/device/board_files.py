"""Boards and ceiling profiles as files of configs/boards give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any, cast, get_args

from common.configuration import Section
from common.errors import CommandLineError
from common.fpga.device.board import (
    HIGHEST_MHZ,
    LOWEST_MHZ,
    PLAN_PRECISIONS,
    AiEngines,
    Board,
    BoardCeilings,
    DatasheetPeak,
    DspType,
    Family,
    Link,
    LinkKind,
    Memory,
    MemoryKind,
    Region,
    board_ceilings,
    peak_flop_per_s,
)
from common.fpga.device.resources import RESOURCE_NAMES, Resources, total
from common.intervals import ThreePoint
from common.number_formats import PRECISION_BITS

__all__ = [
    "PLAN_PRECISIONS",
    "AiEngines",
    "Board",
    "BoardCeilings",
    "DatasheetPeak",
    "Link",
    "Memory",
    "Region",
    "board_ceilings",
    "find_board",
    "peak_flop_per_s",
    "read_board",
    "read_ceilings",
]

LOGIC = tuple(name for name in RESOURCE_NAMES if name != "memory_channels")
DSP_OF: Mapping[str, str] = {"ultrascale+": "DSP48E2", "versal": "DSP58"}


def find_board(name: str, folder: Path) -> Path:
    """The file of a board by its name in ``folder``, or by its path.

    Raises:
        CommandLineError: there is none; it names those that are there.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise CommandLineError("--board", f"{name!r} is no board and no YAML file", f"there is {known}")
    return path


def read_board(name: str, path: Path, content: Mapping[str, Any]) -> Board:
    """Make a board of the content of its YAML file.

    Raises:
        CommandLineError: a key is missing or unknown, a number is unusable or has no source, the ceilings that follow
            contradict the vendor's, or the file is a profile of ceilings, which no kernel can be placed on.
    """
    file = Section(path, content)
    if "given_ceilings" in file.content:
        remedy = f"take the board {_words(file, 'based_on')}"
        raise CommandLineError(path, "gives ceilings and no resources to plan with", remedy)
    link, power = file.section("host_link"), file.section("power")
    regions = _regions(file)
    board = Board(
        name=name,
        title=_words(file, "title"),
        family=cast(Family, file.choice("family", get_args(Family))),
        dsp_type=cast(DspType, file.choice("dsp_type", get_args(DspType))),
        clock_mhz=file.figure("clock_mhz").likely,
        dsp_pumping=file.figure("dsp_pumping").likely,
        regions=regions,
        closure=_resources(file, "closure_fraction"),
        macs_per_dsp=_macs_per_dsp(file),
        memory=_memory(file),
        link=_link(link),
        launch_us=link.figure("launch_us").as_cost(),
        limit_w=power.figure("limit_w").likely,
        static_w=power.figure("static_w").as_cost(),
        dynamic_w=power.figure("dynamic_w").as_cost(),
        datasheet_peak=_datasheet_peak(file),
        ai_engines=_ai_engines(file),
        host_note=_words(file, "host_note") if "host_note" in file.content else "",
    )
    for section in (link, power, file):
        section.close()
    _check(board, path)
    return board


def read_ceilings(name: str, path: Path, content: Mapping[str, Any]) -> BoardCeilings:
    """The ceilings of any file of the folder: a board's, computed, or those that a profile gives.

    Raises:
        CommandLineError: as of :func:`read_board`; or a profile neither gives nor declares absent the peak of a format.
    """
    file = Section(path, content)
    if "given_ceilings" not in file.content:
        return board_ceilings(read_board(name, path, content))
    given = file.section("given_ceilings")
    peaks = {precision: figure.likely for precision, figure in given.figures("peak_flop_per_s").items()}
    reasons = given.section("absent")
    absent = {precision: _words(reasons, precision) for precision in reasons.content}
    ceilings = BoardCeilings(
        name=name,
        title=_words(file, "title"),
        based_on=_words(file, "based_on"),
        is_given=True,
        clock_mhz=given.figure("clock_mhz").likely,
        peak_flop_per_s=peaks,
        memory_bytes_per_s=given.figure("theoretical_bytes_per_s").likely,
        attained_bytes_per_s=ThreePoint.exactly(given.figure("attained_bytes_per_s").likely),
        absent=absent,
    )
    for section in (reasons, given, file):
        section.close()
    if ceilings.attained_bytes_per_s.optimistic > ceilings.memory_bytes_per_s:
        raise CommandLineError(path, "attained_bytes_per_s is above theoretical_bytes_per_s", "correct the figures")
    if sorted([*peaks, *absent]) != sorted(PRECISION_BITS):
        formats = ", ".join(PRECISION_BITS)
        raise CommandLineError(path, "each number format needs a peak, or a reason why it has none", formats)
    return ceilings


def _regions(file: Section) -> tuple[Region, ...]:
    """The regions, whose resources must add up to the device's.

    Raises:
        CommandLineError: they do not, or the shell leaves more than there is.
    """
    below, device = file.section("regions"), _resources(file, "device")
    regions = []
    for name in below.content:
        each = below.section(name)
        regions.append(Region(name, _resources(each, "total"), _resources(each, "usable")))
        each.close()
    for region in regions:
        if kind := region.usable.shortfall(region.total):
            raise CommandLineError(file.path, f"the shell leaves more {kind} in {region.name} than there is")
    found = total(region.total for region in regions)
    for kind in LOGIC:
        there, stated = getattr(found, kind), getattr(device, kind)
        if there != stated:
            raise CommandLineError(file.path, f"{kind} of the regions is {there:g} and of the device {stated:g}")
    return tuple(regions)


def _resources(file: Section, key: str) -> Resources:
    """One figure for each kind of logic; a device may have none of a kind."""
    below = file.section(key)
    amounts = {kind: below.figure(kind, positive=False).likely for kind in LOGIC}
    below.close()
    if negative := [kind for kind, amount in amounts.items() if amount < 0]:
        raise CommandLineError(file.path, f"{below.name}.{negative[0]} is negative")
    return Resources(**amounts)


def _macs_per_dsp(file: Section) -> dict[str, float]:
    figures = {precision: figure.likely for precision, figure in file.figures("macs_per_dsp").items()}
    if set(figures) != set(PRECISION_BITS):
        raise CommandLineError(file.path, "macs_per_dsp is incomplete", f"it takes {', '.join(PRECISION_BITS)}")
    return figures


def _memory(file: Section) -> Memory:
    below = file.section("memory")
    limit = {}
    if "limit_bytes_per_s" in below.content:
        limit["limit_bytes_per_s"] = below.figure("limit_bytes_per_s").likely
    memory = Memory(
        kind=cast(MemoryKind, below.choice("kind", get_args(MemoryKind))),
        channel_count=_count(below, "channel_count"),
        channel_bytes_per_s=below.figure("channel_bytes_per_s").likely,
        efficiency=below.figure("efficiency_fraction").as_rate(),
        capacity_bytes=_count(below, "capacity_bytes"),
        port_bits=_count(below, "port_bits"),
        **limit,
    )
    below.close()
    return memory


def _words(section: Section, key: str) -> str:
    """A text that says something.

    Raises:
        CommandLineError: it is empty, or no text.
    """
    section.text(key)
    if not isinstance(value := section.content[key], str) or not value.strip():
        raise CommandLineError(section.path, f"{f'{section.name}.' if section.name else ''}{key} is no text")
    return value.strip()


def _count(section: Section, key: str) -> int:
    """A figure that is a whole number.

    Raises:
        CommandLineError: it is not.
    """
    value = section.figure(key).likely
    if not value.is_integer():
        raise CommandLineError(section.path, f"{section.name}.{key} is {value:g}", "it takes a whole number")
    return int(value)


def _link(section: Section) -> Link:
    kind = cast(LinkKind, section.choice("kind", get_args(LinkKind)))
    return Link(kind, section.figure("raw_bytes_per_s").likely, section.figure("bytes_per_s").as_rate())


def _datasheet_peak(file: Section) -> DatasheetPeak | None:
    """The headline figure, or None where ``absent`` says why there is none."""
    below = file.section("datasheet_peak")
    if "absent" in below.content:
        _words(below, "absent")
        below.close()
        return None
    keys = ("int8_op_per_s", "macs_per_dsp", "clock_mhz")
    peak = DatasheetPeak(*(below.figure(key).likely for key in keys))
    below.close()
    return peak


def _ai_engines(file: Section) -> AiEngines | None:
    if "ai_engines" not in file.content:
        return None
    below = file.section("ai_engines")
    engines = AiEngines(_count(below, "count"), below.figure("int8_op_per_s").likely)
    below.close()
    return engines


def _check(board: Board, path: Path) -> None:
    """Refuse figures that break a physical bound or that contradict each other."""
    stated, computed = board.datasheet_peak, board.datasheet_int8_op_per_s()
    problems = {
        f"{board.family} devices have {DSP_OF[board.family]}s": board.dsp_type != DSP_OF[board.family],
        f"clock_mhz is not {LOWEST_MHZ:g} to {HIGHEST_MHZ:g}": not LOWEST_MHZ <= board.clock_mhz <= HIGHEST_MHZ,
        "memory.port_bits is below 8": board.memory.port_bits < 8,
        "a closure_fraction is above 1": max(astuple(board.closure)) > 1,
        "the shell and closure leave no DSP": board.total_budget.dsp <= 0,
        "memory efficiency is above 1": board.memory.efficiency.optimistic > 1,
        "the host link is faster than its raw rate": board.link.bytes_per_s.optimistic > board.link.raw_bytes_per_s,
        "static and dynamic power together exceed the board's limit": (
            board.static_w.pessimistic + board.dynamic_w.pessimistic > board.limit_w
        ),
        "datasheet_peak does not follow from its own conditions": (
            stated is not None and computed is not None and abs(computed / stated.int8_op_per_s - 1) > 0.01
        ),
    }
    for problem, is_so in problems.items():
        if is_so:
            raise CommandLineError(path, problem, "correct the figures")
