"""The frame of a mend: it tries one node after the other, and carries out the edits that are possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import wraps
from typing import TypeAlias

import onnx
from onnx import helper, numpy_helper

from common.mending.view import STANDARD, Array, View, read_by

CONTRIB = "com.microsoft"
MOST_REASONS = 2  # that a refusal states, the commonest first


@dataclass(frozen=True)
class Case:
    """What a mend is given."""

    model: onnx.ModelProto  # with a unique name for each node; no mend changes it
    nodes: frozenset[str]  # names of the nodes that a finding is about; a mend changes only what it finds around these
    sizes: Mapping[str, int] = field(default_factory=dict)  # of the dimensions that the model leaves unbound


@dataclass(frozen=True)
class Mended:
    """A mended model, and the names of the nodes of the given model, or of its dimensions, that were mended."""

    model: onnx.ModelProto
    changed: tuple[str, ...]


@dataclass(frozen=True)
class NoMend:
    """Why a mend does not apply, in a few words that follow a colon."""

    reason: str


@dataclass(frozen=True)
class Edit:
    """One change of a graph."""

    removed: Sequence[str]  # names of nodes that go
    added: Sequence[onnx.NodeProto]  # nodes that come; what they write replaces what the removed ones wrote
    # Constants that come, or replace constants of the same name
    weights: Mapping[str, Array] = field(default_factory=dict)
    resized: Sequence[str] = ()  # tensors whose declared type or shape no longer holds
    changed: Sequence[str] = ()  # names of the nodes of the model that this mends


Model: TypeAlias = onnx.ModelProto
Mend: TypeAlias = Callable[[Case], Mended | NoMend]
Attempt: TypeAlias = Callable[[View, onnx.NodeProto], Edit | NoMend]


def mend_of(*op_types: str) -> Callable[[Attempt], Mend]:
    """Make the mend of all nodes of some kinds from a function that returns the edit which mends one of them."""

    def made(attempt: Attempt) -> Mend:
        return wraps(attempt)(lambda case: rewritten(case, op_types, attempt))

    return made


def rewritten(case: Case, op_types: Sequence[str], attempt: Attempt) -> Mended | NoMend:
    """Try each node of some kinds that the case is about, and return the model with all edits that are possible."""
    draft = deepcopy(case.model)
    tried, changed, reasons = set[str](), list[str](), Counter[str]()
    view, waiting = View(draft), True
    while waiting:
        waiting = False
        for node in [*draft.graph.node]:
            if node.name in tried or node.name not in case.nodes or node.op_type not in op_types:
                continue
            tried.add(node.name)
            outcome = attempt(view, node)
            if isinstance(outcome, NoMend):
                reasons[outcome.reason] += 1
                continue
            _carry_out(draft, outcome)
            changed += outcome.changed or outcome.removed
            view, waiting = View(draft), True
            break
    if changed:
        return Mended(tidied(draft), tuple(dict.fromkeys(changed)))
    common = [reason for reason, _ in reasons.most_common(MOST_REASONS)]
    return NoMend("; ".join(common) or f"it is about no {' or '.join(op_types)}")


def _carry_out(model: onnx.ModelProto, edit: Edit) -> None:
    graph, removed = model.graph, {*edit.removed}
    nodes = [node for node in graph.node if node.name not in removed]
    _replace(graph.node, [*nodes, *edit.added])
    _replace(graph.initializer, [tensor for tensor in graph.initializer if tensor.name not in edit.weights])
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in edit.weights.items())
    _replace(graph.value_info, [value for value in graph.value_info if value.name not in edit.resized])


def _replace(held: object, kept: Iterable[object]) -> None:
    copies = [*kept]
    del held[:]  # type: ignore[attr-defined]
    held.extend(copies)  # type: ignore[attr-defined]


def tidied(model: onnx.ModelProto) -> onnx.ModelProto:
    """Sort the nodes so that each follows what it reads, and drop constants that nobody reads; return the model."""
    graph = model.graph
    _replace(graph.node, _sorted(graph.node))
    read = {name for node in graph.node for name in read_by(node)} | {output.name for output in graph.output}
    _replace(graph.node, [node for node in graph.node if node.op_type != "Constant" or read & {*node.output}])
    kept = read | {value.name for value in graph.input}
    _replace(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in kept])
    written = {name for node in graph.node for name in node.output} | {value.name for value in graph.input}
    _replace(graph.value_info, [value for value in graph.value_info if value.name in written])
    known = {opset.domain for opset in model.opset_import}
    for domain in sorted({node.domain for node in graph.node} - {*STANDARD} - known):
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


def _sorted(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return nodes in an order in which each follows its operands: otherwise as they were."""
    waiting, placed = [*nodes], list[onnx.NodeProto]()
    unwritten = Counter(name for node in waiting for name in node.output if name)
    while waiting:
        later: list[onnx.NodeProto] = []
        for node in waiting:
            if any(unwritten[name] for name in read_by(node)):
                later.append(node)
            else:
                placed.append(node)
                unwritten.subtract(name for name in node.output if name)
        if len(later) == len(waiting):
            raise ValueError("the nodes of a mended graph wait for each other")
        waiting = later
    return placed


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators that a model uses."""
    return next((opset.version for opset in model.opset_import if opset.domain in STANDARD), 1)


def fresh(view: View, name: str) -> str:
    taken = {*view.writers, *view.given, *view.constants, *(tensor.name for tensor in view.graph.initializer)}
    while name in taken:
        name += "_"
    return name
