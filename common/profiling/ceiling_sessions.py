"""The operators of the ceilings as sessions that allocate and copy nothing, and which formats the runtime computes in.

A format counts only where the runtime computes in it: on most processors it takes a float16 product, but puts casts
around a float32 one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import onnx
import onnxruntime as ort

from common.errors import PipelineError
from common.operators import QUANTIZERS
from common.profiling import ceiling_operators as operators
from common.profiling.ceiling_operators import CACHE, CHANNELS, RESIDENT_CHAIN, SIDE, STREAM_OPERANDS, Operator
from common.profiling.ceilings import Subject, Workload
from common.runtime.session import SessionSettings, create_session, value_of

CONVERSIONS = QUANTIZERS | {"Cast", "DynamicQuantizeLinear"}


def operators_by_threads(stream_bytes: int, resident_bytes: Mapping[int, Iterable[int]]) -> dict[int, list[Operator]]:
    """What is measured, by thread count.

    Args:
        stream_bytes: of each array that streams from memory.
        resident_bytes: of each array that stays in a cache, by thread count.
    """
    narrow = [
        operators.matmul_integer(SIDE),
        operators.qlinear_matmul(SIDE),
        operators.qlinear_conv(CHANNELS, 3),
        *(operators.matmul(SIDE, name) for name in operators.HALF_FORMATS),
    ]
    same = [
        operators.matmul(SIDE),
        operators.gemm(SIDE),
        operators.conv(CHANNELS, 3),
        operators.conv(2 * CHANNELS, 1),
        *filter(is_computed, narrow),
        operators.add(stream_bytes),
    ]
    return {
        threads: [*same, *(operators.add(size, CACHE, RESIDENT_CHAIN) for size in sizes)]
        for threads, sizes in resident_bytes.items()
    }


def is_computed(operator: Operator) -> bool:
    """Whether the runtime computes in the operator's own number format: no cast stands in the graph that would run."""
    with tempfile.TemporaryDirectory() as folder:
        optimized = Path(folder) / "optimized.onnx"
        try:
            create_session(operator.model, SessionSettings(1), optimized=optimized)
        except PipelineError:  # no kernel for it
            return False
        op_types = {node.op_type for node in onnx.load(optimized, load_external_data=False).graph.node}
        return operator.op_type in op_types and not op_types & CONVERSIONS


def builder(by_threads: Mapping[int, Sequence[Operator]]) -> Callable[[], list[Workload]]:
    """What makes all workloads anew; sessions at different thread counts share their arrays."""

    def build() -> list[Workload]:
        arrays: dict[str, tuple[ort.OrtValue, ...]] = {}
        made = []
        for threads, chosen in by_threads.items():
            for operator in chosen:
                values = arrays.get(operator.label) or arrays.setdefault(operator.label, _operands(operator))
                made.append(_workload(operator, threads, values))
        return made

    return build


def _operands(operator: Operator) -> tuple[ort.OrtValue, ...]:
    """Inputs and output.

    Raises:
        PipelineError: they do not fit into memory.
    """
    try:
        inputs = [value_of(operator.operand()) for _ in range(operator.input_count)]
        return (*inputs, value_of(operator.operand().astype(operator.output, copy=False)))
    except MemoryError as error:
        size = f"{STREAM_OPERANDS} arrays of {operator.operand_bytes:,} bytes"
        raise PipelineError("memory", f"too little for {size}", "free some, or give 03 --mem-bw") from error


def _workload(operator: Operator, threads: int, values: tuple[ort.OrtValue, ...]) -> Workload:
    """A session with its inputs and its output bound."""
    session = create_session(operator.model, SessionSettings(threads))
    binding = session.io_binding()
    for index, value in enumerate(values[:-1]):
        binding.bind_ortvalue_input(f"x{index}", value)
    binding.bind_ortvalue_output("y", values[-1])
    subject = Subject(operator.roof, threads, operator.op_type, operator.label, operator.operand_bytes)
    return Workload(subject, operator.amount, lambda: session.run_with_iobinding(binding), values)
