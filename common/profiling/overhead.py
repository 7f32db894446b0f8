"""Cost of profiling inside a node's duration and around it, measured with chains of operators of known time.

The runtime gathers shapes, sizes and pool statistics between the two clock reads of an event. So every node looks
slower than it is, by an amount that depends on its use of the thread pool and on its number of operands. Two unprofiled
chains, of k and of 2k copies of an operator, give the operator's true time as the slope of their latencies. A profiled
chain of 2k copies gives the traced time. The difference is the cost inside, for each class of nodes.

A disturbance only ever lengthens a round: by milliseconds, if another process holds a processor that the thread pool
needs. So a few consecutive rounds form a block, and the fastest round of a block counts. The result is the median over
blocks. Within a round, the middle half of the nodes counts: a node's figure in a model is a median, so the few nodes
that wait for a thread or for memory must not make the cost higher.

The chains of the thread pool compute much and hold little. An operator that streams through more than a core's own
cache pays for the profiler's memory traffic as well, and would charge it to all other nodes of its class.

Between two runs the threads of the pool sleep. The first node of a run that uses the pool wakes them, and pays for it:
in a chain of equal nodes, the first one takes that much longer than the others.

After the second clock read the runtime stores the event. That time is between nodes; within a body it is part of the
control-flow node's own time. The time between the events of the profiled chain is this cost around.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

from common.latency.dependence import Samples
from common.profiling.trace.reader import read_trace
from common.runtime.inputs.values import Feeds
from common.runtime.sessions.session import Session, SessionSettings, create_session, run

LENGTH = 16  # k
WARMUP_ROUNDS = 3
BLOCKS = 12
BLOCK_ROUNDS = 5
MOST_OPERANDS = 256  # of a chain; each event records the shapes of all operands, in every round
MOST_POOL_OPERANDS = 3  # of the chains of the thread pool
# Below this multiple of the correction, a node's time is more that of the profiler than that of the node.
DOMINATED_BELOW = 4

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OverheadClass:
    """Properties of a node that the cost of profiling depends on."""

    uses_thread_pool: bool
    input_count: int


class OverheadCost(NamedTuple):
    """Cost of profiling: median over blocks and chains, and the quartiles."""

    median_us: float
    low_us: float
    high_us: float


NO_COST = OverheadCost(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Overhead:
    """Cost per event."""

    inside: OverheadCost  # within its duration
    around: OverheadCost  # from its end to the start of the next event
    wake_up: OverheadCost = NO_COST  # extra time of the first event of a run, which wakes the threads of the pool


@dataclass(frozen=True, slots=True)
class Chain:
    """Operator of a chain and the shapes of its operands; the output has the shape of the first operand."""

    op_type: str
    shapes: tuple[Shape, ...]


def chains(kind: OverheadClass) -> tuple[Chain, ...]:
    """Return two operators of the class of up to 50 µs; those of the pool class are large enough to be shared."""
    operands = max(kind.input_count, 1)
    if not kind.uses_thread_pool:
        op_type = "Relu" if operands == 1 else "Sum"
        return tuple(Chain(op_type, ((1, 4, 4, width),) * operands) for width in (4, max(4096 // operands, 1)))
    if operands == 1:
        return Chain("Softmax", ((64, 512),)), Chain("Erf", ((1, 65536),))
    if operands == 2:
        return Chain("MatMul", ((96, 96), (96, 96))), Chain("MatMul", ((128, 128), (128, 128)))
    return Chain("Gemm", ((96, 96), (96, 96), (96,))), Chain("LayerNormalization", ((128, 768), (768,), (768,)))


def estimate(kinds: Iterable[OverheadClass], threads: int, folder: Path) -> dict[OverheadClass, Overhead]:
    """Measure the cost of profiling for each class.

    Chains of the thread pool have up to three operands. For more operands, the extra cost is that without the pool.
    """

    @cache
    def measured(uses_thread_pool: bool, input_count: int) -> Samples:
        return measure(OverheadClass(uses_thread_pool, input_count), threads, folder)

    result = {}
    for kind in sorted(set(kinds), key=lambda kind: (kind.uses_thread_pool, kind.input_count)):
        operands = min(kind.input_count, MOST_POOL_OPERANDS) if kind.uses_thread_pool else kind.input_count
        costs = measured(kind.uses_thread_pool, operands)
        if operands < kind.input_count:
            costs = costs + _of_operands(measured(False, operands), measured(False, kind.input_count))
        result[kind] = Overhead(*map(_cost, costs))
    return result


def _of_operands(few: Samples, many: Samples) -> Samples:
    """Return what more operands cost inside an event and around it, by medians of blocks; they do not wake the pool."""
    more = np.clip(np.median(many, axis=1) - np.median(few, axis=1), 0, None)
    more[2:] = 0.0
    return np.asarray(more[:, np.newaxis])


def _cost(samples: Samples) -> OverheadCost:
    """Return median and quartiles, floored at zero."""
    low, median, high = np.clip(np.quantile(samples, (0.25, 0.5, 0.75)), 0, None)
    return OverheadCost(float(median), float(low), float(high))


def measure(kind: OverheadClass, threads: int, folder: Path) -> Samples:
    """Measure the costs in each block of the class's chains, in µs: inside an event, around it, of waking the pool.

    The runtime records operands one by one. So beyond ``MOST_OPERANDS`` the cost grows as it does up to there.
    """
    if kind.input_count > MOST_OPERANDS:
        counts = MOST_OPERANDS // 2, MOST_OPERANDS
        half, most = (measure(replace(kind, input_count=count), threads, folder) for count in counts)
        more = _of_operands(half, most) / (counts[1] - counts[0])
        return most + more * (kind.input_count - MOST_OPERANDS)
    return np.concatenate([_measured(chain, kind, threads, folder) for chain in chains(kind)], axis=1)


def _measured(chain: Chain, kind: OverheadClass, threads: int, folder: Path) -> Samples:
    """Measure one chain; the first node is also slow because its data are cold, as much as at one thread."""
    measured = measure_chain(chain, threads, folder)
    if kind.uses_thread_pool and threads > 1:
        measured[2] -= np.median(measure_chain(chain, 1, folder)[2])
    return measured


def measure_chain(chain: Chain, threads: int, folder: Path) -> Samples:
    """Measure in each block of one chain: traced minus true time per node, the time between events, and the wake-up."""
    settings = SessionSettings(threads, optimization="disable")
    short, feeds = build(chain, LENGTH)
    long, _ = build(chain, 2 * LENGTH)
    prefix = folder / "calibration"
    rounds = WARMUP_ROUNDS + BLOCKS * BLOCK_ROUNDS
    sessions = [create_session(short, settings), create_session(long, settings)]
    profiled = create_session(long, settings, trace_prefix=prefix)
    walls = np.array([[lap_us(session, feeds) for session in (*sessions, profiled)] for _ in range(rounds)])
    trace_file = Path(profiled.end_profiling())
    trace = read_trace(trace_file)
    trace_file.unlink()
    traced = np.array([node.run_us for node in trace.nodes.values()])
    return np.vstack([costs(walls, traced, np.array(trace.run_span_us)), wake_ups(traced)])


def costs(walls: Samples, traced: Samples, spans: Samples) -> Samples:
    """Return the cost per event in each block, in µs: inside (row 0) and around (row 1).

    ``walls`` are latencies of a round (rows) of the short and the long chain, unprofiled, in µs; more columns are
    ignored. ``traced`` are durations of the nodes (rows) of the long chain in each round (columns), and ``spans`` those
    from the start of its first event to the end of its last, in µs.
    """
    short, long = fastest(walls[:, 0]), fastest(walls[:, 1])
    # One block's slope is noisier than the traced times; its median over blocks is the operator's time.
    true = np.median(long - short) / LENGTH
    return np.stack([typical(traced) - true, fastest(spans - traced.sum(axis=0)) / (2 * LENGTH - 1)])


def wake_ups(traced: Samples) -> Samples:
    """Return the extra time of the first node (row) in each block, in µs, in its own fastest round.

    All nodes of a chain are equal. Between two runs the threads of the pool sleep, and the first node wakes them.
    """
    return fastest(traced[0]) - typical(traced)


def fastest(samples: Samples) -> Samples:
    """Return the smallest sample of each block, without the warm-up rounds."""
    return np.asarray(samples[WARMUP_ROUNDS:].reshape(-1, BLOCK_ROUNDS).min(axis=1))


def typical(traced: Samples) -> Samples:
    """Return the mean over the middle half of the nodes (rows), in the fastest round (columns) of each block."""
    rounds = traced[:, WARMUP_ROUNDS:]
    place = rounds.sum(axis=0).reshape(-1, BLOCK_ROUNDS).argmin(axis=1)
    chosen = np.sort(rounds[:, place + BLOCK_ROUNDS * np.arange(len(place))], axis=0)
    quarter = len(chosen) // 4
    return np.asarray(chosen[quarter : len(chosen) - quarter].mean(axis=0))


def lap_us(session: Session, feeds: Feeds) -> float:
    """Return the wall-clock time of one run in µs."""
    start = time.perf_counter_ns()
    run(session, feeds)
    return (time.perf_counter_ns() - start) / 1e3


def build(chain: Chain, length: int) -> tuple[bytes, dict[str, npt.NDArray[np.float32]]]:
    """Serialize ``length`` copies of the operator, each fed by the one before, and make the first one's input."""
    shape = list(chain.shapes[0])
    constants = [
        # Small enough that a chain of 2k products neither overflows nor becomes denormal.
        numpy_helper.from_array(np.full(operand, 1 / shape[-1], np.float32), f"c{index}")
        for index, operand in enumerate(chain.shapes[1:])
    ]
    names = [constant.name for constant in constants]
    nodes = [
        helper.make_node(chain.op_type, [f"x{step}", *names], [f"x{step + 1}"], name=f"n{step}")
        for step in range(length)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x0", f"x{length}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    first = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return model.SerializeToString(), {"x0": first}
