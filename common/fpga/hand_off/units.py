"""Compute units: what is linked for each kernel of a plan, with its region, its ports and their memory channels.

A plan counts channels so that kernels share none. But where an array and a row-wise or attention kernel read each
other's tensors, the latter has the ports and channels of the array: word w of a tensor is then where both look for it.
The keys of the linker's configuration are those of UG1702,
"--connectivity Options": ``nk=kernel:count:unit,unit``, ``slr=unit:SLRn``, ``sp=unit.port:memory``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from common.fpga.device.board import Board
from common.fpga.kernels.dataflow.attention import AttentionEngine
from common.fpga.kernels.dataflow.rowwise import RowwiseEngine
from common.fpga.kernels.dataflow.streaming import StreamingGemv
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.kernels.team import Team
from common.fpga.planning.planned_kernels import PlannedKernel
from common.graphs.grouping import grouped


@dataclass(frozen=True, slots=True)
class ComputeUnit:
    """An instance of a design on the board."""

    name: str  # that of its kernel; members of a team are numbered: ``K1_2``
    kernel: str
    engine: Engine
    region: str | None  # of the board; None if it spans several
    ports: tuple[KernelPort, ...]  # its ports; none for a vendor's engine, which comes with its own

    @property
    def design(self) -> str:
        """Name of the design: that of the engine, and of its ports where they are an array's, as an identifier."""
        of_array = "" if len(self.ports) in (0, len(port_names(self.engine))) else f"_{len(self.ports)}p"
        return "".join(character if character.isalnum() else "_" for character in self.engine.name) + of_array


def compute_units(
    kernels: Sequence[PlannedKernel], board: Board, beside: Mapping[str, str] | None = None
) -> tuple[ComputeUnit, ...]:
    """Return the units of all kernels, each with the next memory channels of the board.

    ``beside`` names the array whose ports and channels a kernel has instead; it takes no others.
    """
    units: list[ComputeUnit] = []
    of_array, first = beside or {}, 0
    for kernel in kernels:
        for name, engine, region in _members(kernel, board):
            ports, used = engine_ports(engine, board, first)
            units.append(ComputeUnit(name, kernel.name, engine, region, ports))
            first += 0 if name in of_array else used
    ports_of = {unit.name: unit.ports for unit in units}
    return tuple(replace(unit, ports=ports_of[of_array.get(unit.name, unit.name)]) for unit in units)


def beside_arrays(kernels: Sequence[PlannedKernel], exchanged: Mapping[tuple[str, str], int]) -> Mapping[str, str]:
    """Return the array of each row-wise or attention kernel with which it exchanges the most tensors, by kernel.

    ``exchanged`` counts the tensors that a kernel writes and another one reads, by both.
    """
    found = {}
    for kernel in kernels:
        engine = kernel.engine
        if not isinstance(engine, RowwiseEngine | AttentionEngine):
            continue
        counts = {
            each.name: exchanged.get((each.name, kernel.name), 0) + exchanged.get((kernel.name, each.name), 0)
            for each in kernels
            if isinstance(each.engine, SystolicArray)
            and (each.engine.precision, each.engine.ports.port_bits) == (engine.precision, engine.ports.port_bits)
        }
        most = max(counts, key=counts.__getitem__, default="")
        if counts.get(most):
            found[kernel.name] = most
    return found


def _members(kernel: PlannedKernel, board: Board) -> Iterator[tuple[str, Engine, str | None]]:
    """Yield the units of a kernel: a team of as many members as the board has regions has one in each."""
    if not isinstance(kernel.engine, Team):
        yield kernel.name, kernel.engine, kernel.region
        return
    count = kernel.engine.count
    regions = [region.name for region in board.regions] if count == len(board.regions) else [None] * count
    for number, region in enumerate(regions, start=1):
        yield f"{kernel.name}_{number}", kernel.engine.member, region


def by_kernel(units: Sequence[ComputeUnit]) -> dict[str, list[ComputeUnit]]:
    return grouped((unit.kernel, unit) for unit in units)


def by_memory(units: Sequence[ComputeUnit]) -> dict[str, list[str]]:
    return grouped(
        (memory, unit.name) for unit in units for memory in dict.fromkeys(port.memory for port in unit.ports)
    )


PAGE_BYTES, MOST_BURST_WORDS = 4096, 256  # an AXI burst ends at the page and has 256 words at most (ARM IHI 0022)


@dataclass(frozen=True, slots=True)
class KernelPort:
    """An AXI master of a kernel. ``memory`` is its channel in the linker's words: ``HBM[3]``, ``DDR[1]``, ``HP0``."""

    name: str
    bits: int
    memory: str

    @property
    def burst_words(self) -> int:
        return min(MOST_BURST_WORDS, PAGE_BYTES * 8 // self.bits)


def engine_ports(engine: Engine, board: Board, first: int) -> tuple[tuple[KernelPort, ...], int]:
    """Return the ports of an engine, and how many memory channels it takes.

    On a board with one channel each port takes the next of the ways to it, and several share one where they run out.
    ``first`` is the number of the first channel that no other engine has.
    """
    names, ports, one_channel = port_names(engine), memory_ports(engine), board.memory.channel_count == 1
    offsets = range(len(names)) if one_channel else names.values()
    placed = tuple(
        KernelPort(name, ports.port_bits, _memory(board, first + offset))
        for name, offset in zip(names, offsets, strict=True)
        if ports is not None
    )
    return placed, len(names) if one_channel else round(engine.resources.memory_channels)


@dataclass(frozen=True, slots=True)
class Copier:
    """A kernel that copies tensors between a streaming kernel and one that spreads them over all of its ports."""

    stream: ComputeUnit
    other: ComputeUnit

    @property
    def name(self) -> str:
        return f"{self.stream.name}_{self.other.name}_copy"

    @property
    def design(self) -> str:
        ports = self.other.ports
        return f"copy_{self.stream.engine.precision}_{len(ports)}x{ports[0].bits}_{len(self.vectors)}v"

    @property
    def vectors(self) -> tuple[KernelPort, ...]:
        """Ports to the vectors of the streaming kernel."""
        own = (port for port in self.stream.ports if port.name.startswith("x"))
        return tuple(replace(port, name=f"v{vector}") for vector, port in enumerate(own))


def copiers(units: Sequence[ComputeUnit], exchanged: Iterable[tuple[str, str]]) -> tuple[Copier, ...]:
    """Return a copier for each streaming kernel and kernel of another kind that exchange tensors of one format.

    ``exchanged`` are the kernels that write and read a tensor.
    """
    first = {kernel: members[0] for kernel, members in by_kernel(units).items()}
    found: dict[frozenset[str], Copier] = {}
    for writer, reader in exchanged:
        for stream, other in ((first[writer], first[reader]), (first[reader], first[writer])):
            is_pair = isinstance(stream.engine, StreamingGemv) and not isinstance(other.engine, StreamingGemv)
            if is_pair and other.ports:
                words = {(each.engine.precision, each.ports[0].bits) for each in (stream, other)}
                if len(words) == 1:
                    found[frozenset((writer, reader))] = Copier(stream, other)
    return tuple(found.values())


def converter_design(precision: str, ports: Sequence[KernelPort]) -> str:
    """Return the name of the converter that shares an array's ports and memory."""
    return f"convert_{precision}_{len(ports)}x{ports[0].bits}"


def converter_unit(unit: str) -> str:
    return f"{unit}_convert"


def memory_ports(engine: Engine) -> MemoryPorts | None:
    """Return the ports of an engine; None for an overlay, whose vendor connects it."""
    ports = getattr(engine, "ports", None)
    return ports if isinstance(ports, MemoryPorts) else None


def port_names(engine: Engine) -> dict[str, int]:
    """Return the number of the channel, among those of the kernel, by the name of each port."""
    if (ports := memory_ports(engine)) is None:
        return {}
    names = {f"p{index}": index % ports.channel_count for index in range(ports.count)}
    if isinstance(engine, StreamingGemv):  # a vector has a port to read and one to write, on a channel of its own
        names |= {f"{side}{v}": ports.channel_count + v for v in range(engine.vectors) for side in "xy"}
    return names


def _memory(board: Board, channel: int) -> str:
    """Return a channel in the words of the platform that is linked against."""
    if board.memory.channel_count > 1:
        return f"{'HBM' if board.memory.kind == 'hbm' else 'DDR'}[{channel}]"
    return "DDR" if board.family == "versal" else f"HP{channel % board.memory_port_count}"


SUPER_LOGIC_REGION = "SLR"


def connectivity(units: Sequence[ComputeUnit]) -> str:
    """Return the text of ``connectivity.cfg``; a unit without ports (an overlay) comes with its own."""
    linked = [unit for unit in units if unit.ports]
    names = grouped((unit.design, unit.name) for unit in linked)
    lines = [f"nk={design}:{len(of_design)}:{','.join(of_design)}" for design, of_design in names.items()]
    for unit in linked:
        if unit.region is None:
            lines.append(f"# {unit.name} has no region of its own: no slr")
        elif unit.region.startswith(SUPER_LOGIC_REGION):
            lines.append(f"slr={unit.name}:{unit.region}")
    lines += [f"sp={unit.name}.{port.name}:{port.memory}" for unit in linked for port in unit.ports]
    return "\n".join(["# The plan's compute units, regions and memory channels.", "[connectivity]", *lines, ""])
