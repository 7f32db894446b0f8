"""One reader per program."""

from __future__ import annotations

from pathlib import Path

from common.errors import UnusableValueError
from common.foreign_traces.calls import read_pytorch_layers
from common.foreign_traces.formats import Format
from common.foreign_traces.layers import LayerProfile
from common.foreign_traces.openvino import read_openvino_counters
from common.foreign_traces.qnn import read_qnn_layers
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
        UnusableValueError: the program saves no executed graph.
    """
    if program == "OpenVINO":
        return read_openvino_counters(path, executed)
    if program == "TensorRT":
        return read_tensorrt_profile(path, executed)
    if program == "QNN":
        return read_qnn_layers(path, executed)
    if executed is not None:
        raise UnusableValueError("executed_graph", "does not go with a profile of PyTorch", "leave it out")
    return read_pytorch_layers(path, graph)
