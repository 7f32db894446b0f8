"""How far the outputs of one execution provider are from another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class OutputDistance:
    """Errors of one output; each is None where it is not defined, as with NaN or other shapes.

    Attributes:
        output: its name.
        max_abs_error: largest difference of two elements.
        max_rel_error: largest difference over the magnitude of the expected element, where that is not 0.
        cosine_error: one less the cosine of the angle between both, as vectors.
        is_equal_shape: whether both have one shape.
    """

    output: str
    max_abs_error: float | None
    max_rel_error: float | None
    cosine_error: float | None
    is_equal_shape: bool


def output_errors(names: Sequence[str], found: Sequence[Any], expected: Sequence[Any]) -> list[OutputDistance]:
    """Compare outputs one by one; those that are no numbers have no errors unless they are equal."""
    return [_error(*parts) for parts in zip(names, found, expected, strict=True)]


def _error(name: str, found: Any, expected: Any) -> OutputDistance:
    one, other = np.asarray(found), np.asarray(expected)
    if one.shape != other.shape:
        return OutputDistance(name, None, None, None, is_equal_shape=False)
    if one.dtype.kind not in "biufc" or other.dtype.kind not in "biufc":
        error = 0.0 if one.tolist() == other.tolist() else None
        return OutputDistance(name, error, error, error, is_equal_shape=True)
    return _numeric(
        name, *(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64) for array in (one, other))
    )


def _numeric(name: str, one: Array, other: Array) -> OutputDistance:
    with np.errstate(invalid="ignore", over="ignore"):  # infinite elements have no error
        difference, magnitude = np.abs(one - other), np.abs(other)
        compared = magnitude > 0
        relative = difference[compared] / magnitude[compared]
        cosine = _cosine_error(one.ravel(), other.ravel())
    absolute, largest = _finite(difference.max(initial=0.0)), _finite(relative.max(initial=0.0))
    return OutputDistance(name, absolute, largest, _finite(cosine), is_equal_shape=True)


def _cosine_error(one: Array, other: Array) -> float:
    lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    if not lengths:
        return 0.0 if np.array_equal(one, other) else float("nan")
    return max(0.0, 1 - float(np.real(np.vdot(one, other))) / lengths)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
