"""What turns the designs of a hand-off into a card's image: host program, simulation, makefile, clocks, RTL kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from common.fpga.hand_off.units import ComputeUnit
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.rtl.engine.design import EngineDesign
from common.messages.errors import PipelineError

FOLDER = Path(__file__).resolve().parent / "templates"
SIMULATED_HEADERS = ("xrt_bo.h", "xrt_device.h", "xrt_kernel.h")
SIMULATED = """\
// The design as a library of the simulation: its ports and the base of its program.
#include "../hls/$design.cpp"

extern "C" void simulated(void *const *ports, int64_t program) {
    $design($ports, program);
}
"""


def build_files(units: Sequence[ComputeUnit]) -> dict[str, str]:
    """Return the texts by their path; none without a design of our own."""
    designs = {unit.design: unit for unit in units if unit.ports}
    if not designs:
        return {}
    files = {"host/host.cpp": _text("host.cpp"), "clock.cfg": clocks(units), "Makefile": makefile(designs)}
    files |= {f"csim/xrt/{name}": _text(f"csim/{name}") for name in SIMULATED_HEADERS}
    files |= engine_kernels(units)
    return files | {f"csim/{name}.cpp": _simulated(unit) for name, unit in _arrays(designs).items()}


def engine_kernels(units: Sequence[ComputeUnit]) -> dict[str, str]:
    """Return the whole engine around the first array that it can have, as an RTL kernel with its packaging script."""
    for unit in units:
        if isinstance(unit.engine, SystolicArray) and (design := _engine(unit.engine)) is not None:
            name, word = design.name, design.word_bytes
            values = {"name": name, "word_msb": 8 * word - 1, "strobe_msb": word - 1, "strobes": word}
            values["size"] = word.bit_length() - 1
            kernel = Template(_text("kernel.v")).substitute(values)
            script = Template(_text("package_kernel.tcl")).substitute(values)
            return {f"rtl/{name}.v": design.verilog() + kernel, "rtl/package_kernel.tcl": script}
    return {}


def _engine(array: SystolicArray) -> EngineDesign | None:
    try:
        return EngineDesign.of(array)
    except PipelineError:  # a number format or a size that it does not have
        return None


def clocks(units: Sequence[ComputeUnit]) -> str:
    """Return the text of ``clock.cfg``: a clock of each unit (UG1702, "--clock Options": ``freqHz=hertz:unit``)."""
    lines = [f"freqHz={round(unit.engine.clock_mhz * 1e6)}:{unit.name}" for unit in units if unit.ports]
    return "\n".join(["# The plan's clocks.", "[clock]", *lines, ""])


def makefile(designs: Mapping[str, ComputeUnit]) -> str:
    return Template(_text("Makefile")).substitute(
        designs=" ".join(designs),
        arrays=" ".join(_arrays(designs)),
        clocks=" ".join(f"{name}:{round(unit.engine.clock_mhz * 1e6)}" for name, unit in designs.items()),
    )


def _arrays(designs: Mapping[str, ComputeUnit]) -> dict[str, ComputeUnit]:
    return {name: unit for name, unit in designs.items() if isinstance(unit.engine, SystolicArray)}


def _simulated(unit: ComputeUnit) -> str:
    ports = ", ".join(f"static_cast<word_t *>(ports[{number}])" for number in range(len(unit.ports)))
    return Template(SIMULATED).substitute(design=unit.design, ports=ports)


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
