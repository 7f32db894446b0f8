"""The process in which a session of the QNN provider runs: see :mod:`common.runtime.qnn`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_qnn

from common.messages.errors import PipelineError
from common.runtime.library import SILENT, ort
from common.runtime.providers.provider_check import assigned_nodes, require_assignment
from common.runtime.providers.provider_table import CPU, plug_in_devices
from common.runtime.qnn import FEEDS, PROFILE, RESULT, SPECIFICATION
from common.runtime.sessions.session import reason_of

PROVIDER = "qnn"
COMPILED = "EPContext"  # the operator that holds a compiled graph


def main(folder: str) -> None:
    """Run the session that a folder specifies, and leave its result there, or the error."""
    os.chdir(folder)
    specification = json.loads(Path(SPECIFICATION).read_text(encoding="utf-8"))
    try:
        result: dict[str, Any] = {"outputs": run_session(specification)}
    except PipelineError as error:
        result = {"error": str(error).replace("<provider> ", "provider ")}
    Path(RESULT).write_text(json.dumps(result), encoding="utf-8")


def run_session(specification: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run a model on the HTP and once on the CPU, and return how far their results are apart.

    The CPU cannot run a model that was compiled before. PipelineError: the provider does not take every node, or a
    session fails.
    """
    model = specification["model"]
    with np.load(FEEDS) as arrays:
        feeds = dict(zip(specification["inputs"], arrays.values(), strict=True))
    ort.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
    options = _options(specification["dims"])
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.add_provider_for_devices(
        plug_in_devices(PROVIDER)[:1], provider_options(specification, onnxruntime_qnn.get_qnn_htp_path())
    )
    try:
        session = ort.InferenceSession(model, options)
        require_assignment(session, PROVIDER)
        results = [session.run(None, feeds) for _ in range(specification["runs"])][-1]
        if any(node.op_type == COMPILED for node in assigned_nodes(session)):
            return []
        host = ort.InferenceSession(model, _options(specification["dims"]), providers=[CPU])
        expected = host.run(None, feeds)
    except PipelineError:
        raise
    except Exception as error:  # the runtime raises a dozen unrelated types
        problem = f"ONNX Runtime fails with the QNN provider ({reason_of(error)})"
        raise PipelineError(model, problem, "profile on the CPU") from error
    names = [output.name for output in session.get_outputs()]
    return [output_error(*parts) for parts in zip(names, results, expected, strict=True)]


def provider_options(specification: Mapping[str, Any], library: str) -> dict[str, str]:
    """Return the options of the provider; quantization at the graph's border is left to the HTP, not to the CPU."""
    return {
        "backend_path": library,
        "profiling_level": specification["level"],
        "profiling_file_path": PROFILE,
        "enable_framework_op_trace": "1",
        "soc_model": str(specification["soc_model"]),
        "htp_performance_mode": specification["performance_mode"],
        "enable_htp_fp16_precision": "1",
        "offload_graph_io_quantization": "0",
    }


def output_error(name: str, result: Any, expected: Any) -> dict[str, Any]:
    """Return how far a result is from the CPU's, and how large that is; None where it is no number, as with NaN."""
    returned, wanted = (np.asarray(array).astype(np.float64) for array in (result, expected))
    error = float(np.abs(returned - wanted).max(initial=0)) if returned.shape == wanted.shape else float("nan")
    magnitude = float(np.abs(wanted).max(initial=0))
    return {
        "output": name,
        "max_error": error if np.isfinite(error) else None,
        "max_magnitude": magnitude if np.isfinite(magnitude) else None,
    }


def _options(dims: Mapping[str, int]) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = SILENT
    for name, size in dims.items():
        options.add_free_dimension_override_by_name(name, size)
    return options
