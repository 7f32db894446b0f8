"""The specification of one kernel as JSON: its sizes, ports, buffers and loops, and its calls in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from common.fpga.hand_off.calls import Call
from common.fpga.hand_off.connectivity import design_name
from common.fpga.hand_off.ports import KernelPort
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.rowwise import RowwiseEngine
from common.fpga.kernels.systolic import MappedProduct, SystolicArray
from common.fpga.kernels.systolic_buffers import SUM_BITS, Buffer
from common.fpga.kernels.team import Team
from common.fpga.offload.problem import CASES
from common.fpga.planning.planned_kernels import PlannedKernel
from common.intervals import ThreePoint

# The loops of an array, from the outermost to the innermost; the call says whose tiles come first.
ARRAY_LOOPS = (
    "product of the batch",
    "tiles of the outer loop",
    "tiles of the inner loop",
    "tiles along k",
    "folds along the rows of the tile",
    "folds along the columns of the tile",
    "steps of s products",
)


def specification(
    kernel: PlannedKernel, board: str, precision: str, ports: Sequence[KernelPort], calls: Sequence[Call]
) -> dict[str, Any]:
    """Return the content of ``K1.json``.

    Args:
        kernel: the kernel.
        board: name of the board.
        precision: number format.
        ports: its ports.
        calls: its calls in order.
    """
    engine = kernel.engine
    return {
        "kernel": kernel.name,
        "design": design_name(kernel),
        "engine": engine.name,
        "engine_kind": engine.kind,
        "board": board,
        "region": kernel.region,
        "precision": precision,
        "clock_mhz": engine.clock_mhz,
        "initiation_interval_cycles": getattr(engine, "ii_cycles", 1),
        **_sizes(engine),
        "ports": [_port(port) for port in ports],
        "resources": {name: amount for name, amount in asdict(engine.resources).items() if amount},
        "calls": [_call(engine, number, call) for number, call in enumerate(calls, start=1)],
    }


def _port(port: KernelPort) -> dict[str, Any]:
    return {"port": port.name, "memory": port.memory, "width_bits": port.bits, "burst_words": port.burst_words}


def _sizes(engine: Engine) -> dict[str, Any]:
    """Return the sizes, buffers and loops of an array; of another engine, every number that makes it up."""
    if isinstance(engine, Team):
        return {"sizes": {"member_count": engine.count, **_numbers(engine.member)}}
    if not isinstance(engine, SystolicArray):
        return {"sizes": _numbers(engine)}
    size = engine.rows, engine.cols, engine.simd
    return {
        "sizes": dict(zip(("rows", "columns", "products_per_element"), size, strict=True)),
        "sum_bits": SUM_BITS[engine.precision],
        "sums_per_column_and_cycle": engine.sums_per_cycle,
        "schedule": engine.schedule,
        "tile": {"rows": engine.tile.rows, "columns": engine.tile.cols, "depth": engine.tile.depth},
        "loop_order": list(ARRAY_LOOPS),
        "buffers": [_buffer(held) for held in engine.buffers if held.depth],
    }


def _numbers(engine: Engine) -> dict[str, Any]:
    names = (field.name for field in fields(engine))  # type: ignore[arg-type]  # every engine is a dataclass
    values = {name: getattr(engine, name) for name in names}
    lane = {"lane_operators": dict(engine.lane)} if isinstance(engine, RowwiseEngine) else {}
    return {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)} | lane


def _buffer(held: Buffer) -> dict[str, Any]:
    return {
        "buffer": held.name,
        "memory": held.memory,
        "bank_count": held.count,
        "depth_words": held.depth,
        "width_bits": held.bits,
    }


def _call(engine: Engine, number: int, call: Call) -> dict[str, Any]:
    return {
        "call": number,
        "candidate": call.candidate,
        "is_launched": call.launch_us > 0,
        "reads": list(call.reads),
        "writes": list(call.writes),
        "layers": [{"layer": type(layer).__name__, **asdict(layer)} for layer in call.task.layers],
        **_products(engine, call),
        "weight_bytes": call.weight_bytes,
        "on_chip_bytes": call.task.on_chip_bytes,
        "bound": call.estimate.bound,
        **cases("kernel", "_cycles", call.estimate.cycles),
        **cases("kernel", "_us", call.time_us),
    }


def _products(engine: Engine, call: Call) -> dict[str, Any]:
    """Return the products of a call in the orientation in which an array computes them, and its own cycles."""
    if not isinstance(engine, SystolicArray):
        return {}
    return {"products": [_product(engine, product) for product in engine.products(call.task)]}


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
    """Return one entry for each case."""
    return {f"{stem}_{case}{unit}": value for case, value in zip(CASES, estimate.cases, strict=True)}
