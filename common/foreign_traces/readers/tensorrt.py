"""Readers of what TensorRT's trtexec writes: ``--exportProfile`` and ``--exportLayerInfo``, both JSON.

A profile is a list: ``{"count": runs}``, then ``{"name", "timeMs", "averageMs", "medianMs", "percentage"}`` per layer
(``medianMs`` since TensorRT 8.2). Layer information is ``{"Layers": [...]}``: names, or with
``--profilingVerbosity=detailed`` objects with type, tensors and ``Metadata``, which names the model's nodes. Shapes of
both were taken from the examples of NVIDIA/TensorRT (tools/experimental/trt-engine-explorer).

A layer's name joins those of its nodes by `` + ``, or by `` || `` where they run side by side. It wraps pointwise ones
into ``PWN(…)``, names a subgraph by its first and its last node (``{ForeignNode[first...last]}``), and lists all nodes
of a part that runs on the DLA (``{a,b,…}``). A change of layout names the layer that it serves, and so does a copy to
or from the DLA. A copy for a concatenation names the tensor that it copies (``639 copy``). The names before TensorRT 8,
those of the DLA and of copies were taken from the profiles of ismetdagli/HaX-CoNN and of NVIDIA/TensorRT.

A kernel of TensorRT 10 that holds one product has the name of its node with ``_myl<number>_<number>`` behind it, and
underscores for dots (``/model_10/attn/MatMul_myl109_2``). One that holds other operations names their kinds only
(``__myl_MulMaxSubExpSum_myl109_3``): the layer information with its ``Metadata`` says which nodes these are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias

from common.foreign_traces.layers import Layer, LayerProfile, Names, exported_items, uniquely_named
from common.messages.errors import PipelineError
from common.messages.names import quoted

WHAT = "a profile that trtexec exported as JSON"
INFORMATION = "the layer information that trtexec exported as JSON"
LONGEST_MS = 1e9  # no layer of a run takes longer
MOST_RUNS = 10**9
PERCENT_TOLERANCE = 1.0  # trtexec rounds each share to six digits
DTYPES = {
    **{"BF16": "bfloat16", "FP16": "float16", "HALF": "float16"},
    **{"INT8": "int8", "FP8": "float8e4m3fn", "FP32": "float32", "FLOAT": "float32"},
}
Object: TypeAlias = dict[str, object]  # of JSON
_SERVES = (
    re.compile(r"Reformatting CopyNode for \w+ Tensor \d+ to (.+)", re.DOTALL),
    re.compile(r"(?:copied_)?(?:reshape|shuffle|(?:un)?squeeze(?:_node)?)_(?:before|after)_(.+)", re.DOTALL),
    re.compile(r"(.+) (?:input reformatter \d+|output (?:reformatter|to be reformatted) \d+(?: finish)?)", re.DOTALL),
    re.compile(r"(.+?) (?:(?:to|from) nvm|copy finish|finish|copy)", re.DOTALL),
)
_SUBGRAPH = re.compile(r"\{ForeignNode\[(.*)\.\.\.(.*)\]\}", re.DOTALL)
_DLA = re.compile(r"\{(.+)\}", re.DOTALL)
_JOINED = re.compile(r" \+ | \|\| |, ")
_ADDED = re.compile(r"_clone_\d+$|_myl\d+_\d+$")  # to the name of a node
_COPIED = re.compile(r".*[^_]_(/.+)", re.DOTALL)  # a concatenation, and the tensor that is copied for it
_SOURCE = re.compile(r"\[ONNX Layer: ([^\]]+)\]")


class _Output(NamedTuple):
    """A tensor that a layer writes; its shape is empty where it is unknown."""

    name: str
    dims: tuple[int, ...]
    dtype: str


def read_tensorrt_profile(path: Path, information: Path | None) -> LayerProfile:
    """Read a profile; refuse a file of another kind, that is incomplete, or files of different engines.

    Without the ``information`` on the layers of the same engine, only their names say what they compute.
    """
    first, *entries = _items(path, "", WHAT)
    runs = first.get("count") if isinstance(first, dict) else None
    if not isinstance(runs, int) or isinstance(runs, bool) or not 0 < runs < MOST_RUNS or not entries:
        raise PipelineError(path, "does not begin with the count of runs, followed by layers", f"give {WHAT}")
    layers = uniquely_named(_layer(path, entry) for entry in entries)
    _require_whole(path, [entry for entry in entries if isinstance(entry, dict)])
    profile = LayerProfile("TensorRT", "tensorrt", layers, runs, is_of_device=True)
    return profile if information is None else _informed(information, profile)


def _items(path: Path, key: str, what: str) -> list[Object | str]:
    items = [*exported_items(path, key, what)]
    known = [item for item in items if isinstance(item, dict | str)]
    if not known or len(known) < len(items):
        raise PipelineError(path, "holds no list of layers", f"give {what}")
    return known


def _layer(path: Path, entry: Object | str) -> Layer:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(name, str):
        raise PipelineError(path, f"has a layer without a name: {quoted(entry)}", f"give {WHAT}")
    mean_ms, median_ms = (_time_ms(path, entry, key) for key in ("averageMs", "medianMs"))
    if mean_ms is None:
        raise PipelineError(path, f"the layer {quoted(name)} has no averageMs", f"give {WHAT}")
    return replace(_named(name), mean_us=1e3 * mean_ms, median_us=None if median_ms is None else 1e3 * median_ms)


def _time_ms(path: Path, entry: Object, key: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_MS:
        return float(value)
    raise PipelineError(path, f"{key} of {quoted(entry['name'])} is {quoted(value)}, not a time", "export it again")


def _require_whole(path: Path, entries: Sequence[Object]) -> None:
    """Check that the shares of all layers add up to the whole: none is lost, none is of another engine."""
    shares = [_time_ms(path, entry, "percentage") for entry in entries]
    known = [share for share in shares if share is not None]
    if len(known) == len(shares) and abs(math.fsum(known) - 100) > PERCENT_TOLERANCE:
        problem = f"the shares of its layers add up to {math.fsum(known):.1f} %, not 100 %"
        raise PipelineError(path, problem, "layers are lost or of another engine: export it again")


def _named(name: str) -> Layer:
    for pattern in _SERVES:
        if serving := pattern.fullmatch(name):
            readings = ((names,) if isinstance(names, str) else names for names in _sources(serving[1]))
            return Layer(name, "Reformat", serves=tuple(dict.fromkeys((serving[1], *chain.from_iterable(readings)))))
    if subgraph := _SUBGRAPH.fullmatch(name):
        return Layer(name, "ForeignNode", sources=(subgraph[1],), ends_with=(subgraph[2],))
    return Layer(name, "DLA" if _DLA.fullmatch(name) else "Layer", sources=(*_sources(name),))


def _sources(name: str) -> Iterator[Names]:
    if subgraph := _SUBGRAPH.fullmatch(name):
        yield from subgraph.groups()
    elif part := _DLA.fullmatch(name):
        yield from part[1].split(",")
    else:
        yield from (tuple(dict.fromkeys(_readings(part))) for part in _JOINED.split(name))


def _readings(part: str) -> Iterator[str]:
    """Yield the names that a part may have in the model: without PWN, brackets and the marks of a copy."""
    yield part
    for reading in (part.removeprefix("PWN(").strip("()"), part.replace("PWN(", "").rstrip(")")):
        yield from (reading, bare := _ADDED.sub("", reading))
        if copied := _COPIED.fullmatch(bare):
            yield copied[1]


def _informed(path: Path, profile: LayerProfile) -> LayerProfile:
    items = {
        item if isinstance(item, str) else str(item.get("Name")): item for item in _items(path, "Layers", INFORMATION)
    }
    if not any(layer.name in items for layer in profile.layers):
        problem = f"has no layer of the profile ({quoted(profile.layers[0].name)}, …)"
        raise PipelineError(path, problem, "give the information of the same engine")
    detailed = {name: (item, _outputs(path, item)) for name, item in items.items() if isinstance(item, dict)}
    layers = (
        _with_information(layer, *detailed[layer.name]) if layer.name in detailed else layer for layer in profile.layers
    )
    shapes = {output.name: output.dims for _, outputs in detailed.values() for output in outputs if output.dims}
    return replace(profile, layers=tuple(layers), shapes=shapes)


def _with_information(layer: Layer, item: Object, outputs: Sequence[_Output]) -> Layer:
    named = item.get("LayerType")
    layer_type = named if isinstance(named, str) and named else layer.layer_type
    dtype = next((output.dtype for output in outputs if output.dtype), "")
    if layer.serves:
        return replace(layer, layer_type=layer_type, dtype=dtype)
    metadata = _SOURCE.findall(str(item.get("Metadata", "")))
    sources = (*metadata, *layer.sources, *(output.name for output in outputs))
    return replace(layer, layer_type=layer_type, dtype=dtype, sources=sources)


def _outputs(path: Path, item: Object) -> list[_Output]:
    outputs = item.get("Outputs", [])
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        problem = f"the outputs of {quoted(item.get('Name'))} are no list of tensors"
        raise PipelineError(path, problem, f"give {INFORMATION}")
    return [_output(output) for output in outputs]


def _output(output: Object) -> _Output:
    dims, words = output.get("Dimensions"), str(output.get("Format/Datatype", "")).upper()
    shape = tuple(dims) if isinstance(dims, list) and all(type(extent) is int for extent in dims) else ()
    return _Output(str(output.get("Name")), shape, next((dtype for word, dtype in DTYPES.items() if word in words), ""))
