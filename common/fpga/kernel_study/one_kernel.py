"""One kernel on one board, for checking a model by hand: what it takes, how long it runs, whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.errors import CommandLineError
from common.fpga.coefficients import Models
from common.fpga.device.board import Board
from common.fpga.device.resources import RESOURCE_NAMES
from common.fpga.kernel_study.array_builders import conv, gemm
from common.fpga.kernel_study.kernel_builders import ROWWISE, Asked, Builder, Built, attention, gemv, rowwise, shortage
from common.fpga.kernels.estimate import Engine, KernelEstimate
from common.fpga.speedup.card_energy import CardEnergy
from common.fpga.speedup.energy import kernel_power_w
from common.fpga.speedup.totals import Card, CardWork
from common.intervals import ThreePoint

DECIMALS = 6
BUILDERS: Mapping[str, Builder] = {
    "gemv": gemv,
    "gemm": gemm,
    "conv": conv,
    "attention": attention,
    **dict.fromkeys(ROWWISE, rowwise),
}


def ask(kind: str, given: Mapping[str, Any], board: Board) -> Asked:
    """What is given, checked against the board.

    Args:
        kind: of the kernel.
        given: values by flag; what is absent has its default.
        board: which channels and number formats there are.

    Raises:
        CommandLineError: a number of channels or a number format that the board does not have.
    """
    sizes = dict(given)
    channels, precision = sizes.pop("channels", None), sizes.pop("dtype")
    if channels and board.link.kind == "pcie" and channels > board.memory.channel_count:
        raise CommandLineError("--channels", f"{channels} asked for", f"{board.name} has {board.memory.channel_count}")
    if precision not in board.macs_per_dsp:
        known = ", ".join(board.macs_per_dsp)
        raise CommandLineError("--dtype", f"{board.name} gives no rate for {precision!r}", f"it has {known}")
    return Asked(kind, precision, channels, sizes)


def estimate_kernel(asked: Asked, board: Board, models: Models) -> dict[str, Any]:
    """Everything about one call of one kernel, as a JSON object holds it.

    Raises:
        CommandLineError: an extent is missing, or no such kernel can be built.
    """
    built = BUILDERS[asked.kind](asked, board, models)
    engine, found = built.engine, built.estimate
    seconds, lacks = found.time_us.likely * 1e-6, _lacks(built, board)
    return {
        "kernel": asked.kind,
        "board": board.name,
        "model": engine.kind,
        "engine": engine.name,
        "dtype": asked.precision,
        "clock_mhz": engine.clock_mhz,
        "cycles": round(found.cycles.likely),
        "time_us": _rounded(found.time_us.likely),
        **_ends(found.time_us),
        "time_interval_us": _ends(found.time_us),
        "cycles_interval": _ends(found.cycles),
        "bound": found.bound,
        "resources": {name: _rounded(getattr(engine.resources, name)) for name in RESOURCE_NAMES},
        "power_w": _ends(_power_w(asked, found, board, models.energy)),
        "flops": found.flops,
        "bytes": found.moved_bytes,
        "attained_flop_per_s": _rounded(found.flops / seconds),
        "attained_bytes_per_s": _rounded(found.moved_bytes / seconds),
        "fits": not lacks,
        "short_of": {
            name: {"needed": _rounded(needed), "available": _rounded(there)} for name, (needed, there) in lacks.items()
        },
        "assumptions": [*built.assumptions, *_common_assumptions(engine, board)],
    }


def _lacks(built: Built, board: Board) -> dict[str, tuple[float, float]]:
    capacity = board.memory.capacity_bytes
    too_large = {"memory_bytes": (built.operand_bytes, capacity)} if built.operand_bytes > capacity else {}
    return shortage(built.engine, board) | too_large


def _power_w(asked: Asked, found: KernelEstimate, board: Board, energy: CardEnergy) -> ThreePoint:
    card = Card(board.static_w, board.limit_w, board.memory.kind, board.link.kind, board.link.bytes_per_s)
    return kernel_power_w(CardWork(asked.precision, found.flops, found.moved_bytes), found.time_us, card, energy)


def _ends(outlook: ThreePoint) -> dict[str, float]:
    """Low and high by size, whichever is the good one."""
    low, high = min(outlook.cases), max(outlook.cases)
    return {"low": _rounded(low), "likely": _rounded(outlook.likely), "high": _rounded(high)}


def _rounded(value: float) -> float:
    return round(float(value), DECIMALS)


def _common_assumptions(engine: Engine, board: Board) -> tuple[str, ...]:
    where = "over all regions" if engine.spans_regions else "within one region"
    return (
        "operands lie in the card's memory; launch, transfer over the link and conversion are not in the time",
        f"resources are held against what the shell leaves and timing closes at, {where}",
        "power is the whole card's: static power and modelled energy of the work over the time; nobody measured it",
        *board.notes,
    )
