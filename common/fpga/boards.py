"""A board as configuration gives it, and the ceilings that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import CommandLineError
from common.fpga.figures import Outlook, Section

PRECISION_BITS = {"fp32": 32, "bf16": 16, "int16": 16, "int8": 8, "int4": 4}


@dataclass(frozen=True, slots=True)
class DatasheetPeak:
    """The vendor's headline figure and the conditions that it holds under."""

    int8_op_per_s: float
    macs_per_dsp: float
    clock_mhz: float


@dataclass(frozen=True, slots=True)
class Board:
    """An accelerator card."""

    name: str
    title: str
    clock_mhz: float
    lut_count: int
    dsp_count: int
    dsp_after_shell_count: int
    dsp_closure_fraction: float
    macs_per_dsp: Mapping[str, float]
    datasheet_peak: DatasheetPeak
    channel_count: int
    channel_bytes_per_s: float
    memory_efficiency: Outlook
    memory_capacity_bytes: int
    link_raw_bytes_per_s: float
    link_bytes_per_s: Outlook
    launch_us: Outlook
    limit_w: float
    static_w: Outlook
    dynamic_w: Outlook

    @property
    def array_dsp_count(self) -> float:
        """DSPs that one design can use: what the shell leaves, up to where timing closes."""
        return self.dsp_after_shell_count * self.dsp_closure_fraction

    @property
    def memory_bytes_per_s(self) -> float:
        """Theoretical bandwidth of the card's memory: channels × bandwidth of one."""
        return self.channel_count * self.channel_bytes_per_s

    def array_flop_per_s(self, precision: str) -> float:
        """Peak of the largest array that closes, at the kernel clock."""
        return peak_flop_per_s(self.array_dsp_count, self.macs_per_dsp[precision], self.clock_mhz)

    def datasheet_int8_op_per_s(self) -> float:
        """What the vendor's conditions give for all DSPs of the device."""
        conditions = self.datasheet_peak
        return peak_flop_per_s(self.dsp_count, conditions.macs_per_dsp, conditions.clock_mhz)


def peak_flop_per_s(dsp_count: float, macs_per_dsp: float, clock_mhz: float) -> float:
    """DSPs × MAC per DSP and cycle × 2 FLOPs per MAC × clock."""
    return dsp_count * macs_per_dsp * 2 * clock_mhz * 1e6


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
        CommandLineError: a key is missing or unknown, a number is unusable or has no source, or the ceilings that
            follow contradict the vendor's.
    """
    file = Section(path, content)
    logic, memory, link, power = (file.section(key) for key in ("logic", "memory", "host_link", "power"))
    datasheet = file.section("datasheet_peak")
    board = Board(
        name=name,
        title=file.text("title"),
        clock_mhz=file.figure("clock_mhz").likely,
        lut_count=round(logic.figure("lut_count").likely),
        dsp_count=round(logic.figure("dsp_count").likely),
        dsp_after_shell_count=round(logic.figure("dsp_after_shell_count").likely),
        dsp_closure_fraction=logic.figure("dsp_closure_fraction").likely,
        macs_per_dsp=_macs_per_dsp(file),
        datasheet_peak=DatasheetPeak(
            *(datasheet.figure(key).likely for key in ("int8_op_per_s", "macs_per_dsp", "clock_mhz"))
        ),
        channel_count=round(memory.figure("channel_count").likely),
        channel_bytes_per_s=memory.figure("channel_bytes_per_s").likely,
        memory_efficiency=memory.figure("efficiency_fraction").as_rate(),
        memory_capacity_bytes=round(memory.figure("capacity_bytes").likely),
        link_raw_bytes_per_s=link.figure("raw_bytes_per_s").likely,
        link_bytes_per_s=link.figure("bytes_per_s").as_rate(),
        launch_us=link.figure("launch_us").as_cost(),
        limit_w=power.figure("limit_w").likely,
        static_w=power.figure("static_w").as_cost(),
        dynamic_w=power.figure("dynamic_w").as_cost(),
    )
    for section in (file, logic, memory, link, power, datasheet):
        section.close()
    _check(board, path)
    return board


def _macs_per_dsp(file: Section) -> dict[str, float]:
    figures = {precision: figure.likely for precision, figure in file.figures("macs_per_dsp").items()}
    if set(figures) != set(PRECISION_BITS):
        raise CommandLineError(file.path, "macs_per_dsp is incomplete", f"it takes {', '.join(PRECISION_BITS)}")
    return figures


def _check(board: Board, path: Path) -> None:
    """Refuse figures that break a physical bound or that contradict each other."""
    problems = {
        "more DSPs are left by the shell than the device has": board.dsp_after_shell_count > board.dsp_count,
        "dsp_closure_fraction is above 1": board.dsp_closure_fraction > 1,
        "memory efficiency is above 1": board.memory_efficiency.optimistic > 1,
        "the host link is faster than its raw rate": board.link_bytes_per_s.optimistic > board.link_raw_bytes_per_s,
        "static and dynamic power together exceed the card's limit": (
            board.static_w.pessimistic + board.dynamic_w.pessimistic > board.limit_w
        ),
        "datasheet_peak does not follow from its own conditions": (
            abs(board.datasheet_int8_op_per_s() / board.datasheet_peak.int8_op_per_s - 1) > 0.01
        ),
    }
    for problem, is_so in problems.items():
        if is_so:
            raise CommandLineError(path, problem, "correct the figures")
