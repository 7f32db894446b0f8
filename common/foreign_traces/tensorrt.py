"""Readers of what TensorRT's trtexec writes: ``--exportProfile`` and ``--exportLayerInfo``, both JSON.

A profile is a list: ``{"count": runs}``, then ``{"name", "timeMs", "averageMs", "medianMs", "percentage"}`` per layer
(``medianMs`` since TensorRT 8.2). Layer information is ``{"Layers": [...]}``: names, or with
``--profilingVerbosity=detailed`` objects with type, tensors and ``Metadata``, which names the model's nodes. Shapes of
both were taken from the examples of NVIDIA/TensorRT (tools/experimental/trt-engine-explorer).

A layer's name joins those of its nodes by `` + ``, wraps pointwise ones into ``PWN(…)``, and gives of a subgraph the
first and the last node: ``{ForeignNode[first...last]}``. A change of layout names the layer that it serves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.errors import PipelineError
from common.foreign_traces.layers import Layer, LayerProfile, uniquely_named
from common.json_stream import CutShortError, list_items
from common.names import quoted

WHAT = "a profile that trtexec exported as JSON"
INFORMATION = "the layer information that trtexec exported as JSON"
LONGEST_MS = 1e9  # no layer of a run takes longer
MOST_RUNS = 10**9
PERCENT_TOLERANCE = 1.0  # trtexec rounds each share to six digits
DTYPES = {
    "BF16": "bfloat16",
    "FP16": "float16",
    "HALF": "float16",
    "INT8": "int8",
    "FP8": "float8e4m3fn",
    "FP32": "float32",
    "FLOAT": "float32",
}
_SERVES = re.compile(
    r"Reformatting CopyNode for \w+ Tensor \d+ to (?P<layer>.+)|reshape_(?:before|after)_(?P<shaped>.+)"
)
_SUBGRAPH = re.compile(r"\{ForeignNode\[(.*)\.\.\.(.*)\]\}", re.DOTALL)
_SOURCE = re.compile(r"\[ONNX Layer: ([^\]]+)\]")


def read_tensorrt_profile(path: Path, information: Path | None) -> LayerProfile:
    """Read a profile.

    Without the ``information`` on the layers of the same engine, only their names tell what they compute.

    Raises:
        PipelineError: a file cannot be read, is of another kind or incomplete, or both are of different engines.
    """
    first, *entries = _items(path, "", WHAT)
    runs = first.get("count")
    if not isinstance(runs, int) or isinstance(runs, bool) or not 0 < runs < MOST_RUNS or not entries:
        raise PipelineError(path, "does not begin with the count of runs, followed by layers", f"give {WHAT}")
    layers = uniquely_named(_layer(path, entry) for entry in entries)
    _require_whole(path, entries)
    profile = LayerProfile("TensorRT", "tensorrt", layers, runs, is_of_device=True)
    return profile if information is None else _informed(information, profile)


def _items(path: Path, key: str, what: str) -> list[Any]:
    try:
        items = [*list_items(path, key, what)]
    except CutShortError as error:
        raise PipelineError(path, f"is cut short ({error})", "export it again") from error
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror})", f"give {what}") from error
    if not items or not all(isinstance(item, dict | str) for item in items):
        raise PipelineError(path, "holds no list of layers", f"give {what}")
    return items


def _layer(path: Path, entry: Any) -> Layer:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise PipelineError(path, f"has a layer without a name: {quoted(entry)}", f"give {WHAT}")
    name = entry["name"]
    mean_ms, median_ms = (_time_ms(path, entry, key) for key in ("averageMs", "medianMs"))
    if mean_ms is None:
        raise PipelineError(path, f"the layer {quoted(name)} has no averageMs", f"give {WHAT}")
    return replace(_named(name), mean_us=1e3 * mean_ms, median_us=None if median_ms is None else 1e3 * median_ms)


def _time_ms(path: Path, entry: Mapping[str, Any], key: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_MS:
        return float(value)
    raise PipelineError(path, f"{key} of {quoted(entry['name'])} is {quoted(value)}, not a time", "export it again")


def _require_whole(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Check that the shares of all layers add up to the whole: none is lost, none is of another engine."""
    shares = [_time_ms(path, entry, "percentage") for entry in entries]
    known = [share for share in shares if share is not None]
    if len(known) == len(shares) and abs(math.fsum(known) - 100) > PERCENT_TOLERANCE:
        problem = f"the shares of its layers add up to {math.fsum(known):.1f} %, not 100 %"
        raise PipelineError(path, problem, "layers are lost or of another engine: export it again")


def _named(name: str) -> Layer:
    if serving := _SERVES.fullmatch(name):
        return Layer(name, "Reformat", serves=serving["layer"] or serving["shaped"])
    if subgraph := _SUBGRAPH.fullmatch(name):
        return Layer(name, "ForeignNode", sources=(subgraph[1],), ends_with=(subgraph[2],))
    return Layer(name, "Layer", sources=(*_readings(name),))


def _readings(name: str) -> Iterator[str]:
    """Yield the names that a layer's name joins."""
    for part in re.split(r" \+ |, ", name):
        yield part
        if (inner := part.removeprefix("PWN(").strip("()")) != part:
            yield from (inner, part.replace("PWN(", "").rstrip(")"))


def _informed(path: Path, profile: LayerProfile) -> LayerProfile:
    told = {
        item if isinstance(item, str) else str(item.get("Name")): item for item in _items(path, "Layers", INFORMATION)
    }
    if not any(layer.name in told for layer in profile.layers):
        problem = f"has no layer of the profile ({quoted(profile.layers[0].name)}, …)"
        raise PipelineError(path, problem, "give the information of the same engine")
    outputs = {name: _outputs(path, item) for name, item in told.items() if isinstance(item, dict)}
    layers = (
        _with_information(layer, told[layer.name], outputs[layer.name]) if layer.name in outputs else layer
        for layer in profile.layers
    )
    shapes = {name: dims for written in outputs.values() for name, dims, _ in written if dims}
    return replace(profile, layers=tuple(layers), shapes=shapes)


def _with_information(layer: Layer, item: Mapping[str, Any], outputs: Sequence[tuple[str, Any, str]]) -> Layer:
    sources = tuple(_SOURCE.findall(str(item.get("Metadata", ""))))
    written = tuple(name for name, _, _ in outputs)
    kind = item.get("LayerType")
    layer_type = kind if isinstance(kind, str) and kind else layer.layer_type
    dtype = next((dtype for _, _, dtype in outputs if dtype), "")
    if layer.serves:
        return replace(layer, layer_type=layer_type, dtype=dtype)
    return replace(layer, layer_type=layer_type, dtype=dtype, sources=(*sources, *layer.sources, *written))


def _outputs(path: Path, item: Mapping[str, Any]) -> list[tuple[str, tuple[int, ...], str]]:
    outputs = item.get("Outputs", [])
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise PipelineError(
            path, f"the outputs of {quoted(item.get('Name'))} are no list of tensors", f"give {INFORMATION}"
        )
    found = []
    for output in outputs:
        dims, words = output.get("Dimensions"), str(output.get("Format/Datatype", "")).upper()
        is_shape = isinstance(dims, list) and all(type(extent) is int for extent in dims)
        dtype = next((dtype for word, dtype in DTYPES.items() if word in words), "")
        found.append((str(output.get("Name")), tuple(dims) if is_shape and dims else (), dtype))
    return found
