"""From a scanned ONNX model to the shared graph: dimensions bound, shapes inferred, every node with its own name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import onnx
import onnx.inliner
from onnx import TensorProto, helper

from common.errors import CommandLineError, PipelineError
from common.graph import Dim, Graph, Node, Shape, Tensor, TensorKind
from common.onnx_graph.dtypes import dtype_name, element_bits
from common.onnx_graph.scan import scan


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model's graph, its identity, and the dimensions that were bound."""

    graph: Graph
    model_id: str
    dimensions: Mapping[str, int]


def load_model(path: Path, given: Mapping[str, int], configured: Mapping[str, int] | None = None) -> LoadedModel:
    """Load the graph at ``path`` with its dynamic dimensions bound.

    Args:
        path: the ONNX file.
        given: bindings by flag: each must name a dynamic dimension of this model.
        configured: bindings that count where no flag binds the dimension; others than this model's are ignored.

    Raises:
        PipelineError: the file is not a usable ONNX model.
        CommandLineError: a binding names no dimension, or an input's dimension is left unbound.
    """
    scanned = scan(path)
    model = scanned.model
    dimensions = bind_dimensions(path, model, given, configured or {})
    if not model.graph.node:
        raise PipelineError(path, "has no nodes", "there is nothing to count or to run")
    try:
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise PipelineError(path, f"its graph is not valid ONNX ({str(error).splitlines()[0]})") from error
    return LoadedModel(to_graph(inferred.graph), scanned.model_id, dimensions)


# --- dynamic dimensions ---------------------------------------------------------------------------------------------


def graph_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a caller must feed: old models list their initializers among the inputs."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def dynamic_dimensions(model: onnx.ModelProto) -> dict[str, list[str]]:
    """Each unbound dimension of an input, and where it stands; one without a name is called ``INPUT.AXIS``."""
    places: dict[str, list[str]] = {}
    for value in graph_inputs(model):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not _is_fixed(dim):
                places.setdefault(dim.dim_param or f"{value.name}.{axis}", []).append(f"{value.name}[{axis}]")
    return places


def bind_dimensions(
    path: Path, model: onnx.ModelProto, given: Mapping[str, int], configured: Mapping[str, int]
) -> dict[str, int]:
    """Replace symbols by numbers wherever the model declares a shape, and return the bindings that were used.

    Raises:
        CommandLineError: a given name is no dynamic dimension of this model, or one is left unbound.
    """
    dynamic = dynamic_dimensions(model)
    for name, size in given.items():
        if name not in dynamic:
            choice = f"it has {', '.join(sorted(dynamic))}" if dynamic else "all its dimensions are fixed"
            raise CommandLineError(f"--dim {name}={size}", f"{path} has no dynamic dimension {name!r}", choice)
    used = {name: size for name, size in {**configured, **given}.items() if name in dynamic}
    _require_bound(path, {name: places for name, places in dynamic.items() if name not in used})
    bind_all(model, used)
    return used


def bind_all(model: onnx.ModelProto, dimensions: Mapping[str, int]) -> None:
    """Replace the named symbols by numbers wherever the model declares a shape."""
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            _bind(dim, dimensions, f"{value.name}.{axis}")


def _bind(dim: onnx.TensorShapeProto.Dimension, dimensions: Mapping[str, int], anonymous: str) -> None:
    if _is_fixed(dim):
        return
    bound = dimensions.get(dim.dim_param or anonymous)
    if bound is not None:
        dim.dim_value = bound
    elif dim.HasField("dim_value"):
        dim.Clear()


def _is_fixed(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Some exporters write -1 for a dimension that is free; ONNX Runtime reads it so."""
    return dim.HasField("dim_value") and dim.dim_value >= 0


def _require_bound(path: Path, unbound: Mapping[str, list[str]]) -> None:
    if unbound:
        names = ", ".join(f"{name!r} ({', '.join(places)})" for name, places in unbound.items())
        plural = "dimensions" if len(unbound) > 1 else "dimension"
        flags = " ".join(f"--dim {shlex.quote(f'{name}=1')}" for name in unbound)
        raise CommandLineError(path, f"{plural} {names} not bound", f"add for example {flags}")


# --- the graph ------------------------------------------------------------------------------------------------------


def to_graph(proto: onnx.GraphProto) -> Graph:
    """The shared graph of a model whose shapes have been inferred."""
    names = _unique_names(proto)
    nodes = tuple(
        Node(name, node.op_type, _domain(node.domain), tuple(node.input), tuple(node.output), _attributes(node))
        for name, node in zip(names, proto.node, strict=True)
    )
    return Graph(nodes, _tensors(proto), tuple(value.name for value in proto.output))


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _unique_names(proto: onnx.GraphProto) -> list[str]:
    """The nodes' names; one that is empty or taken becomes ``OpType_position``, as ONNX Runtime calls it."""
    taken: set[str] = set()
    names = []
    for position, node in enumerate(proto.node):
        name = node.name if node.name and node.name not in taken else f"{node.op_type}_{position}"
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return names


def _attributes(node: onnx.NodeProto) -> dict[str, object]:
    """Numbers, strings and lists; tensors and subgraphs stay out (their owner formulas need neither)."""
    plain = (onnx.AttributeProto.TENSOR, onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    return {
        attribute.name: helper.get_attribute_value(attribute)
        for attribute in node.attribute
        if attribute.type not in plain and not attribute.ref_attr_name
    }


def _tensors(proto: onnx.GraphProto) -> dict[str, Tensor]:
    """Every tensor that a node touches or the graph declares, with what is known of its type and shape."""
    kinds: dict[str, TensorKind] = {value.name: "input" for value in proto.input}
    kinds |= {value.name: "output" for value in proto.output}
    kinds |= dict.fromkeys(_weights(proto), "weight")
    types = {value.name: (value.type.tensor_type.elem_type, _shape(value)) for value in _declared(proto)}
    types |= {tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in proto.initializer}
    types |= {sparse.values.name: (sparse.values.data_type, tuple(sparse.dims)) for sparse in proto.sparse_initializer}
    touched = (name for node in proto.node for name in (*node.input, *node.output) if name)
    tensors = {}
    for name in dict.fromkeys((*types, *touched)):
        element_type, shape = types.get(name, (TensorProto.UNDEFINED, None))
        dtype, bits = dtype_name(element_type), element_bits(element_type)
        tensors[name] = Tensor(name, dtype, bits, shape, kinds.get(name, "activation"))
    return tensors


def _weights(proto: onnx.GraphProto) -> Iterator[str]:
    """Initializers, and the constants that an exporter wrote as nodes."""
    yield from (tensor.name for tensor in proto.initializer)
    yield from (sparse.values.name for sparse in proto.sparse_initializer)
    yield from (name for node in proto.node if node.op_type == "Constant" for name in node.output)


def _declared(proto: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    return chain(proto.value_info, proto.output, proto.input)


def _shape(value: onnx.ValueInfoProto) -> Shape:
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        return None
    return tuple(_dim(dim) for dim in declared.shape.dim)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    return dim.dim_value if _is_fixed(dim) else dim.dim_param or None
