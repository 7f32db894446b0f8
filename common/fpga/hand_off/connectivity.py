"""The configuration of the Vitis linker: compute units, their regions, and the memory channel of each of their ports.

The keys are those of UG1702, "--connectivity Options": ``nk=kernel:count:unit,unit``, ``slr=unit:SLRn``,
``sp=unit.port:memory``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.fpga.hand_off.units import ComputeUnit

SUPER_LOGIC_REGION = "SLR"


def connectivity(units: Sequence[ComputeUnit]) -> str:
    """Return the text of ``connectivity.cfg``; a unit without ports (an overlay) comes with its own."""
    linked = [unit for unit in units if unit.ports]
    lines = [*_designs(linked), *_regions(linked), *_memories(linked)]
    return "\n".join(["# The plan's compute units, regions and memory channels.", "[connectivity]", *lines, ""])


def _designs(units: Sequence[ComputeUnit]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for unit in units:
        names.setdefault(unit.design, []).append(unit.name)
    for design, of_design in names.items():
        yield f"nk={design}:{len(of_design)}:{','.join(of_design)}"


def _regions(units: Sequence[ComputeUnit]) -> Iterator[str]:
    for unit in units:
        if unit.region is None:
            yield f"# {unit.name} has no region of its own: no slr"
        elif unit.region.startswith(SUPER_LOGIC_REGION):
            yield f"slr={unit.name}:{unit.region}"


def _memories(units: Sequence[ComputeUnit]) -> Iterator[str]:
    for unit in units:
        yield from (f"sp={unit.name}.{port.name}:{port.memory}" for port in unit.ports)
