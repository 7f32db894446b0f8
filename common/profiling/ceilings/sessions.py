"""Sessions of the ceiling operators, whose runs allocate and copy nothing, and the number formats that count.

A format counts only where the runtime computes in it. On most processors the runtime accepts a float16 product but
computes it in float32, between two casts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import onnx

from common.graphs.operators import QUANTIZERS
from common.messages.errors import PipelineError
from common.profiling.ceilings import operators
from common.profiling.ceilings.operators import CACHE, CHANNELS, RESIDENT_CHAIN, SIDE, STREAM_OPERANDS, Operator
from common.profiling.ceilings.slices import Subject, TimedOperator
from common.runtime.inputs.values import Value, bound, value_of
from common.runtime.sessions.session import SessionSettings, create_session

CONVERSIONS = QUANTIZERS | {"Cast", "DynamicQuantizeLinear"}


def operators_by_threads(stream_bytes: int, resident_bytes: Mapping[int, Iterable[int]]) -> dict[int, list[Operator]]:
    """List the operators by thread count, from the bytes of an array that streams and of those that stay in a cache."""
    narrow = [
        operators.matmul_integer(SIDE),
        operators.qlinear_matmul(SIDE),
        operators.qlinear_conv(CHANNELS, 3),
        *(operators.matmul(SIDE, name) for name in operators.HALF_FORMATS),
    ]
    at_any_thread_count = [
        operators.matmul(SIDE),
        operators.gemm(SIDE),
        operators.conv(CHANNELS, 3),
        operators.conv(2 * CHANNELS, 1),
        *filter(is_computed, narrow),
        operators.add(stream_bytes),
    ]
    return {
        threads: [*at_any_thread_count, *(operators.add(size, CACHE, RESIDENT_CHAIN) for size in sizes)]
        for threads, sizes in resident_bytes.items()
    }


def is_computed(operator: Operator) -> bool:
    """Whether the runtime computes in the operator's own number format: the executed graph has no cast."""
    with tempfile.TemporaryDirectory() as folder:
        optimized = Path(folder) / "optimized.onnx"
        try:
            create_session(operator.model, SessionSettings(1), optimized=optimized)
        except PipelineError:  # the runtime has no kernel for it
            return False
        op_types = {node.op_type for node in onnx.load(optimized, load_external_data=False).graph.node}
        return operator.op_type in op_types and not op_types & CONVERSIONS


def timed_operators(by_threads: Mapping[int, Sequence[Operator]]) -> list[TimedOperator]:
    """Make all sessions anew; those at different thread counts share their arrays."""
    arrays: dict[str, tuple[Value, ...]] = {}
    timed = []
    for threads, operators_at in by_threads.items():
        for operator in operators_at:
            values = arrays.get(operator.label) or arrays.setdefault(operator.label, _operands(operator))
            timed.append(_timed_operator(operator, threads, values))
    return timed


def _operands(operator: Operator) -> tuple[Value, ...]:
    """Make the inputs and the output; raise PipelineError where they do not fit into memory."""
    try:
        inputs = [value_of(operator.operand()) for _ in range(operator.input_count)]
        return (*inputs, value_of(operator.operand().astype(operator.output, copy=False)))
    except MemoryError as error:
        size = f"{STREAM_OPERANDS} arrays of {operator.operand_bytes:,} bytes"
        raise PipelineError("memory", f"too little for {size}", "free some, or give <mem_bw>") from error


def _timed_operator(operator: Operator, threads: int, values: tuple[Value, ...]) -> TimedOperator:
    """Create a session with its inputs and its output bound."""
    session = create_session(operator.model, SessionSettings(threads))
    binding = bound(session, {f"x{index}": value for index, value in enumerate(values[:-1])}, {"y": values[-1]})
    subject = Subject(operator.roof, threads, operator.op_type, operator.label, operator.operand_bytes)
    return TimedOperator(subject, operator.amount, partial(session.run_with_iobinding, binding), values)
