"""Runs on Qualcomm's HTP through ONNX Runtime's QNN provider, recorded as the files that QNN writes.

The provider is a plug-in (package onnxruntime-qnn). On Linux x86-64 it brings an emulator of the HTP, which computes
the same results in times of its own. It writes some of its files into the working directory, and its libraries print.
So the session runs in a process of its own (:mod:`common.runtime.qnn_session`), in an empty folder.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.messages.errors import PipelineError
from common.messages.names import shown
from common.runtime.inputs.values import Feeds

PACKAGE = "onnxruntime_qnn"
# What the provider records for each profiling level that QNN's tools have. It accepts the last three words as well, and
# then records nothing at all (onnxruntime-qnn 2.7.0).
LEVELS = {
    **{level: level for level in ("basic", "detailed", "optrace")},
    **{"backend": "detailed", "client": "basic", "linting": "detailed"},
}
NOT_ONNX = {
    ".dlc": "is a DLC, which the QNN provider does not run: qnn-context-binary-generator compiles it to a context",
    ".bin": "is a context binary without a model around it",
}
WRAP = "ONNX Runtime's gen_qnn_ctx_onnx_model.py wraps a context in an ONNX model (EPContext): give that"
# https://onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html, htp_performance_mode
PERFORMANCE_MODES = (
    *("default", "burst", "balanced", "high_performance", "sustained_high_performance", "high_power_saver"),
    *("low_balanced", "low_power_saver", "power_saver", "extreme_power_saver"),
)
SPECIFICATION, FEEDS, RESULT, PROFILE = "session.json", "feeds.npz", "result.json", "profile.csv"
OP_TRACE, SCHEMATICS = "qnn_op_trace.json", "*_schematic.bin"
START = "import sys; from common.runtime.qnn_session import main; main(sys.argv[1])"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class QnnSettings:
    """Settings of a recording."""

    runs: int
    soc_model: int  # Qualcomm's number of the chip that the graph is compiled for
    level: str  # profiling level, a key of ``LEVELS``; ``optrace`` adds the schematic
    performance_mode: str  # what the processor's clocks are set to; the emulator has none
    timeout_s: float | None = None  # longest time of the compilation, and of each inference; None: there is no limit

    @property
    def session_timeout_s(self) -> float | None:
        return None if self.timeout_s is None else self.timeout_s * (1 + self.runs)


@dataclass(frozen=True, slots=True)
class QnnFiles:
    """The files of a recording; one that the profiling level does not give is None."""

    profile: Path
    schematic: Path | None
    op_trace: Path | None
    # How far each result is from the CPU's (``output_error`` of the session); none for a model that was compiled before
    errors: list[dict[str, Any]]

    @property
    def no_errors(self) -> str:
        return "" if self.errors else "the CPU cannot run a model that was compiled for the HTP (EPContext)"


def level_gap(level: str) -> str:
    """Return why a profiling level is recorded as another one; an empty string where it is not."""
    if LEVELS[level] == level:
        return ""
    return (
        f"Qualcomm's native SDK has the profiling level {level}. ONNX Runtime's provider accepts the word and records "
        f"nothing, so {LEVELS[level]} was recorded"
    )


def require_onnx(model: Path) -> None:
    """Refuse the formats of QNN's own tools, which the provider takes only within an ONNX model."""
    if problem := NOT_ONNX.get(model.suffix.lower()):
        raise PipelineError(model, problem, WRAP)


def record(model: Path, feeds: Feeds, dims: Mapping[str, int], settings: QnnSettings, folder: Path) -> QnnFiles:
    """Run a model on the HTP and return what QNN wrote into an empty folder.

    ``dims`` are the sizes of its dynamic dimensions: QNN takes static shapes only. PipelineError: the provider is not
    installed, does not take every node, fails, or takes too long.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        remedy = "make npu sets it up in an environment of its own; requirements-qnn.txt lists what that holds"
        raise PipelineError("provider qnn", "onnxruntime-qnn is not installed here", remedy)
    for name, array in feeds.items():
        if array.dtype.kind not in "biuf":
            raise PipelineError(model, f"input {shown(name)} has the type {array.dtype}, which QNN does not take")
    np.savez(folder / FEEDS, *feeds.values())
    specification = {"model": str(model.resolve()), "inputs": [*feeds], "dims": dict(dims), **asdict(settings)}
    specification["level"] = LEVELS[settings.level]
    (folder / SPECIFICATION).write_text(json.dumps(specification), encoding="utf-8")
    command = [sys.executable, "-c", START, str(folder.resolve())]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=settings.session_timeout_s)
    except subprocess.TimeoutExpired as error:
        problem = f"the process with the QNN provider took more than {error.timeout:g} s and was ended"
        raise PipelineError(model, problem, "give fewer <runs>, or raise <run_timeout>") from error
    if not (folder / RESULT).is_file():
        problem = f"the process with the QNN provider ended with code {done.returncode} and left no result"
        raise PipelineError(model, problem, "the model may be too large for this host, or a bug in the provider")
    result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    if "error" in result:
        subject, _, problem = result["error"].partition(": ")
        raise PipelineError(f"{subject}, SoC model {settings.soc_model}", problem)
    return _recording(model, folder, result["outputs"])


def _recording(model: Path, folder: Path, outputs: list[dict[str, Any]]) -> QnnFiles:
    schematics, trace, profile = [*folder.glob(SCHEMATICS)], folder / OP_TRACE, folder / PROFILE
    if len(schematics) > 1:
        problem = f"QNN divided it into {len(schematics)} graphs"
        raise PipelineError(model, problem, "give a model that QNN takes as a whole, or profile its parts")
    if not profile.is_file():
        raise PipelineError(model, "the QNN provider wrote no profile", "give another <level>")
    return QnnFiles(profile, next(iter(schematics), None), trace if trace.is_file() else None, outputs)
