"""ONNX Runtime sessions as this pipeline wants them: none spins after its run, none falls back in silence."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt
import onnxruntime as ort
from onnx import helper

from common.errors import CommandLineError, PipelineError
from common.runtime.provider_table import (
    CPU,
    DIRECTML,
    compiles,
    find_provider,
    offered_providers,
    plug_in_devices,
    provider_options,
)
from common.runtime.providers import require_assignment

OPTIMIZATIONS = {
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": ort.GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_LEVELS = [*OPTIMIZATIONS]
GIVEN_GRAPH = "given.onnx"
MOST_THREADS_PER_PROCESSOR = 4
SILENT = 4  # an error that the runtime logs it also raises, or writes into the trace
# The file, line and signature in the runtime's own source that its messages carry.
SOURCE_LOCATION = re.compile(r"\s*/onnxruntime(?:_src|/onnxruntime)/\S+ .*?\)(?: \[with [^\]]*\])? (?=\S)")
# What numpy has no type for: such an output can only stay a value of the runtime.
FOREIGN = re.compile(r"tensor\((bfloat16|u?int[24]|float[48]e\w+)\)")
Feeds = Mapping[str, npt.NDArray[Any]]
Operands = Feeds | Mapping[str, ort.OrtValue]
Session: TypeAlias = ort.InferenceSession


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What every session of one measurement has in common."""

    threads: int
    provider: str = CPU
    optimization: str = "all"


def available_processors() -> list[int]:
    """Numbers of the processors in this process's affinity."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]


def available_threads() -> int:
    """Processors that this process may use: its affinity, and the quota of its control group (rounded up)."""
    usable = len(available_processors())
    quota = _cgroup_quota(Path("/sys/fs/cgroup"))
    return max(1, min(usable, quota) if quota else usable)


def usable_threads(wanted: int | None) -> int:
    """So many as are wanted, else all that this process may use.

    Raises:
        CommandLineError: more than four times the processors: such a pool takes minutes before a session stands.
    """
    most = MOST_THREADS_PER_PROCESSOR * (os.cpu_count() or 1)
    if wanted and wanted > most:
        raise CommandLineError(f"--threads {wanted}", f"is above {most}, four times the processors here")
    return wanted or available_threads()


def _cgroup_quota(root: Path) -> int | None:
    """Processors' worth of time of the control group, version 2 or 1; None where there is no limit."""
    try:
        quota, period = (root / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except OSError:
            return None
    return -(-int(quota) // int(period)) if quota.isdigit() and int(period) else None


def resolve_provider(name: str) -> str:
    """``cpu`` or ``CPUExecutionProvider`` to the runtime's name.

    Raises:
        CommandLineError: this build of the runtime has no such provider.
    """
    offered, found = offered_providers(), find_provider(name)
    wanted = {name.lower(), f"{name.lower()}executionprovider", found.full_name.lower() if found else ""}
    full = next((full for full in offered if full.lower() in wanted), None)
    if full:
        return full
    remedy = f"it comes with {found.package}" if found else f"it has {', '.join(offered)}"
    raise CommandLineError(f"--provider {name}", "not in this build of onnxruntime", remedy)


def create_session(
    model: Path | bytes,
    settings: SessionSettings,
    *,
    content: bytes | None = None,
    trace_prefix: Path | None = None,
    optimized: Path | None = None,
) -> Session:
    """Create a session.

    Args:
        model: an ONNX file, or a serialized model.
        settings: threads, provider and optimization level.
        content: what to run in place of the file's own content; weights are still looked up beside the file.
        trace_prefix: profile every run into a file whose name starts so.
        optimized: where to save the graph that will be executed; its weights go to ``<name>.data`` beside it. Of a
            provider that compiles subgraphs the runtime can save only the graph that the provider was given: that
            goes to ``given.onnx`` in the same folder.

    Raises:
        PipelineError: the runtime refuses the model, with its own reason, or the provider does not take every node.
    """
    if optimized is not None and compiles(settings.provider):
        before = SessionSettings(settings.threads, optimization=min(settings.optimization, "basic", key=_LEVELS.index))
        create_session(model, before, content=content, optimized=optimized.with_name(GIVEN_GRAPH))
        optimized = None
    options = _options(settings, trace_prefix, optimized)
    if content is not None and isinstance(model, Path):
        entry = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(entry, str(model.parent.resolve()))
    source = content or (str(model) if isinstance(model, Path) else model)
    try:
        session = ort.InferenceSession(source, options, **_chosen(options, settings))
    except Exception as error:  # the runtime raises a dozen unrelated types
        subject = model if isinstance(model, Path) else "a calibration model"
        remedy = "export it again for this onnxruntime, or install one that takes it"
        if settings.provider != CPU:
            remedy = "profile on the CPU, which may take it"
        raise PipelineError(subject, f"ONNX Runtime refuses it ({_reason(error)})", remedy) from error
    session.disable_fallback()
    if settings.provider != CPU:
        require_assignment(session, settings.provider)
    return session


def _chosen(options: ort.SessionOptions, settings: SessionSettings) -> dict[str, Any]:
    """The provider, as an argument of a session, or set in its options where it is a plug-in."""
    table = provider_options(settings.provider, settings.threads)
    if settings.provider in ort.get_available_providers():
        return {"providers": [(settings.provider, table)]}
    options.add_provider_for_devices(plug_in_devices(settings.provider)[:1], table)
    return {}


def _options(settings: SessionSettings, trace_prefix: Path | None, optimized: Path | None) -> ort.SessionOptions:
    """What the runtime is told about a session."""
    options = ort.SessionOptions()
    options.log_severity_level = SILENT
    options.intra_op_num_threads = settings.threads
    options.graph_optimization_level = OPTIMIZATIONS[settings.optimization]
    # An idle pool that spins takes the processors from the other session and doubles its latency.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if settings.provider != CPU:
        # Not session.disable_cpu_ep_fallback: it names no node, and refuses the shape arithmetic that CUDA leaves.
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        options.enable_mem_pattern = settings.provider != DIRECTML
    if trace_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(trace_prefix)
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
        entry = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(entry, f"{optimized.name}.data")
    return options


def operands(session: Session, feeds: Feeds) -> Operands:
    """What :func:`run` takes: the arrays, or values of the runtime over their memory where numpy lacks a type."""
    is_plain = all(map(_is_plain, feeds.values()))
    if is_plain and not any(FOREIGN.fullmatch(output.type) for output in session.get_outputs()):
        return feeds
    return {name: value_of(array) for name, array in feeds.items()}


def _is_plain(array: npt.NDArray[Any]) -> bool:
    """Whether it is of a type of numpy's own, which the runtime takes as it is."""
    return array.dtype.isbuiltin == 1


def value_of(array: npt.NDArray[Any]) -> ort.OrtValue:
    """A value of the runtime, over the array's own memory where numpy has its type."""
    if _is_plain(array):
        return ort.OrtValue.ortvalue_from_numpy(array)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, helper.np_dtype_to_tensor_dtype(array.dtype))


def run(session: Session, feeds: Operands) -> None:
    """One inference; its outputs are dropped.

    Raises:
        PipelineError: the runtime fails, with its own reason.
    """
    is_foreign = isinstance(next(iter(feeds.values()), None), ort.OrtValue)
    try:
        (session.run_with_ort_values if is_foreign else session.run)(None, feeds)
    except Exception as error:
        raise PipelineError("the model", f"ONNX Runtime fails to run it ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    """The runtime's message without its prefix and its source path, in one line of a readable length."""
    text = " ".join(str(error).split()).removeprefix("[ONNXRuntimeError] : ")
    text = " ".join(SOURCE_LOCATION.sub(" ", text).split())
    return text if len(text) <= 300 else f"{text[:299]}…"
