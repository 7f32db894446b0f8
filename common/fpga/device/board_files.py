"""Readers of configs/boards: boards, and profiles that give ceilings alone."""

from __future__ import annotations

from dataclasses import astuple
from math import inf
from pathlib import Path
from typing import cast, get_args

from common.files.configuration import Section, find_file
from common.fpga.device.board import (
    HIGHEST_MHZ,
    LOWEST_MHZ,
    AiEngines,
    Board,
    BoardCeilings,
    DatasheetPeak,
    DeviceRegion,
    DspType,
    Family,
    Link,
    LinkKind,
    Memory,
    MemoryKind,
    board_ceilings,
)
from common.fpga.device.resources import RESOURCE_NAMES, Resources, total
from common.graphs.number_formats import PRECISION_BITS
from common.intervals import ThreePoint
from common.messages.errors import ConfigurationError

LOGIC = tuple(name for name in RESOURCE_NAMES if name != "memory_channels")
DSP_OF = {"ultrascale+": "DSP48E2", "versal": "DSP58", "ecp5": "MULT18X18D", "nexus": "MULT18X18"}


def load_board(name: str, folder: Path) -> Board:
    """Read a board's file as :func:`read_board` does, given by its name in ``folder`` or by its path.

    Raises:
        UnusableValueError: there is no such file.
    """
    return read_board(Section.of_file(find_file("board", name, folder)))


def boards_in(folder: Path) -> list[Board]:
    """Read every board of a folder as :func:`read_board` does, without the profiles that give ceilings alone."""
    files = (Section.of_file(path) for path in sorted(folder.glob("*.yaml")))
    return [read_board(file) for file in files if "given_ceilings" not in file]


def load_ceilings(name: str, folder: Path) -> BoardCeilings:
    """Read the ceilings that a file gives as :func:`read_ceilings` does; UnusableValueError as :func:`load_board`."""
    return read_ceilings(Section.of_file(find_file("board", name, folder)))


def read_board(file: Section) -> Board:
    """Make a board from its YAML file, whose name is the board's.

    Raises:
        ConfigurationError: a key is missing or unknown, a number is unusable or has no source, the computed ceilings
            contradict the vendor's, or the file is a profile of ceilings, on which no kernel can be placed.
    """
    if "given_ceilings" in file:
        raise file.error("", "gives ceilings and no resources to plan with", f"use board {file.text('based_on')}")
    link, power = file.section("host_link"), file.section("power")
    board = Board(
        name=file.path.stem,
        title=file.text("title"),
        family=cast(Family, file.choice("family", get_args(Family))),
        dsp_type=cast(DspType, file.choice("dsp_type", get_args(DspType))),
        clock_mhz=file.constant("clock_mhz").likely,
        dsp_pumping=file.constant("dsp_pumping").likely,
        regions=_regions(file),
        closure=_resources(file, "closure_fraction"),
        macs_per_dsp=_macs_per_dsp(file),
        memory=_memory(file),
        link=Link(
            cast(LinkKind, link.choice("kind", get_args(LinkKind))),
            link.constant("raw_bytes_per_s").likely,
            link.constant("bytes_per_s").as_rate(),
        ),
        launch_us=link.constant("launch_us").as_cost(),
        limit_w=power.constant("limit_w").likely,
        static_w=power.constant("static_w").as_cost(),
        dynamic_w=power.constant("dynamic_w").as_cost(),
        datasheet_peak=_datasheet_peak(file),
        ai_engines=_ai_engines(file),
        own_processor=_own_processor(file),
    )
    file.close()
    _check(board, file)
    return board


def read_ceilings(file: Section) -> BoardCeilings:
    """Return the ceilings that a board's file implies or that a profile gives.

    Raises:
        ConfigurationError: as :func:`read_board`; or a profile neither gives the peak of a number format nor says why
            it is absent.
    """
    if "given_ceilings" not in file:
        return board_ceilings(read_board(file))
    given = file.section("given_ceilings")
    peaks = {precision: peak.likely for precision, peak in given.constants("peak_flop_per_s").items()}
    reasons = given.section("absent")
    absent = {precision: reasons.text(precision) for precision in reasons}
    ceilings = BoardCeilings(
        name=file.path.stem,
        title=file.text("title"),
        based_on=file.text("based_on"),
        is_given=True,
        clock_mhz=given.constant("clock_mhz").likely,
        peak_flop_per_s=peaks,
        memory_bytes_per_s=given.constant("theoretical_bytes_per_s").likely,
        attained_bytes_per_s=ThreePoint.exactly(given.constant("attained_bytes_per_s").likely),
        absent=absent,
    )
    file.close()
    if ceilings.attained_bytes_per_s.optimistic > ceilings.memory_bytes_per_s:
        raise given.error("attained_bytes_per_s", "is above theoretical_bytes_per_s", "correct the figures")
    if sorted([*peaks, *absent]) != sorted(PRECISION_BITS):
        formats = ", ".join(PRECISION_BITS)
        raise given.error("", "needs a peak for each number format, or a reason why there is none", formats)
    return ceilings


def _regions(file: Section) -> tuple[DeviceRegion, ...]:
    """Return the regions, whose resources must add up to those of the device.

    A ConfigurationError says that they do not, or that the shell leaves more of a resource than the region has.
    """
    below, device = file.section("regions"), _resources(file, "device")
    regions = tuple(
        DeviceRegion(name, *(_resources(below.section(name), part) for part in ("total", "usable"))) for name in below
    )
    for region in regions:
        if kind := region.usable.shortfall(region.total):
            raise file.error(f"regions.{region.name}", f"has less {kind} than its shell leaves")
    whole = total(region.total for region in regions)
    for kind in LOGIC:
        of_regions, of_device = getattr(whole, kind), getattr(device, kind)
        if of_regions != of_device:
            raise below.error("", f"add up to {of_regions:g} {kind}, but the device has {of_device:g}")
    return regions


def _resources(file: Section, key: str) -> Resources:
    below = file.section(key)
    amounts = {kind: below.constant(kind, positive=False).likely for kind in LOGIC}
    if negative := [kind for kind, amount in amounts.items() if amount < 0]:
        raise below.error(negative[0], "is negative")
    return Resources(**amounts)


def _macs_per_dsp(file: Section) -> dict[str, float]:
    rates = {precision: rate.likely for precision, rate in file.constants("macs_per_dsp").items()}
    if set(rates) != set(PRECISION_BITS):
        raise file.error("macs_per_dsp", "is incomplete", f"it takes {', '.join(PRECISION_BITS)}")
    return rates


def _memory(file: Section) -> Memory:
    below = file.section("memory")
    is_limited = "limit_bytes_per_s" in below
    return Memory(
        kind=cast(MemoryKind, below.choice("kind", get_args(MemoryKind))),
        channel_count=below.count("channel_count"),
        channel_bytes_per_s=below.constant("channel_bytes_per_s").likely,
        efficiency=below.constant("efficiency_fraction").as_rate(),
        capacity_bytes=below.count("capacity_bytes"),
        port_bits=below.count("port_bits"),
        limit_bytes_per_s=below.constant("limit_bytes_per_s").likely if is_limited else inf,
    )


def _datasheet_peak(file: Section) -> DatasheetPeak | None:
    """Return the vendor's headline figure, or None where ``absent`` says why there is none."""
    below = file.section("datasheet_peak")
    if "absent" in below:
        below.text("absent")
        return None
    keys = ("int8_op_per_s", "macs_per_dsp", "clock_mhz")
    return DatasheetPeak(*(below.constant(key).likely for key in keys))


def _own_processor(file: Section) -> str:
    """Return the name of the board's processor, whose source the file states; empty for a card."""
    if "own_host" not in file:
        return ""
    below = file.section("own_host")
    below.origin()
    return below.text("processor")


def _ai_engines(file: Section) -> AiEngines | None:
    if "ai_engines" not in file:
        return None
    below = file.section("ai_engines")
    count, int8 = below.count("count"), below.constant("int8_op_per_s").likely
    return AiEngines(count, int8, below.constant("fp32_flop_per_s").as_rate())


def _check(board: Board, file: Section) -> None:
    """Refuse figures that break a physical bound or contradict each other."""
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
            raise ConfigurationError(file.path, problem, "correct the figures")
