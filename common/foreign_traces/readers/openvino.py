"""Readers of what OpenVINO's benchmark_app writes: its counters as CSV, and the graph that it executed.

``-report_type detailed_counters`` and ``average_counters`` write ``layerName;execStatus;layerType;execType;realTime
(ms);cpuTime (ms)`` (Python writes the status as ``Status.EXECUTED``, C++ ends each row with a semicolon). Each block
ends with a row ``Total``; in a detailed report there is a block per inference request. A time is the mean over the runs
of its request. ``-exec_graph_path`` writes the executed graph as XML, with the model's nodes of each layer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from xml.etree import ElementTree

from common.foreign_traces.layers import Layer, LayerProfile
from common.messages.errors import PipelineError
from common.messages.names import quoted
from common.npu.source_file import read_text

WHAT = "a report of OpenVINO's counters as CSV"
GRAPH = "an executed graph of OpenVINO as XML"
MOST_BYTES = 100_000_000
COLUMNS = ("layerName", "execStatus", "layerType", "execType", "realTime (ms)")
FUSED = "undef"  # the implementation of a node that another one computes
ROUNDING_MS = 0.0006  # a time has three decimals
DTYPES = {
    **{"f32": "float32", "fp32": "float32", "f16": "float16", "fp16": "float16"},
    **{"bf16": "bfloat16", "i8": "int8", "u8": "uint8"},
}
_PRECISION = re.compile(r"_([a-z]+\d+)$", re.IGNORECASE)
_TIME = re.compile(r"\d{1,12}([.,]\d{1,9})?")


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    status: str
    layer_type: str
    executed_type: str
    time_ms: float


def read_openvino_counters(path: Path, graph: Path | None) -> LayerProfile:
    """Read a report; refuse a file of another kind, that is incomplete, or whose times do not add up.

    Without the executed graph, a layer computes the node that its name gives and what follows that.
    """
    blocks = [*_blocks(path, read_text(path, MOST_BYTES, WHAT).splitlines())]
    names = [[row.name for row in block] for block in blocks]
    if any(block != names[0] for block in names):
        raise PipelineError(path, "has requests with different layers", "record one model into a file")
    times_ms = [fmean(row.time_ms for row in rows) for rows in zip(*blocks, strict=True)]
    if not any(times_ms):
        raise PipelineError(path, "holds no layer with a time", "record it with performance counters")
    layers = tuple(_layers(blocks[0], times_ms))
    notes = [f"times are means over {len(blocks)} inference requests, each the mean over its runs"]
    if graph is not None:
        layers = _with_sources(graph, layers)
    return LayerProfile("OpenVINO", "openvino", tuple(_with_servants(layers)), None, notes=tuple(notes))


def _blocks(path: Path, lines: Sequence[str]) -> Iterator[list[_Row]]:
    rows: list[_Row] = []
    names: set[str] = set()
    for number, line in enumerate(lines, start=1):
        cells = line.split(";")
        if not line.strip() or tuple(cells[: len(COLUMNS)]) == COLUMNS:
            continue
        row = _row(path, number, cells)
        if row.name == "Total":
            _require_total(path, number, rows, row.time_ms)
            yield rows
            rows, names = [], set()
        elif row.name in names:
            problem = f"line {number}: {quoted(row.name)} is listed twice in one request; two reports are mixed"
            raise PipelineError(path, problem, "record it again")
        else:
            rows.append(row)
            names.add(row.name)
    if rows or not lines or number < 3:
        raise PipelineError(path, "ends within a request: its row 'Total' is missing", "record it again")


def _row(path: Path, number: int, cells: Sequence[str]) -> _Row:
    if len(cells) < len(COLUMNS) or not _TIME.fullmatch(cells[4].strip()):
        raise PipelineError(path, f"line {number} is no row of counters: {quoted(';'.join(cells))}", f"give {WHAT}")
    time_ms = float(cells[4].strip().replace(",", "."))
    return _Row(cells[0], cells[1].rpartition(".")[2], cells[2], cells[3], time_ms)


def _require_total(path: Path, number: int, rows: Sequence[_Row], total_ms: float) -> None:
    added_ms = math.fsum(row.time_ms for row in rows)
    if abs(added_ms - total_ms) > ROUNDING_MS * (len(rows) + 1):
        problem = f"the total in line {number} is {total_ms:,.3f} ms, but the layers above it take {added_ms:,.3f} ms"
        raise PipelineError(path, problem, "rows are lost or of another request: record it again")


def _layers(rows: Sequence[_Row], times_ms: Sequence[float]) -> Iterator[Layer]:
    """Yield the layers that ran, each with the nodes that are fused into it: their rows follow its row."""
    layer: Layer | None = None
    for row, time_ms in zip(rows, times_ms, strict=True):
        if row.status == "EXECUTED":
            if layer is not None:
                yield layer
            layer = _layer(row, time_ms)
        elif layer is not None and row.executed_type == FUSED:
            layer = replace(layer, ends_with=(*layer.ends_with, row.name))
    if layer is not None:
        yield layer


def _layer(row: _Row, time_ms: float) -> Layer:
    precision = _PRECISION.search(row.executed_type)
    dtype = DTYPES.get(precision[1].lower(), "") if precision else ""
    return Layer(row.name, row.layer_type, ((*_readings(row.name),),), mean_us=1e3 * time_ms, dtype=dtype)


def _readings(name: str) -> Iterator[str]:
    """Yield the name, and what remains of it without the parts that OpenVINO appends after a slash."""
    while name:
        yield name
        name = name.rpartition("/")[0]


def _with_servants(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Say which layer a change of layout serves: ``A_abcd_acdb_B`` is between A and B."""
    names = sorted((layer.name for layer in layers), key=len, reverse=True)
    for layer in layers:
        if layer.layer_type == "Reorder":
            behind = tuple(name for name in names if name and layer.name.endswith(f"_{name}"))
            yield replace(layer, serves=behind[:1], sources=())
        else:
            yield layer


def _with_sources(path: Path, layers: Sequence[Layer]) -> tuple[Layer, ...]:
    original_names = _original_names(path)
    if missing := [layer.name for layer in layers if layer.name not in original_names]:
        problem = f"lacks the layer {quoted(missing[0])} of the report"
        raise PipelineError(path, problem, "give the graph that the same command wrote")
    return tuple(
        replace(layer, sources=tuple(tuple(_readings(name)) for name in original_names[layer.name] if name))
        for layer in layers
    )


def _original_names(path: Path) -> Mapping[str, Sequence[str]]:
    try:
        root = ElementTree.fromstring(read_text(path, MOST_BYTES, GRAPH))
    except (ElementTree.ParseError, ValueError) as error:
        raise PipelineError(path, f"is no XML that can be read ({error})", f"give {GRAPH}") from error
    names = {}
    for layer in root.iter("layer"):
        data = layer.find("data")
        names[layer.get("name", "")] = (data.get("originalLayersNames", "") if data is not None else "").split(",")
    return names
