"""Tensors of the Open Inference Protocol: types, what a model takes and answers, and values as bytes or as text.

Source: KServe's ``docs/predict-api/v2`` ("Tensor Data", "Tensor Data Types") and Triton's binary tensor data extension.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from common.messages.errors import PipelineError

Array = npt.NDArray[Any]
TYPES = {  # of the protocol, and as the graph of a model names them
    "BOOL": "bool",
    **{f"{sign}INT{bits}": f"{sign}int{bits}".lower() for sign in ("U", "") for bits in (8, 16, 32, 64)},
    **{"FP16": "float16", "FP32": "float32", "FP64": "float64", "BF16": "bfloat16", "BYTES": "string"},
}
BITS = {"BOOL": 8, "BF16": 16, "BYTES": 0}  # of one element; those of the others are in their names
FREE = -1
MOST_REASON = 120  # characters
# What broken JSON may raise.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class TensorForm:
    """A tensor of a model: its name, its type, and its shape, in which ``FREE`` is any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def bits(self) -> int:
        return BITS[self.datatype] if self.datatype in BITS else int("".join(filter(str.isdigit, self.datatype)))


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    name: str
    platform: str
    inputs: tuple[TensorForm, ...]
    outputs: tuple[TensorForm, ...]


@dataclass(frozen=True, slots=True)
class WireTensor:
    """An input of a request, row after row, as bytes or as the text of JSON."""

    form: TensorForm
    rows: Sequence[bytes]

    @property
    def content(self) -> bytes:
        return b"".join(self.rows)


@dataclass(frozen=True, slots=True)
class AnsweredTensor:
    """An output of an answer; ``size`` is that of its bytes, or None where ``count`` values came as text."""

    form: TensorForm
    size: int | None
    count: int | None = None


class MalformedAnswerError(PipelineError):
    """An answer that the protocol does not know."""

    def __init__(self, problem: str) -> None:
        super().__init__("the endpoint", f"malformed answer: {problem}")


def raw_bytes(array: Array) -> bytes:
    """Return the elements in row order, little-endian; each text has its length before it."""
    if array.dtype.kind != "O":
        return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    texts = [text if isinstance(text, bytes) else str(text).encode() for text in array.ravel()]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def json_values(array: Array) -> bytes:
    """Return the elements in row order as the inner part of a JSON list; texts must be UTF-8."""
    values = array.astype(np.float64) if array.dtype.name in ("bfloat16", "float16") else array
    texts = [text.decode() if isinstance(text, bytes) else text for text in values.ravel().tolist()]
    return json.dumps(texts)[1:-1].encode()


def metadata_of(fields: Mapping[str, Any]) -> ModelMetadata:
    """Return what the JSON or the message of an endpoint says of a model; another one is malformed."""
    try:
        inputs, outputs = (tuple(map(_form, fields[name])) for name in ("inputs", "outputs"))
        name, platform = str(fields["name"]), str(fields.get("platform") or "")
    except MALFORMED as error:
        raise MalformedAnswerError(f"no metadata of a model ({type(error).__name__}: {error})") from error
    return ModelMetadata(name, platform, inputs, outputs)


def _form(tensor: Mapping[str, Any]) -> TensorForm:
    datatype = str(tensor["datatype"])
    if datatype not in TYPES:
        raise ValueError(f"unknown type {datatype}")
    return TensorForm(str(tensor["name"]), datatype, tuple(map(int, tensor["shape"])))


def require_answers(metadata: ModelMetadata, name: str, answers: Iterable[AnsweredTensor], row_count: int) -> None:
    """Refuse an answer without all outputs of the model, each with as many values as its shape says.

    Args:
        name: of the model that answered; empty where the endpoint does not say it.
        row_count: requests of the batch.
    """
    if name and name != metadata.name:
        raise MalformedAnswerError(f"it is of model {name[:80]}, not of {metadata.name}")
    found = {answer.form.name: answer for answer in answers}
    for form in metadata.outputs:
        if (answer := found.get(form.name)) is None:
            raise MalformedAnswerError(f"output {form.name} is missing")
        _require_values(form, answer, row_count)


def _require_values(form: TensorForm, answer: AnsweredTensor, row_count: int) -> None:
    shape, datatype = answer.form.shape, answer.form.datatype
    if datatype != form.datatype or len(shape) != len(form.shape):
        raise MalformedAnswerError(f"output {form.name} is {datatype} {[*shape]}, not {form.datatype} {[*form.shape]}")
    if form.shape and form.shape[0] == FREE and shape[0] != row_count:
        raise MalformedAnswerError(f"output {form.name} has {shape[0]} rows for {row_count} requests")
    if answer.count is not None and answer.count != prod(shape):
        raise MalformedAnswerError(f"output {form.name} has {answer.count} values for {[*shape]}")
    if answer.size is not None and form.bits and answer.size != prod(shape) * form.bits // 8:
        raise MalformedAnswerError(f"output {form.name} has {answer.size} bytes for {datatype} {[*shape]}")


def brief(said: object) -> str:
    """Return the begin of what an endpoint says of an error, in one line."""
    return " ".join(str(said).split())[:MOST_REASON]
