"""One kernel on one board, to check a model by hand: its resources, its time, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.fpga.coefficients import Models
from common.fpga.device.board import Board
from common.fpga.device.resources import RESOURCE_NAMES
from common.fpga.kernel_study.kernel_builders import (
    ROWWISE,
    Builder,
    KernelRequest,
    attention,
    conv,
    gemm,
    gemv,
    rowwise,
    shortage,
)
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.speedup.energy import kernel_power_w
from common.fpga.speedup.totals import CardWork
from common.intervals import ThreePoint
from common.messages.errors import UnusableValueError
from common.messages.names import quoted

DECIMALS = 6
BUILDERS: Mapping[str, Builder] = {
    "gemv": gemv,
    "gemm": gemm,
    "conv": conv,
    "attention": attention,
    **dict.fromkeys(ROWWISE, rowwise),
}


def kernel_request(kind: str, given: Mapping[str, Any], board: Board) -> KernelRequest:
    """Return the request for a kernel, checked against the board; absent quantities get their defaults.

    Raises:
        UnusableValueError: the board has fewer channels, or gives no rate for the number format.
    """
    sizes = dict(given)
    channels, precision = sizes.pop("channels", None), sizes.pop("dtype")
    if channels and board.link.kind == "pcie" and channels > board.memory.channel_count:
        limit = board.memory.channel_count
        raise UnusableValueError("channels", f"{channels} is more than {board.name} has", f"give 1 to {limit}")
    if precision not in board.macs_per_dsp:
        known = ", ".join(board.macs_per_dsp)
        raise UnusableValueError("dtype", f"{board.name} gives no rate for {quoted(precision)}", f"give one of {known}")
    return KernelRequest(kind, precision, channels, sizes)


def estimate_kernel(request: KernelRequest, board: Board, models: Models) -> dict[str, Any]:
    """Return the resources, time and power of one kernel call as values for JSON.

    ``cycles`` and ``time_us`` are the likely values of the three-point estimates that follow them.

    Raises:
        UnusableValueError: an extent is missing, or no such kernel can be built.
    """
    built = BUILDERS[request.kind](request, board, models)
    engine, estimate = built.engine, built.estimate
    seconds, shortages = estimate.time_us.likely * 1e-6, shortage(engine, board)
    if built.operand_bytes > board.memory.capacity_bytes:
        shortages["memory_bytes"] = built.operand_bytes, board.memory.capacity_bytes
    work = CardWork({request.precision: estimate.flops}, estimate.moved_bytes)
    scope = "over all regions" if engine.spans_regions else "within one region"
    assumptions = (
        "operands are in the card's memory; the time excludes launch, transfer over the link and conversion",
        f"resources are compared with the share of the usable logic at which timing closes, {scope}",
        "power is that of the whole card: static power, and modelled energy of the work over the time; not measured",
    )
    return {
        "kernel": request.kind,
        "board": board.name,
        "model": engine.kind,
        "engine": engine.name,
        "dtype": request.precision,
        "clock_mhz": engine.clock_mhz,
        "cycles": round(estimate.cycles.likely),
        **_cases("cycles_{}", estimate.cycles),
        "time_us": _rounded(estimate.time_us.likely),
        **_cases("time_{}_us", estimate.time_us),
        "bound": estimate.bound,
        "resources": {name: _rounded(getattr(engine.resources, name)) for name in RESOURCE_NAMES},
        **_design_cases(engine),
        **_cases("power_{}_w", kernel_power_w(work, estimate.time_us, board, models.energy)),
        "flops": estimate.flops,
        "bytes": estimate.moved_bytes,
        "attained_flop_per_s": _rounded(estimate.flops / seconds),
        "attained_bytes_per_s": _rounded(estimate.moved_bytes / seconds),
        "fits": not shortages,
        "short_of": {
            name: {"needed": _rounded(needed), "available": _rounded(available)}
            for name, (needed, available) in shortages.items()
        },
        "assumptions": [*built.assumptions, *assumptions, *board.notes],
    }


def _design_cases(engine: Engine) -> dict[str, float]:
    """Return the clock in three cases, and the resources of an array and of the design around it.

    The resources of other kernels have no interval.
    """
    found = {"clock_{}_mhz": engine.clock_cases_mhz}
    if isinstance(engine, SystolicArray):
        found |= {f"{name}_{{}}_count": cases for name, cases in engine.resource_cases.items()}
        found |= {f"array_{name}_{{}}_count": cases for name, cases in engine.array_cases.items()}
    return {key: value for name, cases in found.items() for key, value in _cases(name, cases).items()}


def _cases(name: str, estimate: ThreePoint) -> dict[str, float]:
    """Return the three cases by name: ``time_{}_us`` becomes ``time_likely_us`` and so on."""
    names = ("pessimistic", "likely", "optimistic")
    return {name.format(case): _rounded(value) for case, value in zip(names, estimate.cases, strict=True)}


def _rounded(value: float) -> float:
    return round(float(value), DECIMALS)
