"""A chain of sums and products with constants becomes one product and one sum: x · s + t, each over the tensor once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from common.mending.rewrite import Edit, NoMend, fresh, mend_of
from common.mending.view import Array, View, is_standard

OPERATORS = ("Add", "Sub", "Mul", "Div")
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One node of a chain: its operand that is no constant, its constant, and whether the operand comes first."""

    node: onnx.NodeProto
    tensor: str
    constant: Array
    is_first: bool


@mend_of(*OPERATORS)
def merge_constants(view: View, node: onnx.NodeProto) -> Edit | NoMend:
    chain = [*_chain(view, node)]
    if len(chain) < 2:
        return NoMend("it is in no chain of sums and products with constants that nothing else reads")
    tensor, shape = chain[0].tensor, view.shape(chain[0].tensor)
    if view.element_type(tensor) not in FLOATS:
        return NoMend("its type is not known to be fp32 or fp64, in which the chain can be merged")
    if shape is None or not all(_keeps_shape(step.constant, shape) for step in chain):
        return NoMend("a constant may make the tensor larger")
    scale, shift = _scale_and_shift(chain)
    nodes, weights = _nodes(view, chain, scale, shift)
    narrow = helper.tensor_dtype_to_np_dtype(view.element_type(tensor))
    with np.errstate(over="ignore"):  # what overflows is refused below
        rounded = {name: array.astype(narrow) for name, array in weights.items()}
    if not all(np.isfinite(array).all() for array in rounded.values()):
        return NoMend("a factor of the chain would not be finite")
    if len(nodes) >= len(chain):
        return NoMend("the chain is no longer than what would replace it")
    return Edit([step.node.name for step in chain], nodes, rounded)


def _chain(view: View, node: onnx.NodeProto) -> Iterator[ChainStep]:
    """Yield the steps of the longest chain with a node, in the order in which they compute."""
    if (step := _step(view, node)) is None:
        return
    before = [step]
    while (writer := view.writers.get(before[0].tensor)) and view.only_reader(before[0].tensor) is not None:
        if (step := _step(view, writer)) is None:
            break
        before.insert(0, step)
    yield from before
    reader = view.only_reader(node.output[0])
    while reader is not None and (step := _step(view, reader)) is not None:
        yield step
        reader = view.only_reader(reader.output[0])


def _step(view: View, node: onnx.NodeProto) -> ChainStep | None:
    if not is_standard(node, *OPERATORS):
        return None
    held = [view.constant(name) for name in node.input]
    if sum(one is None for one in held) != 1:
        return None
    place = 0 if held[0] is None else 1
    constant = held[1 - place]
    if constant is None or (node.op_type == "Div" and (place or not constant.all())):
        return None
    return ChainStep(node, node.input[place], constant.astype(np.float64), is_first=not place)


def _keeps_shape(constant: Array, shape: tuple[int | None, ...]) -> bool:
    axes = shape[len(shape) - constant.ndim :] if constant.ndim else ()
    return constant.ndim <= len(shape) and all(
        size in (1, axis) for size, axis in zip(constant.shape, axes, strict=True)
    )


def _scale_and_shift(chain: Sequence[ChainStep]) -> tuple[Array, Array]:
    scale, shift = np.ones(()), np.zeros(())
    for step in chain:
        match step.node.op_type:
            case "Mul":
                scale, shift = scale * step.constant, shift * step.constant
            case "Div":
                scale, shift = scale / step.constant, shift / step.constant
            case "Add":
                shift = shift + step.constant
            case _ if step.is_first:
                shift = shift - step.constant
            case _:
                scale, shift = -scale, step.constant - shift
    return scale, shift


def _nodes(
    view: View, chain: Sequence[ChainStep], scale: Array, shift: Array
) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """Return a product and a sum, or that of them which changes something, and their constants."""
    last = chain[-1].node
    parts = [("Mul", scale)] * bool((scale != 1).any()) + [("Add", shift)] * bool((shift != 0).any())
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, Array] = {}
    tensor = chain[0].tensor
    for place, (kind, array) in enumerate(parts or [("Identity", np.zeros(()))]):
        is_last = place >= len(parts) - 1
        result = last.output[0] if is_last else fresh(view, f"{last.name}/scaled")
        operands = [tensor]
        if kind != "Identity":
            operands.append(fresh(view, f"{last.name}/{kind}"))
            weights[operands[1]] = array
        nodes.append(helper.make_node(kind, operands, [result], last.name if is_last else f"{last.name}/{kind}"))
        tensor = result
    return nodes, weights
