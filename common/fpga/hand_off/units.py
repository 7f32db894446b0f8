"""Compute units: what is linked for each kernel of a plan, with its region and its ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.fpga.device.board import Board
from common.fpga.hand_off.ports import KernelPort, engine_ports
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.team import Team
from common.fpga.planning.planned_kernels import PlannedKernel


@dataclass(frozen=True, slots=True)
class ComputeUnit:
    """An instance of a design on the board.

    Attributes:
        name: that of its kernel; members of a team are numbered: ``K1_2``.
        kernel: name of the kernel.
        engine: its model.
        region: of the board; None if it spans several.
        ports: its ports; none for a vendor's engine, which comes with its own.
    """

    name: str
    kernel: str
    engine: Engine
    region: str | None
    ports: tuple[KernelPort, ...]

    @property
    def design(self) -> str:
        """Name of the design: that of the engine, as an identifier."""
        return "".join(character if character.isalnum() else "_" for character in self.engine.name)


def compute_units(kernels: Sequence[PlannedKernel], board: Board) -> tuple[ComputeUnit, ...]:
    """Return the units of all kernels, each with the next memory channels of the board."""
    units: list[ComputeUnit] = []
    first = 0
    for kernel in kernels:
        for name, engine, region in _members(kernel, board):
            ports, used = engine_ports(engine, board, first)
            units.append(ComputeUnit(name, kernel.name, engine, region, ports))
            first += used
    return tuple(units)


def _members(kernel: PlannedKernel, board: Board) -> Iterator[tuple[str, Engine, str | None]]:
    """Yield the units of a kernel: a team of as many members as the board has regions has one in each."""
    if not isinstance(kernel.engine, Team):
        yield kernel.name, kernel.engine, kernel.region
        return
    count = kernel.engine.count
    regions = [region.name for region in board.regions] if count == len(board.regions) else [None] * count
    for number, region in enumerate(regions, start=1):
        yield f"{kernel.name}_{number}", kernel.engine.member, region


def by_kernel(units: Sequence[ComputeUnit]) -> Mapping[str, list[ComputeUnit]]:
    kernels: dict[str, list[ComputeUnit]] = {}
    for unit in units:
        kernels.setdefault(unit.kernel, []).append(unit)
    return kernels


def by_memory(units: Sequence[ComputeUnit]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for unit in units:
        for memory in dict.fromkeys(port.memory for port in unit.ports):
            names.setdefault(memory, []).append(unit.name)
    return names
