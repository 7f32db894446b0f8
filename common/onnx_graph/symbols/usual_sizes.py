"""Usual sizes of dynamic dimensions, for a hint: those of the model's processor or its file name, else common ones."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import onnx

from common.files.small_file import small_text
from common.messages.errors import ConfigurationError

IMAGE_AXES = {1: "channels", 2: "height", 3: "width"}
DEFAULTS = {"batch": 1, "channels": 3, "height": 224, "width": 224, "sequence": 128, "samples": 16_000, "frames": 100}
# Parts of the names of dimensions, by kind of dimension. The first that fits counts.
WORDS = {
    "batch": re.compile(r"batch|^(n|b|bs)$", re.IGNORECASE),
    "sequence": re.compile(r"seq|token|length|ctx|context|^(s|t|l)$", re.IGNORECASE),
    "height": re.compile(r"height|^h$", re.IGNORECASE),
    "width": re.compile(r"width|^w$", re.IGNORECASE),
    "channels": re.compile(r"channel|^c$", re.IGNORECASE),
    "samples": re.compile(r"sample|audio|wave", re.IGNORECASE),
    "frames": re.compile(r"frame|time", re.IGNORECASE),
}
# Files that Hugging Face's exporters write beside a model, with their keys for images and for text.
PROCESSORS = ("preprocessor_config.json", "processor_config.json", "config.json")
# `vit-b16-224.onnx` and `encoder-512x384.onnx`, but neither `resnet152` nor `v2`: sizes of images are multiples of 16.
SIZE_IN_NAME = re.compile(r"(?<![0-9])(\d{2,4})(?:x(\d{2,4}))?(?![0-9])")
LEAST_IMAGE, GRANULE = 64, 16


def usual_sizes(path: Path, inputs: Iterable[onnx.ValueInfoProto], names: Collection[str]) -> dict[str, int]:
    """Return a usable size for each of these dynamic dimensions of a model's inputs."""
    kinds = {name: _by_name(name) for name in names} | dict(_kinds(inputs))
    known = {**DEFAULTS, **_sizes_in_name(path.stem), **_sizes_of_processor(path.parent)}
    sizes = {name: known.get(kinds.get(name, ""), 1) for name in names}
    return sizes | _sums(sizes)


def _kinds(inputs: Iterable[onnx.ValueInfoProto]) -> Iterable[tuple[str, str]]:
    """Yield the kind of each dimension, by its name, else by its place."""
    for value in inputs:
        tensor = value.type.tensor_type
        rank = len(tensor.shape.dim)
        for axis, dim in enumerate(tensor.shape.dim):
            name = dim.dim_param or f"{value.name}.{axis}"
            yield name, _by_name(dim.dim_param) or _by_place(axis, rank)


def _by_name(name: str) -> str:
    return next((kind for kind, words in WORDS.items() if words.search(name)), "")


def _by_place(axis: int, rank: int) -> str:
    if axis == 0:
        return "batch"
    if rank == len(IMAGE_AXES) + 1:
        return IMAGE_AXES[axis]
    return "sequence" if axis == 1 else ""


def _sums(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return each total length: the cache and the new part."""
    past = next((size for name, size in sizes.items() if "past" in name.lower() and "total" not in name.lower()), None)
    new = next((size for name, size in sizes.items() if "seq" in name.lower() and "past" not in name.lower()), None)
    if past is None or new is None:
        return {}
    return {name: past + new for name in sizes if "total" in name.lower()}


def _sizes_in_name(stem: str) -> dict[str, int]:
    for found in SIZE_IN_NAME.finditer(stem):
        height, width = int(found[1]), int(found[2] or found[1])
        if min(height, width) >= LEAST_IMAGE and not height % GRANULE and not width % GRANULE:
            return {"height": height, "width": width}
    return {}


def _sizes_of_processor(folder: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name in reversed(PROCESSORS):
        content = _mapping(folder / name)
        for key in ("image_size", "size", "crop_size"):
            sizes |= _image_sizes(content.get(key))
        longest = content.get("max_position_embeddings")
        if isinstance(longest, int) and longest > 0:
            sizes["sequence"] = min(DEFAULTS["sequence"], longest)
    return sizes


def _mapping(path: Path) -> dict[str, Any]:
    """Return what a file beside the model says; it is not our file, so a damaged one says nothing."""
    try:
        content = json.loads(small_text(path)) if path.is_file() else {}
    except (ConfigurationError, OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _image_sizes(size: Any) -> dict[str, int]:
    """Return height and width of a number, a pair, or an object with ``height`` and ``width`` or ``shortest_edge``."""
    match size:
        case bool():
            return {}
        case int(edge) | {"shortest_edge": int(edge)}:
            pair = (edge, edge)
        case [int(height), int(width)] | {"height": int(height), "width": int(width)}:
            pair = (height, width)
        case _:
            return {}
    return dict(zip(("height", "width"), pair, strict=True)) if min(pair) > 0 else {}
