"""Load an ONNX file as the shared graph: dimensions bound or symbolic, shapes inferred, bodies laid out flat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from common.errors import PipelineError
from common.graph import Graph
from common.onnx_graph.attributes import OperandValues, operand_values, whole_numbers
from common.onnx_graph.malformed import INVALID, names_model
from common.onnx_graph.reading.naming import expand
from common.onnx_graph.reading.scan import scan
from common.onnx_graph.reading.side_files import FileState
from common.onnx_graph.reading.validity import require_valid
from common.onnx_graph.shapes import evaluation
from common.onnx_graph.shapes.inference import Learned, imported_opsets, infer_bounds, infer_model, write_out_defaults
from common.onnx_graph.shapes.inference_state import InferenceState
from common.onnx_graph.shapes.regions import Region, read_region, to_graph
from common.onnx_graph.shapes.types import Array
from common.onnx_graph.symbols.dimensions import (
    bind_all,
    fitting_values,
    free_dimensions,
    give_shapes,
    require_bound,
    shape_bindings,
    used_bindings,
)
from common.onnx_graph.symbols.symbolic import Sample, sample_bindings, with_symbols


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model's graph, its identity and its dimensions.

    Attributes:
        graph: the graph; unbound dimensions are symbols.
        bounds: the graph with the upper bound of every shape that depends on data; None where no shape does.
    """

    graph: Graph
    bounds: Graph | None
    model_id: str
    files: Mapping[Path, FileState]
    dimensions: Mapping[str, int]
    opsets: Mapping[str, int]
    operand_values: OperandValues
    unbound: tuple[str, ...] = ()


def load_model(
    path: Path,
    given: Mapping[str, int],
    configured: Mapping[str, int] | None = None,
    *,
    values: Mapping[str, Array] | None = None,
    symbolic: bool = False,
) -> LoadedModel:
    """Load the graph at ``path``.

    Args:
        given: bindings, each of which must name a dynamic dimension of this model.
        configured: bindings of lower precedence; those of other models' dimensions are ignored.
        values: values of graph inputs; their shapes bind dimensions, and other shapes may depend on them.
        symbolic: whether dimensions may stay unbound; counts are then expressions over them.

    Raises:
        PipelineError: the file cannot be used as an ONNX model.
        UnusableValueError: a binding names no dimension, or a dimension is unbound although it must not be.
    """
    scanned = scan(path)
    model = scanned.model
    give_shapes(model, values or {})
    used = used_bindings(path, model, given, {**(configured or {}), **shape_bindings(model, values or {})})
    known = fitting_values(model, values or {})
    unbound = {name: places for name, places in free_dimensions(model).items() if name not in used}
    if not symbolic:
        require_bound(path, scanned.model, unbound)
    try:
        model, _ = expand(model)
    except INVALID as error:
        raise PipelineError(path, f"its local functions cannot be inlined ({str(error).splitlines()[0]})") from error
    if not model.graph.node:
        raise PipelineError(path, "has no nodes", "there is nothing to count or to run")
    if not model.opset_import:
        raise PipelineError(path, "its graph is not valid ONNX (it has no opset import)")
    opsets = imported_opsets(model)
    with names_model(path):
        require_valid(path, model)
        graph, bounds, operands = _graphs(model, used, tuple(unbound), known)
    return LoadedModel(graph, bounds, scanned.model_id, scanned.files, used, opsets, operands, tuple(unbound))


def _graphs(
    model: onnx.ModelProto, used: Mapping[str, int], unbound: tuple[str, ...], values: Mapping[str, Array]
) -> tuple[Graph, Graph | None, OperandValues]:
    write_out_defaults(model)
    if not unbound:
        region, exact, bounds = _infer(model, used, values, Learned())
        return _graph(region, exact), _graph(region, bounds) if bounds else None, _operand_values(region, exact)
    learned = Learned(read_region(model.graph))
    samples: list[Sample] = []
    bounded: list[Sample | None] = []
    operands: OperandValues = {}
    for sample in sample_bindings(unbound):
        region, exact, bounds = _infer(_copy(model), {**used, **sample}, values, learned)
        if not samples:
            learned.keep(exact, bounds)
            operands = _operand_values(region, exact)
        samples.append((exact.different(region), exact.bodies))
        bounded.append((bounds.different(region), bounds.bodies) if bounds and learned.has_bounds else None)
        operands = {name: value for name, value in operands.items() if whole_numbers(exact.values.find(name)) == value}
    del learned, exact, bounds  # free memory for the graphs
    evaluation.forget()
    exact_fit = with_symbols(samples, unbound)
    if not any(bounded):
        return to_graph(region, *exact_fit), None, operands
    bounds_fit = with_symbols([bound or exact for bound, exact in zip(bounded, samples, strict=True)], unbound)
    return to_graph(region, *exact_fit), to_graph(region, *bounds_fit), operands


def _operand_values(region: Region, inference: InferenceState) -> OperandValues:
    nodes = (node for part in region.walk() for node in part.nodes)
    return operand_values(nodes, inference.values.find)


def _graph(region: Region, inference: InferenceState) -> Graph:
    return to_graph(region, inference.types, inference.bodies)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _infer(
    model: onnx.ModelProto,
    dimensions: Mapping[str, int],
    values: Mapping[str, Array],
    learned: Learned,
) -> tuple[Region, InferenceState, InferenceState | None]:
    bind_all(model, dimensions)
    region, exact = infer_model(model, values, learned)
    has_unknowns = learned.has_bounds and (learned.bounds is not None or exact.has_unknowns(region))
    return region, exact, infer_bounds(region, exact, learned) if has_unknowns else None
