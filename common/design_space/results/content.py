"""Values as text, from which equal values can be made again: what a result follows from, and the result itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from common.process.code_version import code_version as version_of

SOURCES = ("common.design_space", "common.workload")  # what computes results from layers and accelerators
PACKAGES = ("numpy", "torch", "cma", "nevergrad", "optuna")  # whose versions may change a result


def text_of(value: Any) -> str:
    """Return a value of plain types, tuples, lists, sets, mappings and dataclasses as text.

    Equal texts are equal values. The order of a mapping counts, because results may follow it.
    """
    return json.dumps(_encoded(value), separators=(",", ":"))


def value_of(text: str, kinds: Iterable[type] = ()) -> Any:
    """Return the value of a text that :func:`text_of` made.

    Raises:
        ValueError: it is no such text.
    """
    try:
        return _decoded(json.loads(text), {kind.__name__: kind for kind in kinds})
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"no value of ours ({error!r})") from error


def _encoded(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if isinstance(value, list):
        return {"list": [_encoded(item) for item in value]}
    if isinstance(value, set | frozenset):
        return {"set": sorted((_encoded(item) for item in value), key=json.dumps)}
    if isinstance(value, Mapping):
        return {"map": [[_encoded(key), _encoded(item)] for key, item in value.items()]}
    if is_dataclass(value):
        return {type(value).__name__: [_encoded(getattr(value, field.name)) for field in fields(value)]}
    raise TypeError(f"{type(value).__name__} has no text")


def _decoded(value: Any, kinds: Mapping[str, type]) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(item, kinds) for item in value)
    if not isinstance(value, dict):
        return value
    ((name, items),) = value.items()
    decoded = [_decoded(item, kinds) for item in items]
    if name == "list":
        return decoded
    if name == "set":
        return frozenset(decoded)
    return dict(decoded) if name == "map" else kinds[name](*decoded)


def code_version() -> str:
    return version_of(SOURCES, PACKAGES)
