"""Mutations of protobuf messages: any field of any message in a model, and parts of other models put into it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tests.fuzz.values import FLOATS, INTEGERS, TEXTS, broken_bytes

MESSAGE, STRING, BYTES, ENUM = (
    FieldDescriptor.TYPE_MESSAGE,
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_BYTES,
    FieldDescriptor.TYPE_ENUM,
)
REAL = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)
UNSIGNED = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_UINT32)
NARROW = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32)


def messages(message: Message) -> Iterator[Message]:
    """A message and all that it holds."""
    yield message
    for field, value in message.ListFields():
        if field.type == MESSAGE:
            for below in value if field.is_repeated else [value]:
                yield from messages(below)


def drawn(rng: random.Random, model: Message) -> Message:
    """A message of the model: first its kind is drawn, then the message, so that weights do not crowd out the rest."""
    kinds: dict[str, list[Message]] = {}
    for message in messages(model):
        kinds.setdefault(message.DESCRIPTOR.name, []).append(message)
    return rng.choice(kinds[rng.choice(sorted(kinds))])


def mutate(rng: random.Random, model: onnx.ModelProto, donors: Sequence[onnx.ModelProto]) -> str:
    """Change one field of a model in place; return what was changed."""
    message = drawn(rng, model)
    fields = [field for field, _ in message.ListFields()] if rng.random() < 0.75 else list(message.DESCRIPTOR.fields)
    field = rng.choice(fields or list(message.DESCRIPTOR.fields))
    if field.is_repeated:
        change = _change_list(rng, message, field, model, donors)
    else:
        change = _change_single(rng, message, field, model, donors)
    return f"{message.DESCRIPTOR.name}.{field.name}: {change}"


def _change_single(rng, message, field, model, donors) -> str:
    if message.HasField(field.name) and rng.random() < 0.2:
        message.ClearField(field.name)
        return "cleared"
    if field.type == MESSAGE:
        getattr(message, field.name).CopyFrom(_donated(rng, field, model, donors))
        return "taken from elsewhere"
    value = hostile(rng, field, getattr(message, field.name), model)
    setattr(message, field.name, value)
    return f"set to {value!r:.60}"


def _change_list(rng, message, field, model, donors) -> str:
    values = getattr(message, field.name)
    size, change = len(values), rng.random()
    at = rng.randrange(size) if size else 0
    if size and change < 0.2:
        del values[at : at + rng.choice((1, 1, 1, 2, size))]
        return f"entry {at} deleted"
    if size > 1 and change < 0.35:
        _swap(values, at, rng.randrange(size), field)
        return f"entry {at} swapped"
    if size and change < 0.5:
        _append(values, values[at], field)
        return f"entry {at} repeated"
    if field.type == MESSAGE:
        values.add().CopyFrom(_donated(rng, field, model, donors))
        return "entry added from elsewhere"
    value = hostile(rng, field, values[at] if size else None, model)
    if size and change < 0.9:
        values[at] = value
        return f"entry {at} set to {value!r:.60}"
    values.append(value)
    return f"{value!r:.60} appended"


def _swap(values, at: int, other: int, field) -> None:
    if field.type == MESSAGE:
        first, second = type(values[at])(), type(values[at])()
        first.CopyFrom(values[at])
        second.CopyFrom(values[other])
        values[at].CopyFrom(second)
        values[other].CopyFrom(first)
    else:
        values[at], values[other] = values[other], values[at]


def _append(values, value, field) -> None:
    if field.type == MESSAGE:
        copy = type(value)()
        copy.CopyFrom(value)
        values.add().CopyFrom(copy)
    else:
        values.append(value)


def _donated(rng, field, model, donors) -> Message:
    """A message of the field's type, from this model or from another one; an empty one where there is none."""
    name = field.message_type.full_name
    sources = (model, rng.choice(donors))
    found = [below for source in sources for below in messages(source) if below.DESCRIPTOR.full_name == name]
    copy = field.message_type._concrete_class()
    if found:
        copy.CopyFrom(rng.choice(found))
    return copy


def hostile(rng: random.Random, field: FieldDescriptor, old, model: onnx.ModelProto):
    """A value of the field's type that is unusual there."""
    if field.type == STRING:
        return _text(rng, old or "", model)
    if field.type == BYTES:
        return _bytes(rng, old or b"")
    if field.type == ENUM:
        return rng.choice(sorted(field.enum_type.values_by_number))
    if field.type in REAL:
        return rng.choice(FLOATS)
    return _integer(rng, field, old or 0)


def _text(rng: random.Random, old: str, model: onnx.ModelProto) -> str:
    if rng.random() < 0.5:  # a name that another node, tensor or dimension has
        names = sorted({name for node in model.graph.node for name in (*node.input, *node.output, node.name)})
        names += [
            "Identity",
            "Loop",
            "Scan",
            "If",
            "Conv",
            "MatMul",
            "Reshape",
            "Constant",
            "ConstantOfShape",
            "Gather",
        ]
        return rng.choice(names)
    return rng.choice((*TEXTS, old + "x", old[: len(old) // 2], old * 2))


def _bytes(rng: random.Random, old: bytes) -> bytes:
    if rng.random() < 0.2:
        return rng.choice((b"", b"\xff\xfe", b"a\xffb", b"\x1b[2J", b"LINEAR", b"\x00" * 7, b"NOTSET", b"bij,bjk->bik"))
    return broken_bytes(rng, old)


def _integer(rng: random.Random, field: FieldDescriptor, old: int) -> int:
    value = rng.choice((*INTEGERS, old + 1, old - 1, -old, old * 2, rng.randrange(60)))
    if field.type in NARROW:
        value = max(-(2**31), min(value, 2**31 - 1))
    return abs(value) if field.type in UNSIGNED else max(-(2**63), min(value, 2**63 - 1))


def mutated_bytes(rng: random.Random, model: onnx.ModelProto, donors: Sequence[onnx.ModelProto]) -> tuple[bytes, str]:
    """The content of a model file with some faults, and what they are."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    changes = []
    if rng.random() < 0.85:
        changes = [mutate(rng, copy, donors) for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 9)))]
    content = copy.SerializeToString()
    if rng.random() < 0.03:
        content = _with_foreign_text(rng, content, copy)
        changes.append("a name that is not UTF-8")
    if not changes or rng.random() < 0.05:
        content = broken_bytes(rng, content)
        changes.append("bytes changed")
    return content, "; ".join(changes)


def _with_foreign_text(rng: random.Random, content: bytes, model: onnx.ModelProto) -> bytes:
    """A name of the model, everywhere, in bytes that are no UTF-8: the length stays."""
    names = sorted({name for node in model.graph.node for name in (*node.input, *node.output, node.name) if name})
    names += dimension_names(content)
    name = rng.choice(names or ["batch"]).encode()
    return content.replace(name, b"\xff" + name[1:])


def dimension_names(content: bytes) -> list[str]:
    """Names of the dimensions that the inputs of a model leave open; none where it cannot be parsed."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError:
        return []
    dims = [dim for value in model.graph.input for dim in value.type.tensor_type.shape.dim]
    return list(dict.fromkeys(dim.dim_param for dim in dims if dim.dim_param))
