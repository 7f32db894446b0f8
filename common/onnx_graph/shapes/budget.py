"""The limits of what ONNX's reference implementation may compute: elements, operations, and operators that never run.

Shapes follow from few numbers. A hostile model asks for more: a Tile of ten numbers to terabytes, a Loop whose state
doubles in each pass, a regular expression that no text matches in any time. So the size of a result is known before it
is computed, and all evaluations of a model share one budget of operations. What exceeds a limit stays unknown, like
what only a run computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from common.graphs.operators import ACTIVATIONS, ARITHMETIC, CONTROL_FLOW, MACHINE_LEARNING, REDUCTIONS, RESHAPES
from common.onnx_graph.malformed import INVALID
from common.onnx_graph.shapes.types import Value

LARGEST_OPERAND = 1_000_000  # elements, or characters of texts
MOST_OPERATIONS = 10_000_000  # of one evaluation; the unit is an operation of the Python interpreter
BUDGET = 3 * MOST_OPERATIONS  # of all evaluations of a model
NODE_OPERATIONS = 50  # of any evaluation
ELEMENTS_PER_OPERATION = 200  # numpy computes so many in the time of one operation of the interpreter
LARGEST_SHAPE = 4096  # elements of an operand that may hold a shape or a bound

RANDOM = frozenset(
    ["RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"]
)
# A pattern is one of RE2, which always ends; the regular expressions of Python may not.
NEVER_EVALUATED = RANDOM | {"RegexFullMatch"}
_BY_NUMPY = (
    "And Or Xor Not Equal Greater GreaterOrEqual Less LessOrEqual Where Mod Sum Mean BitShift BitwiseAnd BitwiseOr "
    "BitwiseXor BitwiseNot Ceil Floor Round Sign Reciprocal Log IsInf IsNaN Cast CastLike Identity Concat Slice Split "
    "Transpose Gather Trilu ArgMax ArgMin CumSum CumProd NonZero TopK Compress Unique Shape Size"
)
_SEQUENCES = (
    "SequenceConstruct SequenceEmpty SequenceInsert SequenceErase SequenceAt SequenceLength SplitToSequence "
    "ConcatFromSequence Optional OptionalGetElement OptionalHasElement"
)
# A few calls of numpy compute these. The result has at most one element per combination of the operands' elements.
BY_NUMPY = ACTIVATIONS | ARITHMETIC | REDUCTIONS | RESHAPES | frozenset(_BY_NUMPY.split())
# A few calls of numpy compute these. The values of their operands decide how many elements the result has.
GENERATORS = frozenset(("ConstantOfShape", "EyeLike", "Expand", "OneHot", "Pad", "Range", "Tile"))
SEQUENCES = frozenset(_SEQUENCES.split())
# Data decide how many elements these results have. The functions bound it by the sizes of the operands.
DECIDED_BY_DATA: Mapping[str, Callable[[Sequence[int]], int]] = {
    "ImageDecoder": max,  # Pillow refuses an image of very many pixels before it decodes it
    "NonMaxSuppression": lambda sizes: 3 * max(sizes),
    "StringNormalizer": max,
    "StringSplit": lambda sizes: max(sizes) ** 2,  # each text may have many parts
}
NUMBERS = "iufV"  # kinds of numpy; the last one is that of bfloat16
WINDOW = frozenset(("kernel_shape", "strides", "dilations", "size", "sampling_ratio"))  # attributes


@dataclass(slots=True)
class EvaluationBudget:
    """The operations that may still be spent on a model."""

    left: int = BUDGET

    def allows(self, node: onnx.NodeProto, operands: Sequence[Value | None], opsets: Mapping[str, int]) -> bool:
        """Return whether a node may be evaluated, and spend its operations if so."""
        operations = operations_of(node, [value for value in operands if value is not None], opsets)
        if operations is None or operations > min(MOST_OPERATIONS, self.left):
            return False
        self.left -= operations
        return True


def operations_of(node: onnx.NodeProto, operands: Sequence[Value], opsets: Mapping[str, int]) -> int | None:
    """Return at most how many operations a node takes without its bodies; None where it must not be evaluated."""
    if node.op_type in NEVER_EVALUATED or any(attribute.name == "locale" for attribute in node.attribute):
        return None  # the locale of this process is not the model's to set
    sizes = [_size(value) for value in operands]
    if max(sizes, default=0) > LARGEST_OPERAND:
        return None
    if node.op_type in CONTROL_FLOW:
        return NODE_OPERATIONS
    elements = _result_elements(node, operands, sizes, opsets)
    if elements is None or elements > LARGEST_OPERAND:
        return None
    if node.op_type in BY_NUMPY | GENERATORS | SEQUENCES:
        return NODE_OPERATIONS + (sum(sizes) + elements) // ELEMENTS_PER_OPERATION
    first, *others = *(max(size, 1) for size in sizes), 1
    swept = first if node.op_type in DECIDED_BY_DATA else max(first, elements)
    return NODE_OPERATIONS + swept * prod(others) * _window(node)


def _size(value: Value) -> int:
    """Return the elements of a value, and the characters of its texts."""
    if isinstance(value, list):
        return sum(_size(item) for item in value if isinstance(item, np.ndarray | list)) + len(value)
    characters = value.dtype.kind in "OU" and value.size <= LARGEST_OPERAND
    return value.size + (sum(len(text) for text in value.flat if isinstance(text, str)) if characters else 0)


def _result_elements(
    node: onnx.NodeProto, operands: Sequence[Value], sizes: Sequence[int], opsets: Mapping[str, int]
) -> int | None:
    """Return the most elements that a result can have; None if it is unknown."""
    if node.op_type in SEQUENCES:
        return sum(sizes)
    if node.op_type == "Range":
        return _range_elements(operands)
    if node.op_type in DECIDED_BY_DATA and sizes:
        return DECIDED_BY_DATA[node.op_type](sizes)
    combinations = prod(max(size, 1) for size in sizes)
    is_by_numpy = node.op_type in BY_NUMPY
    if is_by_numpy and combinations <= LARGEST_OPERAND:
        return combinations
    inferred = _inferred_elements(node, operands, opsets)
    return combinations if inferred is None and (is_by_numpy or node.domain == MACHINE_LEARNING) else inferred


def _range_elements(operands: Sequence[Value]) -> int | None:
    """Return the elements of a Range, which ONNX infers for some element types alone."""
    arrays = [value for value in operands if isinstance(value, np.ndarray) and value.dtype.kind in NUMBERS]
    bounds = [float(value.item()) for value in arrays if value.size == 1]
    if len(bounds) < 3 or not bounds[2] or not all(map(isfinite, bounds)):
        return None
    return int(min(abs((bounds[1] - bounds[0]) / bounds[2]), LARGEST_OPERAND)) + 1


def _inferred_elements(node: onnx.NodeProto, operands: Sequence[Value], opsets: Mapping[str, int]) -> int | None:
    """Return the elements of the largest result by ONNX's own inference; None where it leaves one open."""
    names = [name for name in node.input if name]
    arrays = [(name, value) for name, value in zip(names, operands, strict=False) if isinstance(value, np.ndarray)]
    if len(arrays) < len(names):
        return None
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 0), node.domain)
        types = {
            name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in arrays
        }
        small = [(name, value) for name, value in arrays if value.ndim <= 1 and value.size <= LARGEST_SHAPE]
        data = {name: numpy_helper.from_array(value, name) for name, value in small}
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        inferred = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=imports)
    except (onnx.defs.SchemaError, *INVALID, TypeError, KeyError):
        return None
    shapes = [inferred[name].tensor_type.shape.dim if name in inferred else None for name in node.output if name]
    if any(shape is None or not all(dim.HasField("dim_value") for dim in shape) for shape in shapes):
        return None
    return max((prod(dim.dim_value for dim in shape) for shape in shapes if shape is not None), default=0)


def _window(node: onnx.NodeProto) -> int:
    """Return the steps per element of a window, from the attributes that say how large it is."""
    sizes = (
        size for attribute in node.attribute if attribute.name in WINDOW for size in (attribute.i, *attribute.ints)
    )
    return prod(max(abs(size), 1) for size in sizes)
