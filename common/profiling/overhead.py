"""What profiling costs inside a node's own duration and around it, measured with chains of operators of known time.

The runtime gathers shapes, sizes and pool statistics between the two clock reads of an event, so every node looks
slower than it is, by an amount that depends on whether it used the thread pool and on how many operands it has. A chain
of k and one of 2k copies of an operator, both unprofiled, give the operator's true time as the slope of their
latencies; a profiled chain of 2k gives its traced time. Their difference is the cost inside, per class.

What disturbs a round only ever lengthens it, by milliseconds where another process holds a processor that the thread
pool wants. So each session counts with its fastest of a few rounds in turn, a block; the median is that over blocks.

After the second clock read the runtime writes the event down. That lies between nodes; within a body it is part of what
the control-flow node seems to take itself. The time between the events of the profiled chain is this cost around.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

from common.latency.statistics import Samples
from common.profiling.trace import read_trace
from common.runtime.session import Session, SessionSettings, create_session, run
from common.runtime.values import Feeds

LENGTH = 16  # k
WARMUP_ROUNDS = 3
BLOCKS = 12
BLOCK_ROUNDS = 5
# Below this multiple of the correction a node's time says more of the profiler than of the node.
DOMINATED_BELOW = 4

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OverheadClass:
    """What the cost of profiling depends on."""

    uses_thread_pool: bool
    input_count: int


class Cost(NamedTuple):
    """What profiling adds: the median over blocks and chains, and the quartiles."""

    median_us: float
    low_us: float
    high_us: float


@dataclass(frozen=True, slots=True)
class Overhead:
    """Cost per event: inside its duration, and from its end to the start of the next one."""

    inside: Cost
    around: Cost


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain's operator and the shapes of its operands; the first and the output are alike."""

    op_type: str
    shapes: tuple[Shape, ...]


def chains(kind: OverheadClass) -> tuple[Chain, ...]:
    """A small and a 5 to 50 µs operator of the class (both large enough to be shared out, for the thread pool)."""
    count = min(kind.input_count, 3) if kind.uses_thread_pool else kind.input_count
    if not kind.uses_thread_pool:
        op_type = "Relu" if count <= 1 else "Sum"
        return tuple(Chain(op_type, ((1, 4, 4, width),) * max(count, 1)) for width in (4, 4096 // max(count, 1)))
    if count <= 1:
        return tuple(Chain("Relu", ((1, 64, 64, width),)) for width in (64, 128))
    if count == 2:
        return tuple(Chain("MatMul", ((side, side), (side, side))) for side in (96, 128))
    return tuple(Chain("Gemm", ((side, side), (side, side), (side,))) for side in (96, 128))


def estimate(kinds: Iterable[OverheadClass], threads: int, folder: Path) -> dict[OverheadClass, Overhead]:
    """Measure the cost of profiling for each class.

    The thread pool has chains of up to three operands; for more, what further operands cost without it is added.
    """
    wanted = set(kinds)
    measured = {kind: measure(kind, threads, folder) for kind in _measurable(wanted)}
    result = {}
    for kind in wanted:
        costs = measured[_nearest(kind)]
        if kind.uses_thread_pool and kind.input_count > 3:
            many, three = OverheadClass(False, kind.input_count), OverheadClass(False, 3)
            more = np.median(measured[many], axis=1) - np.median(measured[three], axis=1)
            costs = costs + np.clip(more, 0, None)[:, np.newaxis]
        result[kind] = Overhead(*map(_cost, costs))
    return result


def _cost(samples: Samples) -> Cost:
    """Median and quartiles, floored at zero."""
    low, median, high = np.clip(np.quantile(samples, (0.25, 0.5, 0.75)), 0, None)
    return Cost(float(median), float(low), float(high))


def _nearest(kind: OverheadClass) -> OverheadClass:
    return OverheadClass(kind.uses_thread_pool, min(kind.input_count, 3) if kind.uses_thread_pool else kind.input_count)


def _measurable(wanted: set[OverheadClass]) -> list[OverheadClass]:
    needed = {_nearest(kind) for kind in wanted}
    for kind in wanted:
        if kind.uses_thread_pool and kind.input_count > 3:
            needed |= {OverheadClass(False, kind.input_count), OverheadClass(False, 3)}
    return sorted(needed, key=lambda kind: (kind.uses_thread_pool, kind.input_count))


def measure(kind: OverheadClass, threads: int, folder: Path) -> Samples:
    """Cost per event in each block, over the chains of the class, in µs: a row inside its duration, a row around it."""
    return np.concatenate([measure_chain(chain, threads, folder) for chain in chains(kind)], axis=1)


def measure_chain(chain: Chain, threads: int, folder: Path) -> Samples:
    """Traced less true time per node of one chain, and the time between its events, in each block."""
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
    traced = np.array([node.run_us for node in trace.nodes.values()]).sum(axis=0)
    return costs(walls, traced, np.array(trace.run_span_us))


def costs(walls: Samples, traced: Samples, spans: Samples) -> Samples:
    """Cost per event in each block, in µs: a row inside its duration, a row around it.

    Args:
        walls: latencies of a round (rows) of the short and the long chain, unprofiled, in µs; more columns are ignored.
        traced: sum of the traced durations of the long chain in each round, in µs.
        spans: from the start of its first event to the end of its last, in µs.
    """
    short, long = fastest(walls[:, 0]), fastest(walls[:, 1])
    # One block's slope is noisier than the traced times; its median over blocks is the operator's time.
    true = np.median(long - short) / LENGTH
    return np.stack([fastest(traced) / (2 * LENGTH) - true, fastest(spans - traced) / (2 * LENGTH - 1)])


def fastest(samples: Samples) -> Samples:
    """The smallest of each block of rounds, the warm-up cut."""
    return np.asarray(samples[WARMUP_ROUNDS:].reshape(-1, BLOCK_ROUNDS).min(axis=1))


def lap_us(session: Session, feeds: Feeds) -> float:
    """Wall-clock time of one run."""
    start = time.perf_counter_ns()
    run(session, feeds)
    return (time.perf_counter_ns() - start) / 1e3


def build(chain: Chain, length: int) -> tuple[bytes, dict[str, npt.NDArray[np.float32]]]:
    """Serialize ``length`` copies of the operator, each fed by the one before, and make the first one's input."""
    shape = list(chain.shapes[0])
    constants = [
        # Small enough that a product of 2k of them neither overflows nor turns denormal.
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
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    first = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return model.SerializeToString(), {"x0": first}
