"""Load an ONNX file as the shared graph: dimensions bound or symbolic, shapes inferred, bodies laid out flat."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx

from common.graphs.graph import Count, Graph
from common.messages.errors import PipelineError
from common.onnx_graph.attributes import OperandValues, operand_values, whole_numbers
from common.onnx_graph.caches import name_total_lengths
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
    size_of,
    used_bindings,
)
from common.onnx_graph.symbols.lengths import (
    LengthInput,
    length_inputs,
    length_operands,
    length_values,
    longest,
    with_values,
)
from common.onnx_graph.symbols.symbolic import Sample, numbers_with_symbols, sample_bindings, with_symbols


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model's graph, in which unbound dimensions are symbols, its identity and its dimensions.

    ``bounds`` is the graph with the upper bound of every shape that depends on data; None where no shape does.
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
    expressions = name_total_lengths(model)
    given = {expressions.get(name, name): size for name, size in given.items()}
    give_shapes(model, values or {})
    used = used_bindings(path, model, given, {**(configured or {}), **shape_bindings(model, values or {})})
    known, lengths = fitting_values(model, values or {}), length_inputs(model)
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
        graph, bounds, operands = _graphs(model, used, tuple(unbound), _Given(known, lengths))
    return LoadedModel(graph, bounds, scanned.model_id, scanned.files, used, opsets, operands, tuple(unbound))


@dataclass(frozen=True, slots=True)
class _Given:
    """Values of graph inputs: those that the user gives, and lengths that follow from the dimensions."""

    values: Mapping[str, Array]
    lengths: Mapping[str, LengthInput]

    def at(self, model: onnx.ModelProto, dimensions: Mapping[str, int]) -> Mapping[str, Array]:
        """Return the values at a binding of the dimensions, by which the model's shapes are numbers."""
        return {**length_values(model, self.lengths, partial(size_of, dimensions=dimensions)), **self.values}

    def numbers(self, dimensions: Mapping[str, int]) -> dict[str, int | None]:
        """Return the length that an input holds, the largest of several."""
        size = partial(size_of, dimensions=dimensions)
        return {
            name: longest(self.values[name]) if name in self.values else length.value(size)
            for name, length in self.lengths.items()
        }


def _graphs(
    model: onnx.ModelProto, used: Mapping[str, int], unbound: tuple[str, ...], given: _Given
) -> tuple[Graph, Graph | None, OperandValues]:
    write_out_defaults(model)
    if not unbound:
        region, exact, bounds = _infer(model, used, given, Learned())
        numbers = _lengths(region, exact, given, used)
        largest = _graph(region, bounds, numbers) if bounds else None
        return _graph(region, exact, numbers), largest, operand_values(region.every_node(), exact.values.find)
    learned = Learned(read_region(model.graph))
    samples: list[Sample] = []
    bounded: list[Sample | None] = []
    lengths: list[Mapping[str, int | None]] = []
    operands: OperandValues = {}
    for sample in sample_bindings(unbound):
        region, exact, bounds = _infer(copy.deepcopy(model), {**used, **sample}, given, learned)
        if not samples:
            learned.keep(exact, bounds)
            operands = operand_values(region.every_node(), exact.values.find)
        lengths.append(_lengths(region, exact, given, {**used, **sample}))
        samples.append((exact.different(region), exact.bodies))
        bounded.append((bounds.different(region), bounds.bodies) if bounds and learned.has_bounds else None)
        operands = {name: value for name, value in operands.items() if whole_numbers(exact.values.find(name)) == value}
    del learned, exact, bounds  # free memory for the graphs
    evaluation.forget()
    exact_fit, numbers = with_symbols(samples, unbound), numbers_with_symbols(lengths, unbound)
    graph = with_values(to_graph(region, *exact_fit), numbers)
    if not any(bounded):
        return graph, None, operands
    bounds_fit = with_symbols([bound or exact for bound, exact in zip(bounded, samples, strict=True)], unbound)
    return graph, with_values(to_graph(region, *bounds_fit), numbers), operands


def _lengths(
    region: Region, inference: InferenceState, given: _Given, dimensions: Mapping[str, int]
) -> dict[str, int | None]:
    operands = {name: longest(inference.values.find(name)) for name in length_operands(region.every_node())}
    return {**operands, **given.numbers(dimensions)}


def _graph(region: Region, inference: InferenceState, numbers: Mapping[str, Count | None]) -> Graph:
    return with_values(to_graph(region, inference.types, inference.bodies), numbers)


def _infer(
    model: onnx.ModelProto, dimensions: Mapping[str, int], given: _Given, learned: Learned
) -> tuple[Region, InferenceState, InferenceState | None]:
    bind_all(model, dimensions)
    region, exact = infer_model(model, given.at(model, dimensions), learned)
    has_unknowns = learned.has_bounds and (learned.bounds is not None or exact.has_unknowns(region))
    return region, exact, infer_bounds(region, exact, learned) if has_unknowns else None
