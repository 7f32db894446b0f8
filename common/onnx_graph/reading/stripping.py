"""Take what was learned out of a model, and leave its graph, types and shapes.

The values that are kept are those from which shapes are computed: int64 tensors of at most one axis and ``KEPT_BYTES``,
and integers among the attributes. The scales and the int32 biases of a quantized model are weights like any other.
Vocabularies, categories and trees are learned, too: operators of classical machine learning keep only ``STRUCTURE``.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from google.protobuf.message import Message

from common.graphs.operators import MACHINE_LEARNING, MICROSOFT, ONNX
from common.onnx_graph.reading.scan import KEPT_BYTES

TEXTS = ("doc_string", "metadata_props")
# Attributes of ai.onnx.ml from which shapes and work follow; all others hold content.
_STRUCTURE = (
    "aggregate_function cast_to inputdimensions kernel_type map_form max_map multi_class n_supports n_targets norm "
    "one_class post_transform targets zeros"
)
STRUCTURE = frozenset(_STRUCTURE.split())
# Attributes with content, of operators that have other attributes as well.
CONTENT = {
    (ONNX, "TfIdfVectorizer"): ("pool_int64s", "pool_strings"),
    (ONNX, "StringNormalizer"): ("stopwords",),
    (ONNX, "RegexFullMatch"): ("pattern",),
    (MICROSOFT, "Tokenizer"): ("separators", "tokenexp"),
}
STORAGE = ("external_data", "data_location")
PAYLOADS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def strip_weights(model: onnx.ModelProto) -> None:
    """Take weights, texts and local functions out of a model, in its bodies and attributes as well.

    Tensors keep name, type and shape. Lists keep their length, with zeros and empty texts in them. A single number (an
    epsilon, a factor) stays, because it was chosen and not learned; in a Constant node it is a tensor, and becomes
    zero. So does every number of classical machine learning that is not in ``STRUCTURE``.
    """
    model.DiscardUnknownFields()
    for name in ("functions", "training_info"):
        model.ClearField(name)
    _strip(model)


def _strip(message: Message) -> None:
    for name in TEXTS:
        if name in message.DESCRIPTOR.fields_by_name:
            message.ClearField(name)
    if isinstance(message, onnx.TensorProto):
        is_shape = message.data_type == onnx.TensorProto.INT64 and len(message.dims) <= 1
        _clear(message, *STORAGE, *(() if is_shape else PAYLOADS))
    elif isinstance(message, onnx.SparseTensorProto):
        _clear(message.values, *PAYLOADS)
        _clear(message.indices, *PAYLOADS)
    elif isinstance(message, onnx.NodeProto):
        _strip_attributes(message)
    if not isinstance(message, onnx.TypeProto):
        for field, value in message.ListFields():
            if field.message_type is not None:
                for part in value if isinstance(value, Sequence) else (value,):
                    _strip(part)


def _strip_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        attribute.floats[:] = [0.0] * len(attribute.floats)
        if node.op_type == "Constant":
            _clear(attribute, "f", "s")
            attribute.strings[:] = [b""] * len(attribute.strings)
        if len(attribute.s) > KEPT_BYTES:  # a compiled part of the model, as in EPContext
            _clear(attribute, "s")
        if _is_content(node, attribute.name):
            _empty(attribute)


def _is_content(node: onnx.NodeProto, name: str) -> bool:
    if node.domain == MACHINE_LEARNING:
        return name not in STRUCTURE
    return name in CONTENT.get((node.domain, node.op_type), ())


def _empty(attribute: onnx.AttributeProto) -> None:
    """Put zeros and empty texts into an attribute; a list keeps its length, a tensor its type and shape."""
    attribute.strings[:] = [b""] * len(attribute.strings)
    attribute.ints[:] = [0] * len(attribute.ints)
    for name, nothing in (("s", b""), ("i", 0), ("f", 0.0)):
        if attribute.HasField(name):
            setattr(attribute, name, nothing)
    if attribute.HasField("t"):
        _clear(attribute.t, *STORAGE, *PAYLOADS)


def _clear(message: Message, *names: str) -> None:
    for name in names:
        message.ClearField(name)
