"""Operators that compute nothing: views move nothing, gathers read the rows that they touch, all others copy."""

from __future__ import annotations

from math import prod

from common.graphs.expressions import smaller
from common.graphs.graph import Count
from common.graphs.operators import MACHINE_LEARNING, MICROSOFT, NCHWC, NHWC, ONNX
from common.onnx_graph.work.registry import Cost, Operation, UnknownShapeError, formula

# The output is the input's storage, an element of a sequence, or a property of the input. The nodes in the bodies of
# control-flow operators are counted on their own.
VIEWS = (
    "Reshape Squeeze Unsqueeze Flatten Identity BitCast Dropout Constant Shape Size If Loop Scan SequenceMap "
    "SequenceConstruct SequenceEmpty SequenceInsert SequenceErase SequenceAt SequenceLength "
    "Optional OptionalGetElement OptionalHasElement"
)
COPIES = {
    ONNX: "Transpose Concat Split Pad Tile DepthToSpace SpaceToDepth Cast CastLike ReverseSequence Trilu Compress "
    "MaxUnpool MemcpyFromHost MemcpyToHost",
    NCHWC: "ReorderInput ReorderOutput",
    NHWC: "DepthToSpace SpaceToDepth MaxUnpool",
    MICROSOFT: "Pad Trilu UnfoldTensor RemovePadding RestorePadding",
    MACHINE_LEARNING: "FeatureVectorizer",
}
# Selections, tables, random numbers, texts: comparing, drawing and looking up are not FLOPs.
GENERATORS = {
    ONNX: "Range ConstantOfShape EyeLike OneHot TopK NonZero Unique MelWeightMatrix "
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli "
    "StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer",
    MICROSOFT: "Range Unique Tokenizer MurmurHash3 NGramRepeatBlock NGramHashMapping VarlenNGramHashMapping "
    "RelativePositionBias",
    MACHINE_LEARNING: "CastMap CategoryMapper DictVectorizer LabelEncoder OneHotEncoder ZipMap",
}
GATHERS = {
    ONNX: "Gather GatherElements GatherND Slice Expand CenterCropPad",
    MICROSOFT: "GatherND",
    MACHINE_LEARNING: "ArrayFeatureExtractor",
}


@formula(*VIEWS.split())
def count_view(operation: Operation) -> Cost:
    """Count a view: nothing is read or written."""
    return Cost(moves_nothing=True)


def count_copy(operation: Operation) -> Cost:
    """Count a copy: every operand is read and every output written, without arithmetic."""
    return Cost()


def count_gather(operation: Operation) -> Cost:
    """Count a gather: only the returned part of the table is read (an Expand reads each element once)."""
    operation.required(0)
    try:
        return Cost(reads={0: operation.touched_bytes(0, operation.output_elements())})
    except UnknownShapeError:
        return Cost(reads={0: None})


for _table, _formula in ((COPIES, count_copy), (GENERATORS, count_copy), (GATHERS, count_gather)):
    for _domain, _names in _table.items():
        formula(*_names.split(), domains=(_domain,))(_formula)


@formula("Scatter", "ScatterElements", "ScatterND")
def count_scatter(operation: Operation) -> Cost:
    """Copy the data and overwrite it; a reduction (sum, product, extreme) costs a FLOP per update."""
    reduced = operation.text("reduction", "none") != "none"
    return Cost(other_flops=operation.elements(2) if reduced else 0)


@formula("TensorScatter")
def count_tensor_scatter(operation: Operation) -> Cost:
    """Update a cache in place: the update is read, and as many bytes are written."""
    update, _ = operation.required(1), operation.required_output()
    size = update.size_bytes if update else None
    return Cost(reads={0: 0}, writes={0: size})


@formula("SplitToSequence", "ConcatFromSequence")
def count_sequence_parts(operation: Operation) -> Cost:
    data, output = operation.required(0), operation.required_output()
    if operation.node.op_type == "SplitToSequence":
        return Cost(writes={0: data.size_bytes if data else None})
    return Cost(reads={0: output.size_bytes if output else None})


@formula("GatherBlockQuantized", domains=(MICROSOFT,))
def count_gather_block_quantized(operation: Operation) -> Cost:
    """Gather rows of a packed table with their scales and zero points, and dequantize them.

    Operands data, indices, scales, zero points; bytes hold 8 / bits elements each.
    """
    outputs = operation.output_elements()
    data = operation.required(0)
    bits = operation.positive("bits", 4)
    packed = 8 // bits if data is not None and data.element_bits == 8 else 1
    if not packed:
        raise operation.malformed(f"attribute bits is {bits}")
    rows = prod(operation.shape(1))
    share = {index: _rows_of(operation, index, rows) for index in (2, 3) if operation.has(index)}
    return Cost(dequantized=outputs, reads={0: operation.touched_bytes(0, (outputs + packed - 1) // packed), **share})


def _rows_of(operation: Operation, index: int, rows: Count) -> Count:
    """Return the bytes of ``rows`` rows of an operand along the gathered axis."""
    axis = operation.integer("gather_axis", 0)
    shape = operation.shape(index, least=1)
    row_elements = prod(extent for place, extent in enumerate(shape) if place != axis % len(shape))
    return operation.touched_bytes(index, smaller(rows, operation.dim(index, axis)) * row_elements)
