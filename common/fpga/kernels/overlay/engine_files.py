"""Reader of configs/engines: an overlay engine, and the boards that the vendor builds it for."""

from __future__ import annotations

from math import inf
from pathlib import Path

from common.files.configuration import Section, find_file
from common.fpga.device.board import Board
from common.fpga.device.resources import RESOURCE_NAMES, Resources
from common.fpga.kernels.estimate import read_scatter
from common.fpga.kernels.overlay.cycles import OverlayShape
from common.fpga.kernels.overlay.engine import OverlayEngine, OverlayHost, OverlayPorts
from common.messages.errors import UnusableValueError


def load_engine(name: str, folder: Path, board: Board) -> OverlayEngine:
    """Read an engine's file, given by its name in ``folder`` or by its path, as :func:`read_engine` does.

    An UnusableValueError says that there is no such file.
    """
    return read_engine(Section.of_file(find_file("engine", name, folder)), board)


def read_engine(file: Section, board: Board) -> OverlayEngine:
    """Make an engine from its YAML file, whose name is the engine's, for one board.

    Raises:
        UnusableValueError: the vendor does not build the engine for the board.
        ConfigurationError: a key is missing or unknown, or a number is unusable or has no source.
    """
    name, rates, boards = file.path.stem, file.section("rates"), file.section("boards")
    if board.name not in boards:
        known = ", ".join(sorted(boards))
        raise UnusableValueError("engine", f"{name} is not built for {board.name}", f"it is built for {known}")
    builds = {key: _build(boards.section(key)) for key in boards}  # all, so that a mistake in any of them is reported
    clock_mhz, resources = builds[board.name]
    engine = OverlayEngine(
        name=name,
        title=file.text("title"),
        board=board.name,
        engine_count=file.count("engine_count"),
        core_count=file.count("core_count"),
        shape=_shape(file.section("shape")),
        ports=_ports(file.section("ports"), board),
        host=_host(file.section("host"), board),
        array_share=rates.constant("array_fraction").likely,
        layer_cycles=rates.constant("layer_cycles").likely,
        scatter=read_scatter(rates),
        assumptions=tuple(line.strip() for line in file.text("assumptions").splitlines() if line.strip()),
        clock_mhz=clock_mhz,
        resources=resources,
    )
    file.close()
    return engine


def _build(section: Section) -> tuple[float, Resources]:
    amounts = section.section("resources")
    resources = Resources(*(amounts.constant(kind, positive=False).likely for kind in RESOURCE_NAMES))
    return section.constant("clock_mhz").likely, resources


def _shape(section: Section) -> OverlayShape:
    return OverlayShape(
        pixels=section.count("pixels"),
        in_channels=section.count("in_channels"),
        out_channels=section.count("out_channels"),
        window_pixels=section.count("depthwise_pixels", positive=False),
        pool_pixels=section.count("pool_pixels"),
        largest_window=section.count("largest_window"),
        bank_bytes=section.count("bank_bytes"),
    )


def _ports(section: Section, board: Board) -> OverlayPorts:
    return OverlayPorts(
        data_ports=section.count("data_ports"),
        weight_ports=section.count("weight_ports", positive=False),
        port_bits=section.count("port_bits"),
        memory_bytes_per_s=board.memory.bytes_per_s,
        share=section.constant("efficiency_fraction").likely,
    )


def _host(section: Section, board: Board) -> OverlayHost:
    is_card = board.link.kind == "pcie"
    return OverlayHost(
        call_us=section.constant("call_us").likely,
        input_ns=section.constant("input_ns_per_element").likely,
        operation_ns=section.constant("operation_ns").likely,
        link_bytes_per_s=board.link.bytes_per_s.likely if is_card else inf,
        threads=section.count("threads"),
    )
