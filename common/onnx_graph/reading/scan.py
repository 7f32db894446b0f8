"""Read an ONNX file without its weights: the cost depends on the size of the graph, not of the file.

Protocol Buffers are length-delimited, so a payload can be skipped without being read. The file is mapped, the messages
that contain tensors are walked, payloads above ``KEPT_BYTES`` are left out, and everything else is copied unchanged.
Tensors of up to ``KEPT_BYTES`` keep their data, because shape inference needs the constants that Reshape, Slice or
Expand read. If such a tensor is stored in a side file, its data are fetched from there: for initializers, Constant
nodes, bodies of control flow, and local functions.

Wire format: https://protobuf.dev/programming-guides/encoding/; field numbers: onnx/onnx.proto.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from common.messages.errors import PipelineError
from common.onnx_graph.reading.side_files import FileState, fetch_small, file_state, open_regular

KEPT_BYTES = 1024
MAPPED_PAYLOADS = 64  # payloads skipped before mapped pages are released

UNREAD = frozenset({"doc_string", "metadata_props"})  # text that no stage reads
Kinds = dict[int, "str"]  # field number -> message kind

# The fields through which a tensor can be reached.
WALKED: dict[str, Kinds] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
PAYLOADS = frozenset({4, 5, 6, 7, 9, 10, 11})  # float, int32, string, int64, raw, double and uint64 data
GRAPH, INITIALIZER, TENSOR_NAME = 7, 5, 8  # of a model, of a graph, of a tensor
VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class ScannedModel:
    """A model without its weights, and an id that two files share only if their graphs and tensor lengths agree.

    ``files`` are the model's file and those beside it that it names, each with its state when the graph was read.
    """

    model: onnx.ModelProto
    model_id: str
    files: Mapping[Path, FileState]


def scan(path: Path) -> ScannedModel:
    """Read the model at ``path`` without its weights; a missing, foreign or truncated file is a PipelineError."""
    with _mapped(path) as (mapped, state):
        walk = _Walk(mapped)
        stripped = walk.strip(memoryview(mapped), "model")
    digest = hashlib.sha256(stripped)
    digest.update(repr(walk.dropped).encode())
    model, beside = _parsed(path, stripped)
    return ScannedModel(model, digest.hexdigest(), {path: state, **beside})


def read_tensors(path: Path, names: Set[str]) -> dict[str, onnx.TensorProto]:
    """Return the named initializers of the main graph, with their data where these are in the file itself."""
    tensors: dict[str, onnx.TensorProto] = {}
    with _mapped(path) as (mapped, _):
        for tensor in _parts(memoryview(mapped), GRAPH, INITIALIZER):
            name = b"".join(_parts(tensor, TENSOR_NAME)).decode(errors="replace")
            if name in names:
                tensors[name] = onnx.TensorProto.FromString(bytes(tensor))
    return tensors


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[tuple[mmap.mmap, FileState]]:
    """Map a model's file, and give its state; what goes wrong while it is read is an error that names it."""
    try:
        with open_regular(path) as file:
            state = file_state(file.fileno())
            if not file.seek(0, 2):
                raise PipelineError(path, "is empty", "it is not an ONNX model")
            # The map closes with its last reference: after an error, the traceback still holds slices of it.
            yield mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), state
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror})", "give the path of an ONNX file") from error
    except (_WireError, DecodeError, RecursionError) as error:
        raise PipelineError(path, f"is not an ONNX model, or is truncated ({error})") from error


def _parts(view: memoryview, *numbers: int) -> Iterator[memoryview]:
    first, *inner = numbers
    for number, _, content, end in _fields(view):
        if number == first and content >= 0:
            part = view[content:end]
            yield from _parts(part, *inner) if inner else (part,)


def _parsed(path: Path, stripped: bytes) -> tuple[onnx.ModelProto, dict[Path, FileState]]:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(stripped)
    except DecodeError as error:
        raise PipelineError(path, "is not an ONNX model, or is truncated") from error
    if not model.graph.node and not model.graph.output:
        raise PipelineError(path, "is not an ONNX model (it holds no graph)")
    for name in _undecodable(model):
        raise PipelineError(path, f"its graph is not valid ONNX (a name is not UTF-8: {name!r})", "name it anew")
    if b"location" not in stripped:  # the key that every reference to a side file has
        return model, {}
    entries = (entry for tensor in _tensors(model) for entry in tensor.external_data if entry.key == "location")
    beside = {(file := path.parent / entry.value): file_state(file) for entry in entries}
    fetch_small(path, _tensors(model), KEPT_BYTES)
    return model, beside


def _undecodable(message: Message) -> Iterator[bytes]:
    """Yield the names in a message that are not UTF-8: the parser returns them as bytes."""
    for descriptor, value in message.ListFields():
        if descriptor.name in UNREAD:
            continue
        many = value if descriptor.is_repeated else (value,)
        if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
            for part in many:
                yield from _undecodable(part)
        elif descriptor.type == FieldDescriptor.TYPE_STRING:
            yield from (text for text in many if isinstance(text, bytes))


def _tensors(message: Message) -> Iterator[onnx.TensorProto]:
    """Yield the tensors in a message, however deep they are."""
    if isinstance(message, onnx.TensorProto):
        yield message
        return
    for descriptor, value in message.ListFields():
        if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if descriptor.is_repeated else (value,):
                yield from _tensors(part)


class _WireError(ValueError):
    """The bytes are not a Protocol Buffers message of the expected kind."""


@dataclass(slots=True)
class _Walk:
    """A walk through a mapped file. ``dropped`` are the lengths of the payloads left out, in file order."""

    mapped: mmap.mmap
    dropped: list[int] = field(default_factory=list)

    def strip(self, view: memoryview, kind: str) -> bytes:
        """Copy a message, walking only into fields that are large enough to hold a large payload."""
        walked = WALKED[kind]
        parts: list[memoryview | bytes] = []
        kept = 0  # start of the stretch that is copied unchanged
        for number, start, content, end in _fields(view):
            if content < 0 or end - content <= KEPT_BYTES:
                continue
            if kind == "tensor" and number in PAYLOADS:
                parts.append(view[kept:start])
                self._drop(end - content)
            elif number in walked:
                body = self.strip(view[content:end], walked[number])
                parts += [view[kept:start], _varint(number << 3 | LENGTH_DELIMITED), _varint(len(body)), body]
            else:
                continue
            kept = end
        return b"".join([*parts, view[kept:]])

    def _drop(self, length: int) -> None:
        """Leave a payload out, and release mapped pages from time to time, or the whole file would become resident."""
        self.dropped.append(length)
        if len(self.dropped) % MAPPED_PAYLOADS == 0:
            self.mapped.madvise(mmap.MADV_DONTNEED)


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
