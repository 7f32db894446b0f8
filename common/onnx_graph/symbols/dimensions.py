"""Dynamic dimensions of a model, and their binding to numbers."""

from __future__ import annotations

import ast
import operator
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx

from common.messages.errors import UnboundDimensionsError, UnusableValueError
from common.messages.names import quoted
from common.onnx_graph.shapes.types import LARGEST_EXTENT, Array, fixed_dim
from common.onnx_graph.symbols.lengths import graph_inputs, length_inputs, longest
from common.onnx_graph.symbols.usual_sizes import usual_sizes

LONGEST_EXPRESSION = 200  # characters; the parser recurses into what is longer
OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def dynamic_dimensions(model: onnx.ModelProto) -> dict[str, list[str]]:
    """Return each dynamic dimension of the inputs with its places; one without a name is called ``INPUT.AXIS``.

    A length that an input holds as a value (:mod:`common.onnx_graph.symbols.lengths`) is a dimension, too.
    """
    places: dict[str, list[str]] = {}
    for value in graph_inputs(model).values():
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if fixed_dim(dim) is None:
                places.setdefault(dim.dim_param or f"{value.name}.{axis}", []).append(f"{value.name}[{axis}]")
    for length in length_inputs(model).values():
        for name in length.dimensions:
            if name == length.name or name not in places:
                places.setdefault(name, []).append(f"the value of {length.name}")
    return places


def free_dimensions(model: onnx.ModelProto) -> dict[str, list[str]]:
    """Return the dynamic dimensions, except those whose name is an expression of others (``past + seq``)."""
    dynamic = dynamic_dimensions(model)
    return {name: places for name, places in dynamic.items() if not _operands(name) <= dynamic.keys() - {name}}


def used_bindings(
    path: Path, model: onnx.ModelProto, given: Mapping[str, int], configured: Mapping[str, int]
) -> dict[str, int]:
    """Return the bindings of this model's dimensions: the given ones, and the configured ones of the other names.

    A given name must be a dynamic dimension of this model, and its size must not contradict the other dimensions.
    """
    dynamic = dynamic_dimensions(model)
    for name, size in given.items():
        if name not in dynamic:
            choice = f"it has {', '.join(sorted(dynamic))}" if dynamic else "all its dimensions are fixed"
            choice += "; give each dimension on its own, without a comma" if "," in name else ""
            raise UnusableValueError("dim", f"{name}={size}: {path} has no dynamic dimension {quoted(name)}", choice)
    used = {name: size for name, size in {**configured, **given}.items() if name in dynamic}
    for name, size in used.items():
        if (follows := _expressed(name, used)) not in (None, size):
            raise UnusableValueError("dim", f"{name}={size}: the other dimensions make it {follows}")
    for name in dynamic:
        if (extent := size_of(name, used) or 0) > LARGEST_EXTENT:
            raise UnusableValueError("dim", f"{name}={extent}: too large", f"at most {LARGEST_EXTENT}")
    return used


def shape_bindings(model: onnx.ModelProto, values: Mapping[str, Array]) -> dict[str, int]:
    bindings = {}
    for value in graph_inputs(model).values():
        extents = values[value.name].shape if value.name in values else ()
        for axis, (dim, extent) in enumerate(zip(value.type.tensor_type.shape.dim, extents, strict=False)):
            if fixed_dim(dim) is None:
                bindings[dim.dim_param or f"{value.name}.{axis}"] = extent
    for name, length in length_inputs(model).items():
        number = longest(values.get(name))
        if number is not None and length.terms == (name,):
            bindings[name] = number
    return bindings


def fitting_values(model: onnx.ModelProto, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the values whose name and element type are those of an input; the others are reported later."""
    declared = {value.name: value.type.tensor_type.elem_type for value in graph_inputs(model).values()}
    return {name: value for name, value in values.items() if declared.get(name, 0) == _element_type(value)}


def _element_type(value: Array) -> int | None:
    try:
        return int(onnx.helper.np_dtype_to_tensor_dtype(value.dtype))
    except ValueError:  # ONNX has no such type
        return None


def give_shapes(model: onnx.ModelProto, values: Mapping[str, Array]) -> None:
    """Declare the shape of each input whose rank is unknown and whose value is given."""
    for value in graph_inputs(model).values():
        declared = value.type.tensor_type
        if value.name in values and value.type.HasField("tensor_type") and not declared.HasField("shape"):
            declared.shape.SetInParent()
            for extent in values[value.name].shape:
                declared.shape.dim.add(dim_value=extent)


def require_bound(path: Path, model: onnx.ModelProto, unbound: Mapping[str, list[str]]) -> None:
    """Refuse a model with unbound dimensions; the message proposes usual sizes."""
    if unbound:
        names = ", ".join(f"{quoted(name)} ({', '.join(places)})" for name, places in unbound.items())
        plural = "dimensions" if len(unbound) > 1 else "dimension"
        sizes = usual_sizes(path, graph_inputs(model).values(), unbound)
        bindings = " ".join(_binding(name, size) for name, size in sizes.items())
        raise UnboundDimensionsError(f"{path}: {plural} {names} not bound", f"add for example {bindings}", sizes)


def _binding(name: str, size: int) -> str:
    """Return a binding, quoted for a shell; a name that begins with a hyphen needs the equals sign."""
    if not name.isprintable():  # messages escape it, so the shell must undo that: a line break is \u000a in $'…'
        safe = "".join(c if c.isprintable() and c not in "\\'" else f"\\U{ord(c):08x}" for c in name)
        return f"<dim>=$'{safe}={size}'"
    return shlex.quote(f"<dim>={name}={size}") if name.startswith("-") else f"<dim> {shlex.quote(f'{name}={size}')}"


def bind_all(model: onnx.ModelProto, dimensions: Mapping[str, int]) -> None:
    """Replace the named symbols by numbers wherever the model declares a shape.

    Other symbols are cleared: exporters invent names for dimensions that they cannot infer, but that can be inferred.
    """
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if fixed_dim(dim) is None:
                bound = size_of(dim.dim_param or f"{value.name}.{axis}", dimensions)
                dim.Clear()
                if bound is not None and 0 <= bound <= LARGEST_EXTENT:
                    dim.dim_value = bound


def size_of(name: str, dimensions: Mapping[str, int]) -> int | None:
    """Return the size of a dimension, which may be an expression of others; None where it is not bound."""
    return dimensions[name] if name in dimensions else _expressed(name, dimensions)


def _expressed(name: str, dimensions: Mapping[str, int]) -> int | None:
    names = _operands(name)
    if name in names or not names <= dimensions.keys():
        return None
    try:
        return _evaluate(_parsed(name), dimensions)
    except ZeroDivisionError:
        return None


def _operands(name: str) -> set[str]:
    """Return the names in an expression such as ``past + seq``; a plain name is its own operand."""
    tree = _parsed(name)
    if not isinstance(tree, ast.BinOp):
        return {name}
    nodes = [*ast.walk(tree)]
    allowed = (ast.BinOp, ast.Name, ast.Constant, ast.operator, ast.expr_context)
    is_plain = all(isinstance(node, allowed) for node in nodes) and all(
        type(node.op) in OPERATORS for node in nodes if isinstance(node, ast.BinOp)
    )
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names if is_plain and names else {name}


def _parsed(name: str) -> ast.expr | None:
    if len(name) > LONGEST_EXPRESSION:
        return None
    try:
        return ast.parse(name, mode="eval").body
    except (SyntaxError, ValueError):  # ValueError: it holds a null byte
        return None


def _evaluate(tree: ast.expr | None, dimensions: Mapping[str, int]) -> int:
    if isinstance(tree, ast.BinOp):
        return OPERATORS[type(tree.op)](_evaluate(tree.left, dimensions), _evaluate(tree.right, dimensions))
    return dimensions[tree.id] if isinstance(tree, ast.Name) else int(ast.literal_eval(tree or "0"))
