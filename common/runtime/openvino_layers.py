"""OpenVINO's own times per layer, which ONNX Runtime's trace does not have: there a whole subgraph is one node.

The provider keeps OpenVINO's counters to itself. So the same graph is compiled a second time, by the OpenVINO library
that the provider itself loads, at the settings that the provider gives it, with ``PERF_COUNT``. These times are of
runs beside the session, not within it; :class:`LayerCounters` carries the latency of both, for the reader to compare.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from common.errors import PipelineError

LIBRARIES = ("libopenvino_c.so*", "openvino_c.dll", "libopenvino_c*.dylib")
# What the provider tells OpenVINO's CPU device where it is told no more than the number of threads.
AS_PROVIDER = {"NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "f32"}
Feeds = Mapping[str, npt.NDArray[Any]]
Counter = tuple[str, str, str, int]  # name, type, implementation, time in µs


class _Info(ctypes.Structure):
    """``ov_profiling_info_t`` of OpenVINO's C interface; times in µs."""

    _fields_ = (
        ("status", ctypes.c_int),
        ("real_time", ctypes.c_int64),
        ("cpu_time", ctypes.c_int64),
        ("node_name", ctypes.c_char_p),
        ("exec_type", ctypes.c_char_p),
        ("node_type", ctypes.c_char_p),
    )


class _InfoList(ctypes.Structure):
    """``ov_profiling_info_list_t``."""

    _fields_ = (("infos", ctypes.POINTER(_Info)), ("size", ctypes.c_size_t))


class _Version(ctypes.Structure):
    """``ov_version_t``."""

    _fields_ = (("build", ctypes.c_char_p), ("description", ctypes.c_char_p))


@dataclass(frozen=True, slots=True)
class ProviderLayer:
    """One executed layer; its time is the mean over the counted runs, within ``LayerCounters.resolution_us``."""

    name: str
    layer_type: str
    executed_type: str
    mean_us: float


@dataclass(frozen=True, slots=True)
class LayerCounters:
    """The layers with a time, in order; the latencies of the runs that were counted, and of those beside them.

    A layer without a time is fused into another, or takes less than a microsecond: OpenVINO tells no difference.
    """

    layers: tuple[ProviderLayer, ...]
    run_us: tuple[float, ...]
    beside_us: tuple[float, ...]
    resolution_us: float
    version: str

    @property
    def latency_us(self) -> float:
        """Mean latency of the counted runs, in µs."""
        return float(np.mean(self.run_us))

    @property
    def total_us(self) -> float:
        """Sum of the layers, in µs; beside ``latency_us`` it says whether the counters hold all the time."""
        return sum(layer.mean_us for layer in self.layers)


class OpenVino:
    """OpenVINO's C interface, of the library in the package of the runtime."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.ov_get_last_err_msg.restype = ctypes.c_char_p

    @property
    def version(self) -> str:
        """Its build, as ``2025.4.1-…``."""
        version = _Version()
        self.call("ov_get_openvino_version", ctypes.byref(version))
        text = (version.build or b"").decode()
        self._library.ov_version_free(ctypes.byref(version))
        return text

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status.

        Raises:
            PipelineError: the status is not 0, with OpenVINO's own reason.
        """
        if getattr(self._library, name)(*arguments):
            reason = (self._library.ov_get_last_err_msg() or b"").decode(errors="replace")
            raise PipelineError("OpenVINO's counters", f"{name} fails ({reason[:200]})", "report the fused node alone")

    @contextmanager
    def made(self, kind: str, creator: str, *arguments: Any) -> Iterator[ctypes.c_void_p]:
        """An object of a kind, made by a function that takes the address for it last, and freed afterwards."""
        handle = ctypes.c_void_p()
        self.call(creator, *arguments, ctypes.byref(handle))
        try:
            yield handle
        finally:
            getattr(self._library, f"ov_{kind}_free")(handle)

    @contextmanager
    def compiled(self, core: ctypes.c_void_p, model: ctypes.c_void_p, settings: Mapping[str, str]) -> Iterator[Any]:
        """The model compiled for the CPU; the function takes its settings after the address of the result."""
        pairs = [ctypes.c_char_p(text.encode()) for setting in settings.items() for text in setting]
        handle = ctypes.c_void_p()
        name = "ov_core_compile_model"
        self.call(name, core, model, b"CPU", ctypes.c_size_t(len(pairs)), ctypes.byref(handle), *pairs)
        try:
            yield handle
        finally:
            self._library.ov_compiled_model_free(handle)

    def fill(self, request: ctypes.c_void_p, name: str, array: npt.NDArray[Any]) -> None:
        """Copy an array into the input of a request.

        Raises:
            PipelineError: it does not fit.
        """
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        with self.made("tensor", "ov_infer_request_get_tensor", request, name.encode()) as tensor:
            self.call("ov_tensor_data", tensor, ctypes.byref(data))
            self.call("ov_tensor_get_byte_size", tensor, ctypes.byref(size))
            if size.value != array.nbytes:
                problem = f"it takes {size.value} bytes, not {array.nbytes}"
                raise PipelineError("OpenVINO's counters", f"input {name}: {problem}", "report the fused node alone")
            ctypes.memmove(data, np.ascontiguousarray(array).ctypes.data, array.nbytes)

    def counters(self, request: ctypes.c_void_p) -> list[Counter]:
        """The counters of all layers: each a mean over all runs so far, cut to whole microseconds."""
        found = _InfoList()
        self.call("ov_infer_request_get_profiling_info", request, ctypes.byref(found))
        rows = [
            (info.node_name.decode(), info.node_type.decode(), info.exec_type.decode(), int(info.real_time))
            for info in found.infos[: found.size]
        ]
        self._library.ov_profiling_info_list_free(ctypes.byref(found))
        return rows


def find_openvino() -> OpenVino | None:
    """The library that the runtime's provider loads; None where the package has no OpenVINO."""
    folder = Path(ort.__file__).parent / "capi"
    library = next((path for pattern in LIBRARIES for path in sorted(folder.glob(pattern))), None)
    return OpenVino(ctypes.CDLL(str(library))) if library else None


def count_layers(
    openvino: OpenVino, model: Path, feeds: Feeds, threads: int, runs: int, warmup: int, beside: Callable[[], None]
) -> LayerCounters:
    """Run a model with OpenVINO's counters on, in turn with something else.

    Args:
        openvino: see :func:`find_openvino`.
        model: the graph that the provider was given, of static input shapes.
        feeds: an array per graph input.
        threads: of OpenVINO, as given to the provider.
        runs: runs that count.
        warmup: runs before those, at least one.
        beside: called after each run; its latency is taken too, so that both see the same machine.

    Raises:
        PipelineError: OpenVINO refuses the model or fails to run it.
    """
    settings = {**AS_PROVIDER, "INFERENCE_NUM_THREADS": str(threads), "PERF_COUNT": "YES"}
    with ExitStack() as stack:
        core = stack.enter_context(openvino.made("core", "ov_core_create"))
        read = openvino.made("model", "ov_core_read_model", core, str(model).encode(), None)
        compiled = stack.enter_context(openvino.compiled(core, stack.enter_context(read), settings))
        create = openvino.made("infer_request", "ov_compiled_model_create_infer_request", compiled)
        request = stack.enter_context(create)
        for name, array in feeds.items():
            openvino.fill(request, name, array)
        infer = partial(openvino.call, "ov_infer_request_infer", request)
        _in_turn(infer, beside, warmup)
        warm = openvino.counters(request)
        run_us, beside_us = _in_turn(infer, beside, runs)
        rows = openvino.counters(request)
    means = _means(warm, rows, warmup, runs)
    layers = tuple(ProviderLayer(*row[:3], mean_us) for row, mean_us in zip(rows, means, strict=True) if mean_us)
    return LayerCounters(layers, run_us, beside_us, (warmup + runs) / runs, openvino.version)


def _in_turn(first: Callable[[], None], second: Callable[[], None], times: int) -> tuple[tuple[float, ...], ...]:
    """Latencies in µs of two callables in turn."""
    clocks = []
    for _ in range(times):
        start = time.perf_counter_ns()
        first()
        middle = time.perf_counter_ns()
        second()
        clocks.append(((middle - start) / 1e3, (time.perf_counter_ns() - middle) / 1e3))
    return tuple(zip(*clocks, strict=True))


def _means(warm: Sequence[Counter], rows: Sequence[Counter], warmup: int, runs: int) -> list[float]:
    """Means in µs over the last runs: a counter holds the mean over all runs since the model was compiled."""
    sums = (row[3] * (warmup + runs) - before[3] * warmup for before, row in zip(warm, rows, strict=True))
    return [max(0, total_us) / runs for total_us in sums]
