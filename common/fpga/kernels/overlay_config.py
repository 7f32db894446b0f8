"""An overlay engine as configuration gives it: one file for each, with the boards that it stands on."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from common.configuration import Section
from common.errors import CommandLineError
from common.fpga.device.board import Board
from common.fpga.device.resources import Resources
from common.fpga.kernels.overlay import OverlayConfig, OverlayEngine, OverlayHost, OverlayPorts
from common.fpga.kernels.overlay_cycles import OverlayShape


def find_engine(name: str, folder: Path) -> Path:
    """The file of an engine by its name in ``folder``, or by its path.

    Raises:
        CommandLineError: there is none; it names those that are there.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise CommandLineError("--engine", f"{name!r} is no engine and no YAML file", f"there is {known}")
    return path


def read_engine(name: str, path: Path, content: Mapping[str, Any], board: Board) -> OverlayEngine:
    """Make an engine of the content of its YAML file, as it stands on one board.

    Args:
        name: of the engine.
        path: the file, for messages.
        content: what is in it.
        board: gives the rate of the memory, and of the link to a card.

    Raises:
        CommandLineError: the vendor has no such engine on the board, a key is missing or unknown, or a number is
            unusable or has no source.
    """
    file = Section(path, content)
    rates = file.section("rates")
    engine = OverlayEngine(
        OverlayConfig(
            name=name,
            title=file.text("title"),
            board=board.name,
            engine_count=_whole(file, "engine_count"),
            core_count=_whole(file, "core_count"),
            shape=_shape(file.section("shape")),
            ports=_ports(file.section("ports"), board),
            host=_host(file.section("host"), board),
            array_share=rates.figure("array_fraction").likely,
            layer_cycles=rates.figure("layer_cycles").likely,
            efficiency=rates.figure("peak_fraction").as_rate(),
            assumptions=tuple(line.strip() for line in file.text("assumptions").splitlines() if line.strip()),
            **_on_board(file, name, board),
        )
    )
    rates.close()
    file.close()
    return engine


def _on_board(file: Section, name: str, board: Board) -> dict[str, Any]:
    """Clock and resources: a board's file says neither, the vendor builds each engine for some boards only."""
    boards = file.section("boards")
    known = sorted(boards.content)
    if board.name not in boards.content:
        raise CommandLineError("--engine", f"{name} is not built for {board.name}", f"it is for {', '.join(known)}")
    found: dict[str, Any] = {}
    for key in known:
        section = boards.section(key)
        clock_mhz, amounts = section.figure("clock_mhz").likely, section.section("resources")
        kinds = ("lut", "ff", "bram36", "uram", "dsp", "memory_channels")
        resources = Resources(*(amounts.figure(kind, positive=False).likely for kind in kinds))
        amounts.close()
        section.close()
        if key == board.name:
            found = {"clock_mhz": clock_mhz, "resources": resources}
    boards.close()
    return found


def _whole(section: Section, key: str, *, positive: bool = True) -> int:
    figure = section.figure(key, positive=positive)
    if figure.likely != round(figure.likely):
        raise CommandLineError(section.path, f"{key}: {figure.likely:g} is not a whole number")
    return round(figure.likely)


def _shape(section: Section) -> OverlayShape:
    shape = OverlayShape(
        pixels=_whole(section, "pixels"),
        in_channels=_whole(section, "in_channels"),
        out_channels=_whole(section, "out_channels"),
        window_pixels=_whole(section, "depthwise_pixels", positive=False),
        pool_pixels=_whole(section, "pool_pixels"),
        largest_window=_whole(section, "largest_window"),
        bank_bytes=_whole(section, "bank_bytes"),
    )
    section.close()
    return shape


def _ports(section: Section, board: Board) -> OverlayPorts:
    ports = OverlayPorts(
        data_ports=_whole(section, "data_ports"),
        weight_ports=_whole(section, "weight_ports", positive=False),
        port_bits=_whole(section, "port_bits"),
        memory_bytes_per_s=board.memory.bytes_per_s,
        efficiency=section.figure("efficiency_fraction").as_rate(),
    )
    section.close()
    return ports


def _host(section: Section, board: Board) -> OverlayHost:
    is_card = board.link.kind == "pcie"
    host = OverlayHost(
        call_us=section.figure("call_us").likely,
        input_ns=section.figure("input_ns_per_element").likely,
        operation_ns=section.figure("operation_ns").likely,
        link_bytes_per_s=board.link.bytes_per_s.likely if is_card else inf,
        threads=_whole(section, "threads"),
    )
    section.close()
    return host
