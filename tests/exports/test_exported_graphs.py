"""Exports of torch.onnx at full size: MACs against closed forms, every shape against ONNX Runtime's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

pytest.importorskip("torch", reason="comes with requirements-torch.txt")
pytest.importorskip("transformers", reason="comes with requirements-torch.txt")

import sympy

from common.graphs.graph import Count, Graph
from common.onnx_graph.load import load_model
from common.onnx_graph.work import measure
from tests.exports.architectures import ARCHITECTURES
from tests.exports.exporters import EXPORTERS, real_shapes

# At opset 23 the exporter hands RotaryEmbedding a table of batch 1 whatever the batch; the runtime then refuses others.
BATCH_OF_ONE = {("llama", "dynamo-23"), ("llama-cache", "dynamo-23")}

pytestmark = pytest.mark.parametrize("architecture", ARCHITECTURES)
by_exporter = pytest.mark.parametrize("exporter", EXPORTERS)
by_binding = pytest.mark.parametrize("index", [0, 1], ids=["binding0", "binding1"])


@by_exporter
@by_binding
def test_macs_are_those_of_the_closed_form(exported, architecture, exporter, index):
    binding = ARCHITECTURES[architecture].bindings[index]
    graph = load_model(exported(architecture, "full", exporter), binding).graph
    assert total_macs(graph) == ARCHITECTURES[architecture].macs("full", binding)


@by_exporter
@by_binding
def test_every_operator_is_counted(exported, architecture, exporter, index):
    binding = ARCHITECTURES[architecture].bindings[index]
    graph = load_model(exported(architecture, "full", exporter), binding).graph
    works = {node.name: measure(graph, node) for node in graph.nodes}
    assert Counter(graph.by_name[name].op_type for name, work in works.items() if not work.is_counted) == {}
    assert [name for name, work in works.items() if work.flops is None or work.bytes is None] == []


@by_exporter
@by_binding
def test_every_shape_is_that_of_the_runtime(exported, architecture, exporter, index):
    """None may be unknown: every size in these graphs follows from the sizes of the inputs."""
    binding = dict(ARCHITECTURES[architecture].bindings[index])
    if (architecture, exporter) in BATCH_OF_ONE:
        binding["batch"] = 1
    path = exported(architecture, "full", exporter)
    graph, real = load_model(path, binding).graph, real_shapes(path, binding)
    assert len(real) >= len(graph.nodes)
    ours = {name: graph.tensors[name].shape for name in real}
    assert {name: (ours[name], shape) for name, shape in real.items() if ours[name] != shape} == {}


@by_exporter
def test_unbound_dimensions_leave_a_polynomial(exported, architecture, exporter):
    path = exported(architecture, "full", exporter)
    total = sympy.sympify(str(total_macs(load_model(path, {}, symbolic=True).graph)))
    symbols = {symbol.name: symbol for symbol in total.free_symbols}
    assert set(symbols) <= set(ARCHITECTURES[architecture].bindings[0])
    if "total" in symbols:  # the mask covers the past and the new tokens; a runtime refuses any other size
        total = total.subs(symbols["total"], symbols["past"] + symbols["seq"])
    assert sympy.expand(total - ARCHITECTURES[architecture].macs("full", symbols)) == 0


@by_exporter
@by_binding
def test_shapes_of_unbound_dimensions_give_those_of_a_binding(exported, architecture, exporter, index):
    binding = ARCHITECTURES[architecture].bindings[index]
    path = exported(architecture, "full", exporter)
    symbolic, bound = load_model(path, {}, symbolic=True).graph, load_model(path, binding).graph
    values = {name: tuple(at(dim, binding) for dim in tensor.shape) for name, tensor in symbolic.tensors.items()}
    assert values == {name: tensor.shape for name, tensor in bound.tensors.items()}


@pytest.mark.parametrize("exporter", ["dynamo-20", "dynamo-23"])
def test_weights_stand_in_a_side_file(exported, architecture, exporter):
    """What the tests above say then holds for external weights as well."""
    path = exported(architecture, "full", exporter)
    assert path.with_name("model.onnx.data").stat().st_size > 10 * path.stat().st_size


def at(dim: Count, binding: Mapping[str, int]) -> int:
    """An extent, its symbols replaced by numbers."""
    return int(sympy.sympify(str(dim)).subs(binding))


def total_macs(graph: Graph) -> Count:
    return sum(measure(graph, node).macs for node in graph.nodes)
