"""The configuration of the Vitis linker: compute units, their regions, and the memory channel of each of their ports.

The keys are those of UG1702, "--connectivity Options": ``nk=kernel:count:unit,unit``, ``slr=unit:SLRn``,
``sp=unit.port:memory``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from common.fpga.hand_off.ports import KernelPort
from common.fpga.planning.planned_kernels import PlannedKernel

SUPER_LOGIC_REGION = "SLR"


def connectivity(kernels: Sequence[PlannedKernel], ports: Mapping[str, Sequence[KernelPort]]) -> str:
    """Return the text of ``connectivity.cfg``; a kernel without ports (an overlay) comes with its own."""
    linked = [kernel for kernel in kernels if ports[kernel.name]]
    lines = [*_units(linked), *_regions(linked), *_memories(linked, ports)]
    return "\n".join(["# The plan's compute units, regions and memory channels.", "[connectivity]", *lines, ""])


def design_name(kernel: PlannedKernel) -> str:
    """Return the name of the design that a kernel is an instance of: that of its engine, as an identifier."""
    return "".join(character if character.isalnum() else "_" for character in kernel.engine.name)


def _units(kernels: Sequence[PlannedKernel]) -> Iterator[str]:
    units: dict[str, list[str]] = {}
    for kernel in kernels:
        units.setdefault(design_name(kernel), []).append(kernel.name)
    for design, names in units.items():
        yield f"nk={design}:{len(names)}:{','.join(names)}"


def _regions(kernels: Sequence[PlannedKernel]) -> Iterator[str]:
    for kernel in kernels:
        if kernel.region is None:
            yield f"# {kernel.name} spans several regions: no slr"
        elif kernel.region.startswith(SUPER_LOGIC_REGION):
            yield f"slr={kernel.name}:{kernel.region}"


def _memories(kernels: Sequence[PlannedKernel], ports: Mapping[str, Sequence[KernelPort]]) -> Iterator[str]:
    for kernel in kernels:
        yield from (f"sp={kernel.name}.{port.name}:{port.memory}" for port in ports[kernel.name])
