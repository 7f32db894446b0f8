"""What turns the designs of a hand-off into a card's image: host program, simulation, makefile, clocks, RTL kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from string import Template

from common.fpga.hand_off.designs import ARITHMETIC, converter, copier, template
from common.fpga.hand_off.units import (
    SUPER_LOGIC_REGION,
    ComputeUnit,
    Copier,
    KernelPort,
    converter_design,
    converter_unit,
)
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.rtl.engine.design import EngineDesign
from common.messages.errors import PipelineError

SIMULATED_HEADERS = ("xrt_bo.h", "xrt_device.h", "xrt_kernel.h")
SIMULATED = """\
// The design as a library of the simulation: its ports and the base of its program.
#include "../hls/$design.cpp"

extern "C" void simulated(void *const *ports, int64_t program) {
    $design($ports, program);
}
"""


def build_files(units: Sequence[ComputeUnit], copiers: Sequence[Copier] = ()) -> dict[str, str]:
    """Return the texts by their path; none without a design of our own."""
    designs = {unit.design: unit for unit in units if unit.ports}
    if not designs:
        return {}
    files = {"host/host.cpp": template("host.cpp"), "clock.cfg": clocks(units, copiers)}
    files |= {f"csim/xrt/{name}": template(f"csim/{name}") for name in SIMULATED_HEADERS}
    arrays = [unit for unit in designs.values() if isinstance(unit.engine, SystolicArray)]
    converters = {converter_design(unit.engine.precision, unit.ports): unit for unit in arrays if _is_integer(unit)}
    files |= {
        f"hls/{name}.cpp": converter(unit.engine.precision, name, unit.ports) for name, unit in converters.items()
    }
    of_copiers = {each.design: each for each in copiers}
    files |= {
        f"hls/{name}.cpp": copier(each.stream.engine.precision, name, each.other.ports, each.vectors)
        for name, each in of_copiers.items()
    }
    simulated = {unit.design: unit for unit in arrays} | converters
    files |= {f"csim/{name}.cpp": _simulated(name, unit) for name, unit in simulated.items()}
    files["converters.cfg"] = _linked_converters([unit for unit in units if unit.design in simulated], copiers)
    streams = {name: each.stream for name, each in of_copiers.items()}
    built = designs | converters | streams
    files["Makefile"] = Template(template("Makefile")).substitute(
        designs=" ".join(built),
        simulated=" ".join(simulated),
        clocks=" ".join(f"{name}:{round(unit.engine.clock_mhz * 1e6)}" for name, unit in built.items()),
    )
    return files | engine_kernels(units)


def _is_integer(unit: ComputeUnit) -> bool:
    return isinstance(unit.engine, SystolicArray) and ARITHMETIC[unit.engine.precision].is_integer


def _linked_converters(units: Sequence[ComputeUnit], copiers: Sequence[Copier]) -> str:
    """Return the text of ``converters.cfg``: a converter beside each array on the same channels, and the copiers."""
    lines = ["# Converters beside the arrays, and copiers, which the plan's resources do not have.", "[connectivity]"]
    for unit in filter(_is_integer, units):
        design = converter_design(unit.engine.precision, unit.ports)
        lines += _linked(converter_unit(unit.name), design, unit.region, unit.ports)
    for each in copiers:
        lines += _linked(each.name, each.design, each.stream.region, [*each.other.ports, *each.vectors])
    return "\n".join([*lines, ""])


def _linked(name: str, design: str, region: str | None, ports: Iterable[KernelPort]) -> Iterator[str]:
    yield f"nk={design}:1:{name}"
    if region is not None and region.startswith(SUPER_LOGIC_REGION):
        yield f"slr={name}:{region}"
    yield from (f"sp={name}.{port.name}:{port.memory}" for port in ports)


def engine_kernels(units: Sequence[ComputeUnit]) -> dict[str, str]:
    """Return the whole engine around the first array that it can have, as an RTL kernel with its packaging script."""
    for unit in units:
        if isinstance(unit.engine, SystolicArray):
            try:
                design = EngineDesign.of(unit.engine)
            except PipelineError:  # a number format or a size that it does not have
                continue
            return engine_kernel(design, unit.engine.clock_mhz)
    return {}


def engine_kernel(design: EngineDesign, clock_mhz: float) -> dict[str, str]:
    """Return the Verilog of an engine under ``ap_ctrl_hs``, and the script that packages it, by their paths."""
    name, word = design.name, design.word_bytes
    values = {"name": name, "word_msb": 8 * word - 1, "strobe_msb": word - 1, "strobes": word}
    values |= {"size": word.bit_length() - 1, "hertz": round(clock_mhz * 1e6)}
    kernel = Template(template("kernel.v")).substitute(values)
    script = Template(template("package_kernel.tcl")).substitute(values)
    return {f"rtl/{name}.v": design.verilog() + kernel, "rtl/package_kernel.tcl": script}


def clocks(units: Sequence[ComputeUnit], copiers: Iterable[Copier] = ()) -> str:
    """Return the text of ``clock.cfg``: a clock of each unit (UG1702, "--clock Options": ``freqHz=hertz:unit``)."""
    lines = []
    for unit in units:
        names = [unit.name, *([converter_unit(unit.name)] if _is_integer(unit) else [])] if unit.ports else []
        names += [each.name for each in copiers if each.stream is unit]
        lines += [f"freqHz={round(unit.engine.clock_mhz * 1e6)}:{name}" for name in names]
    return "\n".join(["# The plan's clocks.", "[clock]", *lines, ""])


def _simulated(design: str, unit: ComputeUnit) -> str:
    ports = ", ".join(f"static_cast<word_t *>(ports[{number}])" for number in range(len(unit.ports)))
    return Template(SIMULATED).substitute(design=design, ports=ports)
