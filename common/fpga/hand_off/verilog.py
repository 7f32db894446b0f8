"""The Verilog of the arrays of a plan, in their planned sizes."""

from __future__ import annotations

from collections.abc import Iterable

from common.fpga.hand_off.units import ComputeUnit
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.systolic import SystolicArray
from common.fpga.rtl.generate import FORMATS, Design


def array_design(engine: Engine) -> Design | None:
    """Return the design of an array; None for any other engine, and for formats that the generator does not have."""
    if not isinstance(engine, SystolicArray) or engine.precision not in FORMATS:
        return None
    overlaps = engine.schedule == "overlapped"
    sums = engine.sums_per_cycle if overlaps else 1
    return Design(engine.rows, engine.cols, engine.precision, overlaps, engine.simd, sums)


def verilog_files(units: Iterable[ComputeUnit]) -> dict[str, str]:
    designs = {unit.design: array_design(unit.engine) for unit in units}
    return {f"rtl/{name}.v": design.verilog() for name, design in designs.items() if design is not None}
