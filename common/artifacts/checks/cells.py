"""Cells and fields that hold JSON: what each kind of them looks like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _is_mapping(value: Any) -> bool:
    """Whether a value is a mapping from text: JSON would turn other keys into text."""
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def _is_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _is_shape(value: Any) -> bool:
    """Whether a value is a list of sizes; a size may be unknown, or a symbol."""
    return isinstance(value, list | tuple) and all(map(_is_size, value))


def _is_size(value: Any) -> bool:
    return value is None or isinstance(value, str) or (isinstance(value, int) and value >= 0)


def _is_shapes(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(shape is None or _is_shape(shape) for shape in value)


def _is_variants(value: Any) -> bool:
    """Whether a value is a list of (shapes of the operands, shapes of the outputs, count)."""
    return isinstance(value, list | tuple) and all(
        isinstance(variant, list | tuple)
        and len(variant) == 3
        and all(map(_is_shapes, variant[:2]))
        and isinstance(variant[2], int)
        and variant[2] >= 0
        for variant in value
    )


CELLS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "mapping": (_is_mapping, "mapping from names"),
    "names": (_is_names, "list of names"),
    "shape": (_is_shape, "list of sizes"),
    "shapes": (_is_shapes, "list of shapes"),
    "variants": (_is_variants, "list of shapes and their counts"),
}
