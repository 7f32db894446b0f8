"""The readers of files that others write, each as a function of a path, with small files that it reads.

A reader may return anything or raise an error of ours. Any other exception is a fault.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass
from functools import cache, partial
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
from PIL import Image

from common.artifacts import provenance
from common.artifacts.folder import Folder
from common.cli.flags.settings_file import configured_bindings, configured_settings
from common.files.model_folder import decoder_file
from common.files.yaml_file import load_yaml
from common.foreign_traces.programs import recognised
from common.graphs.graph import Graph, Tensor
from common.history.record import FigureName, Record, Revision
from common.history.store import RecordFile
from common.load.endpoint import by_http
from common.load.endpoint.tensors import metadata_of, require_answers
from common.load.requests.schedules import replay
from common.measurements.imported_profile import RecordedSession, imported_layers
from common.messages.errors import PipelineError
from common.npu.op_trace import read_op_trace
from common.npu.qhas import read_qhas
from common.npu.qnn_csv import read_qnn_csv
from common.npu.schematic import read_schematic
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.executed import load_executed_graph, without_weights
from common.onnx_graph.load import load_model
from common.onnx_graph.reading.naming import traced_bodies
from common.onnx_graph.reading.outline import annotated, outline
from common.onnx_graph.rows import metrics_row
from common.profiling.trace.reader import read_trace
from common.runtime.inputs.given import read_array, read_input
from tests.fuzz.programs import module_of, run_here
from tests.fuzz.protos import mutate
from tests.fuzz.seed_models import seed_models
from tests.support.paths import ROOT
from tests.support.processes.endpoints import METADATA
from tests.support.profiles.tflite_logs import tflite_log

LARGEST_SEED = 40_000  # bytes
TRACES, NPU = ROOT / "tests" / "foreign_traces" / "data", ROOT / "tests" / "npu" / "data"
QHAS = {"data": {"htp_overall_summary": {"data": [{"time_us": 7.0, "inf_per_s": 11.0}]}}}
Mutator = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Reader:
    """A reader, the name of the file that it is given, and the files to begin with.

    ``mutate`` changes a file by its structure, where changed bytes would mostly be no file of that kind at all.
    """

    file: str
    read: Callable[[Path], object]
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutator | None = None


def attempt(reader: Reader, content: bytes, folder: Path) -> None:
    """Give a file to a reader; an exception that is none of ours is raised."""
    path = folder / reader.file
    path.write_bytes(content)
    with suppress(PipelineError):
        reader.read(path)


# --- graphs ----------------------------------------------------------------------------------------------------------


def _small_models() -> list[onnx.ModelProto]:
    return [model for model in seed_models().values() if model.ByteSize() <= LARGEST_SEED]


def _models() -> list[bytes]:
    return [model.SerializeToString() for model in _small_models()]


def _count(path: Path) -> None:
    model = load_model(path, {}, symbolic=True)
    for count in count_nodes(model.graph, model.bounds):
        metrics_row(model, count)


def _annotate(path: Path) -> None:
    annotated(outline(path), {}, {})


def _read_executed(path: Path) -> None:
    graph = load_executed_graph(path, {})
    traced_bodies(path)
    count_nodes(graph, None)
    without_weights(path, [])


def mutated_model(content: bytes, rng: random.Random) -> bytes:
    """Change one field of a model, or take one from another model."""
    try:
        model = onnx.load_from_string(content)
        mutate(rng, model, _donors())
        return model.SerializeToString()
    except Exception:  # no model at all, or one that protobuf does not write any more
        return rng.choice(_donors()).SerializeToString()


_donors = cache(_small_models)


# --- traces ----------------------------------------------------------------------------------------------------------


def _files(*patterns: str, root: Path = TRACES) -> list[bytes]:
    return [path.read_bytes() for pattern in patterns for path in sorted(root.glob(pattern))]


@cache
def _profiled_model() -> Graph:
    return load_model(TRACES / "pytorch" / "model.onnx", {}).graph


def _import(path: Path) -> None:
    session = RecordedSession(path, None, 1, None)
    imported_layers(session, recognised(path), _profiled_model())


def _tensorrt() -> list[bytes]:
    layers = [{"name": name, "timeMs": 7.0, "averageMs": 0.7, "medianMs": 0.7, "percentage": 50.0} for name in "ab"]
    return [json.dumps([{"count": 10}, *layers]).encode()]


def _ai_hub() -> bytes:
    layer = {"name": "a", "type": "Conv2d", "compute_unit": "NPU", "execution_time": 7, "execution_cycles": 70}
    summary = {"estimated_inference_time": 9, "all_inference_times": [10, 9]}
    return json.dumps({"execution_summary": summary, "execution_detail": [layer]}).encode()


def _profiles() -> list[bytes]:
    others = [*_tensorrt(), _ai_hub(), tflite_log([("CONV_2D", "[a;b]:1", 0.1, 1)]).encode()]
    return [*_files("pytorch/*.json", "openvino/*.csv"), *others, *_files("*/profile.csv", root=NPU)]


# --- tables and histories --------------------------------------------------------------------------------------------

TABLES = ("op_metrics", "op_edges")


@cache
def _tables() -> dict[str, bytes]:
    """What 02 writes of a tiny model, with the sidecars."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("m.onnx").write_bytes(next(model for model in _models() if len(model) > 1000))
        run_here("02_shapes_flops_bytes.py", "--model", "m.onnx", "--out", "out")
        return {path.name: path.read_bytes() for path in Path("out").iterdir() if path.is_file()}


def _read_table(path: Path) -> None:
    """Read a table whose sidecar says that this is what its writer left."""
    record = json.loads(_tables()[f"{path.stem}.meta.json"])
    provenance.sidecar(path).write_text(json.dumps(record | {"sha256": provenance.sha256_of(path)}))
    Folder(path.parent, provenance.Provenance("", "")).rows_by_name(path.stem)


def _read_sidecar(path: Path) -> None:
    provenance.load(path.with_name(path.name.replace(".meta.json", ".csv")), "run it again")


def _history() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.sqlite"
        figures = {FigureName("end_to_end", "p50_us", ""): 1009.0, FigureName("node", "node_latency_us", "conv"): 11.0}
        for identity in "ab":
            described = (identity, Revision(identity, is_dirty=False), "out", "m" * 64, "m.onnx", {"batch": 1})
            record = Record(*described, {"hostname": "quiet"}, (), figures)
            with RecordFile(path).entering(record) as entry:
                entry.commit()
        return [path.read_bytes()]


def _read_history(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    RecordFile(path).newest(7)


def _model_folders() -> list[bytes]:
    """What GenAI writes, with names of files that a folder may not have."""
    names = [
        "model.onnx",
        "genai_config.json",
        "../m.onnx",
        "/etc/passwd",
        "",
        "x" * 300,
        "a\0b",
        "\ud800",
        None,
        7,
        [],
    ]
    return [json.dumps({"model": {"decoder": {"filename": name}, "type": "llama"}}).encode() for name in names]


def _configurations() -> list[bytes]:
    files = sorted((ROOT / "configs").rglob("*.yaml"))
    return [path.read_bytes() for path in files if path.stat().st_size < 10_000]


def _read_settings(path: Path) -> None:
    parser = module_of("02_shapes_flops_bytes.py").arguments()
    configured_settings(path, parser, {action.dest for action in parser._actions})
    configured_bindings(path, Path("resnet50-fp32.onnx"))


# --- requests and their answers --------------------------------------------------------------------------------------

IMAGE = Tensor("image", "float", 32, (1, 3, 5, 7), "input")


def _answers() -> list[bytes]:
    """An answer as text, one with its values after the JSON, and what an endpoint says of its model."""
    output = {"name": "twice", "datatype": "FP32", "shape": [1, 3]}
    by_text, by_bytes = {**output, "data": [0.0, 1.5, -2.0]}, {**output, "parameters": {"binary_data_size": 12}}
    documents = [{"model_name": "double", "outputs": [each]} for each in (by_text, by_bytes)]
    return [*(json.dumps(document).encode() for document in documents), json.dumps(METADATA).encode()]


def _read_answer(path: Path) -> None:
    """Read bytes as an answer with all that it can hold, and as metadata."""
    content = path.read_bytes()
    with suppress(PipelineError):
        metadata_of(by_http.json_object(content))
    end = content.rfind(b"}") + 1
    name, answers = by_http.answers_of(content, str(end) if end < len(content) else None)
    require_answers(metadata_of(METADATA), name, answers, 1)


def _arrays() -> list[bytes]:
    files = []
    for array in (np.arange(6, dtype=np.float32).reshape(2, 3), np.array(["a", "b"])):
        np.save(file := BytesIO(), array)
        files.append(file.getvalue())
    return files


def _images() -> list[bytes]:
    files = []
    for form in ("PNG", "JPEG", "BMP"):
        Image.new("RGB", (7, 5), (3, 5, 7)).save(file := BytesIO(), form)
        files.append(file.getvalue())
    return files


READERS: dict[str, Reader] = {
    "models": Reader("m.onnx", _count, _models, mutated_model),
    "outlines": Reader("m.onnx", _annotate, _models, mutated_model),
    "executed-graphs": Reader("m.onnx", _read_executed, _models, mutated_model),
    "traces": Reader("trace.json", read_trace, partial(_files, "onnxruntime-*/trace.json")),
    "profiles": Reader("profile", _import, _profiles),
    "qnn-csv": Reader("profile.csv", read_qnn_csv, partial(_files, "*/profile.csv", root=NPU)),
    "qnn-schematics": Reader("schematic.bin", read_schematic, partial(_files, "*/schematic.bin", root=NPU)),
    "qnn-op-traces": Reader("trace.json", read_op_trace, partial(_files, "*/qnn_op_trace.json", root=NPU)),
    "qhas": Reader("qhas.json", read_qhas, lambda: [json.dumps(QHAS).encode()]),
    "tables": Reader("op_metrics.csv", _read_table, lambda: [_tables()["op_metrics.csv"]]),
    "edges": Reader("op_edges.csv", _read_table, lambda: [_tables()["op_edges.csv"]]),
    "sidecars": Reader("op_edges.meta.json", _read_sidecar, lambda: [_tables()["op_edges.meta.json"]]),
    "histories": Reader("runs.sqlite", _read_history, _history),
    "model-folders": Reader("genai_config.json", lambda path: decoder_file(path.parent), _model_folders),
    "configurations": Reader("c.yaml", load_yaml, _configurations),
    "settings": Reader("s.ini", _read_settings, lambda: [(ROOT / "configs/settings.ini").read_bytes()]),
    "answers": Reader("answer", _read_answer, _answers),
    "arrivals": Reader("arrivals.csv", replay, lambda: [b"s,tokens\n0.5,7\n1.25,11\n", b"# s\n3\n5.5\n"]),
    "arrays": Reader("x.npy", lambda path: read_array(path, "x"), _arrays),
    "images": Reader("x.png", partial(read_input, IMAGE), _images),
}
