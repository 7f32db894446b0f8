"""The sizes of a measurement are written into the model, so that the runtime fuses and folds what depends on shapes."""

from __future__ import annotations

from copy import deepcopy

from common.mending.rewrite import Case, Mended, NoMend


def bind_dimensions(case: Case) -> Mended | NoMend:
    """Give each unbound dimension of the inputs its size; declared shapes elsewhere lose their names."""
    model = deepcopy(case.model)
    bound = set[str]()
    for value in model.graph.input:
        for axis in value.type.tensor_type.shape.dim:
            if axis.HasField("dim_param") and axis.dim_param in case.sizes:
                bound.add(axis.dim_param)
                axis.dim_value = case.sizes[axis.dim_param]
    if not bound:
        return NoMend("no dimension of its inputs is unbound")
    for value in (*model.graph.value_info, *model.graph.output):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param in bound:
                axis.dim_value = case.sizes[axis.dim_param]
    return Mended(model, tuple(sorted(bound)))
