"""The specification of a kernel as JSON: the sizes, loops and buffers of its engine, its units and its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import ceil
from typing import Any

from common.fpga.hand_off.array_call import ArrayCall
from common.fpga.hand_off.schedule import Call
from common.fpga.hand_off.trips import ArrayTrips, Phase
from common.fpga.hand_off.units import ComputeUnit, port_names
from common.fpga.kernels.dataflow.attention import AttentionEngine, heads_of
from common.fpga.kernels.dataflow.operators import BURST_WORDS
from common.fpga.kernels.dataflow.rowwise import RowwiseEngine
from common.fpga.kernels.dataflow.streaming import StreamingGemv
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.systolic.array import ELEMENT_BYTES, MappedProduct, SystolicArray
from common.fpga.kernels.systolic.tiling import SUM_BITS, as_matmul, read_bytes
from common.fpga.kernels.team import shared
from common.fpga.offload.problem import CASES
from common.fpga.planning.planned_kernels import PlannedKernel
from common.graphs.number_formats import PRECISION_BITS
from common.intervals import ThreePoint
from common.workload.layers import Convolution, Matmul
from common.workload.tasks import Task


def specification(
    kernel: PlannedKernel, board: str, units: Sequence[ComputeUnit], calls: Sequence[Call]
) -> dict[str, Any]:
    """Return the content of ``K1.json``, for a kernel with its units and its calls in order."""
    engine = units[0].engine
    return {
        "kernel": kernel.name,
        "design": units[0].design,
        "engine": kernel.engine.name,
        "engine_kind": engine.kind,
        "units": [{"unit": unit.name, "region": unit.region} for unit in units],
        "board": board,
        "region": kernel.region,
        "precision": kernel.engine.precision,
        "clock_mhz": engine.clock_mhz,
        **engine_sizes(engine),
        "ports": [
            {
                "unit": unit.name,
                "port": port.name,
                "memory": port.memory,
                "width_bits": port.bits,
                "burst_words": port.burst_words,
            }
            for unit in units
            for port in unit.ports
        ],
        "resources": {name: amount for name, amount in asdict(kernel.engine.resources).items() if amount},
        "calls": [_call(engine, len(units), number, call) for number, call in enumerate(calls, start=1)],
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
            products = engine.products(task)
            layers = [layer for layer in task.layers if isinstance(layer, Matmul | Convolution)]
            return {
                "products": [
                    _product(engine, product) | loops(engine, layer, product, task)
                    for layer, product in zip(layers, products, strict=True)
                ]
            }
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


MULTIPLIES_ZEROS = "not counted: the C++ of a transposed convolution also multiplies the zeros between its pixels"
NO_CPP = "not counted: the C++ has no convolution over three axes"


def loops(engine: SystolicArray, layer: Matmul | Convolution, product: MappedProduct, task: Task) -> dict[str, Any]:
    """Return the cycles of the C++ by its loops beside those of the plan, and why they are apart if they are."""
    planned = {"planned_cycles": product.cycles}
    if isinstance(layer, Convolution) and (layer.is_transposed or layer.axes > 2):
        return planned | {"loop_cause": MULTIPLIES_ZEROS if layer.axes <= 2 else NO_CPP}
    multiplied = as_matmul(layer).batch * read_bytes(layer, ELEMENT_BYTES[engine.precision])
    beside = int(task.read_bytes > multiplied)
    trips = ArrayTrips(engine, ArrayCall.of(layer, product), beside)
    found = planned | {"loop_cycles": trips.cycles, "loop_trips": trips.trips}
    return found | ({"loop_cause": cause} if (cause := loop_cause(trips, product)) else {})


# Why the loops of an array's C++ take more or fewer cycles than the plan counts.
MOST_APART = 0.1  # of the planned cycles
CAUSES = {
    "steps": "all tiles have one size in the C++, so its array takes another number of steps",
    "results": "bank conflicts limit the results per cycle",
    "pieces": "each load fills only part of the banks",
    "ports": "the ports move whole words, and read again what the line buffer does not keep",
}
ENDS = "the first tile loads and the last one leaves while the array has no steps"
FILLING = "the plan counts fill and drain of the array, and the C++ loops have none"
AVERAGED = "the plan counts pieces and words of the map from averages over its windows"


def loop_cause(trips: ArrayTrips, product: MappedProduct) -> str:
    """Return the cause, with the sums over the phases of what one takes; empty where both are within a tenth.

    A phase lasts as long as the longest of its steps, results, pieces and words.
    """
    ratio = trips.cycles / product.cycles
    if abs(ratio - 1) <= MOST_APART:
        return ""
    if ratio > 1:
        cause = CAUSES.get(longest(trips.phases), ENDS)
    else:  # the plan counts what the loops do not have
        is_filling = trips.cycles >= (1 - MOST_APART) * (product.cycles - trips.engine.once_cycles)
        cause = FILLING if is_filling else AVERAGED
    sums = ", ".join(f"{name} {sum(_parts(phase)[name] for phase in trips.phases):,.0f}" for name in CAUSES)
    moved_bytes = sum(phase.moved_bytes for phase in trips.phases)
    moved = f"bytes {moved_bytes:,.0f}, in the plan {product.moved_bytes:,.0f}"
    return f"{cause} (cycles over {len(trips.phases)} phases: {sums}; {moved})"


def _parts(phase: Phase) -> dict[str, float]:
    parts = phase.steps, phase.results, phase.pieces, phase.port_cycles
    return dict(zip(CAUSES, parts, strict=True))


def longest(phases: Sequence[Phase]) -> str:
    """Return what takes the most cycles beyond the steps of its phases; empty for phases without steps."""
    beyond = dict.fromkeys(("", *CAUSES), 0.0)
    for phase in phases:
        parts = _parts(phase)
        longest = max(parts, key=parts.__getitem__)
        beyond[longest if phase.steps else ""] += parts[longest] - phase.steps
    return max(beyond, key=beyond.__getitem__)


def cases(stem: str, unit: str, estimate: ThreePoint) -> Mapping[str, float]:
    return {f"{stem}_{case}{unit}": value for case, value in zip(CASES, estimate.cases, strict=True)}


Sizes = dict[str, Any]

# The loops of each engine, from the outermost to the innermost, without those that hardware unrolls.
ARRAY_LOOPS = (  # the call says whose tiles come first
    "product of the batch",
    "tiles of the outer loop",
    "tiles of the inner loop",
    "tiles along k",
    "folds along the rows of the tile",
    "folds along the columns of the tile",
    "steps of s products",
)
STREAMING_LOOPS = ("product of the batch", "turns of the vectors", "rows of a port", "words of a row")
ROWWISE_LOOPS = (
    "rows of a unit, or positions of a pool",
    "passes over the row (one that reduces, one that writes), or steps of channels of a pool",
    "steps of elements of the row, or values of the pool's window",
)
ATTENTION_LOOPS = (
    "heads of a unit",
    "tiles of query rows",
    "blocks of keys",
    "keys of the block, in the stages scores, exponentials and values",
    "steps of elements of a key or of a value",
)


def engine_sizes(engine: Engine) -> Sizes:
    """Return sizes, tile, loops from the outermost, initiation interval and buffers; for an overlay its clock only."""
    match engine:
        case SystolicArray():
            return _array(engine)
        case StreamingGemv():
            return _streaming(engine)
        case RowwiseEngine():
            return _rowwise(engine)
        case AttentionEngine():
            return _attention(engine)
        case _:
            return {"sizes": {"clock_mhz": engine.clock_mhz}}


def _array(engine: SystolicArray) -> Sizes:
    held = [each for each in engine.buffers if each.depth]
    return {
        "sizes": {"rows": engine.rows, "columns": engine.cols, "products_per_element": engine.simd},
        "sum_bits": SUM_BITS[engine.precision],
        "sums_per_column_and_cycle": engine.sums_per_cycle,
        "schedule": engine.schedule,
        "tile": {"rows": engine.tile.rows, "columns": engine.tile.cols, "depth": engine.tile.depth},
        "loop_order": list(ARRAY_LOOPS),
        "initiation_interval_cycles": 1,
        "buffers": [_buffer(each.name, each.memory, each.count, each.depth, each.bits) for each in held],
    }


def _streaming(engine: StreamingGemv) -> Sizes:
    return {
        "sizes": {
            "matrix_ports": engine.ports.count,
            "lanes_per_port": engine.lanes_per_port,
            "vectors": engine.vectors,
        },
        "sum_bits": SUM_BITS[engine.precision],
        "tile": {"rows": engine.ports.count, "columns": engine.lanes_per_port, "vectors": engine.vectors},
        "loop_order": list(STREAMING_LOOPS),
        "initiation_interval_cycles": 1,
        "row_drain_cycles": engine.timing.row_drain_cycles,
        "buffers": [_bursts(engine)],
    }


def _rowwise(engine: RowwiseEngine) -> Sizes:
    bits = PRECISION_BITS[engine.precision] if engine.is_integer else 32
    rows = _buffer(
        "rows", "block RAM", engine.ports.count, ceil(engine.row_limit / engine.lanes), 2 * engine.lanes * bits
    )
    return {
        "sizes": {"units": engine.ports.count, "lanes": engine.lanes, "row_limit": engine.row_limit},
        "lane_operators": dict(engine.lane),
        "tile": {"rows": engine.ports.count, "columns": engine.lanes},
        "loop_order": list(ROWWISE_LOOPS),
        "initiation_interval_cycles": engine.ii_cycles,
        "row_drain_cycles": engine.row_drain_cycles,
        "buffers": [rows, _bursts(engine)],
    }


def _attention(engine: AttentionEngine) -> Sizes:
    bits, rows = PRECISION_BITS[engine.precision], engine.query_rows * engine.heads_parallel
    kv_bits, memory = 2 * engine.row_lanes * bits, "UltraRAM" if engine.uses_uram else "block RAM"
    return {
        "sizes": {
            "query_rows": engine.query_rows,
            "row_lanes": engine.row_lanes,
            "exponential_lanes": engine.exp_lanes,
            "heads_parallel": engine.heads_parallel,
            "head_dim_limit": engine.head_dim_limit,
        },
        "sum_bits": 32,
        "tile": {"rows": engine.query_rows, "keys": engine.key_block},
        "loop_order": list(ATTENTION_LOOPS),
        "initiation_interval_cycles": engine.ii_cycles,
        "buffers": [
            _buffer("keys and values", memory, engine.heads_parallel, ceil(engine.buffer_bytes * 8 / kv_bits), kv_bits),
            _buffer("queries", "LUT RAM", rows, 2 * engine.head_dim_limit, bits),
            _buffer("results", "LUT RAM", rows, engine.head_dim_limit, 32),
            _buffer("scores", "LUT RAM", rows, 2 * engine.key_block, 32),
            _buffer("exponentials", "LUT RAM", rows, 2 * engine.key_block, bits),
            _bursts(engine),
        ],
    }


def _bursts(engine: StreamingGemv | RowwiseEngine | AttentionEngine) -> Sizes:
    return _buffer("bursts", "block RAM", len(port_names(engine)), BURST_WORDS, engine.ports.port_bits)


def _buffer(name: str, memory: str, banks: int, depth: int, bits: int) -> Sizes:
    return {"buffer": name, "memory": memory, "bank_count": banks, "depth_words": depth, "width_bits": bits}
