"""ONNX Runtime sessions: no session silently falls back to another provider, or ignores what is asked of it."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, TypeAlias

from common.messages.errors import PipelineError, UnusableValueError
from common.messages.names import quoted
from common.runtime.inputs.values import Operands, Value, bound
from common.runtime.library import SILENT, ort, path_text, silenced
from common.runtime.providers.provider_check import require_assignment
from common.runtime.providers.provider_table import CPU, DIRECTML, chosen_provider, compiles, resolve_provider
from common.runtime.sessions.limits import IDLE, SMALLER, call_of_thread, is_of_memory
from common.runtime.sessions.thread_pools import USUAL_POOLS, ThreadPools, inter_threads_of
from common.runtime.sessions.threads import usable_threads

OPTIMIZATIONS = {
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": ort.GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_LEVELS = [*OPTIMIZATIONS]
GIVEN_GRAPH = "given.onnx"
MOST_QUOTED = 200  # characters of the runtime's own message
SMALL_BYTES = 1024  # tensors up to this size stay in the executed graph: they may be operands that decide shapes
# The runtime's messages name the file, line and function of its own source.
_FUNCTION_END = r"\)(?:::<lambda.*?>)?(?: \[with [^\]]*\])? (?=\S)"
SOURCE_LOCATION = re.compile(r"\s*/onnxruntime(?:_src|/onnxruntime)/\S+ .*?" + _FUNCTION_END)
Session: TypeAlias = ort.InferenceSession
GIVEN = ("threads", "provider", "optimization")


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How a session runs."""

    threads: int
    provider: str = CPU
    optimization: str = "all"
    pools: ThreadPools = USUAL_POOLS
    # Whether quantized operands are multiplied as integers. If not, QuantizeLinear and DequantizeLinear round the
    # operands, and products are in float.
    integer_kernels: bool = True


def with_execution(options: SessionSettings, execution: str, inter_threads: int | None) -> SessionSettings:
    """Return settings with the pools of an execution: the usual ones, or one that computes several nodes at once.

    Errors are those of :func:`common.runtime.sessions.thread_pools.inter_threads_of`.
    """
    count = inter_threads_of(execution, inter_threads, options.provider)
    return replace(options, pools=ThreadPools(count)) if count else options


def given_settings(
    values: Mapping[str, Any], changes: Mapping[str, str] = MappingProxyType({}), quantity: str = ""
) -> SessionSettings:
    """Return the settings of a session from the values of ``GIVEN``; no threads are all that this process may use.

    ``changes`` are texts that replace some of them, and come from the setting ``quantity``. UnusableValueError: a
    setting is unknown, or does not take its value.
    """
    if unknown := [name for name in changes if name not in GIVEN]:
        raise UnusableValueError(quantity, f"{quoted(unknown[0])} is no setting", f"it takes {', '.join(GIVEN)}")
    chosen = {**{name: values[name] for name in GIVEN}, **changes}
    if chosen["optimization"] not in OPTIMIZATIONS:
        problem = f"{quoted(chosen['optimization'])} is no level"
        named = quantity if "optimization" in changes else "optimization"
        raise UnusableValueError(named, problem, f"it takes {', '.join(OPTIMIZATIONS)}")
    threads = usable_threads(_thread_count(chosen["threads"], quantity))
    return SessionSettings(threads, resolve_provider(chosen["provider"]), chosen["optimization"])


def _thread_count(given: Any, quantity: str) -> int | None:
    """Return a number of threads; a text must be a whole number above zero."""
    if given is None or isinstance(given, int):
        return given
    if not (given.isascii() and given.isdigit() and int(given)):
        raise UnusableValueError(quantity, f"threads={given} is no whole number above 0", "give one")
    return int(given)


def create_session(
    model: Path | bytes,
    settings: SessionSettings,
    *,
    content: bytes | None = None,
    trace_prefix: Path | None = None,
    optimized: Path | None = None,
) -> Session:
    """Create a session of an ONNX file, or of a serialized model.

    Raises:
        PipelineError: the runtime refuses the model, with its own reason, or the provider does not take every node.

    Args:
        content: what to run instead of the file's own content; weights are still looked up beside the file.
        trace_prefix: profile every run into a file whose name starts with this.
        optimized: where to save the executed graph, without its large weights. For a provider that compiles subgraphs,
            the runtime can only save the graph that the provider was given; that one goes to ``given.onnx`` in the
            same folder, and its weights to ``given.onnx.data``.
    """
    if optimized is not None and compiles(settings.provider):
        before = SessionSettings(settings.threads, optimization=min(settings.optimization, "basic", key=_LEVELS.index))
        given = optimized.with_name(GIVEN_GRAPH)
        _created(model, before, content, _options(before, None, given, f"{given.name}.data"))
        optimized = None
    if optimized is None:
        return _created(model, settings, content, _options(settings, trace_prefix))
    # The runtime writes the weights as well. They go to a file without a name, which no kill leaves behind.
    with tempfile.TemporaryFile(dir=optimized.parent) as nameless:
        weights = os.path.relpath(nameless_path(nameless), optimized.parent.resolve())
        return _created(model, settings, content, _options(settings, trace_prefix, optimized, weights))


def nameless_path(file: IO[bytes]) -> str:
    """Return a path by which this process can open a file that has no name any more."""
    return f"/proc/self/fd/{file.fileno()}"


def _created(
    model: Path | bytes, settings: SessionSettings, content: bytes | None, options: ort.SessionOptions
) -> Session:
    """Create a session with its options; arguments and errors are those of :func:`create_session`."""
    if content is not None and isinstance(model, Path):
        entry = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(entry, path_text(model.parent.resolve()))
    source = content or (path_text(model) if isinstance(model, Path) else model)
    try:
        with silenced(), call_of_thread().creating(options):
            chosen = chosen_provider(options, settings.provider, settings.threads)
            session = ort.InferenceSession(source, options, **chosen, enable_fallback=0)
    except Exception as error:  # the runtime raises a dozen unrelated types
        subject = model if isinstance(model, Path) else "a calibration model"
        remedy = "export it again for this onnxruntime, or install one that takes it"
        if is_of_memory(str(error)):
            remedy = SMALLER
        if settings.provider != CPU:
            remedy = "profile on the CPU, which may take it"
        if "construct locale" in str(error):  # a StringNormalizer's, by default en_US.UTF-8
            remedy = "this host lacks the locale: install it (on Debian and Ubuntu, locale-gen of package locales)"
        raise PipelineError(subject, f"ONNX Runtime refuses it ({reason_of(error)})", remedy) from error
    if settings.provider != CPU:
        require_assignment(session, settings.provider)
    return session


def _options(
    settings: SessionSettings, trace_prefix: Path | None, optimized: Path | None = None, weights: str = ""
) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = SILENT
    options.graph_optimization_level = OPTIMIZATIONS[settings.optimization]
    settings.pools.enter(options, settings.threads)
    if not settings.integer_kernels:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    if settings.provider != CPU:
        # session.disable_cpu_ep_fallback names no node, and refuses the shape arithmetic that CUDA leaves to the CPU.
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        options.enable_mem_pattern = settings.provider != DIRECTML
    if trace_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = path_text(trace_prefix)
    if optimized is not None:
        options.optimized_model_filepath = path_text(optimized)
        entry = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{entry}_file_name", weights)
        options.add_session_config_entry(f"{entry}_min_size_in_bytes", f"{SMALL_BYTES + 1}")
    return options


def run(session: Session, feeds: Operands, model: object = "a calibration model") -> None:
    """Run one inference and drop its outputs; ``model`` is what an error names.

    Raises:
        PipelineError: the runtime fails, with its own reason, or a limit ended the run (see :func:`_limited`).
    """
    is_foreign = isinstance(next(iter(feeds.values()), None), ort.OrtValue)
    _limited(partial(session.run_with_ort_values if is_foreign else session.run, None, feeds), model)


def run_bound(
    session: Session, inputs: Mapping[str, Value], outputs: Mapping[str, Value | None], model: object
) -> dict[str, Value]:
    """Run one inference on values as :func:`bound` takes them, and return its outputs; errors are as in :func:`run`."""
    binding = bound(session, inputs, outputs)
    _limited(partial(session.run_with_iobinding, binding), model)
    return dict(zip(outputs, binding.get_outputs(), strict=True))


def _limited(run_with: Callable[[ort.RunOptions], object], model: object) -> None:
    """Run under the limits of :mod:`common.runtime.sessions.limits`."""
    call = call_of_thread()
    call.model, call.begin_s = model, time.monotonic()
    try:
        run_with(call.options)
    except Exception as error:  # the runtime raises a dozen unrelated types
        raise call.failure(reason_of(error)) from error
    finally:
        call.begin_s = IDLE


def reason_of(error: Exception) -> str:
    """Shorten the runtime's message to one readable line, without its prefix and source path."""
    text = " ".join(str(error).split()).removeprefix("[ONNXRuntimeError] : ")
    text = " ".join(SOURCE_LOCATION.sub(" ", text).split())
    return text if len(text) <= MOST_QUOTED else f"{text[: MOST_QUOTED - 1]}…"
