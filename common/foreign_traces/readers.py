"""One reader per program."""

from __future__ import annotations

from pathlib import Path

from common.errors import PipelineError
from common.foreign_traces.formats import Format
from common.foreign_traces.layers import LayerProfile
from common.foreign_traces.openvino import read_openvino_counters
from common.foreign_traces.tensorrt import read_tensorrt_profile
from common.graph import Graph


def read_profile(program: Format, path: Path, executed: Path | None, graph: Graph) -> LayerProfile:
    """Read a profile.

    Args:
        program: that recorded it.
        path: the profile.
        executed: what the program saved of the graph that it executed, if anything.
        graph: the model.

    Raises:
        PipelineError: a file cannot be used.
    """
    if program == "OpenVINO":
        return read_openvino_counters(path, executed)
    if program == "TensorRT":
        return read_tensorrt_profile(path, executed)
    raise PipelineError(path, f"is a profile of {program}, which cannot be imported", "give another one")
