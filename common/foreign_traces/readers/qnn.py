"""A profile of QNN's HTP as layers: each run's time on the accelerator, divided over its nodes by their cycles.

A node's cycles are added up over the hardware threads, so its time is an allocation. A node of 0 cycles is computed by
another one: by those that the schematic names, else by what reads it.

ONNX Runtime names a node that it moved to another layout ``<node>_token_<number>``. Its QNN provider appends
``_<number>`` to a name that it has used before (microsoft/onnxruntime, pull request 25702), as in ``Conv_token_1_2``.
Qualcomm's converters turn all names into identifiers of C. Around a node they insert changes of shape, layout and type,
which have its name, or that of its tensor, with an ending such as ``_pre_reshape`` or ``_nfc``; a normalization that
they fuse is named after its last tensor, as ``rms_norm__Mul_2_output_0``. These forms were taken from profiles of
johnmaster/Cross-Backend_LLM_Inference_on_SnapDragon (qnn-profile-viewer 2.47).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from common.foreign_traces.layers import Layer, LayerProfile, Names
from common.messages.errors import PipelineError
from common.npu.nodes import NpuNode, npu_nodes, require_one_graph
from common.npu.op_trace import OpTrace, read_op_trace
from common.npu.qnn_csv import read_qnn_csv
from common.npu.qnn_profile import QnnProfile, QnnRun
from common.npu.schematic import Schematic, read_schematic

# The time of a run on the accelerator, by how much else it contains.
TIMES = ("accelerator_busy_us", "accelerator_us", "qnn_accelerator_us")
APPENDED = (re.compile(r"_token_\d+(_\d+)?$"), re.compile(r"_\d+$"))
FUSED = re.compile(r"^(?:rms|layer|group|instance)_norm_(?=_)")
INSERTED = re.compile(
    r"(.+?)_(?:(?:pre|post|lhs|rhs|output)_reshape|n(?:fc|cf|hwc|chw|dhwc|cdhw)|(?:(?:lhs|rhs)_)?cast_(?:to_)?\w+"
    r"|(?:lhs|rhs|weight)_transpose)",
    re.DOTALL,
)
ALLOCATION = (
    "a layer's time is the accelerator's, divided by cycles; these are added up over hardware threads, so it is an "
    "allocation"
)


def read_qnn_layers(path: Path, compiled: Path | None) -> LayerProfile:
    """Read a profile of a device; ``compiled`` is the session's schematic or qnn_op_trace.json, if there is one."""
    profile = read_qnn_csv(path)
    if profile.is_emulated:
        problem = f"has no valid times: they are the emulator's ({profile.evidence})"
        raise PipelineError(path, problem, "give a device's profile; <npu_nodes> says what is valid of this one")
    schematic, trace = _compiled(path, profile, compiled)
    nodes = npu_nodes(profile, schematic, trace, {})
    runs = [run for run in profile.runs if _time_us(run) is not None and _cycles(run)]
    if not runs:
        problem = "has no run with a time on the accelerator and the cycles of its nodes"
        raise PipelineError(path, problem, "record it again")
    busy = [node for node in nodes if any(run.node_cycles[node.op_id] for run in runs)]
    layers = tuple(_layer(node, nodes, runs) for node in busy)
    named = {names for layer in layers for names in layer.sources}
    idle = {names for node in nodes if node not in busy for names in _names(node)} - named
    durations_us = tuple(float(run.qnn_execute_us or 0) or _known_us(run) for run in runs)
    starts_us = tuple(sum(durations_us[:index]) for index in range(len(runs)))
    notes = [ALLOCATION, "runs are laid end to end: the profile does not say when each began"]
    if dropped := len(profile.runs) - len(runs):
        notes.append(f"{dropped} runs are left out: a time or the cycles of a node are unknown")
    return LayerProfile(
        *("QNN", "qnn", layers, len(runs), frozenset(idle)),
        run_start_us=starts_us,
        run_us=durations_us,
        is_of_device=True,
        notes=tuple(notes),
    )


def _compiled(path: Path, profile: QnnProfile, compiled: Path | None) -> tuple[Schematic | None, OpTrace | None]:
    if compiled is None:
        return None, None
    if _is_object(compiled):
        return None, read_op_trace(compiled)
    schematic = read_schematic(compiled)
    require_one_graph(profile, schematic, compiled)
    return schematic, None


def _is_object(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip().startswith(b"{")
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror})", "give a schematic or an op trace") from error


def _time_us(run: QnnRun) -> int | None:
    return next((time_us for name in TIMES if (time_us := getattr(run, name)) is not None), None)


def _known_us(run: QnnRun) -> float:
    return float(_time_us(run) or 0)


def _cycles(run: QnnRun) -> int:
    cycles = [value for value in run.node_cycles.values() if value is not None]
    return sum(cycles) if len(cycles) == len(run.node_cycles) else 0


def _layer(node: NpuNode, nodes: Sequence[NpuNode], runs: Sequence[QnnRun]) -> Layer:
    fused = [other for other in nodes if other.fused_into and other.fused_into[0] == node.name]
    sources = [names for part in (node, *fused) for names in _names(part)]
    run_us = tuple(_known_us(run) * ((run.node_cycles[node.op_id] or 0) / _cycles(run)) for run in runs)
    layer = Layer(node.name, node.qnn_op_type or "Node", tuple(dict.fromkeys(sources)), run_us=run_us)
    inserted = None if node.source_nodes else INSERTED.fullmatch(node.name)
    return replace(layer, serves=(inserted[1],)) if inserted else layer


def _names(node: NpuNode) -> Iterator[Names]:
    return map(readings, (*node.source_nodes, node.name))


def readings(name: str) -> tuple[str, ...]:
    """Return the name of a node, and what the model may call it: without the endings that QNN appends."""
    return tuple(dict.fromkeys((name, *(pattern.sub("", name) for pattern in (*APPENDED, FUSED)))))
