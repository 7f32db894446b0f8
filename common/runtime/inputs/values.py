"""Arrays as the runtime takes them: fed by name to each run, or bound to a session once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy.typing as npt
from onnx import helper

from common.runtime.library import ort

# Output types that numpy lacks: such an output can only stay a value of the runtime.
FOREIGN = re.compile(r"tensor\((bfloat16|u?int[24]|float[48]e\w+)\)")
FIRST_ADDED = 256  # number of the first type that another package adds (NPY_USERDEF in numpy's ndarraytypes.h)
Array = npt.NDArray[Any]
Value: TypeAlias = ort.OrtValue
Feeds = Mapping[str, Array]
Operands = Feeds | Mapping[str, Value]


def operands(session: ort.InferenceSession, feeds: Feeds) -> Operands:
    """Return what a run of the session takes: the arrays, or values of the runtime where numpy lacks a type."""
    is_plain = all(map(_is_plain, feeds.values()))
    if is_plain and not any(FOREIGN.fullmatch(output.type) for output in session.get_outputs()):
        return feeds
    return {name: value_of(array) for name, array in feeds.items()}


def value_of(array: Array) -> Value:
    """Make a value of the runtime; it shares the array's memory where numpy has its type."""
    if _is_plain(array):
        return ort.OrtValue.ortvalue_from_numpy(array)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, helper.np_dtype_to_tensor_dtype(array.dtype))


def bound(
    session: ort.InferenceSession, inputs: Mapping[str, Value], outputs: Mapping[str, Value | None]
) -> ort.IOBinding:
    """Bind a session to values, which a run does not copy; the caller keeps their memory alive.

    An output goes where its value is; None: the runtime allocates it.
    """
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for name, place in outputs.items():
        if place is None:
            binding.bind_output(name)
        else:
            binding.bind_ortvalue_output(name, place)
    return binding


def _is_plain(array: Array) -> bool:
    """Return whether the array has one of numpy's own types, which the runtime takes as it is; they have lower numbers.

    ``isbuiltin`` is 0 for the type of an array that another process sent.
    """
    return array.dtype.num < FIRST_ADDED
