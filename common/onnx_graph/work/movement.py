"""Operators that compute nothing: views move nothing, gathers read the rows they touch, the rest copies."""

from __future__ import annotations

from common.onnx_graph.work.registry import NCHWC, Cost, Operation, formula

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout", "Constant", "Shape", "Size"})


@formula(*sorted(VIEWS))
def count_view(operation: Operation) -> Cost:
    """The output is the input's storage (or a fact about it): nothing is read or written."""
    return Cost(moves_nothing=True)


@formula(
    "Transpose", "Concat", "Split", "Pad", "Tile", "DepthToSpace", "SpaceToDepth", "Cast", "CastLike", "ReverseSequence"
)
@formula("ReorderInput", "ReorderOutput", domains=(NCHWC,))
def count_copy(operation: Operation) -> Cost:
    """Every operand is read and every output written, without arithmetic."""
    return Cost()


@formula(
    "Range",
    "ConstantOfShape",
    "EyeLike",
    "OneHot",
    "TopK",
    "NonZero",
    "Trilu",
    "ScatterND",
    "ScatterElements",
    "Compress",
)
def count_generate(operation: Operation) -> Cost:
    """Operands read, outputs written; comparisons of a selection are not counted as FLOPs."""
    return Cost()


@formula("Gather", "GatherElements", "GatherND", "Slice", "Expand")
def count_gather(operation: Operation) -> Cost:
    """Of the table only what is returned is read (an Expand reads each element once)."""
    source, output = operation.inputs[0], operation.outputs[0]
    if source is None or output is None:
        return Cost()
    touched = min(operation.elements(0), operation.output_elements())
    return Cost(reads={0: (touched * source.element_bits + 7) // 8})
