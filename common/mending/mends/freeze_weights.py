"""Weights that are inputs of the graph become constants, so that the runtime may fold them and fuse around them.

An initializer that is also an input is a default that a caller may replace (ONNX, docs/IR.md). Old exporters list all
of them. Of a model before IR 4 the runtime takes them for constants anyway.
"""

from __future__ import annotations

from copy import deepcopy

from common.mending.rewrite import Case, Mended, NoMend
from common.mending.view import View

LEAST_IR = 4


def freeze_weights(case: Case) -> Mended | NoMend:
    """Drop the inputs that have a default and are read by the nodes of the case, or by nodes beside these."""
    view = View(case.model)
    near = {name for node in case.model.graph.node if node.name in case.nodes for name in node.input}
    beside = {name for tensor in near if tensor in view.writers for name in view.writers[tensor].input}
    defaults = {one.name for one in case.model.graph.initializer} & view.given & (near | beside)
    if case.model.ir_version < LEAST_IR or not defaults:
        return NoMend("no weight that it reads is an input")
    model = deepcopy(case.model)
    kept = [value for value in case.model.graph.input if value.name not in defaults]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return Mended(model, tuple(sorted(defaults)))
