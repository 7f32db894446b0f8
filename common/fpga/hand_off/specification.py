"""The specification of one kernel as JSON: its sizes, ports, buffers and loops, and its calls in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from common.fpga.hand_off.calls import Call
from common.fpga.hand_off.engine_sizes import engine_sizes
from common.fpga.hand_off.ports import KernelPort
from common.fpga.hand_off.units import ComputeUnit
from common.fpga.kernels.attention import AttentionEngine, heads_of
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.streaming import StreamingGemv
from common.fpga.kernels.systolic import MappedProduct, SystolicArray
from common.fpga.kernels.team import shared
from common.fpga.offload.problem import CASES
from common.fpga.planning.planned_kernels import PlannedKernel
from common.intervals import ThreePoint
from common.workload.layers import Matmul
from common.workload.tasks import Task


def specification(
    kernel: PlannedKernel, board: str, precision: str, units: Sequence[ComputeUnit], calls: Sequence[Call]
) -> dict[str, Any]:
    """Return the content of ``K1.json``.

    Args:
        kernel: the kernel.
        board: name of the board.
        precision: number format.
        units: its compute units; a team has several.
        calls: its calls in order.
    """
    engine = units[0].engine
    return {
        "kernel": kernel.name,
        "design": units[0].design,
        "engine": kernel.engine.name,
        "engine_kind": engine.kind,
        "units": [{"unit": unit.name, "region": unit.region} for unit in units],
        "board": board,
        "region": kernel.region,
        "precision": precision,
        "clock_mhz": engine.clock_mhz,
        **engine_sizes(engine),
        "ports": [_port(unit, port) for unit in units for port in unit.ports],
        "resources": {name: amount for name, amount in asdict(kernel.engine.resources).items() if amount},
        "calls": [_call(engine, len(units), number, call) for number, call in enumerate(calls, start=1)],
    }


def _port(unit: ComputeUnit, port: KernelPort) -> dict[str, Any]:
    return {
        "unit": unit.name,
        "port": port.name,
        "memory": port.memory,
        "width_bits": port.bits,
        "burst_words": port.burst_words,
    }


def _call(engine: Engine, unit_count: int, number: int, call: Call) -> dict[str, Any]:
    share = shared(call.task, unit_count) if unit_count > 1 else call.task
    return {
        "call": number,
        "candidate": call.candidate,
        "is_launched": call.launch_us > 0,
        "reads": list(call.reads),
        "writes": list(call.writes),
        "layers": [{"layer": type(layer).__name__, **asdict(layer)} for layer in call.task.layers],
        **(_seen(engine, share) if share is not None else {}),
        "weight_bytes": call.weight_bytes,
        "on_chip_bytes": call.task.on_chip_bytes,
        "bound": call.estimate.bound,
        **cases("kernel", "_cycles", call.estimate.cycles),
        **cases("kernel", "_us", call.time_us),
    }


def _seen(engine: Engine, task: Task) -> dict[str, Any]:
    """Return a call as its engine sees it; of a team, the largest share of a unit."""
    match engine:
        case SystolicArray():
            return {"products": [_product(engine, product) for product in engine.products(task)]}
        case StreamingGemv():
            product = next(layer for layer in task.layers if isinstance(layer, Matmul))
            return {
                "products": [
                    {"rows": product.n, "columns": product.k, "vectors": product.m, "batch_count": product.batch}
                ]
            }
        case AttentionEngine() if (heads := heads_of(task)) is not None:
            return {"heads": asdict(heads), "keys_and_values": engine.residence(heads).where}
        case _:
            return {}


def _product(engine: SystolicArray, product: MappedProduct) -> dict[str, Any]:
    matmul = product.matmul
    return {
        "rows": matmul.m,
        "depth": matmul.k,
        "columns": matmul.n,
        "batch_count": matmul.batch,
        "is_transposed": product.is_transposed,
        "outer_loop": product.outer_loop,
        "array_cycles": engine.array_cycles(matmul),
    }


def cases(stem: str, unit: str, estimate: ThreePoint) -> Mapping[str, float]:
    return {f"{stem}_{case}{unit}": value for case, value in zip(CASES, estimate.cases, strict=True)}
