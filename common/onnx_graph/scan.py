"""Read an ONNX file without its weights: a 100 MB and a 10 GB model cost no more than their graphs.

Protocol Buffers are length-delimited, so a payload can be skipped without being read. The file is mapped, the
messages on the way to a tensor are walked, payloads above ``KEPT_BYTES`` are left out, and everything else is copied
as it stands. Tensors of up to ``KEPT_BYTES`` keep their data, because shape inference needs the constants that
Reshape, Slice or Expand read; for tensors in a side file these are fetched from there.

Wire format: https://protobuf.dev/programming-guides/encoding/; field numbers: onnx/onnx.proto.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from common.errors import PipelineError

KEPT_BYTES = 1024

Message = dict[int, "str"]  # field number -> message kind

# The fields through which a tensor can be reached.
WALKED: dict[str, Message] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
PAYLOADS = frozenset({4, 5, 6, 7, 9, 10, 11})  # float, int32, string, int64, raw, double and uint64 data
VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class ScannedModel:
    """A model without its weights, and an id that two files share only if their graphs and tensor lengths agree."""

    model: onnx.ModelProto
    model_id: str


def scan(path: Path) -> ScannedModel:
    """Read the model at ``path`` without reading its weights.

    Raises:
        PipelineError: there is no such file, or it is not ONNX, or it is truncated.
    """
    try:
        with path.open("rb") as file:
            if not file.seek(0, 2):
                raise PipelineError(path, "is empty", "it is no ONNX model")
            # Closed by its last reference: an error on the way still holds slices of it.
            stripped, dropped = _stripped(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror})", "give the path of an ONNX file") from error
    except (_WireError, RecursionError) as error:
        raise PipelineError(path, f"is not an ONNX model, or is truncated ({error})") from error
    digest = hashlib.sha256(stripped)
    digest.update(repr(dropped).encode())
    return ScannedModel(_parsed(path, stripped), digest.hexdigest())


def _parsed(path: Path, stripped: bytes) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(stripped)
    except DecodeError as error:
        raise PipelineError(path, "is not an ONNX model, or is truncated") from error
    if not model.graph.node and not model.graph.output:
        raise PipelineError(path, "is not an ONNX model (it holds no graph)")
    for tensor in model.graph.initializer:
        _fetch_small_external(path.parent, tensor)
    return model


def _fetch_small_external(folder: Path, tensor: onnx.TensorProto) -> None:
    """Bring the data of a small tensor in from its side file; an unusable reference leaves its value unknown."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        side_file = folder / entries["location"]
        length, offset = int(entries["length"]), int(entries.get("offset", 0))
        # A model may name any path; only files beside it are its weights.
        if not 0 < length <= KEPT_BYTES or not side_file.resolve().is_relative_to(folder.resolve()):
            return
        with side_file.open("rb") as file:
            file.seek(offset)
            data = file.read(length)
    except (KeyError, ValueError, OSError):
        return
    if len(data) == length:
        tensor.raw_data = data
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")


class _WireError(ValueError):
    """The bytes are not a Protocol Buffers message of the expected kind."""


def _stripped(view: memoryview) -> tuple[bytes, list[int]]:
    """The message without its large payloads, and the lengths of those, in file order."""
    dropped: list[int] = []
    return _strip(view, "model", dropped), dropped


def _strip(view: memoryview, kind: str, dropped: list[int]) -> bytes:
    """Copy a message, walking only into fields that are large enough to hold a large payload."""
    walked = WALKED[kind]
    parts: list[memoryview | bytes] = []
    for number, start, content, end in _fields(view):
        length = end - content
        if content < 0 or length <= KEPT_BYTES:
            parts.append(view[start:end])
        elif kind == "tensor" and number in PAYLOADS:
            dropped.append(length)
        elif number in walked:
            body = _strip(view[content:end], walked[number], dropped)
            parts += [_varint(number << 3 | LENGTH_DELIMITED), _varint(len(body)), body]
        else:
            parts.append(view[start:end])
    return b"".join(parts)


def _fields(view: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield (field number, start of the field, start of its content or -1 if not length-delimited, end)."""
    position, size = 0, len(view)
    while position < size:
        start = position
        tag, position = _read_varint(view, position)
        number, wire_type = tag >> 3, tag & 7
        content = -1
        if wire_type == LENGTH_DELIMITED:
            length, content = _read_varint(view, position)
            position = content + length
        elif wire_type == VARINT:
            _, position = _read_varint(view, position)
        elif wire_type in (FIXED64, FIXED32):
            position += 8 if wire_type == FIXED64 else 4
        else:
            raise _WireError(f"wire type {wire_type} at byte {start}")
        if position > size or number == 0:
            raise _WireError(f"field {number} at byte {start} ends beyond the file")
        yield number, start, content, position


def _read_varint(view: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = view[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
            if shift > 63:
                raise _WireError(f"a number at byte {position} is too long")
    except IndexError:
        raise _WireError("it ends in the middle of a number") from None


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
