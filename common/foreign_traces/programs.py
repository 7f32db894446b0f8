"""The programs whose profiles can be read: each is recognised by the first characters of its file, and has a reader."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from common.foreign_traces.layers import LayerProfile
from common.foreign_traces.readers.ai_hub import read_ai_hub_profile
from common.foreign_traces.readers.calls import read_pytorch_layers
from common.foreign_traces.readers.openvino import read_openvino_counters
from common.foreign_traces.readers.qnn import read_qnn_layers
from common.foreign_traces.readers.tensorrt import read_tensorrt_profile
from common.foreign_traces.readers.tflite import read_tflite_profile
from common.graphs.graph import Graph
from common.messages.errors import PipelineError, UnusableValueError

HEAD_BYTES = 1 << 16
Format = Literal["ONNX Runtime", "OpenVINO", "TensorRT", "PyTorch", "QNN", "Qualcomm AI Hub", "TensorFlow Lite"]
KNOWN = "a profile of ONNX Runtime, OpenVINO, TensorRT, PyTorch, QNN, Qualcomm AI Hub or TensorFlow Lite"
WRONG = (
    (b"\xff\xfe", "is UTF-16 text", "save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text", "save it as UTF-8"),
    (b"\x1f\x8b", "is compressed", "unpack it"),
    (b"PK\x03\x04", "is compressed", "unpack it"),
    (b"Command line parameters", "is a report without counters", "give the report whose name has 'counters'"),
)


def recognised(path: Path) -> Format:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise PipelineError(path, "is not a file", f"give {KNOWN}")
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror})", f"give {KNOWN}") from error
    for start, problem, remedy in WRONG:
        if head.startswith(start):
            raise PipelineError(path, problem, remedy)
    if (program := _program(head.removeprefix(b"\xef\xbb\xbf").lstrip())) is None:
        raise PipelineError(path, "is no profile of a known program", f"give {KNOWN}")
    return program


def _program(head: bytes) -> Format | None:
    if b"= Run Order =" in head:  # first of all: a line of a log may begin with a time in brackets
        return "TensorFlow Lite"
    if head.startswith(b"["):
        return _of_list(head)
    if head.startswith(b"{"):
        return _of_object(head)
    if head.startswith(b"layerName;"):
        return "OpenVINO"
    return "QNN" if b"msg timestamp" in head.lower() else None


def _of_list(head: bytes) -> Format:
    if b'"CPU functions"' in head:
        return "PyTorch"
    return "TensorRT" if b'"count"' in head[:200] and b'"cat"' not in head[:200] else "ONNX Runtime"


def _of_object(head: bytes) -> Format | None:
    if b'"execution_detail"' in head or b'"execution_summary"' in head:
        return "Qualcomm AI Hub"
    return "PyTorch" if b'"traceEvents"' in head or b'"schemaVersion"' in head else None


def read_profile(program: Format, path: Path, executed: Path | None, graph: Graph) -> LayerProfile:
    """Read a profile; ``executed`` is what the program saved of the graph that it executed, if anything.

    Raises:
        PipelineError: the file is no such profile.
        UnusableValueError: the program saves no executed graph.
    """
    match program:
        case "OpenVINO":
            return read_openvino_counters(path, executed)
        case "TensorRT":
            return read_tensorrt_profile(path, executed)
        case "QNN":
            return read_qnn_layers(path, executed)
        case _ if executed is not None:
            raise UnusableValueError("executed_graph", f"does not go with a profile of {program}", "leave it out")
        case "Qualcomm AI Hub":
            return read_ai_hub_profile(path)
        case "TensorFlow Lite":
            return read_tflite_profile(path)
    return read_pytorch_layers(path, graph)
