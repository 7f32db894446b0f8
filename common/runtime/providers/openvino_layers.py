"""OpenVINO's own times per layer, which ONNX Runtime's trace lacks: there a whole subgraph is one node.

The provider does not expose OpenVINO's counters. So the same graph is compiled a second time with ``PERF_COUNT``, by
the OpenVINO library that the provider loads and with the provider's settings. The times are those of separate runs, not
of the session's; :class:`LayerCounters` holds the latencies of both, so that they can be compared.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from common.messages.errors import PipelineError
from common.runtime.inputs.values import Feeds
from common.runtime.library import ort

LIBRARIES = ("libopenvino_c.so*", "openvino_c.dll", "libopenvino_c*.dylib")
# Settings that the provider gives OpenVINO's CPU device when only the thread count is given.
AS_PROVIDER = {"NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "f32"}
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


class _InfoList(ctypes.Structure):  # ``ov_profiling_info_list_t``
    _fields_ = (("infos", ctypes.POINTER(_Info)), ("size", ctypes.c_size_t))


class _Version(ctypes.Structure):
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
    """Layers with a time, in order, and the latencies of the counted runs and of the session's runs between them.

    A layer without a time is fused into another one or takes less than a microsecond; OpenVINO does not say which.
    """

    layers: tuple[ProviderLayer, ...]
    run_us: tuple[float, ...]
    beside_us: tuple[float, ...]
    resolution_us: float
    version: str

    @property
    def latency_us(self) -> float:
        """Mean of the counted runs, in µs."""
        return float(np.mean(self.run_us))

    @property
    def total_us(self) -> float:
        """Sum of the layers in µs; compared with ``latency_us`` it shows how much of a run the counters cover."""
        return sum(layer.mean_us for layer in self.layers)


class OpenVino:
    """OpenVINO's C interface, from the library in the runtime's package."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.ov_get_last_err_msg.restype = ctypes.c_char_p

    @property
    def version(self) -> str:
        """Build of the library, such as ``2025.4.1-…``."""
        version = _Version()
        self.call("ov_get_openvino_version", ctypes.byref(version))
        text = (version.build or b"").decode()
        self._library.ov_version_free(ctypes.byref(version))
        return text

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status; where that is not 0, a PipelineError has OpenVINO's own reason."""
        if getattr(self._library, name)(*arguments):
            reason = (self._library.ov_get_last_err_msg() or b"").decode(errors="replace")
            raise PipelineError("OpenVINO's counters", f"{name} fails ({reason[:200]})", "report the fused node alone")

    @contextmanager
    def made(
        self, kind: str, creator: str, *arguments: Any, settings: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[ctypes.c_void_p]:
        """Create an object by a function that takes the object's address and then settings; free it afterwards."""
        handle = ctypes.c_void_p()
        texts = [ctypes.c_char_p(text.encode()) for setting in settings.items() for text in setting]
        self.call(creator, *arguments, ctypes.byref(handle), *texts)
        try:
            yield handle
        finally:
            getattr(self._library, f"ov_{kind}_free")(handle)

    def fill(self, request: ctypes.c_void_p, name: str, array: npt.NDArray[Any]) -> None:
        """Copy an array into an input of a request; raise PipelineError where it does not have the input's size."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        with self.made("tensor", "ov_infer_request_get_tensor", request, name.encode()) as tensor:
            self.call("ov_tensor_data", tensor, ctypes.byref(data))
            self.call("ov_tensor_get_byte_size", tensor, ctypes.byref(size))
            if size.value != array.nbytes:
                problem = f"it takes {size.value} bytes, not {array.nbytes}"
                raise PipelineError("OpenVINO's counters", f"input {name}: {problem}", "report the fused node alone")
            ctypes.memmove(data, np.ascontiguousarray(array).ctypes.data, array.nbytes)

    def counters(self, request: ctypes.c_void_p) -> list[Counter]:
        """Read the counters of all layers; each is the mean over all runs so far, cut to whole microseconds."""
        counted = _InfoList()
        self.call("ov_infer_request_get_profiling_info", request, ctypes.byref(counted))
        rows = [
            (info.node_name.decode(), info.node_type.decode(), info.exec_type.decode(), int(info.real_time))
            for info in counted.infos[: counted.size]
        ]
        self._library.ov_profiling_info_list_free(ctypes.byref(counted))
        return rows


def find_openvino() -> OpenVino | None:
    """Load the library that the runtime's provider uses; None where the package has no OpenVINO."""
    folder = Path(ort.__file__).parent / "capi"
    library = next((path for pattern in LIBRARIES for path in sorted(folder.glob(pattern))), None)
    return OpenVino(ctypes.CDLL(str(library))) if library else None


def count_layers(
    openvino: OpenVino, model: Path, feeds: Feeds, threads: int, runs: int, warmup: int, beside: Callable[[], None]
) -> LayerCounters:
    """Run a model, the provider's graph of static input shapes, with OpenVINO's counters on.

    OpenVINO gets as many ``threads`` as the provider. At least one run of warm-up comes before. ``beside`` is called
    and timed after each run, so that both see the same machine.

    Raises:
        PipelineError: OpenVINO refuses the model or fails to run it.
    """
    settings = {**AS_PROVIDER, "INFERENCE_NUM_THREADS": str(threads), "PERF_COUNT": "YES"}
    with ExitStack() as stack:
        core = stack.enter_context(openvino.made("core", "ov_core_create"))
        read = stack.enter_context(openvino.made("model", "ov_core_read_model", core, str(model).encode(), None))
        arguments = core, read, b"CPU", ctypes.c_size_t(2 * len(settings))
        compile_model = openvino.made("compiled_model", "ov_core_compile_model", *arguments, settings=settings)
        compiled = stack.enter_context(compile_model)
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
    """Call two callables alternately, and return the latencies of both in µs."""
    clocks = []
    for _ in range(times):
        start = time.perf_counter_ns()
        first()
        middle = time.perf_counter_ns()
        second()
        clocks.append(((middle - start) / 1e3, (time.perf_counter_ns() - middle) / 1e3))
    return tuple(zip(*clocks, strict=True))


def _means(warm: Sequence[Counter], rows: Sequence[Counter], warmup: int, runs: int) -> list[float]:
    """Return means in µs over the last runs; a counter holds the mean over all runs since the model was compiled."""
    sums = (row[3] * (warmup + runs) - before[3] * warmup for before, row in zip(warm, rows, strict=True))
    return [max(0, total_us) / runs for total_us in sums]
