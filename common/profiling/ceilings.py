"""What the host reaches through ONNX Runtime: FLOP/s of large products, bytes/s of an operator that only streams.

The runtime that is judged also measures the roof, at the same threads, so that no share of it is lost to another
library's kernels. Operators take turns in short slices; the best slice counts, because other work on the host can only
slow a slice down (McCalpin, STREAM: best of all trials). Halves in time that disagree show a host that was not quiet.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from common.errors import PipelineError
from common.profiling.session import SessionSettings, create_session

SLICE_S = 0.05
MIN_SLICES = 4  # two in each half
WARMUP_RUNS = 3
OPSET, IR_VERSION = 13, 8
CACHE_MULTIPLE = 4  # of each array over the last-level cache (STREAM's rule)
FALLBACK_CACHE_BYTES = 32 * 2**20
STREAM_OPERANDS = 3  # two reads and one write; what the processor reads to allocate the written line is not compulsory
FLOAT_BYTES = 4
SIDE = 1024  # of the product's operands: 4 MiB each, as in a large layer
CHANNELS, IMAGE, CHAIN = 256, 28, 4  # a chain of convolutions, so that the layout changes only at its two ends
CPUS = Path("/sys/devices/system/cpu")
SIZES = {"K": 2**10, "M": 2**20, "G": 2**30}

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Workload:
    """An operator that is measured. ``amount`` is FLOPs or bytes per run; one MAC is two FLOPs."""

    op_type: str
    label: str
    amount: float
    run: Callable[[], None]
    operands: tuple[ort.OrtValue, ...] = ()  # held here: a binding does not keep the memory of its inputs alive


@dataclass(frozen=True, slots=True)
class Slices:
    """The rates of one workload, slice by slice in time, in FLOP/s or bytes/s."""

    op_type: str
    label: str
    rates: tuple[float, ...]

    @property
    def best(self) -> float:
        """The fastest slice."""
        return max(self.rates)


def last_level_cache_bytes(processors: Iterable[int], threads: int, root: Path = CPUS) -> int | None:
    """Size of the last-level caches that so many threads can fill; None where the system does not tell.

    Args:
        processors: those that the process may use.
        threads: no more caches than these are counted.
        root: folder of ``cpu0``, ``cpu1`` and so on.
    """
    caches: dict[str, int] = {}  # by the processors that share it: a large host has several
    for processor in processors:
        found = [_cache(folder) for folder in (root / f"cpu{processor}" / "cache").glob("index*")]
        known = [cache for cache in found if cache is not None]
        if known:
            _, sharers, size = max(known)
            caches[sharers or str(processor)] = size
    return sum(sorted(caches.values(), reverse=True)[:threads]) or None


def _cache(folder: Path) -> tuple[int, str, int] | None:
    """Level, sharing processors and bytes of one cache; None for an instruction cache or what cannot be read."""
    try:
        level, kind, size = ((folder / name).read_text(encoding="ascii").strip() for name in ("level", "type", "size"))
    except OSError:
        return None
    shared = folder / "shared_cpu_list"
    sharers = shared.read_text(encoding="ascii").strip() if shared.is_file() else ""
    matched = re.fullmatch(r"(\d+)([KMG]?)", size)
    if matched is None or kind == "Instruction" or not level.isdigit():
        return None
    return int(level), sharers, int(matched[1]) * SIZES.get(matched[2], 1)


def stream_array_bytes(cache_bytes: int | None) -> int:
    """Size of each array of the streaming operator: well beyond the cache."""
    return CACHE_MULTIPLE * (cache_bytes or FALLBACK_CACHE_BYTES)


def workloads(threads: int, array_bytes: int) -> list[Workload]:
    """MatMul, Gemm, a 3×3 and a 1×1 Conv, and Add over three distinct arrays.

    Raises:
        PipelineError: the arrays do not fit into memory, or the runtime refuses.
    """
    settings = SessionSettings(threads)
    compute = [matmul(SIDE), gemm(SIDE), conv(CHANNELS, 3), conv(2 * CHANNELS, 1)]
    made = [_workload(*described, settings) for described in compute]
    try:
        return [*made, _workload(*add(array_bytes // FLOAT_BYTES), settings)]
    except MemoryError as error:
        size = f"{STREAM_OPERANDS} arrays of {array_bytes:,} bytes"
        raise PipelineError("memory", f"too little for {size}", "free some, or give 03 --mem-bw") from error


Described = tuple[str, str, float, ModelProto, tuple[tuple[int, ...], ...]]  # op_type, label, amount, model, inputs


def matmul(side: int) -> Described:
    """A square product with a constant right operand: 2·side³ FLOPs."""
    model = _model([helper.make_node("MatMul", ["x0", "w"], ["y"])], [(side, side)], (side, side), {"w": (side, side)})
    return "MatMul", f"MatMul {side}×{side}×{side}", 2.0 * side**3, model, ((side, side),)


def gemm(side: int) -> Described:
    """The same product as a fully connected layer, transposed weights and bias: 2·side³ FLOPs, the bias not counted."""
    node = helper.make_node("Gemm", ["x0", "w", "b"], ["y"], transB=1)
    model = _model([node], [(side, side)], (side, side), {"w": (side, side), "b": (side,)})
    return "Gemm", f"Gemm {side}×{side}×{side}", 2.0 * side**3, model, ((side, side),)


def conv(channels: int, kernel: int) -> Described:
    """A chain of convolutions that keep shape: 2·kernel²·channels²·pixels FLOPs each, border included as in 02."""
    shape = (1, channels, IMAGE, IMAGE)
    names = ["x0", *(f"h{step}" for step in range(1, CHAIN)), "y"]
    nodes = [
        helper.make_node("Conv", [names[step], "w"], [names[step + 1]], pads=[kernel // 2] * 4) for step in range(CHAIN)
    ]
    model = _model(nodes, [shape], shape, {"w": (channels, channels, kernel, kernel)})
    flops = 2.0 * CHAIN * kernel**2 * channels**2 * IMAGE**2
    return "Conv", f"Conv {kernel}×{kernel}, {channels} channels of {IMAGE}×{IMAGE}", flops, model, (shape,)


def add(elements: int) -> Described:
    """Two distinct arrays read, a third written: 12 bytes an element."""
    shape = (elements,)
    model = _model([helper.make_node("Add", ["x0", "x1"], ["y"])], [shape, shape], shape, {})
    moved = float(STREAM_OPERANDS * FLOAT_BYTES * elements)
    return "Add", f"Add, 3 arrays of {FLOAT_BYTES * elements / 2**20:.0f} MiB", moved, model, (shape, shape)


def _model(
    nodes: list[NodeProto],
    inputs: Sequence[tuple[int, ...]],
    output: tuple[int, ...],
    weights: dict[str, tuple[int, ...]],
) -> ModelProto:
    """Inputs ``x0``, ``x1`` …, output ``y``, seeded weights of variance 1 / fan-in (no overflow)."""
    random = np.random.default_rng(0)
    constants = []
    for name, shape in weights.items():
        values = random.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(np.prod(shape[1:])))
        constants.append(numpy_helper.from_array(values, name))
    takes = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape) for i, shape in enumerate(inputs)]
    gives = [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)]
    graph = helper.make_graph(nodes, "ceiling", takes, gives, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    return model


def _workload(
    op_type: str,
    label: str,
    amount: float,
    model: ModelProto,
    inputs: tuple[tuple[int, ...], ...],
    settings: SessionSettings,
) -> Workload:
    """A session with its inputs and its output bound, so that a run allocates and copies nothing."""
    session = create_session(model.SerializeToString(), settings)
    binding = session.io_binding()
    arrays = (np.full(shape, 0.5 + index, np.float32) for index, shape in enumerate(inputs))
    operands = tuple(ort.OrtValue.ortvalue_from_numpy(array) for array in arrays)
    for index, value in enumerate(operands):
        binding.bind_ortvalue_input(f"x{index}", value)
    output = session.get_outputs()[0]
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_shape_and_type(output.shape, np.float32))
    return Workload(op_type, label, amount, lambda: session.run_with_iobinding(binding), operands)


def measure_slices(workloads: Sequence[Workload], seconds: float, clock: Clock = time.perf_counter) -> list[Slices]:
    """Let the workloads take turns for so long, and at least ``MIN_SLICES`` times."""
    start = clock()
    repeats = [_repeats(workload, clock) for workload in workloads]
    rates: list[list[float]] = [[] for _ in workloads]
    while clock() - start < seconds or len(rates[-1]) < MIN_SLICES:
        for workload, count, found in zip(workloads, repeats, rates, strict=True):
            before = clock()
            for _ in range(count):
                workload.run()
            found.append(count * workload.amount / (clock() - before))
    return [Slices(w.op_type, w.label, tuple(found)) for w, found in zip(workloads, rates, strict=True)]


def _repeats(workload: Workload, clock: Clock) -> int:
    """Runs that fill a slice, after a warm-up."""
    elapsed = SLICE_S
    for _ in range(WARMUP_RUNS):
        before = clock()
        workload.run()
        elapsed = clock() - before
    return max(1, round(SLICE_S / elapsed))


def halves_difference_share(slices: Sequence[Slices]) -> float:
    """Difference of the best rates of the first and the second half in time, over the larger."""
    first = max(max(found.rates[: len(found.rates) // 2]) for found in slices)
    second = max(max(found.rates[len(found.rates) // 2 :]) for found in slices)
    return abs(first - second) / max(first, second)
