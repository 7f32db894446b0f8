"""Power of the host from the name of its processor: packages and memory, at work and idle.

A machine counts as a whole, with all its packages. A virtual machine counts with its share: its hardware threads over
those of a package, and the memory that it sees. It sees neither the other threads nor what runs on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.messages.errors import UnusableValueError
from common.messages.names import shown
from common.power.bounded_value import MODELLED, BoundedValue, independent_product, independent_sum
from common.power.processor_law import ProcessorLaw
from common.power.processors import THREADS_PER_CORE, HostFacts, Processor, known_processor, named_threads, plain_name

GIB = 2**30
DESKTOP_XEONS = ("xeon e3", "xeon e-", "xeon w")  # with the dies and the idle states of desktops
SERVERS = ("xeon", "epyc")


@dataclass(frozen=True, slots=True)
class HostPower:
    """Modelled power of the host while a run lasts."""

    average: BoundedValue  # in W, without the traffic of the memory
    static: BoundedValue  # in W, of the idle packages and their memory
    name: str  # of the processor, with what the power follows from
    boundary: str  # which part of the machine counts
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Nominal:
    """TDP of what counts, and how it is known."""

    tdp_w: BoundedValue
    kind: str
    name: str
    boundary: str
    notes: tuple[str, ...] = ()


def host_power(
    law: ProcessorLaw, table: Mapping[str, Processor], facts: HostFacts, threads: int, cpu: str | None = None
) -> HostPower | None:
    """Return the power of a host at work and idle; None where its processor is unknown.

    The table has processors by plain name. Each of the ``threads`` of the runs keeps a core busy. The name ``cpu`` that
    the user gives comes before that of the facts; UnusableValueError: the table lacks it, or a virtual machine is
    a share of that processor, whose cores are unknown.
    """
    if (nominal := _nominal(law, table, facts, cpu)) is None:
        return None
    named = named_threads(cpu or facts.cpu_model) or 0
    cores = facts.core_count or facts.thread_count or named // THREADS_PER_CORE
    work = law.share_of_tdp(nominal.kind, min(1.0, threads / cores) if cores else 1.0)
    interval = BoundedValue.of(law.full_load_share).times(work / law.full_load_share.likely)
    packages, idle = independent_product(nominal.tdp_w, interval), BoundedValue.of(law.idle_share[nominal.kind])
    memory = BoundedValue.of(law.memory_idle_w_per_gib).times((facts.memory_bytes or 0) / GIB)
    return HostPower(
        independent_sum(packages, memory),
        independent_sum(independent_product(nominal.tdp_w, idle), memory),
        nominal.name,
        nominal.boundary + ("" if facts.memory_bytes else "; the size of the memory is unknown, so it does not count"),
        nominal.notes + (() if cores else ("how many cores the host has is unknown; all count as busy",)),
    )


def idle_fraction(law: ProcessorLaw) -> BoundedValue:
    """Return the idle share of the power of an unknown processor at full load: of all kinds, the extremes."""
    shares, full = law.idle_share.values(), law.full_load_share.likely
    likely = law.idle_share["intel_server"].likely
    ends = min(share.low for share in shares), max(share.high for share in shares)
    return BoundedValue(likely / full, ends[0] / full, ends[1] / full, MODELLED)


def _nominal(law: ProcessorLaw, table: Mapping[str, Processor], facts: HostFacts, cpu: str | None) -> _Nominal | None:
    text = cpu or facts.cpu_model
    processor = known_processor(table, cpu) if cpu else table.get(plain_name(text))
    if facts.is_virtual and (processor is None or _is_server(processor.name)):
        if cpu and processor is not None and facts.thread_count and not (processor.threads or named_threads(text)):
            problem = f"{shown(cpu)}: how many cores it has is unknown, and so is the share of this virtual machine"
            raise UnusableValueError("cpu", problem, 'add them to the name, as "AMD EPYC 7763 64-Core"')
        return _of_virtual_machine(law, processor, facts, text)
    if processor is not None:
        return _of_machine(processor, facts)
    family = law.family(facts.cpu_signature) if _is_server(text) else None
    if family is None or facts.thread_count is None:
        return None
    per_thread = BoundedValue.of(family.tdp_w_per_thread)
    notes = (f"{shown(text)} is in no table; its family {family.name} says {_span(per_thread)} W of TDP per thread",)
    return _Nominal(
        per_thread.times(facts.thread_count), f"{family.maker}_server", family.name, "all packages and memory", notes
    )


def _of_machine(processor: Processor, facts: HostFacts) -> _Nominal:
    """Return all packages of a machine; a virtual machine on a desktop or a laptop is taken for the whole machine."""
    packages = facts.package_count or 1
    boundary = "the package and memory" if packages == 1 else f"all {packages} packages and memory"
    guest = "a virtual machine does not see how much of the processor is its own; it is taken for the whole machine"
    return _Nominal(
        BoundedValue.exactly(packages * processor.tdp_w, MODELLED),
        kind_of(processor.name),
        f"{processor.name}, TDP {processor.tdp_w:g} W",
        boundary,
        (guest,) if facts.is_virtual else (),
    )


def _of_virtual_machine(law: ProcessorLaw, processor: Processor | None, facts: HostFacts, text: str) -> _Nominal | None:
    """Return the share of a package that belongs to a virtual machine."""
    if (own := facts.thread_count) is None:
        return None
    of_package = processor and (processor.threads or named_threads(text))
    family = law.family(facts.cpu_signature) if _is_server(text) else None
    if processor is not None and of_package:
        own = min(own, of_package * (facts.package_count or 1))
        tdp_w = BoundedValue.exactly(processor.tdp_w * own / of_package, MODELLED)
        name, kind = f"{processor.name}, TDP {processor.tdp_w:g} W", kind_of(processor.name)
        boundary, hidden = f"{own} of the {of_package} hardware threads of a package", "its other hardware threads"
    elif family is not None:
        per_thread = BoundedValue.of(family.tdp_w_per_thread)
        tdp_w, name, kind = per_thread.times(own), family.name, f"{family.maker}_server"
        boundary = f"{own} hardware threads of a package of unknown size"
        hidden = (
            f"the name of its processor ({family.name}, {_span(per_thread)} W of TDP per thread) and its other threads"
        )
    else:
        return None
    note = f"a virtual machine does not see {hidden}, what runs on them, and the rest of the memory"
    return _Nominal(tdp_w, kind, name, f"{boundary}, and the memory that the virtual machine sees", (note,))


def kind_of(name: str) -> str:
    """Return maker and kind of a processor: ``intel_server``."""
    maker = "amd" if "amd" in name else "intel"
    return f"{maker}_{'server' if _is_server(name) else 'client'}"


def _is_server(text: str) -> bool:
    name = plain_name(text)
    return any(word in name for word in SERVERS) and not any(word in name for word in DESKTOP_XEONS)


def _span(value: BoundedValue) -> str:
    return f"{value.low:g} to {value.high:g}"
